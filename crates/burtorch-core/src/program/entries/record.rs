//! A record of the reverse pass on dual numbers.
//!
//! Promises: values, adjoints and their tangents in the order and the association of a replay on dual numbers. A number that
//! no direction changes has no tangent. Reductions without a formula are unknown, as are all numbers that depend on
//! them. Does not know how operations run.

use std::collections::HashMap;

use super::formulas::{Formulas, Number, UNKNOWN};
use crate::array::{Expansion, MathOp, Row, partial_of, rate_of, value_of};
use crate::error::Result;
use crate::interrupt::Work;
use crate::ops::{Arity, Op};
use crate::program::node::{Node, Program};

/// The contribution of a node to one operand: the row, the index of the operand, and both operands.
struct Share {
    op: Op,
    k: usize,
    to: u32,
    of: [Operand; 2],
}

#[derive(Clone, Copy)]
enum Operand {
    Slot(u32),
    Literal(f64),
}

/// See the module header.
pub(super) struct Recorder<'p> {
    program: &'p Program,
    moves: Vec<bool>,
    numbers: Formulas,
    values: Vec<Number>,
    expansions: Expansions,
    work: Work,
}

/// The formulas of a row: value, contribution, and tangent of the contribution.
#[derive(Default)]
struct Expansions {
    values: HashMap<Op, Option<Expansion>>,
    partials: HashMap<(Op, usize), Option<Expansion>>,
    rates: HashMap<(Op, usize, [bool; 4]), Option<Expansion>>,
}

impl<'p> Recorder<'p> {
    /// Starts with the values of all slots.
    pub(super) fn new(program: &'p Program) -> Result<Self> {
        let mut recorder = Recorder {
            program,
            moves: program.moves(),
            numbers: Formulas::default(),
            values: Vec::with_capacity(program.n_slots()),
            expansions: Expansions::default(),
            work: Work::default(),
        };
        for k in 0..program.n_inputs() {
            let input = recorder.numbers.input(k);
            recorder.values.push(input);
        }
        for &x in &program.constants {
            let literal = recorder.numbers.literal(x);
            recorder.values.push(literal);
        }
        for &node in program.nodes() {
            recorder.work.add(16)?;
            let value = recorder.value(node);
            recorder.values.push(value);
        }
        Ok(recorder)
    }

    /// Returns all operations.
    pub(super) fn finish(self) -> Formulas {
        self.numbers
    }

    fn value(&mut self, node: Node) -> Number {
        let [x, y] = [node.a, node.b].map(|x| self.values.get(x as usize).copied());
        match node.op.info().arity {
            Arity::Nullary => x.unwrap_or(UNKNOWN),
            Arity::Unary | Arity::Binary | Arity::WithConstant => {
                let formula = self.expansions.values.entry(node.op).or_insert_with(|| value_of(Row::Op(node.op)));
                let y = y.filter(|_| node.op.info().arity != Arity::Unary);
                formula.as_ref().map_or(UNKNOWN, |formula| self.numbers.write_out(formula, &[None, x, y]))
            }
            _ => self.value_of_many(node),
        }
    }

    fn value_of_many(&mut self, node: Node) -> Number {
        let xs: Vec<Number> = self.program.list(node).iter().map(|&x| self.values[x as usize]).collect();
        let n = self.numbers.literal(xs.len() as f64);
        let total = |numbers: &mut Formulas, xs: &[Number]| sum(numbers, xs);
        match node.op {
            Op::ReduceSum => total(&mut self.numbers, &xs),
            Op::ReduceMean | Op::ReduceNegativeMean => {
                let total = total(&mut self.numbers, &xs);
                let mean = self.numbers.push(MathOp::Div, [total, n, 0]);
                if node.op == Op::ReduceMean { mean } else { self.numbers.push(MathOp::Neg, [mean, 0, 0]) }
            }
            Op::ReduceSub => {
                let rest = match &xs[1..] {
                    [] => self.numbers.literal(0.0),
                    rest => total(&mut self.numbers, rest),
                };
                self.numbers.push(MathOp::Sub, [xs[0], rest, 0])
            }
            Op::ReduceSumOfSquares => {
                let squares: Vec<_> = xs.iter().map(|&x| self.numbers.push(MathOp::Mul, [x, x, 0])).collect();
                total(&mut self.numbers, &squares)
            }
            _ => UNKNOWN,
        }
    }

