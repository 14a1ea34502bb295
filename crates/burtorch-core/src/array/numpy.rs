//! Array functions with NumPy's names and rules, as methods of the builder.
//!
//! Promises: a refused function leaves the builder unchanged. Functions composed of others have their order of
//! operations. Does not know derivatives.

use super::build::ArrayBuilder;
use super::dims::{Axes, Dims, bad};
use super::instr::{ArrayOp, Comparison, Cumulate, Element, Reduce, Slice, ValueId, View};
use super::row::Row;
use crate::error::Result;
use crate::ops::Op;

impl ArrayBuilder {
    /// An elementwise op of the table, with broadcasting. Integers stay integers where the op is exact on them.
    pub fn row(&mut self, op: Op, operands: &[ValueId]) -> Result<ValueId> {
        let Some(row) = Row::new(op) else {
            return Err(crate::Error::Unsupported { op: op.name(), rule: "elementwise form" });
        };
        self.whole(|b| {
            let mut operands = b.together(operands)?;
            for v in &mut operands {
                *v = if row.of_integers() { b.countable(*v)? } else { b.convert(*v, Element::Float)? };
            }
            b.push(ArrayOp::Row(row), &operands)
        })
    }

    /// An elementwise op of a value and a number.
    pub fn row_with(&mut self, op: Op, x: ValueId, number: f64) -> Result<ValueId> {
        self.whole(|b| {
            let number = b.literal(number)?;
            b.row(op, &[x, number])
        })
    }

    /// `yes` where the mask holds, else `no`; what is not chosen receives no adjoint.
    pub fn where_(&mut self, mask: ValueId, yes: ValueId, no: ValueId) -> Result<ValueId> {
        self.whole(|b| {
            let mask = b.convert(mask, Element::Mask)?;
            let choices = b.together(&[yes, no])?;
            let dims = b.dims(mask).broadcast(&b.dims(choices[0]))?;
            let mut operands = vec![b.broadcast_to(mask, dims)?];
            for v in choices {
                operands.push(b.broadcast_to(v, dims)?);
            }
            b.push(ArrayOp::Select, &operands)
        })
    }

    /// A reduction over axes (all for `None`).
    pub fn reduce(&mut self, kind: Reduce, x: ValueId, axes: Option<&[isize]>, keepdims: bool) -> Result<ValueId> {
        self.whole(|b| {
            b.check(x)?;
            let is_float = b.type_of(x).element == Element::Float || !kind.of_integers();
            let wanted = if is_float { Element::Float } else { Element::Int };
            let x = b.convert(x, wanted)?;
            let axes = Axes::of(&b.dims(x), axes)?;
            let kept = b.dims(x).reduced(axes, true);
            let y = b.push(ArrayOp::Reduce(kind, axes), &[x])?;
            if keepdims { b.view(y, View::Reshape(kept)) } else { Ok(y) }
        })
    }

    /// The same numbers with another shape.
    pub fn reshape(&mut self, x: ValueId, extents: &[usize]) -> Result<ValueId> {
        self.view(x, View::Reshape(Dims::new(extents)?))
    }

    /// The axes in another order.
    pub fn transpose(&mut self, x: ValueId, axes: &[usize]) -> Result<ValueId> {
        self.view(x, View::Permute(axes.into()))
    }

    /// One slice for each of the first axes, the others whole.
    pub fn slice(&mut self, x: ValueId, slices: &[Slice]) -> Result<ValueId> {
        self.check(x)?;
        let dims = self.dims(x);
        let rest = dims.iter().skip(slices.len()).map(|&extent| Slice::all(extent));
        self.view(x, View::Slice(slices.iter().copied().chain(rest).collect()))
    }

    /// The elements of a leading axis of `x` that one index names; the axis goes.
    pub fn index(&mut self, x: ValueId, at: usize) -> Result<ValueId> {
        self.whole(|b| {
            let part = b.slice(x, &[Slice { start: at, step: 1, count: 1 }])?;
            let rest = b.dims(part)[1..].to_vec();
            b.reshape(part, &rest)
        })
    }

    /// The arrays one after the other along an axis.
    pub fn concatenate(&mut self, arrays: &[ValueId], axis: isize) -> Result<ValueId> {
        self.whole(|b| {
            let Some(&first) = arrays.first() else {
                return Err(bad("arrays to concatenate", "at least one".into(), "none".into()));
            };
            let element = b.common_element(arrays)?;
            let axis = b.dims(first).axis(axis)?;
            let arrays = arrays.iter().map(|&v| b.convert(v, element)).collect::<Result<Vec<_>>>()?;
            if arrays.len() == 1 { Ok(arrays[0]) } else { b.push(ArrayOp::Concat(axis), &arrays) }
        })
    }

    /// The arrays, of equal shape, along a new axis.
    pub fn stack(&mut self, arrays: &[ValueId], axis: usize) -> Result<ValueId> {
        self.whole(|b| {
            let mut with_axis = Vec::with_capacity(arrays.len());
            for &v in arrays {
                b.check(v)?;
                let mut extents = b.dims(v).to_vec();
                if axis > extents.len() {
                    return Err(bad("axis", format!("at most {}", extents.len()), axis.to_string()));
                }
                extents.insert(axis, 1);
                with_axis.push(b.reshape(v, &extents)?);
            }
            b.concatenate(&with_axis, axis as isize)
        })
    }

