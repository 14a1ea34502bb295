//! `FlatArray`: numbers shared with Python without a copy, where they never move, or copied.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use burtorch_core::erased::AnyNumber;
use burtorch_core::{DType, Float, bf16, f16};
use pyo3::exceptions::{PyBufferError, PyIndexError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyMemoryView, PySlice, PyTuple};

use super::view::Exported;
use super::{dlpack, read_numbers};
use crate::convert::gc::{HoldsObjects, Visitor, collected};
use crate::convert::numbers;
use crate::convert::signals::{ask_at, text_of};

/// Flat numbers of one type: shared with their owner, or a copy.
///
/// Shared are the values and gradients of Parameters and of their tensors, and those of graphs whose memory never moves
/// (fixed ones, and ones in a caller's buffer); `is_copy` tells. Supports `len`, indexing by int and by slices of step 1,
/// iteration, comparison, the buffer protocol (format "f", "d" or "e") and DLPack, so `memoryview(a)`,
/// `numpy.asarray(a)` and `torch.from_dlpack(a)` copy nothing; bfloat16 has DLPack only, float128 neither: use `list(a)`.
/// Holding an array keeps its owner alive. Nothing is refused because an array is held; a graph that is rewound
/// puts its next nodes where the array looks.
///
/// Example:
///     >>> import burtorch as bt
///     >>> params = bt.Parameters()
///     >>> w = params.tensor((2, 2), init=0.5)
///     >>> params.values[1] = 3.0
///     >>> list(w.values), w.values.is_copy
///     ([0.5, 3.0, 0.5, 0.5], False)
#[pyclass(frozen, name = "FlatArray", module = "burtorch")]
pub struct FlatArray {
    owner: Owner,
    start: NonNull<u8>,
    /// For the buffer protocol, which needs the addresses of both.
    len: isize,
    item_size: isize,
    dtype: DType,
    read_only: bool,
}
collected!(FlatArray: owner);

/// The owner of an array's memory.
enum Owner {
    /// An object, and the number of arrays over its memory if it counts them.
    Object(Py<PyAny>, Option<Arc<AtomicUsize>>),
    /// The array itself, shared with its slices. Aligned for every type.
    Copy(Arc<[u128]>),
}

impl HoldsObjects for Owner {
    fn visit(&self, visit: &mut Visitor<'_>) {
        match self {
            Owner::Object(object, _) => object.visit(visit),
            Owner::Copy(_) => {}
        }
    }
}

impl Owner {
    fn clone_ref(&self, py: Python<'_>) -> Owner {
        match self {
            Owner::Object(object, n_arrays) => {
                n_arrays.iter().for_each(|n| _ = n.fetch_add(1, Ordering::AcqRel));
                Owner::Object(object.clone_ref(py), n_arrays.clone())
            }
            Owner::Copy(memory) => Owner::Copy(memory.clone()),
        }
    }
}

// SAFETY: the memory belongs to the owner, which outlives this and does not move it (Parameters while `n_arrays` counts
// this); as with every writable buffer, its users ensure that two threads do not write the same number at once.
unsafe impl Send for FlatArray {}
// SAFETY: as above.
unsafe impl Sync for FlatArray {}

