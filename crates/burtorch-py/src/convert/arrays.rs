//! Arrays of numbers of any float or integer type and any strides, as arguments and results.
//!
//! Promises: reads and writes stay inside the array's buffer; NumPy is imported only to create an array.
#![allow(unsafe_code)]

use std::ops::Range;

use burtorch_core::Float;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::convert::buffer::{Dims, buffer_of, refuse_masked, type_name};
use crate::convert::entry::check_signals;
use crate::convert::errors::numpy;
use crate::convert::gc::{HoldsObjects, Visitor};
pub use crate::convert::kinds::Kind;
use crate::convert::numbers::{is_text, real};
use crate::convert::signals::{quietly, text_of};

impl HoldsObjects for Array {
    fn visit(&self, visit: &mut Visitor<'_>) {
        self.buffer.visit(visit);
    }
}

/// A type of numbers that may be read in place.
pub trait InPlace: Copy {
    const KIND: Kind;
}
impl InPlace for f64 {
    const KIND: Kind = Kind::F64;
}
impl InPlace for f32 {
    const KIND: Kind = Kind::F32;
}
impl InPlace for i32 {
    const KIND: Kind = Kind::Signed(4);
}
impl InPlace for i64 {
    const KIND: Kind = Kind::Signed(8);
}

/// Numbers of one object, in place. Holds its buffer.
pub struct Array {
    buffer: PyUntypedBuffer,
    /// The type of its numbers.
    pub kind: Kind,
}

impl Array {
    /// The buffer of an object, if it has one of numbers and no mask.
    pub fn of(object: &Bound<'_, PyAny>) -> Option<Array> {
        // Bytes are text, and not small integers.
        if is_text(object) {
            return None;
        }
        let buffer = quietly(object.py(), || buffer_of(object))?;
        let kind = Kind::of(&buffer)?;
        Some(Array { buffer, kind })
    }

    /// A buffer of anything, to visit its entries.
    pub fn of_bytes(buffer: PyUntypedBuffer) -> Array {
        Array { buffer, kind: Kind::Unsigned(1) }
    }

    /// As `of`, for an object with `__array__`, a sequence, or numbers of another byte order: a copy by NumPy.
    pub fn converted(object: &Bound<'_, PyAny>) -> PyResult<Array> {
        if let Some(array) = Array::of(object) {
            return Ok(array);
        }
        refuse_masked(object)?;
        Array::copy_of(object)
    }

    /// NumPy's copy of the object as an array.
    pub fn copy_of(object: &Bound<'_, PyAny>) -> PyResult<Array> {
        let numpy = numpy(object.py())?;
        let found = numpy.call_method1("asarray", (object,))?;
        let kind: String = found.getattr("dtype")?.getattr("kind")?.extract()?;
        let copy = match kind.as_str() {
            "f" | "i" | "u" | "b" => numpy.call_method1("array", (&found, "float64"))?,
            // Objects that convert themselves, one by one.
            "O" => {
                let all = found
                    .getattr("flat")?
                    .try_iter()?
                    .map(|item| real(&item?, "entries of an array must be real numbers"));
                let all = all.collect::<PyResult<Vec<_>>>()?;
                numpy.call_method1("array", (all, "float64"))?.call_method1("reshape", (found.getattr("shape")?,))?
            }
            _ => return Err(not_real(object, &found)),
        };
        Array::of(&copy).ok_or_else(|| not_real(object, &found))
    }