    fn operand(&mut self, operand: Operand) -> Number {
        match operand {
            Operand::Slot(x) => self.values[x as usize],
            Operand::Literal(x) => self.numbers.literal(x),
        }
    }

    /// Lists a node's contributions to operands with tangents, in order; `false` for an op without a formula here.
    fn list_shares(&self, node: Node, shares: &mut Vec<Share>) -> bool {
        shares.clear();
        let none = Operand::Literal(0.0);
        let mut add = |op, k, to: u32, of| {
            if self.moves[to as usize] {
                shares.push(Share { op, k, to, of });
            }
        };
        let [x, y] = [node.a, node.b].map(Operand::Slot);
        match node.op.info().arity {
            Arity::Nullary => return true,
            Arity::Unary => add(node.op, 0, node.a, [x, none]),
            Arity::WithConstant => add(node.op, 0, node.a, [x, y]),
            Arity::Binary => {
                add(node.op, 0, node.a, [x, y]);
                add(node.op, 1, node.b, [x, y]);
            }
            _ => {
                let list = self.program.list(node);
                let mut each = |op, y| list.iter().for_each(|&x| add(op, 0, x, [Operand::Slot(x), y]));
                match node.op {
                    Op::ReduceSum => each(Op::AddConstant, none),
                    Op::ReduceMean => each(Op::DivByConstant, Operand::Literal(list.len() as f64)),
                    Op::ReduceSumOfSquares => each(Op::Sqr, none),
                    Op::ReduceSub => {
                        let op = |k: usize| if k == 0 { Op::AddConstant } else { Op::Neg };
                        list.iter().enumerate().for_each(|(k, &x)| add(op(k), 0, x, [Operand::Slot(x), none]));
                    }
                    Op::InnerProduct | Op::InnerProductWithBias => {
                        let (xs, rest) = list.split_at(node.b as usize);
                        let (ws, bias) = rest.split_at(node.b as usize);
                        let of = |k: usize| [Operand::Slot(xs[k]), Operand::Slot(ws[k])];
                        xs.iter().enumerate().for_each(|(k, &x)| add(Op::Mul, 0, x, of(k)));
                        ws.iter().enumerate().for_each(|(k, &w)| add(Op::Mul, 1, w, of(k)));
                        bias.iter().for_each(|&x| add(Op::AddConstant, 0, x, [Operand::Slot(x), none]));
                    }
                    _ => return false,
                }
            }
        }
        true
    }

    /// The contribution of a share, for the adjoint `g` and the value `z` of the node.
    fn contribution(&mut self, share: &Share, g: Number, z: Number) -> Number {
        let [x, y] = share.of.map(|operand| self.operand(operand));
        let key = (share.op, share.k);
        let formula = self.expansions.partials.entry(key).or_insert_with(|| partial_of(Row::Op(key.0), key.1));
        let Some(formula) = formula else { return UNKNOWN };
        self.numbers.write_out(formula, &[Some(g), Some(x), Some(y), Some(z)])
    }

    /// The adjoints of the first output; `None` for an unreached one.
    pub(super) fn adjoints(&mut self) -> Result<Vec<Option<Number>>> {
        let program = self.program;
        let mut adjoints = vec![None; program.n_slots()];
        let output = program.outputs()[0] as usize;
        adjoints[output] = self.moves[output].then(|| self.numbers.literal(1.0));
        let mut shares = Vec::new();
        self.backwards(|recorder, k, node| {
            let (Some(g), z) = (adjoints[k], recorder.values[k]) else { return Ok(()) };
            if !recorder.list_shares(node, &mut shares) {
                program.for_each_operand(node, |x| adjoints[x as usize] = Some(UNKNOWN));
                return Ok(());
            }
            for share in &shares {
                recorder.work.add(16)?;
                let c = recorder.contribution(share, g, z);
                let adjoint = &mut adjoints[share.to as usize];
                *adjoint = Some(adjoint.map_or(c, |sum| recorder.numbers.push(MathOp::Add, [sum, c, 0])));
            }
            Ok(())
        })?;
        Ok(adjoints)
    }

    fn backwards(&mut self, mut f: impl FnMut(&mut Self, usize, Node) -> Result<()>) -> Result<()> {
        let program = self.program;
        for (k, &node) in program.nodes().iter().enumerate().rev() {
            self.work.add(4)?;
            let slot = program.first_node() as usize + k;
            if self.moves[slot] && node.op != Op::Constant {
                f(self, slot, node)?;
            }
        }
        Ok(())
    }