    /// The index of the first largest element along an axis, or of the smallest.
    pub fn arg_extreme(&mut self, x: ValueId, axis: isize, largest: bool) -> Result<ValueId> {
        self.whole(|b| {
            let x = b.countable(x)?;
            let axis = b.dims(x).axis(axis)?;
            b.push(ArrayOp::ArgExtreme { axis, largest }, &[x])
        })
    }

    /// The indices that sort along an axis: equal elements stay in their order, and NaNs come last.
    pub fn argsort(&mut self, x: ValueId, axis: isize) -> Result<ValueId> {
        self.whole(|b| {
            let x = b.countable(x)?;
            let (axis, rank) = (b.dims(x).axis(axis)?, b.dims(x).rank());
            let last: Vec<_> = (0..rank).filter(|&k| k != axis).chain([axis]).collect();
            let x = b.transpose(x, &last)?;
            let sorted = b.push(ArrayOp::ArgSort, &[x])?;
            let mut back: Vec<_> = (0..rank - 1).collect();
            back.insert(axis, rank - 1);
            b.transpose(sorted, &back)
        })
    }

    /// The elements along an axis in ascending order. An adjoint goes to the element that was chosen, of equal ones in their
    /// order.
    pub fn sort(&mut self, x: ValueId, axis: isize) -> Result<ValueId> {
        self.whole(|b| {
            let indices = b.argsort(x, axis)?;
            b.take_along_axis(x, indices, axis)
        })
    }

    /// The value, with integers in place of a mask.
    /// How many of the sorted elements come before each element of `x`, of equal ones all if `right`; NaNs come last.
    pub fn search_sorted(&mut self, sorted: ValueId, x: ValueId, right: bool) -> Result<ValueId> {
        self.whole(|b| {
            let mut operands = [b.countable(sorted)?, b.countable(x)?];
            if operands.iter().any(|&v| b.type_of(v).element == Element::Float) {
                for v in &mut operands {
                    *v = b.convert(*v, Element::Float)?;
                }
            }
            let [sorted, x] = operands;
            let dims = b.dims(x);
            let flat = b.view(x, View::Reshape(Dims::new(&[dims.size()])?))?;
            let found = b.push(ArrayOp::Search { right }, &[sorted, flat])?;
            b.view(found, View::Reshape(dims))
        })
    }

    pub(super) fn countable(&mut self, x: ValueId) -> Result<ValueId> {
        self.check(x)?;
        if self.type_of(x).element == Element::Mask { self.convert(x, Element::Int) } else { Ok(x) }
    }

    /// Running sums along an axis.
    pub fn cumsum(&mut self, x: ValueId, axis: isize) -> Result<ValueId> {
        self.whole(|b| {
            let x = b.countable(x)?;
            let axis = b.dims(x).axis(axis)?;
            b.push(ArrayOp::Cumulate { kind: Cumulate::Sum, axis, reverse: false }, &[x])
        })
    }

    /// Running products along an axis.
    pub fn cumprod(&mut self, x: ValueId, axis: isize) -> Result<ValueId> {
        self.whole(|b| {
            let x = b.countable(x)?;
            let axis = b.dims(x).axis(axis)?;
            b.running_product(x, axis, false)
        })
    }

    /// Running products as a recurrence: `h[i] = x[i] h[i - 1]`, which begins with `x[0]` itself.
    pub(super) fn running_product(&mut self, x: ValueId, axis: usize, reverse: bool) -> Result<ValueId> {
        let dims = self.dims(x);
        if dims.size() == 0 {
            return Ok(x);
        }
        let n = dims[axis];
        let (head, tail) = if reverse { ((n - 1, 1), (0, n - 1)) } else { ((0, 1), (1, n - 1)) };
        let at = |(start, count)| {
            let mut slices: Vec<_> = dims.iter().map(|&extent| Slice::all(extent)).collect();
            slices[axis] = Slice { start, step: 1, count };
            slices
        };
        // A sum with -0 keeps the sign of a product that is 0.
        let zero = match self.type_of(x).element {
            Element::Int => self.push(ArrayOp::Integer(0), &[])?,
            _ => self.literal(-0.0)?,
        };
        let (head_x, tail_x) = (self.slice(x, &at(head))?, self.slice(x, &at(tail))?);
        let (head_0, tail_0) =
            (self.broadcast_to(zero, self.dims(head_x))?, self.broadcast_to(zero, self.dims(tail_x))?);
        let (mut factors, mut terms) = ([head_0, tail_x], [head_x, tail_0]);
        if reverse {
            factors.reverse();
            terms.reverse();
        }
        let factors = self.concatenate(&factors, axis as isize)?;
        let terms = self.concatenate(&terms, axis as isize)?;
        self.push(ArrayOp::Cumulate { kind: Cumulate::Recurrence, axis, reverse }, &[factors, terms])
    }

    /// Whether each element is less than that of the other.
    pub fn less(&mut self, x: ValueId, y: ValueId) -> Result<ValueId> {
        self.compare(Comparison::Less, &[x, y])
    }
}
