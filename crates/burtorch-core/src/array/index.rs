//! Indexing with NumPy's rules, as methods of the builder.
//!
//! Promises: slices, single indices and new axes are views; arrays of integers gather, several of them as one index into the
//! axes that they name, whose place in the result is NumPy's. An index outside of its axis is refused when it is used.
//! Knows nothing of derivatives.

use super::build::ArrayBuilder;
use super::dims::{Dims, bad};
use super::instr::{ArrayOp, Comparison, Data, Element, Slice, Type, ValueId, View};
use crate::error::Result;
use crate::ops::Op;

/// What is added to negative indices that count from 0 alone, so that they are outside of every axis.
pub(super) const BELOW_ZERO: i64 = 1 << 61;

/// One part of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Index {
    /// One element of an axis, which is removed.
    At(isize),
    /// A range of an axis.
    Slice(Slice),
    /// A new axis of extent 1.
    New,
    /// The remaining axes.
    Rest,
    /// An array of integers, the indices along an axis.
    Array(ValueId),
}

impl ArrayBuilder {
    /// `x[index]`.
    pub fn indexed(&mut self, x: ValueId, index: &[Index]) -> Result<ValueId> {
        self.whole(|b| {
            b.check(x)?;
            let dims = b.dims(x);
            let named = index.iter().filter(|part| !matches!(part, Index::New | Index::Rest)).count();
            let Some(hidden) = dims.rank().checked_sub(named) else {
                let expected = format!("at most {} for an array of shape {dims}", dims.rank());
                return Err(bad("number of indices", expected, named.to_string()));
            };
            let mut parts = Vec::with_capacity(dims.rank());
            for part in index {
                // One that stands for no axis still separates arrays beside it.
                if *part == Index::Rest && hidden > 0 {
                    parts.extend((0..hidden).map(|_| Index::Slice(Slice::all(usize::MAX))));
                } else {
                    parts.push(*part);
                }
            }
            if !index.contains(&Index::Rest) {
                parts.extend((0..hidden).map(|_| Index::Slice(Slice::all(usize::MAX))));
            }
            // An index of one element beside arrays of them is one more of those.
            let gathers = parts.iter().any(|part| matches!(part, Index::Array(_)));
            let (mut slices, mut shape, mut arrays) = (Vec::new(), Vec::new(), Vec::new());
            for (place, part) in parts.iter().enumerate() {
                let axis = slices.len();
                let n = dims.get(axis).copied().unwrap_or(0);
                match *part {
                    Index::New => shape.push(1),
                    Index::Slice(slice) => {
                        let slice = if slice.count == usize::MAX { Slice::all(n) } else { slice };
                        slices.push(slice);
                        shape.push(slice.count);
                    }
                    Index::At(at) => {
                        let start = if at < 0 { at + n as isize } else { at };
                        if start < 0 || start >= n as isize {
                            let expected = format!("inside of axis {axis} of extent {n}");
                            return Err(bad("index", expected, at.to_string()));
                        }
                        slices.push(Slice { start: start as usize, step: 1, count: 1 });
                        if gathers {
                            let zero = b.push(ArrayOp::Integer(0), &[])?;
                            arrays.push((place, shape.len(), zero));
                            shape.push(1);
                        }
                    }
                    Index::Array(indices) => {
                        b.check(indices)?;
                        slices.push(Slice::all(n));
                        arrays.push((place, shape.len(), indices));
                        shape.push(n);
                    }
                    Index::Rest => {}
                }
            }
            let x = b.slice(x, &slices)?;
            let x = b.reshape(x, &shape)?;
            if arrays.is_empty() { Ok(x) } else { b.gathered(x, &arrays) }
        })
    }

    /// The arrays of integers: each with its place in the index and its axis of `x`.
    fn gathered(&mut self, x: ValueId, arrays: &[(usize, usize, ValueId)]) -> Result<ValueId> {
        let dims = self.dims(x);
        let is_joined = arrays.windows(2).all(|pair| pair[1].0 == pair[0].0 + 1);
        // Apart from each other, their axes come first.
        let first = if is_joined { arrays[0].1 } else { 0 };
        let axes: Vec<_> = arrays.iter().map(|(_, axis, _)| *axis).collect();
        let mut others: Vec<_> = (0..dims.rank()).filter(|axis| !axes.contains(axis)).collect();
        let kept: Vec<_> = others.iter().map(|&axis| dims[axis]).collect();
        others.splice(first..first, axes.iter().copied());
        let x = self.transpose(x, &others)?;
        let extents: Vec<_> = axes.iter().map(|&axis| dims[axis]).collect();
        let mut shape = kept.clone();
        shape.insert(first, extents.iter().product());
        let x = self.reshape(x, &shape)?;
        let indices: Vec<_> = arrays.iter().map(|(_, _, indices)| *indices).collect();
        let at = self.flat_index(&indices, &extents)?;
        self.take(x, at, first as isize)
    }