    /// The tangent of each slot in the direction of the inputs for which `moves` is true.
    pub(super) fn tangents(&mut self, moves: impl Fn(usize) -> bool) -> Result<Vec<Option<Number>>> {
        let program = self.program;
        let one = self.numbers.literal(1.0);
        let mut tangents = vec![None; program.n_slots()];
        let mut shares = Vec::new();
        for (k, tangent) in tangents.iter_mut().take(program.n_differentiated()).enumerate() {
            *tangent = moves(k).then_some(one);
        }
        for (k, &node) in program.nodes().iter().enumerate() {
            self.work.add(8)?;
            let slot = program.first_node() as usize + k;
            if node.op == Op::Constant || !self.moves[slot] {
                continue;
            }
            let mut moving = false;
            program.for_each_operand(node, |x| moving |= tangents[x as usize].is_some());
            if !moving {
                continue;
            }
            if !self.list_shares(node, &mut shares) {
                tangents[slot] = Some(UNKNOWN);
                continue;
            }
            let is_many = !program.list(node).is_empty();
            let mut total = None;
            for share in &shares {
                let Some(rate) = tangents[share.to as usize] else { continue };
                self.work.add(16)?;
                let c = if is_many {
                    let partial = self.contribution(share, one, self.values[slot]);
                    self.numbers.push(MathOp::Mul, [rate, partial, 0])
                } else {
                    self.contribution(share, rate, self.values[slot])
                };
                total = Some(total.map_or(c, |sum| self.numbers.push(MathOp::Add, [sum, c, 0])));
            }
            tangents[slot] = total;
        }
        Ok(tangents)
    }

    /// The tangents of adjoints, given the slots' tangents `tangents`.
    pub(super) fn adjoint_rates(
        &mut self,
        adjoints: &[Option<Number>],
        tangents: &[Option<Number>],
    ) -> Result<Vec<Option<Number>>> {
        let program = self.program;
        let mut rates: Vec<Option<Number>> = vec![None; program.n_slots()];
        let mut shares = Vec::new();
        self.backwards(|recorder, k, node| {
            let (Some(g), z) = (adjoints[k], recorder.values[k]) else { return Ok(()) };
            if !recorder.list_shares(node, &mut shares) {
                program.for_each_operand(node, |x| rates[x as usize] = Some(UNKNOWN));
                return Ok(());
            }
            for share in &shares {
                let rate = |operand| if let Operand::Slot(x) = operand { tangents[x as usize] } else { None };
                let all = [rates[k], rate(share.of[0]), rate(share.of[1]), tangents[k]];
                if all.iter().all(Option::is_none) {
                    continue;
                }
                recorder.work.add(16)?;
                let Some(c) = recorder.rate(share, g, z, all) else { continue };
                let sum = &mut rates[share.to as usize];
                *sum = Some(sum.map_or(c, |sum| recorder.numbers.push(MathOp::Add, [sum, c, 0])));
            }
            Ok(())
        })?;
        Ok(rates)
    }

    fn rate(&mut self, share: &Share, g: Number, z: Number, rates: [Option<Number>; 4]) -> Option<Number> {
        let [x, y] = share.of.map(|operand| self.operand(operand));
        let key = (share.op, share.k, rates.map(|rate| rate.is_some()));
        let formula = self.expansions.rates.entry(key).or_insert_with(|| rate_of(key.0, key.1, key.2));
        let [g_rate, x_rate, y_rate, z_rate] = rates;
        let operands = [Some(g), Some(x), Some(y), Some(z), g_rate, x_rate, y_rate, z_rate];
        Some(self.numbers.write_out(formula.as_ref()?, &operands))
    }
}

/// The sum in the same order as `reduce_sum`.
fn sum(numbers: &mut Formulas, xs: &[Number]) -> Number {
    let mut add = |x: Number, y: Number| numbers.push(MathOp::Add, [x, y, 0]);
    if xs.len() < 16 {
        return xs[1..].iter().fold(xs[0], |total, &x| add(total, x));
    }
    let mut sums: [Option<Number>; 8] = [None; 8];
    for (k, &x) in xs.iter().enumerate() {
        sums[k % 8] = Some(sums[k % 8].map_or(x, |sum| add(sum, x)));
    }
    let [a, b, c, d, e, f, g, h] = sums.map(|sum| sum.unwrap_or(UNKNOWN));
    let (first, second) = (add(a, e), add(c, g));
    let even = add(first, second);
    let (first, second) = (add(b, f), add(d, h));
    let odd = add(first, second);
    add(even, odd)
}
