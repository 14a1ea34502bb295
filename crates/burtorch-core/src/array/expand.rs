//! Expansion of instructions: calls into the instructions of their programs, derivatives of partials into their
//! formulas.
//!
//! Promises: the same values bit for bit. Does not know the order in which derivatives are taken.

use super::build::ArrayBuilder;
use super::dims::{Axes, Dims};
use super::expansion::{Expansion, MathOp, bend_of};
use super::instr::{Apart, ArrayOp, ArrayProgram, Comparison, Shared, Slice, ValueId, View};
use super::row::Row;
use crate::error::Result;
use crate::ops::Op;

/// Copies a program into a builder, each instruction by `copy`, which receives its new operands.
pub(super) fn copied(
    program: &ArrayProgram,
    mut copy: impl FnMut(&mut ArrayBuilder, usize, &[ValueId]) -> Result<Vec<ValueId>>,
) -> Result<ArrayProgram> {
    let mut b = ArrayBuilder::new(program.dtype())?;
    let mut new = vec![ValueId(0); program.n_values()];
    for (at, instr) in program.instrs().iter().enumerate() {
        let operands: Vec<_> = instr.operands.iter().map(|v| new[v.at()]).collect();
        let results = copy(&mut b, at, &operands)?;
        for (v, now) in program.results(at).zip(results) {
            new[v.at()] = now;
        }
    }
    let outputs: Vec<_> = program.outputs().iter().map(|v| new[v.at()]).collect();
    b.finish(&outputs)
}

/// The program without calls.
pub(super) fn inlined(program: &ArrayProgram) -> Result<ArrayProgram> {
    written_out(program, |op| if let ArrayOp::Call(callee) = op { Some(callee) } else { None })
}

/// The program without calls and without opaque programs, of which no derivative is needed any more.
pub(super) fn written_out_whole(program: &ArrayProgram) -> Result<ArrayProgram> {
    written_out(program, |op| match op {
        ArrayOp::Call(callee) | ArrayOp::Apart(Apart { body: callee, .. }) => Some(callee),
        _ => None,
    })
}

fn written_out(
    program: &ArrayProgram,
    callee: impl Fn(&ArrayOp) -> Option<&Shared<ArrayProgram>>,
) -> Result<ArrayProgram> {
    let mut program = program.pruned()?;
    while program.instrs().iter().any(|instr| callee(&instr.op).is_some()) {
        program = copied(&program, |b, at, operands| match callee(&program.instrs()[at].op) {
            Some(callee) => {
                let new = b.append(&callee.0, operands)?;
                Ok(callee.0.outputs().iter().map(|v| new[v.at()]).collect())
            }
            None => b.push_all(program.instrs()[at].op.clone(), operands),
        })?;
    }
    Ok(program)
}

impl ArrayBuilder {
    /// The instructions of a program with these arguments; returns the new value of each.
    pub(super) fn append(&mut self, program: &ArrayProgram, arguments: &[ValueId]) -> Result<Vec<ValueId>> {
        let mut new = vec![ValueId(0); program.n_values()];
        for (v, &argument) in program.inputs().iter().zip(arguments) {
            new[v.at()] = argument;
        }
        for (at, instr) in program.instrs().iter().enumerate() {
            if !matches!(instr.op, ArrayOp::Input(_)) {
                let operands: Vec<_> = instr.operands.iter().map(|v| new[v.at()]).collect();
                for (v, now) in program.results(at).zip(self.push_all(instr.op.clone(), &operands)?) {
                    new[v.at()] = now;
                }
            }
        }
        Ok(new)
    }

    /// The operations of a formula; operands that it does not read may be any values.
    pub(super) fn formula(&mut self, formula: &Expansion, operands: &[ValueId]) -> Result<ValueId> {
        let dims = self.dims(operands[1]);
        let mut is_read = vec![false; formula.steps.len()];
        is_read[formula.result] = true;
        for (k, step) in formula.steps.iter().enumerate().rev() {
            if is_read[k] {
                step.args.iter().for_each(|&arg| is_read[arg] = true);
            }
        }
        let mut done: Vec<ValueId> = Vec::with_capacity(formula.steps.len());
        for (step, is_read) in formula.steps.iter().zip(is_read) {
            if !is_read {
                done.push(operands[1]);
                continue;
            }
            let [x, y, z] = step.args.map(|arg| done.get(arg).copied().unwrap_or(operands[1]));
            let row = |op| ArrayOp::Row(Row::Op(op));
            let (op, arity) = match step.op {
                MathOp::Operand(k) => {
                    done.push(operands[k]);
                    continue;
                }
                MathOp::Literal(number) => {
                    let number = self.literal(number)?;
                    done.push(self.broadcast_to(number, dims)?);
                    continue;
                }
                MathOp::Add => (row(Op::Add), 2),
                MathOp::Sub => (row(Op::Sub), 2),
                MathOp::Mul => (row(Op::Mul), 2),
                MathOp::Div => (row(Op::Div), 2),
                MathOp::Neg => (row(Op::Neg), 1),
                MathOp::Less => (ArrayOp::Compare(Comparison::Less), 2),
                MathOp::LessEqual => (ArrayOp::Compare(Comparison::LessEqual), 2),
                MathOp::Equal => (ArrayOp::Compare(Comparison::Equal), 2),
                MathOp::IsNan => (ArrayOp::Compare(Comparison::IsNan), 1),
                MathOp::Select => (ArrayOp::Select, 3),
                MathOp::Function(function) => (ArrayOp::Row(Row::from(function)), function.arity()),
            };
            done.push(self.push(op, &[x, y, z][..arity])?);
        }
        Ok(done[formula.result])
    }

