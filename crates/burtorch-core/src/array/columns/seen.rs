//! The position in an array of a number of its view.
//!
//! Does not know programs.

use super::super::dims::Dims;
use super::super::instr::{Slice, View};

/// The index along each axis of number `at` in C order.
pub(super) fn unravelled(dims: Dims, at: usize) -> impl DoubleEndedIterator<Item = usize> {
    let strides = dims.strides();
    (0..dims.rank()).map(move |axis| at / strides[axis].unsigned_abs().max(1) % dims[axis].max(1))
}

/// Which number of an array of shape `from` number `at` of its view of shape `dims` is. Rows of numbers may stand for arrays: the
/// first axis is only looked at.
pub(super) fn seen(view: &View, dims: Dims, from: Dims, at: usize) -> usize {
    let index: Vec<_> = unravelled(dims, at).collect();
    let strides = from.strides();
    let place = |axis: usize, k: usize| strides[axis].unsigned_abs() * k;
    match view {
        View::Reshape(_) => at,
        View::Permute(axes) => axes.iter().zip(&index).map(|(&axis, &k)| place(axis, k)).sum(),
        View::Slice(slices) => {
            let at = |(axis, slice): (usize, &Slice)| {
                place(axis, slice.start.wrapping_add_signed(slice.step * index[axis] as isize))
            };
            slices.iter().enumerate().map(at).sum()
        }
        View::Broadcast(_) => {
            let new = dims.rank() - from.rank();
            (0..from.rank()).map(|axis| if from[axis] == 1 { 0 } else { place(axis, index[axis + new]) }).sum()
        }
    }
}
