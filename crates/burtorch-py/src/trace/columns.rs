//! Columns of numbers in arrays of any strides: sources of a batch's rows and targets of its results.
//!
//! Two adjacent columns, as in an array whose rows are points of a plane, are read as pairs, which is about
//! three times as fast as separately; a column without gaps is copied.
//!
//! Promises: reads and writes only the given rows. Knows nothing of programs.
#![allow(unsafe_code)]

use burtorch_core::program::batch::{Rows, Sink, Source};
use burtorch_core::simd::pairs;
use burtorch_core::{DType, Float};

use crate::convert::arrays::{Array, Kind};

/// One column of numbers: the address of the first, and the stride.
#[derive(Clone, Copy)]
pub struct Column {
    start: *mut u8,
    stride: isize,
    kind: Kind,
}

/// Columns of inputs, and targets of results.
pub struct Table {
    /// Those of the arguments.
    pub inputs: Vec<Column>,
    /// Inputs that are equal in all rows, after those.
    pub parameters: Vec<f64>,
    /// Targets of values.
    pub values: Vec<Column>,
    /// Targets of gradients.
    pub gradients: Vec<Column>,
}

// SAFETY: columns point into buffers that the call holds; inputs are only read; each row of the results is written by
// the one thread that evaluates it.
unsafe impl Sync for Table {}
// SAFETY: as above.
unsafe impl Send for Table {}

/// Numbers in their own type, if they are f64.
fn as_f64<E: Float>(x: &[E]) -> Option<&[f64]> {
    // SAFETY: only f64 has this name.
    (E::DTYPE == DType::Float64).then(|| unsafe { std::slice::from_raw_parts(x.as_ptr().cast(), x.len()) })
}

/// The same for writing.
fn as_f64_mut<E: Float>(x: &mut [E]) -> Option<&mut [f64]> {
    // SAFETY: as above.
    (E::DTYPE == DType::Float64).then(|| unsafe { std::slice::from_raw_parts_mut(x.as_mut_ptr().cast(), x.len()) })
}

impl Column {
    /// Whether the other contains the numbers right after those of this one.
    fn is_beside(self, other: Column) -> bool {
        let are_f64 = (self.kind, other.kind) == (Kind::F64, Kind::F64);
        are_f64 && self.stride == other.stride && other.start == self.start.wrapping_add(size_of::<f64>())
    }

    /// Whether its numbers are contiguous.
    fn is_dense(self) -> bool {
        self.kind == Kind::F64 && self.stride == size_of::<f64>() as isize
    }

    fn at(self, row: usize) -> *mut u8 {
        self.start.wrapping_offset(self.stride * row as isize)
    }

    /// # Safety
    /// The rows exist in the column.
    #[inline(always)]
    pub unsafe fn read<E: Float>(self, rows: Rows<'_>, to: &mut [E]) {
        // SAFETY: by the contract of this function.
        unsafe {
            match (rows, self.kind) {
                (Rows::Run { first, len }, _) if self.is_dense() && E::DTYPE == DType::Float64 => {
                    std::ptr::copy_nonoverlapping(
                        self.at(first),
                        to[..len].as_mut_ptr().cast(),
                        len * size_of::<f64>(),
                    );
                }
                (Rows::Run { first, len }, Kind::F64) => {
                    let mut at = self.start.wrapping_offset(self.stride * first as isize);
                    for to in &mut to[..len] {
                        *to = E::from_f64(at.cast::<f64>().read_unaligned());
                        at = at.wrapping_offset(self.stride);
                    }
                }
                _ => {
                    for (k, to) in to.iter_mut().enumerate().take(rows.len()) {
                        let at = self.start.wrapping_offset(self.stride * rows.get(k) as isize);
                        *to = E::from_f64(self.kind.read(at));
                    }
                }
            }
        }
    }

    /// # Safety
    /// As for `read`; the column may be written.
    #[inline(always)]
    unsafe fn write<E: Float>(self, rows: Rows<'_>, from: &[E]) {
        // SAFETY: by the contract of this function.
        unsafe {
            match (rows, self.kind) {
                (Rows::Run { first, .. }, _) if self.is_dense() && E::DTYPE == DType::Float64 => {
                    std::ptr::copy_nonoverlapping(from.as_ptr().cast(), self.at(first), size_of_val(from));
                }
                (Rows::Run { first, .. }, Kind::F64) => {
                    let mut at = self.start.wrapping_offset(self.stride * first as isize);
                    for &x in from {
                        at.cast::<f64>().write_unaligned(x.to_f64());
                        at = at.wrapping_offset(self.stride);
                    }
                }
                _ => {
                    for (k, &x) in from.iter().enumerate() {
                        self.kind.write(self.start.wrapping_offset(self.stride * rows.get(k) as isize), x);
                    }
                }
            }
        }
    }
}

impl<E: Float> Source<E> for Table {
    fn read(&self, input: usize, rows: Rows<'_>, to: &mut [E]) {
        match self.inputs.get(input) {
            // SAFETY: rows are below the number that every column was checked to have.
            Some(column) => unsafe { column.read(rows, to) },
            None => to.fill(E::from_f64(self.parameters[input - self.inputs.len()])),
        }
    }

    fn read_two(&self, input: usize, rows: Rows<'_>, [x, y]: [&mut [E]; 2]) -> bool {
        if let (Some(a), Some(b)) = (self.inputs.get(input), self.inputs.get(input + 1))
            && let (Rows::Run { first, len }, true) = (rows, a.is_beside(*b))
            && let (Some(x), Some(y)) = (as_f64_mut(x), as_f64_mut(y))
        {
            // SAFETY: as above; what lies side by side is read as pairs.
            unsafe { pairs::split(a.at(first), a.stride, &mut x[..len], &mut y[..len]) }
            return true;
        }
        false
    }
}

impl<E: Float> Sink<E> for Table {
    fn value(&self, output: usize, rows: Rows<'_>, from: &[E]) {
        // SAFETY: as above; results are arrays of ours, or were checked to be writable.
        unsafe { self.values[output].write(rows, from) }
    }

    fn gradient(&self, input: usize, rows: Rows<'_>, from: &[E]) {
        // SAFETY: as above.
        unsafe { self.gradients[input].write(rows, from) }
    }

    fn gradient_of_two(&self, input: usize, rows: Rows<'_>, [x, y]: [&[E]; 2]) -> bool {
        if let (Some(a), Some(b)) = (self.gradients.get(input), self.gradients.get(input + 1))
            && let (Rows::Run { first, .. }, true) = (rows, a.is_beside(*b))
            && let (Some(x), Some(y)) = (as_f64(x), as_f64(y))
        {
            // SAFETY: as above.
            unsafe { pairs::join(a.at(first), a.stride, x, y) }
            return true;
        }
        false
    }
}

/// The columns of an array whose first axis counts rows, and the shape of a row.
pub fn columns(array: &Array) -> (Vec<Column>, Vec<usize>) {
    let (shape, strides) = (array.shape(), array.strides());
    let mut starts = vec![array.start()];
    for (&n, &stride) in shape[1..].iter().zip(&strides[1..]) {
        starts = starts.iter().flat_map(|&at| (0..n as isize).map(move |k| at.wrapping_offset(k * stride))).collect();
    }
    let column = |start: *mut u8| Column { start, stride: strides[0], kind: array.kind };
    (starts.into_iter().map(column).collect(), shape[1..].to_vec())
}
