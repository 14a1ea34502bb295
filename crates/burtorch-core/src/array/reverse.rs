//! Reverse mode: the program that computes adjoints of inputs from adjoints of outputs.
//!
//! Takes the instructions backwards and emits the contributions of each to its operands. Promises: contributions are added in the
//! order of the eager sweep, each as `adjoint + (contribution + 0.0)`; an adjoint without a path is unreached, and becomes 0 only
//! in the returned gradient. Does not know forward mode.

use super::activity::{active_operands, active_values};
use super::build::ArrayBuilder;
use super::control::with_history;
use super::dims::bad;
use super::expand::inlined;
use super::instr::{ArrayInstr, ArrayOp, ArrayProgram, Cumulate, Dot, Element, Reduce, Slice, ValueId, View};
use super::zero_tangents::without_rest;
use crate::error::Result;

/// What to differentiate by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Variable {
    /// The argument with this number.
    Input(usize),
    /// The value with this number among those read from parameters.
    Param(usize),
}

/// The values of a program that variables name.
pub(super) fn values_of(program: &ArrayProgram, by: &[Variable]) -> Result<Vec<ValueId>> {
    by.iter()
        .map(|variable| {
            let (values, k) = match variable {
                Variable::Input(k) => (program.inputs(), *k),
                Variable::Param(k) => (program.params(), *k),
            };
            let Some(&v) = values.get(k) else {
                return Err(bad("variable", format!("one of {}", values.len()), format!("{variable:?}")));
            };
            match program.type_of(v).element {
                Element::Float => Ok(v),
                other => Err(bad("variable", "an array of floats".into(), format!("one of {other:?}"))),
            }
        })
        .collect()
}

/// The program ready to be differentiated.
pub(super) fn prepared(program: &ArrayProgram, by: &[Variable]) -> Result<ArrayProgram> {
    values_of(program, by)?;
    let program = inlined(program)?.pruned()?;
    let variables = values_of(&program, by)?;
    without_rest(program, &variables)
}

/// The program with the carries kept of those loops whose results move with variables.
pub(super) fn with_carries_kept(program: &ArrayProgram, by: &[Variable]) -> Result<ArrayProgram> {
    let active = active_values(program, &values_of(program, by)?);
    let moves = (0..program.instrs().len()).map(|at| program.results(at).any(|v| active[v.at()]));
    with_history(program, &moves.collect::<Vec<_>>())
}

impl ArrayProgram {
    /// The program that multiplies adjoints by the Jacobian: after the arguments it takes one adjoint for each float output,
    /// and gives the outputs, then one gradient for each variable.
    pub fn vjp(&self, by: &[Variable]) -> Result<ArrayProgram> {
        self.vjp_of(by, ArrayBuilder::reached)
    }

    /// The same where an output whose adjoint is 0 reaches nothing, so that the adjoints of one output alone give its gradient.
    pub fn vjp_of_some(&self, by: &[Variable]) -> Result<ArrayProgram> {
        self.vjp_of(by, ArrayBuilder::at_rest_unreached)
    }

    fn vjp_of(
        &self,
        by: &[Variable],
        seed_of: impl Fn(&mut ArrayBuilder, ValueId) -> Result<ValueId>,
    ) -> Result<ArrayProgram> {
        let program = with_carries_kept(&prepared(self, by)?, by)?;
        let outputs = program.outputs().to_vec();
        let mut b = ArrayBuilder::from(program.clone());
        let mut seeds = Vec::new();
        for &output in &outputs {
            if program.type_of(output).element == Element::Float {
                let seed = b.push(ArrayOp::Input(program.type_of(output)), &[])?;
                seeds.push((output, seed_of(&mut b, seed)?));
            }
        }
        let gradients = gradients(&program, &mut b, &seeds, by)?;
        b.finish(&[outputs, gradients].concat())?.cleaned()
    }

