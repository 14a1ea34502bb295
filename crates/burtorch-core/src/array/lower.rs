//! Reductions that need the largest number first, expressed in the instructions of plans.
//!
//! Promises: the operations and the order of `ops::peak`, so the bits of the eager reductions. Does not know plans.

use std::collections::HashSet;

use super::build::ArrayBuilder;
use super::control::{hoisted, with_steps_at_once, without_unread};
use super::dims::{Axes, Dims};
use super::expand::copied;
use super::instr::{ArrayInstr, ArrayOp, ArrayProgram, Comparison, Dot, Element, Reduce, ValueId, View};
use super::order::small_first;
use super::repeated::once_along_axes;
use super::row::Row;
use super::rows::rows_together;
use super::simplify::simplified;
use crate::error::Result;
use crate::kernels::slices;
use crate::ops::Op;
use crate::scalar::DType;

/// The program in the form that plans accept: without calls and without composed reductions.
pub(super) fn lowered(program: &ArrayProgram) -> Result<ArrayProgram> {
    let program = with_steps_at_once(without_unread(hoisted(program)?)?)?;
    let program = reductions_last(composed(once_along_axes(rows_together(program)?)?)?)?;
    small_first(simplified(&program)?.cleaned()?)
}

/// The program with composed reductions and small products expressed in other instructions.
fn composed(program: ArrayProgram) -> Result<ArrayProgram> {
    let is_composed = |instr: &ArrayInstr| match instr.op {
        ArrayOp::Reduce(kind, _) => matches!(kind, Reduce::LogSumExp | Reduce::Norm2),
        ArrayOp::ReducePull(..) => true,
        ArrayOp::Dot(_) => {
            let dims = program.type_of(instr.result).dims;
            dims[..dims.rank() - 2].iter().product::<usize>() >= MANY
        }
        _ => false,
    };
    if !program.instrs().iter().any(is_composed) {
        return Ok(program);
    }
    let pulled = program.instrs().iter().filter(|instr| matches!(instr.op, ArrayOp::ReducePull(Reduce::Norm2, _)));
    let pulled: HashSet<_> = pulled.map(|instr| instr.operands[1]).collect();
    copied(&program, |b, at, operands| {
        let instr = &program.instrs()[at];
        let lowered = match instr.op {
            ArrayOp::Reduce(Reduce::LogSumExp | Reduce::Norm2, axes) if is_whole(b.dims(operands[0]), axes) => {
                return b.push_all(instr.op.clone(), operands);
            }
            ArrayOp::ReducePull(Reduce::LogSumExp | Reduce::Norm2, axes) if is_whole(b.dims(operands[1]), axes) => {
                return b.push_all(instr.op.clone(), operands);
            }
            ArrayOp::Reduce(Reduce::LogSumExp, axes) => b.log_sum_exp(operands[0], axes),
            ArrayOp::Reduce(Reduce::Norm2, axes) => b.norm2(operands[0], axes, pulled.contains(&instr.operands[0])),
            ArrayOp::ReducePull(Reduce::Sum, axes) => b.over(operands[0], b.dims(operands[1]), axes),
            ArrayOp::ReducePull(kind @ (Reduce::Max | Reduce::Min), axes) if !is_in_rows(b.dims(operands[1]), axes) => {
                b.extreme_shares(kind, operands, axes)
            }
            ArrayOp::ReducePull(Reduce::LogSumExp, axes) => b.softmax_shares(operands, axes),
            ArrayOp::ReducePull(Reduce::Norm2, axes) => b.norm_shares(operands, axes),
            ArrayOp::Dot(dot) => b.small_products(dot, operands),
            _ => return b.push_all(instr.op.clone(), operands),
        };
        lowered.map(|v| vec![v])
    })?
    .cleaned()
}

/// The program with reductions over axes that lie apart, and contributions of products, over last axes.
fn reductions_last(program: ArrayProgram) -> Result<ArrayProgram> {
    let moves = |instr: &ArrayInstr| match instr.op {
        ArrayOp::Reduce(_, axes) => !side_by_side(axes),
        ArrayOp::ReducePull(kind, _) => kind == Reduce::Prod,
        _ => false,
    };
    if !program.instrs().iter().any(moves) {
        return Ok(program);
    }
    copied(&program, |b, at, operands| {
        let instr = &program.instrs()[at];
        let moved = match instr.op {
            ArrayOp::Reduce(kind, axes) if !side_by_side(axes) => b.reduced_last(kind, operands[0], axes),
            ArrayOp::ReducePull(Reduce::Prod, axes) => b.products_pulled(operands, axes),
            _ => return b.push_all(instr.op.clone(), operands),
        };
        moved.map(|v| vec![v])
    })?
    .cleaned()
}