    /// The tangent of the contribution of an elementwise operation to its operand `k`, for tangents `rates` of its
    /// operands; `of` are adjoint, operands and value. `None` if it is always 0.
    pub(super) fn bent_pull(
        &mut self,
        row: Row,
        k: usize,
        of: &[ValueId],
        rates: [Option<ValueId>; 2],
    ) -> Result<Option<ValueId>> {
        let [x, y] = [0, 1].map(|j| rates[j].filter(|_| row.bends(k, j)));
        let Some(formula) = bend_of(row, k, [x.is_some(), y.is_some()]) else { return Ok(None) };
        let Some(moves) = self.sum_of(x, y)? else { return Ok(None) };
        let operands = [of[0], of[1], of[2], of[of.len() - 1], x.unwrap_or(moves), y.unwrap_or(moves)];
        let bend = self.formula(&formula, &operands)?;
        let bend = self.reached(bend)?;
        let bend = self.hidden_with(moves, bend)?;
        self.hidden_with(of[0], bend).map(Some)
    }

    /// `c` if `by` is reached; otherwise unreached.
    pub(super) fn hidden_with(&mut self, by: ValueId, c: ValueId) -> Result<ValueId> {
        if !self.so_far().may_be_unreached(by) {
            return Ok(c);
        }
        let unreached = self.push(ArrayOp::Unreached(self.dims(c)), &[])?;
        let mask = self.push(ArrayOp::Compare(Comparison::IsUnreached), &[by])?;
        self.push(ArrayOp::Select, &[mask, unreached, c])
    }

    /// The number with 0 added: never -0.0.
    pub(super) fn reached(&mut self, c: ValueId) -> Result<ValueId> {
        let zero = self.literal(0.0)?;
        let zero = self.broadcast_to(zero, self.dims(c))?;
        self.push(ArrayOp::Row(Row::Op(Op::AddConstant)), &[c, zero])
    }

    /// The contribution of the product over axes: the adjoint times the product of the numbers before and of those after.
    pub(super) fn products_of_others(&mut self, axes: Axes, g: ValueId, x: ValueId) -> Result<ValueId> {
        let dims = self.dims(x);
        let order: Vec<_> = (0..dims.rank()).filter(|&a| !axes.has(a)).chain(axes.iter()).collect();
        let moved = self.view(x, View::Permute(order.clone().into()))?;
        let n: usize = axes.iter().map(|axis| dims[axis]).product();
        let last = dims.rank() - axes.len();
        let rows = Dims::new(&[&self.dims(moved)[..last], &[n][..]].concat())?;
        let rows_x = self.view(moved, View::Reshape(rows))?;
        let (before, after) = (self.others(rows_x, last, false)?, self.others(rows_x, last, true)?);
        let others = self.push(ArrayOp::Row(Row::Op(Op::Mul)), &[before, after])?;
        let others = self.view(others, View::Reshape(self.dims(moved)))?;
        let mut back = vec![0; order.len()];
        order.iter().enumerate().for_each(|(k, &axis)| back[axis] = k);
        let others = self.view(others, View::Permute(back.into()))?;
        let g = self.over(g, dims, axes)?;
        let product = self.push(ArrayOp::Row(Row::Op(Op::Mul)), &[g, others])?;
        let product = self.reached(product)?;
        self.hidden_with(g, product)
    }

    /// The products of the numbers before each along the last axis, or after it.
    fn others(&mut self, x: ValueId, axis: usize, after: bool) -> Result<ValueId> {
        let dims = self.dims(x);
        if dims.size() == 0 {
            return Ok(x);
        }
        let n = dims[axis];
        let products = self.running_product(x, axis, after)?;
        let mut slices: Vec<_> = dims.iter().map(|&extent| Slice::all(extent)).collect();
        slices[axis] = Slice { start: usize::from(after), step: 1, count: n - 1 };
        let products = self.slice(products, &slices)?;
        let one = self.literal(1.0)?;
        let one = self.broadcast_to(one, dims.with(axis, 1)?)?;
        let parts = if after { [products, one] } else { [one, products] };
        self.concatenate(&parts, axis as isize)
    }
}