    /// Several indices as one into the axes together. If one of them is outside its axis, the result is outside, too.
    fn flat_index(&mut self, indices: &[ValueId], extents: &[usize]) -> Result<ValueId> {
        if let [only] = indices {
            return Ok(*only);
        }
        let integer = |b: &mut Self, x: i64| b.push(ArrayOp::Integer(x), &[]);
        let outside = integer(self, i64::MAX)?;
        let mut flat = integer(self, 0)?;
        let mut fits: Option<ValueId> = None;
        for (&at, &n) in indices.iter().zip(extents) {
            let (zero, extent, least) = (integer(self, 0)?, integer(self, n as i64)?, integer(self, -(n as i64))?);
            let is_negative = self.less(at, zero)?;
            let from_end = self.row(Op::Add, &[at, extent])?;
            let from_start = self.where_(is_negative, from_end, at)?;
            let rows = self.row(Op::Mul, &[flat, extent])?;
            flat = self.row(Op::Add, &[rows, from_start])?;
            let (above, below) = (self.less(at, extent)?, self.compare(Comparison::LessEqual, &[least, at])?);
            let fit = self.both(above, below)?;
            fits = Some(match fits {
                Some(fits) => self.both(fits, fit)?,
                None => fit,
            });
        }
        match fits {
            Some(fits) => self.where_(fits, flat, outside),
            None => Ok(flat),
        }
    }

    /// Indices that count from 0 alone: a negative one, such as the class -1, is outside of every axis and not counted from the end.
    pub fn from_zero(&mut self, indices: ValueId) -> Result<ValueId> {
        self.whole(|b| {
            b.check(indices)?;
            if b.type_of(indices).element != Element::Int {
                return Ok(indices);
            }
            let zero = b.push(ArrayOp::Integer(0), &[])?;
            let far = b.push(ArrayOp::Integer(-BELOW_ZERO), &[])?;
            let is_negative = b.less(indices, zero)?;
            let outside = b.row(Op::Add, &[indices, far])?;
            b.where_(is_negative, outside, indices)
        })
    }

    /// `x` with numbers added along the first axis at integer indices, whose axes those numbers have in its place: all of them, in
    /// order, if indices are equal. Integers if both are; a mask counts as integers.
    pub fn scatter_add(&mut self, x: ValueId, indices: ValueId, numbers: ValueId) -> Result<ValueId> {
        self.whole(|b| {
            let common = match b.common_element(&[x, numbers])? {
                Element::Mask => Element::Int,
                element => element,
            };
            let (x, numbers) = (b.convert(x, common)?, b.convert(numbers, common)?);
            let sum = if b.so_far().may_be_unreached(x) { b.reached(x)? } else { x };
            b.push(ArrayOp::ScatterAdd { axis: 0, batch: 0 }, &[sum, indices, numbers])
        })
    }

    /// `x` with other elements along the first axis at integer indices, whose axes those elements have in its place: the last one, if
    /// indices are equal. Both become the wider of their types.
    pub fn scatter_set(&mut self, x: ValueId, indices: ValueId, elements: ValueId) -> Result<ValueId> {
        self.whole(|b| {
            let common = b.common_element(&[x, elements])?;
            let (x, elements) = (b.convert(x, common)?, b.convert(elements, common)?);
            b.push(ArrayOp::ScatterSet { axis: 0, batch: 0 }, &[x, indices, elements])
        })
    }

    /// The adjoint of elements of dims `of` that were put at indices, given that of the whole: unreached for those that others replaced.
    pub(super) fn adjoint_of_set(
        &mut self,
        g: ValueId,
        indices: ValueId,
        of: Dims,
        (axis, batch): (usize, usize),
    ) -> Result<ValueId> {
        let taken = self.push(ArrayOp::Take { axis, batch }, &[g, indices])?;
        let (whole, at) = (self.dims(g), self.dims(indices));
        let n: usize = at[batch..].iter().product();
        if n < 2 {
            return Ok(taken);
        }
        // Puts the numbers of the elements in the same way, and looks which ones are still there.
        let order = (0..at.size()).map(|k| (k % n) as i64).collect();
        let order = self.constant(Type { dims: at, element: Element::Int }, Data::Int(order))?;
        let table = Dims::new(&[&whole[..batch], &[whole[axis]][..]].concat())?;
        let table = self.constant(Type { dims: table, element: Element::Int }, Data::Int(vec![0; table.size()]))?;
        let table = self.push(ArrayOp::ScatterSet { axis: batch, batch }, &[table, indices, order])?;
        let found = self.push(ArrayOp::Take { axis: batch, batch }, &[table, indices])?;
        let is_last = self.compare(Comparison::Equal, &[found, order])?;
        let mut shape = vec![1; of.rank()];
        shape[..batch].copy_from_slice(&at[..batch]);
        shape[axis..axis + at.rank() - batch].copy_from_slice(&at[batch..]);
        let is_last = self.view(is_last, View::Reshape(Dims::new(&shape)?))?;
        let is_last = self.broadcast_to(is_last, of)?;
        let unreached = self.push(ArrayOp::Unreached(of), &[])?;
        self.push(ArrayOp::Select, &[is_last, taken, unreached])
    }