impl ArrayBuilder {
    fn number(&mut self, x: f64, like: ValueId) -> Result<ValueId> {
        let number = self.literal(x)?;
        self.broadcast_to(number, self.dims(like))
    }

    fn top_of(&mut self, x: ValueId, axes: Axes) -> Result<ValueId> {
        self.push(ArrayOp::Reduce(Reduce::Max, axes), &[x])
    }

    fn is(&mut self, comparison: Comparison, x: ValueId, y: ValueId) -> Result<ValueId> {
        self.push(ArrayOp::Compare(comparison), &[x, y])
    }

    fn choose(&mut self, mask: ValueId, yes: ValueId, no: ValueId) -> Result<ValueId> {
        self.push(ArrayOp::Select, &[mask, yes, no])
    }

    /// How many numbers equal `y`.
    fn count_equal(&mut self, is_equal: ValueId, axes: Axes) -> Result<ValueId> {
        let ones = self.convert(is_equal, Element::Float)?;
        self.sum_over(ones, axes)
    }

    fn log_sum_exp(&mut self, x: ValueId, axes: Axes) -> Result<ValueId> {
        let top = self.top_of(x, axes)?;
        let above = self.over(top, self.dims(x), axes)?;
        let is_top = self.is(Comparison::Equal, x, above)?;
        let zero = self.number(0.0, x)?;
        let share = self.exponentials(x, above, is_top)?;
        let others = self.choose(is_top, zero, share)?;
        let rest = self.sum_over(others, axes)?;
        // The largest contributes exactly 1.
        let count = self.count_equal(is_top, axes)?;
        let one = self.number(1.0, count)?;
        let more = self.row(Op::Sub, &[count, one])?;
        let rest = self.row(Op::Add, &[rest, more])?;
        let log = self.row(Op::Log1p, &[rest])?;
        let is_nan = self.push(ArrayOp::Compare(Comparison::IsNan), &[top])?;
        let log = self.choose(is_nan, top, log)?;
        self.row(Op::Add, &[top, log])
    }

    /// What numbers receive of an adjoint of the log of the sum of their exponentials.
    pub(super) fn softmax_shares(&mut self, operands: &[ValueId], axes: Axes) -> Result<ValueId> {
        let [g, x, ..] = operands else { return self.push(ArrayOp::Copy, operands) };
        let weight = self.softmax_over(*x, axes)?;
        let g = self.over(*g, self.dims(*x), axes)?;
        self.adjoint_product(g, weight)
    }

    fn softmax_over(&mut self, x: ValueId, axes: Axes) -> Result<ValueId> {
        let dims = self.dims(x);
        let top = self.top_of(x, axes)?;
        let above = self.over(top, dims, axes)?;
        let is_top = self.is(Comparison::Equal, x, above)?;
        let share = self.exponentials(x, above, is_top)?;
        let total = self.sum_over(share, axes)?;
        let total = self.over(total, dims, axes)?;
        self.row(Op::Div, &[share, total])
    }

    /// Those of numbers less the largest.
    fn exponentials(&mut self, x: ValueId, above: ValueId, is_top: ValueId) -> Result<ValueId> {
        let gap = self.row(Op::Sub, &[x, above])?;
        let zero = self.number(0.0, x)?;
        // The gap of two equal infinities is no number.
        let below = self.choose(is_top, zero, gap)?;
        self.row(Op::Exp, &[below])
    }