    /// The program that takes adjoints of those outputs that have one, after the arguments, and gives those of the variables;
    /// `seeded` says whether an adjoint may be unreached. Adjoints stay unreached where they are.
    pub(super) fn pulled_back(&self, by: &[Variable], seeded: &[Option<bool>]) -> Result<ArrayProgram> {
        let program = with_carries_kept(&prepared(self, by)?, by)?;
        let variables = values_of(&program, by)?;
        let active = active_values(&program, &variables);
        let mut b = ArrayBuilder::from(program.clone());
        let mut seeds = Vec::new();
        for (&output, may_be_unreached) in program.outputs().iter().zip(seeded) {
            if let Some(may_be_unreached) = may_be_unreached {
                let seed = b.push(ArrayOp::Input(program.type_of(output)), &[])?;
                seeds.push((output, if *may_be_unreached { b.push(ArrayOp::Adjoint, &[seed])? } else { seed }));
            }
        }
        let mut sweep = Sweep { b: &mut b, adjoints: vec![None; program.n_values()] };
        for (output, seed) in seeds {
            sweep.add(output, seed)?;
        }
        sweep.run(&program, &active)?;
        let adjoints = variables.into_iter().map(|v| sweep.begun(v)).collect::<Result<Vec<_>>>()?;
        b.finish(&adjoints)?.cleaned()
    }

    /// The program that gives the value, a single number, and then its gradient by each variable.
    pub fn value_and_gradient(&self, by: &[Variable]) -> Result<ArrayProgram> {
        let program = with_carries_kept(&prepared(self, by)?, by)?;
        let [output] = program.outputs() else {
            return Err(bad("outputs of what is differentiated", "one".into(), program.outputs().len().to_string()));
        };
        let ty = program.type_of(*output);
        if ty.dims.rank() > 0 || ty.element != Element::Float {
            return Err(bad("output of what is differentiated", "a float of shape ()".into(), format!("{ty:?}")));
        }
        let mut b = ArrayBuilder::from(program.clone());
        let seed = b.literal(1.0)?;
        let gradients = gradients(&program, &mut b, &[(*output, seed)], by)?;
        b.finish(&[vec![*output], gradients].concat())?.cleaned()
    }

    /// The program that gives the gradients only.
    pub fn gradient(&self, by: &[Variable]) -> Result<ArrayProgram> {
        let both = self.value_and_gradient(by)?;
        let gradients = both.outputs()[1..].to_vec();
        both.with_outputs(gradients).cleaned()
    }
}

/// Appends the reverse pass of `program`, which `b` began with, and returns the gradients of the variables.
fn gradients(
    program: &ArrayProgram,
    b: &mut ArrayBuilder,
    seeds: &[(ValueId, ValueId)],
    by: &[Variable],
) -> Result<Vec<ValueId>> {
    let variables = values_of(program, by)?;
    let active = active_values(program, &variables);
    let mut sweep = Sweep { b, adjoints: vec![None; program.n_values()] };
    for &(output, seed) in seeds {
        sweep.add(output, seed)?;
    }
    sweep.run(program, &active)?;
    let Sweep { b, adjoints } = sweep;
    variables
        .into_iter()
        .map(|v| match adjoints[v.at()] {
            Some(adjoint) if b.so_far().may_be_unreached(adjoint) => b.reached(adjoint),
            Some(adjoint) => Ok(adjoint),
            None => {
                let zero = b.literal(0.0)?;
                b.broadcast_to(zero, program.type_of(v).dims)
            }
        })
        .collect()
}

/// A walk backwards over the instructions that a builder began with.
pub(super) struct Sweep<'a> {
    pub(super) b: &'a mut ArrayBuilder,
    /// The adjoints so far.
    pub(super) adjoints: Vec<Option<ValueId>>,
}