impl Drop for FlatArray {
    fn drop(&mut self) {
        if let Owner::Object(_, Some(n_arrays)) = &self.owner {
            n_arrays.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

const fn size_of_item(dtype: DType) -> isize {
    match dtype {
        DType::Float16 | DType::BFloat16 => 2,
        DType::Float32 => 4,
        DType::Float64 => 8,
        DType::Float128 => 16,
    }
}

impl FlatArray {
    /// An array over numbers of `owner`, which `start` points into and which counts its arrays, as its memory may move without.
    pub fn counted(
        owner: Py<PyAny>,
        n_arrays: &Arc<AtomicUsize>,
        start: NonNull<u8>,
        len: usize,
        dtype: DType,
    ) -> Self {
        n_arrays.fetch_add(1, Ordering::AcqRel);
        Self::over(Owner::Object(owner, Some(Arc::clone(n_arrays))), start, len, dtype)
    }

    /// An array over numbers of `owner`, which `start` points into and whose memory never moves.
    pub fn unmoved(owner: Py<PyAny>, start: NonNull<u8>, len: usize, dtype: DType, read_only: bool) -> Self {
        let mut array = Self::over(Owner::Object(owner, None), start, len, dtype);
        array.read_only = read_only;
        array
    }

    /// An array that owns a copy.
    pub fn copied<E: Float>(numbers: &[E]) -> Self {
        let n_words = size_of_val(numbers).div_ceil(16);
        let mut memory: Arc<[u128]> = std::iter::repeat_n(0, n_words).collect();
        let start = Arc::get_mut(&mut memory).map_or(NonNull::dangling(), |words| NonNull::from(words).cast::<u8>());
        // SAFETY: the words are not shared yet, aligned for every number type, and at least as long as the numbers.
        unsafe { start.cast::<E>().copy_from_nonoverlapping(NonNull::from(numbers).cast(), numbers.len()) }
        Self::over(Owner::Copy(memory), start, numbers.len(), E::DTYPE)
    }

    fn over(owner: Owner, start: NonNull<u8>, len: usize, dtype: DType) -> Self {
        FlatArray { owner, start, len: len as isize, item_size: size_of_item(dtype), dtype, read_only: false }
    }

    /// The addresses of its numbers.
    pub fn addresses(&self) -> Range<usize> {
        let start = self.start.as_ptr() as usize;
        start..start + (self.len * self.item_size) as usize
    }

    /// First number, how many, their type, and whether they are read-only.
    pub fn parts(&self) -> (NonNull<u8>, usize, DType, bool) {
        (self.start, self.len as usize, self.dtype, self.read_only)
    }

    /// A part of this array that shares its memory.
    fn part(&self, py: Python<'_>, start: usize, len: usize) -> FlatArray {
        // SAFETY: callers pass a span inside this array, and an array's start may be its end.
        let first = unsafe { self.start.add(start * self.item_size as usize) };
        let mut part = Self::over(self.owner.clone_ref(py), first, len, self.dtype);
        part.read_only = self.read_only;
        part
    }

    /// A copy of the numbers.
    pub fn own(&self) -> FlatArray {
        let n_words = (self.len as usize * self.item_size as usize).div_ceil(16);
        let mut memory: Arc<[u128]> = std::iter::repeat_n(0, n_words).collect();
        let start = Arc::get_mut(&mut memory).map_or(NonNull::dangling(), |words| NonNull::from(words).cast::<u8>());
        // SAFETY: both have this many bytes, and new memory overlaps nothing.
        unsafe { start.copy_from_nonoverlapping(self.start, self.len as usize * self.item_size as usize) }
        Self::over(Owner::Copy(memory), start, self.len as usize, self.dtype)
    }

    /// The format of the numbers in the buffer protocol, if there is one.
    fn format(&self) -> Option<&'static CStr> {
        match self.dtype {
            DType::Float16 => Some(c"e"),
            DType::Float32 => Some(c"f"),
            DType::Float64 => Some(c"d"),
            DType::BFloat16 | DType::Float128 => None,
        }
    }

    fn place(&self, index: isize) -> PyResult<usize> {
        let at = if index < 0 { index + self.len } else { index };
        if (0..self.len).contains(&at) {
            return Ok(at as usize);
        }
        Err(PyIndexError::new_err(format!("index {index} is out of range for an array of {} numbers", self.len)))
    }

    /// Start and length of a slice of step 1.
    fn span(&self, slice: &Bound<'_, PySlice>) -> PyResult<(usize, usize)> {
        let indices = slice.indices(self.len)?;
        if indices.step == 1 {
            return Ok((indices.start.max(0) as usize, indices.slicelength));
        }
        Err(PyValueError::new_err("a FlatArray is cut in steps of 1; use numpy.asarray(a)[i:j:k] for other steps"))
    }

    /// # Safety
    /// `at` is below the length.
    unsafe fn read<'py>(&self, py: Python<'py>, at: usize) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: the caller guarantees that the number exists; the memory is aligned and initialised.
        let number = unsafe {
            match self.dtype {
                DType::Float32 => AnyNumber::of(self.start.cast::<f32>().add(at).read_volatile()),
                DType::Float64 => AnyNumber::of(self.start.cast::<f64>().add(at).read_volatile()),
                DType::Float16 => AnyNumber::of(self.start.cast::<f16>().add(at).read_volatile()),
                DType::BFloat16 => AnyNumber::of(self.start.cast::<bf16>().add(at).read_volatile()),
                DType::Float128 => AnyNumber::of(self.start.cast::<f128>().add(at).read_volatile()),
            }
        };
        numbers::into_python(py, number)
    }

    /// # Safety
    /// `at` is below the length.
    unsafe fn write(&self, at: usize, x: &AnyNumber) {
        // SAFETY: as in `read`.
        unsafe {
            match self.dtype {
                DType::Float32 => self.start.cast::<f32>().add(at).write_volatile(x.scalar()),
                DType::Float64 => self.start.cast::<f64>().add(at).write_volatile(x.scalar()),
                DType::Float16 => self.start.cast::<f16>().add(at).write_volatile(x.scalar()),
                DType::BFloat16 => self.start.cast::<bf16>().add(at).write_volatile(x.scalar()),
                DType::Float128 => self.start.cast::<f128>().add(at).write_volatile(x.scalar()),
            }
        }
    }

    /// Converts an object to an entry.
    fn entry(&self, object: &Bound<'_, PyAny>) -> PyResult<AnyNumber> {
        if self.dtype == DType::Float128 {
            return numbers::expect_one(object, self.dtype);
        }
        numbers::real(object, "values must be real numbers").map(AnyNumber::One)
    }

    /// Converts an object to the entries of a slice.
    fn entries(&self, object: &Bound<'_, PyAny>, len: usize) -> PyResult<Vec<AnyNumber>> {
        if let Ok(one) = self.entry(object) {
            return Ok(vec![one; len]);
        }
        if self.dtype == DType::Float128 {
            return numbers::items(object)?.map(|item| numbers::expect_one(&item?, self.dtype)).collect();
        }
        let mut numbers = Vec::new();
        read_numbers(object, &mut numbers, "values")?;
        Ok(numbers.into_iter().map(AnyNumber::One).collect())
    }