    /// Numbers that are not beyond the extreme equal it, or it is NaN. All but the choice is computed once for each extreme.
    fn extreme_shares(&mut self, kind: Reduce, operands: &[ValueId], axes: Axes) -> Result<ValueId> {
        let [g, x, y] = operands else { return self.push(ArrayOp::Copy, operands) };
        let dims = self.dims(*x);
        let extreme = self.over(*y, dims, axes)?;
        let is_extreme = self.is(Comparison::Equal, *x, extreme)?;
        let count = self.count_equal(is_extreme, axes)?;
        let share = self.pull(Row::Op(Op::Div), 0, *g, &[count, count], count)?;
        let is_nan = self.push(ArrayOp::Compare(Comparison::IsNan), &[*y])?;
        let share = self.choose(is_nan, *y, share)?;
        let share = self.hidden_with(*g, share)?;
        let [less, more] = if kind == Reduce::Max { [*x, extreme] } else { [extreme, *x] };
        let has_lost = self.is(Comparison::Less, less, more)?;
        let (share, unreached) = (self.over(share, dims, axes)?, self.push(ArrayOp::Unreached(dims), &[])?);
        self.choose(has_lost, unreached, share)
    }

    /// The largest magnitude, the power of two that keeps squares in range, and the operand multiplied by it; if `has_parts`, signs
    /// stand in place of infinities where there are any, and 0 beside them.
    fn scaled(&mut self, x: ValueId, axes: Axes, has_parts: bool) -> Result<[ValueId; 3]> {
        let dims = self.dims(x);
        let size = self.row(Op::Abs, &[x])?;
        let top = self.top_of(size, axes)?;
        let [large, small, down, up] = match self.so_far().dtype() {
            DType::Float64 => [500, -450, -600, 600],
            _ => [60, -45, -70, 100],
        }
        .map(|exponent| 2f64.powi(exponent));
        let (large, small) = (self.number(large, top)?, self.number(small, top)?);
        let (down, up, one) = (self.number(down, top)?, self.number(up, top)?, self.number(1.0, top)?);
        let is_small = self.is(Comparison::Less, top, small)?;
        let factor = self.choose(is_small, up, one)?;
        let is_large = self.is(Comparison::Less, large, top)?;
        let factor = self.choose(is_large, down, factor)?;
        let wide_factor = self.over(factor, dims, axes)?;
        let scaled = self.row(Op::Mul, &[x, wide_factor])?;
        if !has_parts {
            return Ok([top, factor, scaled]);
        }
        let (minus, plus, zero) = (self.number(-1.0, x)?, self.number(1.0, x)?, self.number(0.0, x)?);
        let is_negative = self.is(Comparison::Less, x, zero)?;
        let sign = self.choose(is_negative, minus, plus)?;
        let infinity = self.number(f64::INFINITY, x)?;
        let is_infinite = self.is(Comparison::Equal, size, infinity)?;
        let part = self.choose(is_infinite, sign, zero)?;
        let wide_top = self.over(top, dims, axes)?;
        let is_top_infinite = self.is(Comparison::Equal, wide_top, infinity)?;
        let scaled = self.choose(is_top_infinite, part, scaled)?;
        Ok([top, factor, scaled])
    }

    fn length(&mut self, scaled: ValueId, axes: Axes) -> Result<ValueId> {
        let squares = self.row(Op::Sqr, &[scaled])?;
        let sum = self.sum_over(squares, axes)?;
        self.row(Op::Sqrt, &[sum])
    }

    /// The length of parts is needed for contributions only: beside an infinity it is infinite.
    fn norm2(&mut self, x: ValueId, axes: Axes, has_parts: bool) -> Result<ValueId> {
        let [top, factor, scaled] = self.scaled(x, axes, has_parts)?;
        let length = self.length(scaled, axes)?;
        let length = self.row(Op::Div, &[length, factor])?;
        let infinity = self.number(f64::INFINITY, top)?;
        let is_infinite = self.is(Comparison::Equal, top, infinity)?;
        self.choose(is_infinite, top, length)
    }

    fn norm_shares(&mut self, operands: &[ValueId], axes: Axes) -> Result<ValueId> {
        let [g, x, _] = operands else { return self.push(ArrayOp::Copy, operands) };
        let dims = self.dims(*x);
        let [top, _, scaled] = self.scaled(*x, axes, true)?;
        let length = self.length(scaled, axes)?;
        let length = self.over(length, dims, axes)?;
        let share = self.row(Op::Div, &[scaled, length])?;
        let g = self.over(*g, dims, axes)?;
        let c = self.adjoint_product(g, share)?;
        // All are 0 at the origin, whatever the adjoint is.
        let (zero, top) = (self.number(0.0, *x)?, self.over(top, dims, axes)?);
        let at_origin = self.is(Comparison::Equal, top, zero)?;
        let c = self.choose(at_origin, zero, c)?;
        self.hidden_with(g, c)
    }
}