    /// The elements along an axis at integer indices. The axes of the indices take its place.
    pub fn take(&mut self, x: ValueId, indices: ValueId, axis: isize) -> Result<ValueId> {
        self.check(x)?;
        let axis = self.dims(x).axis(axis)?;
        self.push(ArrayOp::Take { axis, batch: 0 }, &[x, indices])
    }

    /// For each row along an axis, the elements at a row of integer indices; the other axes broadcast.
    pub fn take_along_axis(&mut self, x: ValueId, indices: ValueId, axis: isize) -> Result<ValueId> {
        self.whole(|b| {
            b.check(x)?;
            b.check(indices)?;
            let (dx, di) = (b.dims(x), b.dims(indices));
            let axis = dx.axis(axis)?;
            if dx.rank() != di.rank() {
                let expected = format!("with as many axes as {dx}");
                return Err(bad("indices", expected, di.to_string()));
            }
            let common = dx.with(axis, 1)?.broadcast(&di.with(axis, 1)?)?;
            let x = b.broadcast_to(x, common.with(axis, dx[axis])?)?;
            let indices = b.broadcast_to(indices, common.with(axis, di[axis])?)?;
            let rank = dx.rank();
            let mut last: Vec<_> = (0..rank).filter(|&k| k != axis).collect();
            last.push(axis);
            let (x, indices) = (b.transpose(x, &last)?, b.transpose(indices, &last)?);
            let y = b.push(ArrayOp::Take { axis: rank - 1, batch: rank - 1 }, &[x, indices])?;
            let mut back: Vec<_> = (0..rank - 1).collect();
            back.insert(axis, rank - 1);
            b.transpose(y, &back)
        })
    }

    /// Whether both masks hold.
    pub fn both(&mut self, x: ValueId, y: ValueId) -> Result<ValueId> {
        self.whole(|b| {
            let [x, y] = b.masks(x, y)?;
            b.push(ArrayOp::Select, &[x, y, x])
        })
    }

    /// Whether at least one of two masks holds.
    pub fn either(&mut self, x: ValueId, y: ValueId) -> Result<ValueId> {
        self.whole(|b| {
            let [x, y] = b.masks(x, y)?;
            b.push(ArrayOp::Select, &[x, x, y])
        })
    }

    /// Whether a mask does not hold.
    pub fn not(&mut self, x: ValueId) -> Result<ValueId> {
        self.whole(|b| {
            let x = b.convert(x, Element::Mask)?;
            let dims = b.dims(x);
            let (no, yes) = (b.literal(0.0)?, b.literal(1.0)?);
            let [no, yes] = [b.convert(no, Element::Mask)?, b.convert(yes, Element::Mask)?];
            let (no, yes) = (b.broadcast_to(no, dims)?, b.broadcast_to(yes, dims)?);
            b.push(ArrayOp::Select, &[x, no, yes])
        })
    }

    fn masks(&mut self, x: ValueId, y: ValueId) -> Result<[ValueId; 2]> {
        let (x, y) = (self.convert(x, Element::Mask)?, self.convert(y, Element::Mask)?);
        let dims = self.dims(x).broadcast(&self.dims(y))?;
        Ok([self.broadcast_to(x, dims)?, self.broadcast_to(y, dims)?])
    }

    /// Whether row `i` and column `j` of the last two axes are on a side of a diagonal: `j - i <= offset`.
    pub fn triangle(&mut self, rows: usize, columns: usize, offset: isize) -> Result<ValueId> {
        let dims = Dims::new(&[rows, columns])?;
        let holds = (0..rows as isize).flat_map(|i| (0..columns as isize).map(move |j| j - i <= offset));
        let data = Data::Mask(holds.collect());
        self.constant(Type { dims, element: Element::Mask }, data)
    }

    /// An array of known numbers.
    pub fn constant(&mut self, ty: Type, data: Data) -> Result<ValueId> {
        self.push(ArrayOp::Const(ty.dims, super::instr::Shared(std::sync::Arc::new(data))), &[])
    }
}