impl Sweep<'_> {
    /// All instructions of a program, backwards.
    pub(super) fn run(&mut self, program: &ArrayProgram, active: &[bool]) -> Result<()> {
        for (at, instr) in program.instrs().iter().enumerate().rev() {
            // An array without elements passes nothing on: the sum of no contributions is unreached, not 0.
            let passes = |v: ValueId| active[v.at()] && program.type_of(v).dims.size() > 0;
            let gs: Vec<_> = program.results(at).map(|v| self.adjoints[v.at()].filter(|_| passes(v))).collect();
            if gs.iter().all(Option::is_none) {
                continue;
            }
            match &instr.op {
                ArrayOp::Loop(of) => {
                    self.loop_back(of, program, at, active)?;
                    continue;
                }
                ArrayOp::Cond { yes, no } => {
                    self.cond_back([&yes.0, &no.0], instr, &gs, active)?;
                    continue;
                }
                ArrayOp::Rows(rows) => {
                    self.rows_back(rows, instr, &gs, active)?;
                    continue;
                }
                ArrayOp::Apart(apart) => {
                    let results: Vec<_> = program.results(at).collect();
                    self.apart_back(apart, instr, &results, &gs, active)?;
                    continue;
                }
                _ => {}
            }
            for k in active_operands(instr, active) {
                match gs[..] {
                    [Some(g)] => self.contribute(instr, k, g)?,
                    _ => {
                        if let Some(c) = self.b.factors_back(instr, &gs)? {
                            self.add(instr.operands[k], c)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn add(&mut self, to: ValueId, c: ValueId) -> Result<()> {
        self.adjoints[to.at()] = Some(match self.adjoints[to.at()] {
            Some(adjoint) if self.b.type_of(to).element == Element::Int => self.b.stacks_added(adjoint, c)?,
            Some(adjoint) => self.b.push(ArrayOp::Accumulate, &[adjoint, c])?,
            None => c,
        });
        Ok(())
    }

    /// The adjoint so far, to be added to in part.
    pub(super) fn begun(&mut self, of: ValueId) -> Result<ValueId> {
        match self.adjoints[of.at()] {
            Some(adjoint) => Ok(adjoint),
            None => self.b.push(ArrayOp::Unreached(self.b.dims(of)), &[]),
        }
    }

    fn contribute(&mut self, instr: &ArrayInstr, k: usize, g: ValueId) -> Result<()> {
        let operand = instr.operands[k];
        match &instr.op {
            // Only what is chosen is touched.
            ArrayOp::View(View::Slice(slices)) => {
                let adjoint = self.begun(operand)?;
                let sum = self.b.push(ArrayOp::AccumulateAt(slices.clone()), &[adjoint, g])?;
                self.adjoints[operand.at()] = Some(sum);
                Ok(())
            }
            &ArrayOp::Take { axis, batch } => {
                let adjoint = self.begun(operand)?;
                let sum = self.b.push(ArrayOp::ScatterAdd { axis, batch }, &[adjoint, instr.operands[1], g])?;
                self.adjoints[operand.at()] = Some(sum);
                Ok(())
            }
            _ => match contribution(self.b, instr, k, g)? {
                Some(c) => self.add(operand, c),
                None => Ok(()),
            },
        }
    }
}

/// What the adjoint `g` of an instruction's result contributes to operand `k`, where that is an array of its shape.
fn contribution(b: &mut ArrayBuilder, instr: &ArrayInstr, k: usize, g: ValueId) -> Result<Option<ValueId>> {
    let (of, z) = (&instr.operands, instr.result);
    let dims = b.dims(of[k]);
    match &instr.op {
        ArrayOp::Row(row) => b.pull(*row, k, g, of, z),
        &ArrayOp::Pull(row, to) if k > 0 => {
            let mut rates = [None; 2];
            rates[k - 1] = Some(g);
            return b.bent_pull(row, to.into(), of, rates);
        }
        ArrayOp::Pull(row, to) => {
            let all: Vec<_> = [g].iter().chain(&of[1..]).copied().collect();
            let c = b.push(ArrayOp::Pull(*row, *to), &all)?;
            b.hidden_with(of[0], c)
        }
        ArrayOp::Select => {
            let unreached = b.push(ArrayOp::Unreached(dims), &[])?;
            let (yes, no) = if k == 1 { (g, unreached) } else { (unreached, g) };
            b.push(ArrayOp::Select, &[of[0], yes, no])
        }
        &ArrayOp::Reduce(Reduce::Sum, axes) => b.over(g, dims, axes),
        &ArrayOp::Reduce(kind, axes) => b.push(ArrayOp::ReducePull(kind, axes), &[g, of[0], z]),
        &ArrayOp::ReducePull(kind, axes) if k == 0 => b.moved_reduction(kind, axes, of[1], of[2], g),
        &ArrayOp::ReducePull(kind, axes) => return b.bent_reduction(kind, axes, [of[0], of[1], of[2]], g),
        &ArrayOp::Cumulate { kind: Cumulate::Sum, axis, reverse } => {
            b.push(ArrayOp::Cumulate { kind: Cumulate::Sum, axis, reverse: !reverse }, &[g])
        }
        &ArrayOp::Cumulate { kind: Cumulate::Recurrence, axis, reverse } => {
            let back = b.recurrence_back(of[0], g, axis, reverse)?;
            if k == 1 {
                return Ok(Some(back));
            }
            let before = b.shifted(z, axis, !reverse)?;
            b.adjoint_product(back, before)
        }
        ArrayOp::Dot(Dot { transposed: [tx, ty], .. }) => match (k, [tx, ty][k]) {
            (0, false) => b.adjoint_dot([false, !ty], g, of[1]),
            (0, true) => b.adjoint_dot([*ty, true], of[1], g),
            (_, false) => b.adjoint_dot([!tx, false], of[0], g),
            (_, true) => b.adjoint_dot([true, *tx], g, of[0]),
        },
        ArrayOp::Sparse(dot) => b.sparse_back(dot.kind, of[0], g),
        ArrayOp::View(View::Reshape(_)) => b.view(g, View::Reshape(dims)),
        ArrayOp::View(View::Permute(axes)) => {
            let mut back = vec![0; axes.len()];
            axes.iter().enumerate().for_each(|(k, &axis)| back[axis] = k);
            b.view(g, View::Permute(back.into()))
        }
        ArrayOp::View(View::Broadcast(_)) => b.sum_to(g, dims),
        ArrayOp::Copy | ArrayOp::After | ArrayOp::Accumulate | ArrayOp::Adjoint => Ok(g),
        ArrayOp::Cholesky => b.cholesky_back(z, g),
        ArrayOp::TriSolve(_) | ArrayOp::LuSolve(_) => b.solve_back(instr, k, g),
        ArrayOp::Concat(axis) => {
            let start = of[..k].iter().map(|&v| b.dims(v)[*axis]).sum();
            let mut slices: Vec<_> = dims.iter().map(|&extent| Slice::all(extent)).collect();
            slices[*axis].start = start;
            b.view(g, View::Slice(slices.into()))
        }
        ArrayOp::AccumulateAt(slices) if k == 1 => b.view(g, View::Slice(slices.clone())),
        &ArrayOp::ScatterAdd { axis, batch } if k == 2 => b.push(ArrayOp::Take { axis, batch }, &[g, of[1]]),
        &ArrayOp::ScatterSet { axis, batch } if k == 2 => b.adjoint_of_set(g, of[1], dims, (axis, batch)),
        ArrayOp::ScatterSet { .. } => {
            let unreached = b.push(ArrayOp::Unreached(b.dims(of[2])), &[])?;
            b.push(instr.op.clone(), &[g, of[1], unreached])
        }
        ArrayOp::AccumulateAt(_) | ArrayOp::ScatterAdd { .. } => Ok(g),
        _ => return Ok(None),
    }
    .map(Some)
}

impl ArrayBuilder {
    /// The values moved by one place along an axis, with 0 where none comes: toward the end, or toward the start.
    pub(super) fn shifted(&mut self, x: ValueId, axis: usize, to_end: bool) -> Result<ValueId> {
        let dims = self.dims(x);
        if dims.size() == 0 {
            return Ok(x);
        }
        let zero = self.literal(0.0)?;
        let zero = self.broadcast_to(zero, dims.with(axis, 1)?)?;
        let mut slices: Vec<_> = dims.iter().map(|&extent| Slice::all(extent)).collect();
        slices[axis] = Slice { start: usize::from(!to_end), step: 1, count: dims[axis] - 1 };
        let rest = self.slice(x, &slices)?;
        self.concatenate(&if to_end { [zero, rest] } else { [rest, zero] }, axis as isize)
    }

    /// The reverse pass of a recurrence with factors `a`: a recurrence the other way round.
    fn recurrence_back(&mut self, a: ValueId, g: ValueId, axis: usize, reverse: bool) -> Result<ValueId> {
        let factors = self.shifted(a, axis, reverse)?;
        let back = ArrayOp::Cumulate { kind: Cumulate::Recurrence, axis, reverse: !reverse };
        let back = self.push(back, &[factors, g])?;
        self.reached(back)
    }
}