/// Matrices of a batch from which on their products are worth being elementwise, and numbers of such a product at most.
const MANY: usize = 16;
const FEW: usize = 32;

/// Numbers of a row that a chain takes as a whole in a block, at most.
pub(super) const ROW: usize = 256;

impl ArrayBuilder {
    /// Many products of small vectors as elementwise work, which needs no call for each: those without a sum, of an adjoint, and
    /// inner products that are summed from the first to the last term.
    fn small_products(&mut self, dot: Dot, of: &[ValueId]) -> Result<ValueId> {
        let (batch, [m, k, n]) = dot.extents(&self.dims(of[0]), &self.dims(of[1]))?;
        let led = |extents: &[usize]| Dims::new(&[&batch, extents].concat());
        let is_many = batch.size() >= MANY;
        if is_many && k == 1 && m * n <= FEW && dot.adjoint[0] != dot.adjoint[1] {
            let (x, y) =
                (self.view(of[0], View::Reshape(led(&[m, 1])?))?, self.view(of[1], View::Reshape(led(&[1, n])?))?);
            let (x, y) = (self.broadcast_to(x, led(&[m, n])?)?, self.broadcast_to(y, led(&[m, n])?)?);
            let (g, factor) = if dot.adjoint[0] { (x, y) } else { (y, x) };
            return self.pull(Row::Op(Op::Mul), 0, g, &[factor, factor], factor);
        }
        if is_many && m * n == 1 && (1..slices::SHORT).contains(&k) && dot.adjoint == [false; 2] {
            let (x, y) = (self.view(of[0], View::Reshape(led(&[k])?))?, self.view(of[1], View::Reshape(led(&[k])?))?);
            let terms = self.row(Op::Mul, &[x, y])?;
            let rank = batch.rank();
            let sums = self.push(ArrayOp::Reduce(Reduce::Sum, Axes::range(rank, rank + 1)), &[terms])?;
            return self.view(sums, View::Reshape(led(&[1, 1])?));
        }
        self.push(ArrayOp::Dot(dot), of)
    }
}

/// Whether these axes are the last ones and hold so many numbers that rows of them are worth a kernel.
fn is_in_rows(dims: Dims, axes: Axes) -> bool {
    let first = dims.rank() - axes.len();
    let n: usize = dims[first..].iter().product();
    axes.iter().all(|axis| axis >= first) && n >= slices::SHORT
}

/// Numbers of a row from which on it is worth a kernel that does all of a reduction.
const WHOLE: usize = 16;

/// Whether a reduction over these axes is done by a kernel for each row.
fn is_whole(dims: Dims, axes: Axes) -> bool {
    is_in_rows(dims, axes) && dims[dims.rank() - axes.len()..].iter().product::<usize>() >= WHOLE
}

/// Whether axes have no other between them.
fn side_by_side(axes: Axes) -> bool {
    let mut between = axes.iter().zip(axes.iter().skip(1));
    between.all(|(a, b)| a + 1 == b)
}

/// All axes of an array, those of a set last.
fn set_last(rank: usize, axes: Axes) -> Box<[usize]> {
    (0..rank).filter(|&axis| !axes.has(axis)).chain(axes.iter()).collect()
}

impl ArrayBuilder {
    /// A reduction over axes that are moved to the end.
    fn reduced_last(&mut self, kind: Reduce, x: ValueId, axes: Axes) -> Result<ValueId> {
        let rank = self.dims(x).rank();
        let x = self.view(x, View::Permute(set_last(rank, axes)))?;
        self.push(ArrayOp::Reduce(kind, Axes::range(rank - axes.len(), rank)), &[x])
    }

    /// The contributions of a product over axes that are moved to the end, and back.
    fn products_pulled(&mut self, operands: &[ValueId], axes: Axes) -> Result<ValueId> {
        let [g, x, y] = operands else { return self.push(ArrayOp::Copy, operands) };
        let rank = self.dims(*x).rank();
        let order = set_last(rank, axes);
        let mut back = vec![0; rank];
        order.iter().enumerate().for_each(|(k, &axis)| back[axis] = k);
        let x = self.view(*x, View::Permute(order))?;
        let c = self.push(ArrayOp::ReducePull(Reduce::Prod, Axes::range(rank - axes.len(), rank)), &[*g, x, *y])?;
        self.view(c, View::Permute(back.into()))
    }
}