    fn list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        // SAFETY: all indices are below the length.
        let all = (0..self.len as usize).map(|k| ask_at(py, k).and_then(|()| unsafe { self.read(py, k) }));
        PyList::new(py, all.collect::<PyResult<Vec<_>>>()?)
    }
}

#[pymethods]
impl FlatArray {
    fn __len__(&self) -> usize {
        self.len as usize
    }

    /// The type of the numbers, such as "float32".
    #[getter]
    fn dtype(&self) -> &'static str {
        self.dtype.name()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if let Ok(slice) = index.cast::<PySlice>() {
            let (start, len) = self.span(slice)?;
            return Ok(Bound::new(py, self.part(py, start, len))?.into_any());
        }
        let at = self.place(index.extract()?)?;
        // SAFETY: `place` gives indices below the length.
        unsafe { self.read(py, at) }
    }

    /// Whether the numbers are a copy, and not shared with their source.
    #[getter]
    fn is_copy(&self) -> bool {
        matches!(self.owner, Owner::Copy(_))
    }

    fn __setitem__(&self, index: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        if self.read_only {
            return Err(PyTypeError::new_err("these are adjoints of the last sweep, which cannot be written here"));
        }
        let Ok(slice) = index.cast::<PySlice>() else {
            let at = self.place(index.extract()?)?;
            let value = self.entry(value)?;
            // SAFETY: `place` gives indices below the length.
            unsafe { self.write(at, &value) };
            return Ok(());
        };
        let (start, len) = self.span(slice)?;
        let numbers = self.entries(value, len)?;
        if numbers.len() != len {
            return Err(PyValueError::new_err(format!("{} numbers do not fit a slice of {len}", numbers.len())));
        }
        for (k, x) in numbers.iter().enumerate() {
            // SAFETY: the span lies inside this array.
            unsafe { self.write(start + k, x) };
        }
        Ok(())
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        // memoryview supports the formats of module struct, but half numbers only since recently.
        match slf.get().dtype {
            DType::Float32 | DType::Float64 => Ok(PyMemoryView::from(slf.as_any())?.try_iter()?.into_any()),
            _ => Ok(slf.get().list(slf.py())?.try_iter()?.into_any()),
        }
    }

    /// Whether the numbers are those of another FlatArray, a list, a tuple or an array.array, in order.
    fn __eq__<'py>(&self, py: Python<'py>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let other = match other.cast::<FlatArray>() {
            Ok(array) => array.get().list(py)?.into_any(),
            _ if other.is_instance_of::<PyList>() || other.is_instance_of::<PyTuple>() => other.clone(),
            _ if other.get_type().name()? == "array" => other.clone(),
            _ => return Ok(py.NotImplemented().into_bound(py)),
        };
        self.list(py)?
            .eq(other.try_iter()?.collect::<PyResult<Vec<_>>>()?)?
            .into_pyobject(py)
            .map(|x| x.to_owned().into_any())
            .map_err(PyErr::from)
    }

    /// (1, 0): these numbers are in the memory of the CPU.
    fn __dlpack_device__(&self) -> (i32, i32) {
        dlpack::CPU
    }

    /// A DLPack capsule over the same memory, for numpy.from_dlpack and torch.from_dlpack.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        slf: &Bound<'py, Self>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if stream.is_some() || dl_device.is_some_and(|device| device != dlpack::CPU) {
            return Err(PyBufferError::new_err("these numbers are in the memory of the CPU, which has no streams"));
        }
        let array = if copy == Some(true) { Bound::new(slf.py(), slf.get().own())? } else { slf.clone() };
        dlpack::capsule(&array, max_version.is_some_and(|(major, _)| major >= 1))
    }

    /// The numbers as a list of floats; of Decimals for float128.
    fn tolist<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.list(py)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        // SAFETY: all indices are below the length.
        let first = (0..(self.len as usize).min(4)).map(|k| Ok(text_of(&unsafe { self.read(py, k) }?)));
        let first = first.collect::<PyResult<Vec<_>>>()?.join(", ");
        let dots = if self.len > 4 { ", ..." } else { "" };
        let copy = if self.is_copy() { ", copy" } else { "" };
        Ok(format!("FlatArray([{first}{dots}], n={}, dtype={}{copy})", self.len, self.dtype.name()))
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let array = slf.get();
        let Some(format) = array.format() else {
            let name = array.dtype.name();
            return Err(PyBufferError::new_err(format!("arrays of {name} have no buffer format; use list(array)")));
        };
        let memory = Exported {
            start: array.start.as_ptr().cast(),
            item_size: array.item_size,
            format,
            shape: std::slice::from_ref(&array.len),
            strides: std::slice::from_ref(&array.item_size),
            read_only: array.read_only,
        };
        // SAFETY: Python passes a view to fill; shape and strides live in `slf`, which the view keeps alive.
        unsafe { memory.fill(slf.clone().into_any(), view, flags) }
    }
}
