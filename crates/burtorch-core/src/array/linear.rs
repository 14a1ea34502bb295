//! The common part of tangents and adjoints: products with partials, sums of contributions, and the second derivatives of
//! reductions, which are symmetric and so serve both modes.
//!
//! Promises: a result from an unreached adjoint or tangent is unreached, too, and every other result is never
//! -0.0. Does not know the order of a derivative's instructions.

use super::build::ArrayBuilder;
use super::dims::{Axes, Dims};
use super::instr::{ArrayOp, Comparison, Dot, Reduce, ValueId, View};
use super::reverse::Variable;
use super::row::Row;
use crate::error::Result;
use crate::ops::Op;

impl ArrayBuilder {
    /// The contribution of an elementwise operation to operand `k`.
    pub(super) fn pull(&mut self, row: Row, k: usize, g: ValueId, operands: &[ValueId], z: ValueId) -> Result<ValueId> {
        if row.passes_on(k) {
            return Ok(g);
        }
        let all: Vec<_> = [g].iter().chain(operands).chain([&z]).copied().collect();
        self.push(ArrayOp::Pull(row, k as u8), &all)
    }

    /// An adjoint times a factor; unreached if one of them is.
    pub(super) fn adjoint_product(&mut self, g: ValueId, factor: ValueId) -> Result<ValueId> {
        let product = self.pull(Row::Op(Op::Mul), 0, g, &[factor, factor], factor)?;
        self.hidden_with(factor, product)
    }

    /// The negative of an adjoint.
    pub(super) fn adjoint_negative(&mut self, g: ValueId) -> Result<ValueId> {
        self.pull(Row::Op(Op::Neg), 0, g, &[g], g)
    }

    /// The value of a reduction over `axes`, repeated over the reduced shape.
    pub(super) fn over(&mut self, y: ValueId, dims: Dims, axes: Axes) -> Result<ValueId> {
        let y = self.view(y, View::Reshape(dims.reduced(axes, true)))?;
        self.broadcast_to(y, dims)
    }

    /// The sum over axes.
    pub(super) fn sum_over(&mut self, x: ValueId, axes: Axes) -> Result<ValueId> {
        if axes.is_empty() { Ok(x) } else { self.push(ArrayOp::Reduce(Reduce::Sum, axes), &[x]) }
    }

    /// The sum that reduces an array to the shape `to`, from which it was broadcast.
    pub(super) fn sum_to(&mut self, x: ValueId, to: Dims) -> Result<ValueId> {
        let from = self.dims(x);
        let new = from.rank() - to.rank();
        let repeated: Vec<isize> = (0..from.rank())
            .filter(|&axis| axis < new || to[axis - new] == 1 && from[axis] != 1)
            .map(|axis| axis as isize)
            .collect();
        let sum = self.sum_over(x, Axes::of(&from, Some(&repeated))?)?;
        self.view(sum, View::Reshape(to))
    }

    /// The partials of a reduction by each number of its operand.
    fn weights(&mut self, kind: Reduce, axes: Axes, x: ValueId, y: ValueId) -> Result<ValueId> {
        let one = self.literal(1.0)?;
        let one = self.broadcast_to(one, self.dims(y))?;
        self.push(ArrayOp::ReducePull(kind, axes), &[one, x, y])
    }

    /// The tangent of a reduction's value for the tangent `v` of its operand.
    pub(super) fn moved_reduction(
        &mut self,
        kind: Reduce,
        axes: Axes,
        x: ValueId,
        y: ValueId,
        v: ValueId,
    ) -> Result<ValueId> {
        let changes = match kind {
            Reduce::Sum => v,
            _ => {
                let weights = self.weights(kind, axes, x, y)?;
                self.adjoint_product(v, weights)?
            }
        };
        self.sum_over(changes, axes)
    }

    /// The second derivative of `g` times a reduction, applied to `v`; `None` if it is 0.
    pub(super) fn bent_reduction(
        &mut self,
        kind: Reduce,
        axes: Axes,
        [g, x, y]: [ValueId; 3],
        v: ValueId,
    ) -> Result<Option<ValueId>> {
        let dims = self.dims(x);
        match kind {
            Reduce::LogSumExp => {
                // s (v - sum of s v), with s the softmax: as deviations from v at the maximum, where s may be nearly 1.
                let top = self.push(ArrayOp::Reduce(Reduce::Max, axes), &[x])?;
                let at_top = self.moved_reduction(Reduce::Max, axes, x, top, v)?;
                let v = self.deviation(v, at_top, axes)?;
                let mean = self.moved_reduction(kind, axes, x, y, v)?;
                let away = self.deviation(v, mean, axes)?;
                let c = self.push(ArrayOp::ReducePull(kind, axes), &[g, x, y])?;
                self.adjoint_product(c, away).map(Some)
            }
            Reduce::Norm2 => {
                // (v - u sum of u v) / y, with u = x / y; 0 at the origin.
                let along = self.moved_reduction(kind, axes, x, y, v)?;
                let along = self.over(along, dims, axes)?;
                let u = self.weights(kind, axes, x, y)?;
                let along = self.adjoint_product(along, u)?;
                let along = self.adjoint_negative(along)?;
                let across = self.push(ArrayOp::Accumulate, &[v, along])?;
                // The inverse of a length may be infinite.
                let across = self.at_rest_unreached(across)?;
                let share = self.pull(Row::Op(Op::Div), 0, g, &[y, y], y)?;
                let zero = self.literal(0.0)?;
                let zero = self.broadcast_to(zero, self.dims(y))?;
                let origin = self.push(ArrayOp::Compare(Comparison::Equal), &[y, zero])?;
                let unreached = self.push(ArrayOp::Unreached(self.dims(y)), &[])?;
                let share = self.push(ArrayOp::Select, &[origin, unreached, share])?;
                let share = self.over(share, dims, axes)?;
                self.adjoint_product(share, across).map(Some)
            }
            Reduce::Prod => {
                let mut f = ArrayBuilder::new(self.so_far().dtype())?;
                let types = [self.type_of(g), self.type_of(x)];
                let inputs = f.inputs_of(&types)?;
                let c = f.products_of_others(axes, inputs[0], inputs[1])?;
                let moved = f.finish(&[c])?.jvp(&[Variable::Input(1)])?;
                let new = self.append(&moved, &[g, x, v])?;
                let g = self.over(g, dims, axes)?;
                self.hidden_with(g, new[moved.outputs()[1].at()]).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// `v` less a number for each row.
    fn deviation(&mut self, v: ValueId, from: ValueId, axes: Axes) -> Result<ValueId> {
        let from = self.over(from, self.dims(v), axes)?;
        let less = self.adjoint_negative(from)?;
        self.push(ArrayOp::Accumulate, &[v, less])
    }

    /// A product of matrices one of which is an adjoint or a tangent.
    pub(super) fn adjoint_dot(&mut self, transposed: [bool; 2], x: ValueId, y: ValueId) -> Result<ValueId> {
        let adjoint = [x, y].map(|v| self.so_far().may_be_unreached(v));
        let product = self.push(ArrayOp::Dot(Dot { transposed, adjoint }), &[x, y])?;
        if adjoint == [false; 2] { self.reached(product) } else { Ok(product) }
    }
}