    /// A writable array of floats, to put results in.
    pub fn writable(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Array> {
        let array = Array::of(object).filter(|a| !matches!(a.kind, Kind::Signed(_) | Kind::Unsigned(_)));
        let array = array
            .ok_or_else(|| PyTypeError::new_err(format!("{what} must be an array of float16, float32 or float64")))?;
        if array.buffer.readonly() {
            return Err(PyValueError::new_err(format!("{what} is read-only; give an array that can be written")));
        }
        Ok(array)
    }

    /// Entries along each dimension.
    pub fn shape(&self) -> &[usize] {
        self.buffer.shape()
    }

    /// Number of numbers.
    pub fn len(&self) -> usize {
        self.shape().iter().product()
    }

    /// Bytes from one entry to the next along each dimension.
    pub fn strides(&self) -> &[isize] {
        self.buffer.strides()
    }

    /// The first entry.
    pub fn start(&self) -> *mut u8 {
        self.buffer.buf_ptr().cast()
    }

    /// The address range from its first byte to the end of its last one.
    pub fn extent(&self) -> Range<usize> {
        let start = self.start() as usize;
        if self.len() == 0 {
            return start..start;
        }
        let (mut low, mut high) = (start, start + self.buffer.item_size());
        for (&n, &stride) in self.shape().iter().zip(self.strides()) {
            let reach = stride.wrapping_mul(n as isize - 1);
            if reach < 0 { low = low.wrapping_add_signed(reach) } else { high = high.wrapping_add_signed(reach) }
        }
        low..high
    }

    /// Whether the address ranges of both overlap.
    pub fn may_overlap(&self, other: &Array) -> bool {
        let (a, b) = (self.extent(), other.extent());
        a.start < b.end && b.start < a.end
    }

    /// Calls `f` with the place of every number, by rows.
    pub fn for_each(&self, mut f: impl FnMut(*mut u8)) {
        let (n, stride) = self.of_last_dimension();
        self.for_each_row(|start| (0..n).for_each(|k| f(start.wrapping_offset(stride * k as isize))));
    }

    /// Entries of the last dimension, and bytes from one to the next.
    fn of_last_dimension(&self) -> (usize, isize) {
        (self.shape().last().copied().unwrap_or(1), self.strides().last().copied().unwrap_or(0))
    }

    /// Calls `f` with the place of the first number of every row of the last dimension, in order.
    fn for_each_row(&self, mut f: impl FnMut(*mut u8)) {
        if self.len() == 0 {
            return;
        }
        let n_outer = self.shape().len().saturating_sub(1);
        let (shape, strides) = (&self.shape()[..n_outer], &self.strides()[..n_outer]);
        let mut index = vec![0_usize; n_outer];
        let mut at = self.start();
        loop {
            f(at);
            let mut axis = n_outer;
            loop {
                if axis == 0 {
                    return;
                }
                axis -= 1;
                index[axis] += 1;
                at = at.wrapping_offset(strides[axis]);
                if index[axis] < shape[axis] {
                    break;
                }
                at = at.wrapping_offset(-strides[axis] * shape[axis] as isize);
                index[axis] = 0;
            }
        }
    }

    /// Appends all numbers, by rows.
    pub fn read_into(&self, all: &mut Vec<f64>) {
        if self.kind == Kind::F64 && self.buffer.is_c_contiguous() && (self.start() as usize).is_multiple_of(8) {
            // SAFETY: a contiguous, aligned buffer of f64 that is held here.
            all.extend_from_slice(unsafe { std::slice::from_raw_parts(self.start().cast(), self.len()) });
            return;
        }
        all.reserve(self.len());
        let (n, stride) = self.of_last_dimension();
        // SAFETY: rows of the buffer, which is held here.
        self.for_each_row(|start| unsafe { self.kind.read_row(start, stride, n, all) });
    }

    /// The shape, if there are one or two axes.
    pub fn dims(&self) -> Option<Dims> {
        match *self.shape() {
            [n] => Some(Dims::one(n)),
            [n, width] => Some(Dims::two(n, width)),
            _ => None,
        }
    }

    /// The numbers in place, if they have this type and are stored by rows. Python code that runs while they are read may
    /// change them.
    pub fn in_place<T: InPlace>(&self) -> Option<&[T]> {
        if self.kind != T::KIND || self.len() > 0 && !self.buffer.is_c_contiguous() {
            return None;
        }
        if self.len() == 0 {
            return Some(&[]);
        }
        let is_aligned = (self.start() as usize).is_multiple_of(align_of::<T>());
        // SAFETY: a contiguous, aligned buffer of this many numbers of this type that is held here.
        is_aligned.then(|| unsafe { std::slice::from_raw_parts(self.start().cast(), self.len()) })
    }

    /// All numbers, by rows.
    pub fn floats(&self) -> Vec<f64> {
        let mut all = Vec::with_capacity(self.len());
        self.read_into(&mut all);
        all
    }

    /// All numbers of an array of integers, by rows, exactly; an OverflowError for a number of 2^63 or more.
    pub fn integers(&self) -> PyResult<Vec<i64>> {
        let mut all = Vec::with_capacity(self.len());
        let mut beyond = None;
        self.for_each(|at| {
            // SAFETY: `for_each` visits the entries of the buffer, which is held here.
            all.push(unsafe {
                match self.kind {
                    Kind::Signed(8) => at.cast::<i64>().read_unaligned(),
                    Kind::Unsigned(8) => {
                        let number = at.cast::<u64>().read_unaligned();
                        number.try_into().unwrap_or_else(|_| {
                            beyond = Some(number);
                            0
                        })
                    }
                    kind => kind.read(at) as i64,
                }
            });
        });
        match beyond {
            Some(number) => Err(PyOverflowError::new_err(format!(
                "integers of Arrays have 64 bits with a sign, found {number}; convert the array to floats"
            ))),
            None => Ok(all),
        }
    }

    /// Replaces entries of one dimension by the result of `f` on the present number and the given one.
    pub fn update(&self, mut entries: impl Iterator<Item = (usize, f64)>, f: impl Fn(f64, f64) -> f64) -> PyResult<()> {
        let is_writable = matches!(self.kind, Kind::F16 | Kind::F32 | Kind::F64) && !self.buffer.readonly();
        let (true, &[len], &[stride]) = (is_writable, self.shape(), self.strides()) else {
            return Err(PyValueError::new_err("expected an array of floats of one dimension that can be written"));
        };
        entries.try_for_each(|(index, x)| {
            if index >= len {
                return Err(PyValueError::new_err("expected a longer array"));
            }
            let at = self.start().wrapping_offset(stride * index as isize);
            // SAFETY: the entry lies in the buffer, which is held here and can be written; its numbers are floats.
            unsafe { self.kind.write(at, f(self.kind.read(at), x)) };
            Ok(())
        })
    }

    /// Writes one number everywhere.
    pub fn fill(&self, x: f64) {
        // SAFETY: as in `write`.
        self.for_each(|at| unsafe { self.kind.write(at, x) });
    }

    /// Writes numbers, by rows; as many as there are of both.
    pub fn write<E: Float>(&self, numbers: &[E]) {
        let (n, stride) = self.of_last_dimension();
        let mut rows = numbers.chunks(n.max(1));
        self.for_each_row(|start| {
            if let Some(row) = rows.next() {
                // SAFETY: a row of the buffer, which is held here; the callers created the array, or checked that it is
                // writable and holds floats.
                unsafe { self.kind.write_row(start, stride, row) }
            }
        });
    }
}

/// The error for an object, or an array of it, that holds no real numbers.
fn not_real(object: &Bound<'_, PyAny>, array: &Bound<'_, PyAny>) -> PyErr {
    let dtype =
        quietly(object.py(), || array.getattr("dtype")).map_or_else(|| "another type".into(), |dtype| text_of(&dtype));
    PyTypeError::new_err(format!("expected an array of real numbers, found {} of {dtype}", type_name(object)))
}

/// A new NumPy array, not filled.
pub fn empty<'py>(py: Python<'py>, shape: &[usize], kind: Kind) -> PyResult<Bound<'py, PyAny>> {
    empty_of(py, shape, kind.numpy_name())
}

