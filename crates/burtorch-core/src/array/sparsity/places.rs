//! The numbers of an operand that the numbers of a result come from.
//!
//! Does not know dependencies.

use super::super::dims::{Axes, Dims};
use super::super::instr::{Slice, View};

/// `base` plus the strides times the index, for each index of these extents in C order.
fn walked(extents: &[usize], strides: &[isize], base: usize) -> Vec<usize> {
    let mut all = vec![base];
    for (&extent, &stride) in extents.iter().zip(strides) {
        let along = |from: &usize| {
            let from = *from;
            (0..extent as isize).map(move |k| from.wrapping_add_signed(k * stride))
        };
        all = all.iter().flat_map(along).collect();
    }
    all
}

/// For each number of a view of shape `dims` its place in the operand of shape `from`; `None` if it is the same place.
pub(super) fn of_view(view: &View, dims: &Dims, from: &Dims) -> Option<Vec<usize>> {
    let strides = from.strides();
    match view {
        View::Reshape(_) => None,
        View::Permute(axes) => {
            let strides: Vec<_> = axes.iter().map(|&axis| strides[axis]).collect();
            Some(walked(dims, &strides, 0))
        }
        View::Slice(slices) => Some(of_slices(slices, from)),
        View::Broadcast(_) => {
            let new = dims.rank() - from.rank();
            let stride = |axis: usize| match axis.checked_sub(new) {
                Some(axis) if from[axis] != 1 => strides[axis],
                _ => 0,
            };
            Some(walked(dims, &(0..dims.rank()).map(stride).collect::<Vec<_>>(), 0))
        }
    }
}

/// The places of a slice.
pub(super) fn of_slices(slices: &[Slice], from: &Dims) -> Vec<usize> {
    let strides = from.strides();
    let extents: Vec<_> = slices.iter().map(|slice| slice.count).collect();
    let steps: Vec<_> = slices.iter().enumerate().map(|(axis, slice)| strides[axis] * slice.step).collect();
    let base = slices.iter().enumerate().map(|(axis, slice)| strides[axis].unsigned_abs() * slice.start).sum();
    walked(&extents, &steps, base)
}

/// For each number of an array its group in a reduction over axes, and the number of groups.
pub(super) fn groups(dims: &Dims, axes: Axes) -> (Vec<usize>, usize) {
    let kept = dims.reduced(axes, true);
    let strides = kept.strides();
    let of_group: Vec<_> = (0..dims.rank()).map(|axis| if axes.has(axis) { 0 } else { strides[axis] }).collect();
    (walked(dims, &of_group, 0), kept.size())
}