fn empty_of<'py>(py: Python<'py>, shape: &[usize], name: &str) -> PyResult<Bound<'py, PyAny>> {
    static EMPTY: pyo3::sync::PyOnceLock<Py<PyAny>> = pyo3::sync::PyOnceLock::new();
    let make = EMPTY.get_or_try_init(py, || Ok::<_, PyErr>(numpy(py)?.getattr("empty")?.unbind()))?;
    let shape = PyTuple::new(py, shape)?;
    make.bind(py).call1((shape, name))
}

/// A new NumPy array of these numbers, by rows, unchanged or rounded to another float type.
pub fn copied<'py, E: Float + InPlace>(
    py: Python<'py>,
    shape: &[usize],
    kind: Kind,
    numbers: &[E],
) -> PyResult<Bound<'py, PyAny>> {
    let array = empty(py, shape, kind)?;
    write_all(&Array::writable(&array, "a new array")?, numbers);
    Ok(array)
}

/// Writes numbers to an array of floats with the same length, by rows.
pub fn write_all<E: Float + InPlace>(to: &Array, numbers: &[E]) {
    if to.kind == E::KIND && to.len() == numbers.len() && to.in_place::<E>().is_some() {
        // SAFETY: `in_place` returned a contiguous, aligned buffer of this many numbers of this type, which does not
        // overlap the source.
        unsafe { std::ptr::copy(numbers.as_ptr(), to.start().cast(), numbers.len()) };
    } else {
        to.write(numbers);
    }
}

/// Numbers between two checks for signals.
const PIECE: usize = 1 << 16;

/// A new NumPy array of one dimension, of a dtype of this name, written with checks for signals in between.
pub fn written<'py, T: InPlace>(
    py: Python<'py>,
    name: &str,
    numbers: impl ExactSizeIterator<Item = T>,
) -> PyResult<Bound<'py, PyAny>> {
    let n = numbers.len();
    let array = empty_of(py, &[n], name)?;
    let place = Array::of(&array).filter(|place| place.len() == n && place.kind == T::KIND);
    let place = place.ok_or_else(|| PyTypeError::new_err(format!("NumPy made no array of {name}")))?;
    let start = place.start().cast::<T>();
    for (k, number) in numbers.take(n).enumerate() {
        if k.is_multiple_of(PIECE) {
            check_signals(py)?;
        }
        // SAFETY: a new array is contiguous and aligned, has this many numbers, and has no other references.
        unsafe { start.add(k).write(number) };
    }
    Ok(array)
}

/// A new NumPy array of these integers, by rows.
pub fn of_integers<'py>(py: Python<'py>, shape: &[usize], numbers: &[i64]) -> PyResult<Bound<'py, PyAny>> {
    let array = empty_of(py, shape, "int64")?;
    let place = Array::of(&array).filter(|place| place.len() == numbers.len() && place.kind == i64::KIND);
    let place = place.ok_or_else(|| PyTypeError::new_err("NumPy made no array of int64"))?;
    // SAFETY: a new array is contiguous and aligned, has this many numbers, and has no other references.
    unsafe { std::ptr::copy_nonoverlapping(numbers.as_ptr(), place.start().cast(), numbers.len()) };
    Ok(array)
}

/// A new NumPy array of these numbers, by rows.
pub fn filled<'py>(py: Python<'py>, shape: &[usize], kind: Kind, numbers: &[f64]) -> PyResult<Bound<'py, PyAny>> {
    let array = empty(py, shape, kind)?;
    let view = Array::writable(&array, "a new array")?;
    if kind == Kind::F64 && view.len() == numbers.len() {
        // SAFETY: a new array is contiguous and aligned, has this many numbers, and has no other references.
        unsafe { std::ptr::copy_nonoverlapping(numbers.as_ptr(), view.start().cast(), numbers.len()) };
    } else {
        view.write(numbers);
    }
    Ok(array)
}
