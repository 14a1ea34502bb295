//! Arrays between Python and the core: numbers of a `Parameters` shared without a copy, symbols handed out, and whole or
//! real numbers read from any buffer or nested sequence.
//!
//! Promises: what is exported never moves while somebody holds it; what is read is checked before it is used; NumPy is
//! not imported. Knows nothing of models.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use burtorch_core::DType;
use pyo3::buffer::{ElementType, PyUntypedBuffer};
use pyo3::exceptions::{PyBufferError, PyIndexError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt, PyList, PyMemoryView, PySlice, PyString, PyTuple};

use crate::params::PyParameters;

/// Flat numbers that never move, shared without a copy.
///
/// The values or gradients of Parameters, or of one tensor of them. Supports `len`, indexing by int and by slices of
/// step 1, iteration, and the buffer protocol (format "f" or "d", writable), so `memoryview(a)` and `numpy.asarray(a)`
/// copy nothing. While an array is held, its Parameters stay where they are.
///
/// Example:
///     >>> import burtorch as bt
///     >>> params = bt.Parameters()
///     >>> w = params.tensor((2, 2), init=0.5)
///     >>> params.values[1] = 3.0
///     >>> list(w.values)
///     [0.5, 3.0, 0.5, 0.5]
#[pyclass(frozen, name = "FlatArray", module = "burtorch")]
pub struct FlatArray {
    parent: Py<PyParameters>,
    start: NonNull<u8>,
    /// For the buffer protocol, which wants addresses of both.
    len: isize,
    item_size: isize,
    dtype: DType,
}

// SAFETY: the memory belongs to `parent`, which outlives this and does not move it while `n_arrays` counts this; as with
// every writable buffer, that two threads do not write one number at once is up to those who hold it.
unsafe impl Send for FlatArray {}
// SAFETY: as above.
unsafe impl Sync for FlatArray {}

impl Drop for FlatArray {
    fn drop(&mut self) {
        self.parent.get().n_arrays.fetch_sub(1, Ordering::AcqRel);
    }
}

impl FlatArray {
    /// An array over numbers of `parent`, which `start` points into.
    pub fn new(parent: Py<PyParameters>, start: NonNull<u8>, len: usize, dtype: DType) -> Self {
        parent.get().n_arrays.fetch_add(1, Ordering::AcqRel);
        let item_size = match dtype {
            DType::Float32 => 4,
            DType::Float64 => 8,
        };
        FlatArray { parent, start, len: len as isize, item_size, dtype }
    }

    fn format(&self) -> &'static CStr {
        match self.dtype {
            DType::Float32 => c"f",
            DType::Float64 => c"d",
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
    unsafe fn read(&self, at: usize) -> f64 {
        // SAFETY: the caller guarantees that the number exists; the memory is aligned and initialised.
        unsafe {
            match self.dtype {
                DType::Float32 => f64::from(self.start.cast::<f32>().add(at).read_volatile()),
                DType::Float64 => self.start.cast::<f64>().add(at).read_volatile(),
            }
        }
    }

    /// # Safety
    /// `at` is below the length.
    unsafe fn write(&self, at: usize, x: f64) {
        // SAFETY: as in `read`.
        unsafe {
            match self.dtype {
                DType::Float32 => self.start.cast::<f32>().add(at).write_volatile(x as f32),
                DType::Float64 => self.start.cast::<f64>().add(at).write_volatile(x),
            }
        }
    }
}

#[pymethods]
impl FlatArray {
    fn __len__(&self) -> usize {
        self.len as usize
    }

    /// "float32" or "float64".
    #[getter]
    fn dtype(&self) -> &'static str {
        self.dtype.name()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if let Ok(slice) = index.cast::<PySlice>() {
            let (start, len) = self.span(slice)?;
            // SAFETY: the span lies inside this array, and an array's start may be its end.
            let first = unsafe { self.start.add(start * self.item_size as usize) };
            let part = FlatArray::new(self.parent.clone_ref(py), first, len, self.dtype);
            return Ok(Bound::new(py, part)?.into_any());
        }
        let at = self.place(index.extract()?)?;
        // SAFETY: `place` gives indices below the length.
        Ok(PyFloat::new(py, unsafe { self.read(at) }).into_any())
    }

    fn __setitem__(&self, index: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let Ok(slice) = index.cast::<PySlice>() else {
            let at = self.place(index.extract()?)?;
            let value = value.extract()?;
            // SAFETY: `place` gives indices below the length.
            unsafe { self.write(at, value) };
            return Ok(());
        };
        let (start, len) = self.span(slice)?;
        let mut numbers = Vec::new();
        if let Ok(value) = value.extract::<f64>() {
            numbers.resize(len, value);
        } else {
            read_numbers(value, &mut numbers, "values")?;
        }
        if numbers.len() != len {
            return Err(PyValueError::new_err(format!("{} numbers do not fit a slice of {len}", numbers.len())));
        }
        for (k, &x) in numbers.iter().enumerate() {
            // SAFETY: the span lies inside this array.
            unsafe { self.write(start + k, x) };
        }
        Ok(())
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Ok(PyMemoryView::from(slf.as_any())?.try_iter()?.into_any())
    }

    /// The numbers as a list of floats.
    fn tolist<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        // SAFETY: all indices are below the length.
        PyList::new(py, (0..self.len as usize).map(|k| unsafe { self.read(k) }))
    }

    fn __repr__(&self) -> String {
        // SAFETY: all indices are below the length.
        let first = (0..(self.len as usize).min(4)).map(|k| unsafe { self.read(k) }.to_string());
        let dots = if self.len > 4 { ", ..." } else { "" };
        format!(
            "FlatArray([{}{dots}], n={}, dtype={})",
            first.collect::<Vec<_>>().join(", "),
            self.len,
            self.dtype.name()
        )
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let array = slf.get();
        let memory = Exported {
            start: array.start.as_ptr().cast(),
            item_size: array.item_size,
            format: array.format(),
            shape: std::slice::from_ref(&array.len),
            strides: std::slice::from_ref(&array.item_size),
            read_only: false,
        };
        // SAFETY: Python passes a view to fill; shape and strides live in `slf`, which the view keeps alive.
        unsafe { memory.fill(slf.clone().into_any(), view, flags) }
    }
}

/// What a buffer view says.
struct Exported<'a> {
    start: *mut c_void,
    item_size: isize,
    format: &'static CStr,
    shape: &'a [isize],
    strides: &'a [isize],
    read_only: bool,
}

impl Exported<'_> {
    /// # Safety
    /// `view` is null or may be written; memory, shape and strides stay where they are while `owner` lives.
    unsafe fn fill(self, owner: Bound<'_, PyAny>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view to fill"));
        }
        if self.read_only && flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
            return Err(PyBufferError::new_err("these symbols are read-only; copy them to change them"));
        }
        let wants = |flag| flags & flag == flag;
        let n: isize = self.shape.iter().product();
        // SAFETY: by the contract of this function.
        unsafe {
            (*view).buf = self.start;
            (*view).len = n * self.item_size;
            (*view).readonly = c_int::from(self.read_only);
            (*view).itemsize = self.item_size;
            (*view).format =
                if wants(ffi::PyBUF_FORMAT) { self.format.as_ptr().cast_mut() } else { std::ptr::null_mut() };
            (*view).ndim = self.shape.len() as c_int;
            (*view).shape = if wants(ffi::PyBUF_ND) { self.shape.as_ptr().cast_mut() } else { std::ptr::null_mut() };
            (*view).strides =
                if wants(ffi::PyBUF_STRIDES) { self.strides.as_ptr().cast_mut() } else { std::ptr::null_mut() };
            (*view).suboffsets = std::ptr::null_mut();
            (*view).internal = std::ptr::null_mut();
            (*view).obj = owner.into_ptr();
        }
        Ok(())
    }
}

/// Symbols, as `WordContexts` hands them out: a read-only array of uint32 of shape (n,) or (n, context).
///
/// Supports `len`, indexing by the first dimension, iteration, `tolist()` and the buffer protocol (format "I"), so that
/// `numpy.asarray(a)` copies nothing.
#[pyclass(frozen, name = "SymbolArray", module = "burtorch")]
pub struct SymbolArray {
    symbols: Box<[u32]>,
    shape: [isize; 2],
    strides: [isize; 2],
    n_dims: usize,
}

impl SymbolArray {
    /// A row of symbols.
    pub fn row(symbols: Vec<u32>) -> Self {
        let shape = [symbols.len() as isize, 1];
        SymbolArray { symbols: symbols.into(), shape, strides: [4, 4], n_dims: 1 }
    }

    /// Rows of `width` symbols.
    pub fn rows(symbols: Vec<u32>, width: usize) -> Self {
        let shape = [(symbols.len() / width.max(1)) as isize, width as isize];
        SymbolArray { symbols: symbols.into(), shape, strides: [4 * width as isize, 4], n_dims: 2 }
    }

    fn dims(&self) -> Dims {
        Dims { n: self.n_dims, dims: [self.shape[0] as usize, self.shape[1] as usize] }
    }
}

#[pymethods]
impl SymbolArray {
    fn __len__(&self) -> usize {
        self.shape[0] as usize
    }

    /// (n,) or (n, context).
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.shape.iter().take(self.n_dims))
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: isize) -> PyResult<Bound<'py, PyAny>> {
        let n = self.shape[0];
        let at = if index < 0 { index + n } else { index };
        let width = if self.n_dims == 1 { 1 } else { self.shape[1] as usize };
        let row = usize::try_from(at).ok().and_then(|at| self.symbols.get(at * width..(at + 1) * width));
        match row {
            Some([symbol]) if self.n_dims == 1 => Ok(symbol.into_pyobject(py)?.into_any()),
            Some(row) => Ok(PyList::new(py, row)?.into_any()),
            None => Err(PyIndexError::new_err(format!("index {index} is out of range for {n} entries"))),
        }
    }

    /// The symbols as a (nested) list of ints.
    fn tolist<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        PyMemoryView::from(slf.as_any())?.call_method0("tolist")
    }

    fn __repr__(&self) -> String {
        match self.n_dims {
            1 => format!("SymbolArray(shape=({},))", self.shape[0]),
            _ => format!("SymbolArray(shape=({}, {}))", self.shape[0], self.shape[1]),
        }
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let array = slf.get();
        let memory = Exported {
            start: array.symbols.as_ptr().cast_mut().cast(),
            item_size: 4,
            format: c"I",
            shape: array.shape.get(..array.n_dims).unwrap_or(&[]),
            strides: array.strides.get(..array.n_dims).unwrap_or(&[]),
            read_only: true,
        };
        // SAFETY: Python passes a view to fill; memory, shape and strides live in `slf`, which the view keeps alive.
        unsafe { memory.fill(slf.clone().into_any(), view, flags) }
    }
}

/// Up to two dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dims {
    n: usize,
    dims: [usize; 2],
}

impl Dims {
    fn one(n: usize) -> Self {
        Dims { n: 1, dims: [n, 1] }
    }

    /// The length, if there is one dimension.
    pub fn row(self) -> Option<usize> {
        (self.n == 1).then_some(self.dims[0])
    }

    /// Rows and columns, if there are two dimensions.
    pub fn matrix(self) -> Option<(usize, usize)> {
        (self.n == 2).then_some((self.dims[0], self.dims[1]))
    }

    /// As Python writes it.
    pub fn text(self) -> String {
        match self.n {
            1 => format!("({},)", self.dims[0]),
            _ => format!("({}, {})", self.dims[0], self.dims[1]),
        }
    }
}

/// A number that can be read from a buffer or a Python object.
trait Read: Sized {
    /// Reads one entry of `bytes` of this kind, if such a one is acceptable.
    ///
    /// # Safety
    /// `at` may be read for the size of the kind.
    unsafe fn from_memory(kind: ElementType, at: *const u8, what: &str) -> PyResult<Self>;
    fn from_object(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Self>;
}

/// # Safety
/// `at` may be read for the size of the kind.
unsafe fn whole_number(kind: ElementType, at: *const u8) -> Option<i128> {
    // SAFETY: by the contract of this function; entries need not be aligned.
    unsafe {
        Some(match kind {
            ElementType::SignedInteger { bytes: 1 } => i128::from(at.cast::<i8>().read()),
            ElementType::SignedInteger { bytes: 2 } => i128::from(at.cast::<i16>().read_unaligned()),
            ElementType::SignedInteger { bytes: 4 } => i128::from(at.cast::<i32>().read_unaligned()),
            ElementType::SignedInteger { bytes: 8 } => i128::from(at.cast::<i64>().read_unaligned()),
            ElementType::UnsignedInteger { bytes: 1 } => i128::from(at.read()),
            ElementType::UnsignedInteger { bytes: 2 } => i128::from(at.cast::<u16>().read_unaligned()),
            ElementType::UnsignedInteger { bytes: 4 } => i128::from(at.cast::<u32>().read_unaligned()),
            ElementType::UnsignedInteger { bytes: 8 } => i128::from(at.cast::<u64>().read_unaligned()),
            _ => return None,
        })
    }
}

impl Read for u32 {
    unsafe fn from_memory(kind: ElementType, at: *const u8, what: &str) -> PyResult<Self> {
        // SAFETY: by the contract of this function.
        let Some(number) = (unsafe { whole_number(kind, at) }) else {
            return Err(PyTypeError::new_err(format!("{what} must be integers")));
        };
        number
            .try_into()
            .map_err(|_| PyIndexError::new_err(format!("{what}: {number} is out of range: expected 0 or more")))
    }

    fn from_object(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Self> {
        let number: i64 = object.extract().map_err(|error: PyErr| {
            if error.is_instance_of::<pyo3::exceptions::PyOverflowError>(object.py()) {
                PyIndexError::new_err(format!("{what}: an integer is out of range: expected a small one, 0 or more"))
            } else {
                PyTypeError::new_err(format!("{what} must be integers, found {}", type_name(object)))
            }
        })?;
        number
            .try_into()
            .map_err(|_| PyIndexError::new_err(format!("{what}: {number} is out of range: expected 0 or more")))
    }
}

impl Read for f64 {
    unsafe fn from_memory(kind: ElementType, at: *const u8, what: &str) -> PyResult<Self> {
        // SAFETY: by the contract of this function; entries need not be aligned.
        unsafe {
            match kind {
                ElementType::Float { bytes: 4 } => Ok(f64::from(at.cast::<f32>().read_unaligned())),
                ElementType::Float { bytes: 8 } => Ok(at.cast::<f64>().read_unaligned()),
                _ => match whole_number(kind, at) {
                    Some(number) => Ok(number as f64),
                    None => Err(PyTypeError::new_err(format!("{what} must be numbers (float32, float64 or integers)"))),
                },
            }
        }
    }

    fn from_object(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Self> {
        object.extract().map_err(|error: PyErr| {
            if error.is_instance_of::<PyTypeError>(object.py()) {
                PyTypeError::new_err(format!("{what} must be numbers, found {}", type_name(object)))
            } else {
                error
            }
        })
    }
}

fn type_name(object: &Bound<'_, PyAny>) -> String {
    object.get_type().name().map_or_else(|_| "another type".to_string(), |name| name.to_string())
}

fn is_buffer(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: any object may be asked.
    unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) == 1 }
}

/// Reads whole numbers of one or two dimensions into `out`, replacing what it held.
pub fn read_symbols(object: &Bound<'_, PyAny>, out: &mut Vec<u32>, what: &str) -> PyResult<Dims> {
    out.clear();
    if let Ok(array) = object.cast::<SymbolArray>() {
        out.extend_from_slice(&array.get().symbols);
        return Ok(array.get().dims());
    }
    read_into(object, out, what, 0)
}

/// Reads real numbers of one or two dimensions into `out`, replacing what it held.
pub fn read_numbers(object: &Bound<'_, PyAny>, out: &mut Vec<f64>, what: &str) -> PyResult<Dims> {
    out.clear();
    read_into(object, out, what, 0)
}

/// Whether an array or a (nested) sequence holds integers, judged by its first number.
pub fn holds_integers(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let mut object = object.clone();
    for _ in 0..=MAX_DIMS {
        if is_buffer(&object) && !is_number(&object) {
            let kind = ElementType::from_format(PyUntypedBuffer::get(&object)?.format());
            return Ok(matches!(kind, ElementType::SignedInteger { .. } | ElementType::UnsignedInteger { .. }));
        }
        if is_number(&object) {
            break;
        }
        match object.try_iter()?.next() {
            Some(first) => object = first?,
            None => return Ok(true),
        }
    }
    Ok(object.is_instance_of::<PyInt>() || object.hasattr("__index__")?)
}

/// Dimensions of a batch.
const MAX_DIMS: usize = 2;

/// Whether something that is not a buffer has entries; a string has none here.
fn is_sequence(object: &Bound<'_, PyAny>) -> bool {
    !object.is_instance_of::<PyString>() && object.try_iter().is_ok()
}

fn read_into<T: Read>(object: &Bound<'_, PyAny>, out: &mut Vec<T>, what: &str, depth: usize) -> PyResult<Dims> {
    if is_buffer(object) {
        return read_buffer(object, out, what);
    }
    if depth == MAX_DIMS {
        return Err(PyValueError::new_err(format!("{what} have more than two dimensions")));
    }
    if !is_sequence(object) {
        return Err(PyTypeError::new_err(format!(
            "{what} must be an array or a sequence, found {}",
            type_name(object)
        )));
    }
    let mut width = None;
    let mut n = 0;
    for entry in object.try_iter()? {
        let entry = entry?;
        let found = if is_number(&entry) || entry.is_instance_of::<PyString>() {
            out.push(T::from_object(&entry, what)?);
            None
        } else {
            let row = read_into(&entry, out, what, depth + 1)?;
            Some(row.row().ok_or_else(|| PyValueError::new_err(format!("{what} have more than two dimensions")))?)
        };
        if n > 0 && width != found {
            return Err(PyValueError::new_err(format!("{what} have rows of unequal length")));
        }
        width = found;
        n += 1;
    }
    Ok(width.map_or(Dims::one(n), |width| Dims { n: 2, dims: [n, width] }))
}

/// Whether an entry is a number. NumPy's scalars are buffers without dimensions.
fn is_number(object: &Bound<'_, PyAny>) -> bool {
    if object.is_instance_of::<PyInt>() || object.is_instance_of::<PyFloat>() {
        return true;
    }
    if is_buffer(object) {
        return PyUntypedBuffer::get(object).map_or(true, |buffer| buffer.dimensions() == 0);
    }
    !is_sequence(object)
}

fn read_buffer<T: Read>(object: &Bound<'_, PyAny>, out: &mut Vec<T>, what: &str) -> PyResult<Dims> {
    let buffer = PyUntypedBuffer::get(object)?;
    let kind = element_type(&buffer, what)?;
    let dims = match *buffer.shape() {
        [n] => Dims::one(n),
        [n, width] => Dims { n: 2, dims: [n, width] },
        ref shape => {
            return Err(PyValueError::new_err(format!(
                "{what} must have one or two dimensions, found {}",
                shape.len()
            )));
        }
    };
    let size = buffer.item_size();
    if buffer.is_c_contiguous() {
        let start = buffer.buf_ptr().cast::<u8>();
        for k in 0..buffer.item_count() {
            // SAFETY: a contiguous buffer holds `item_count` entries of `item_size` one after another.
            out.push(unsafe { T::from_memory(kind, start.add(k * size), what)? });
        }
        return Ok(dims);
    }
    for i in 0..dims.dims[0] {
        for j in 0..dims.dims[1] {
            let indices = [i, j];
            let at = buffer.get_ptr(indices.get(..dims.n).unwrap_or(&indices)).cast::<u8>();
            // SAFETY: the indices lie within the buffer's shape.
            out.push(unsafe { T::from_memory(kind, at, what)? });
        }
    }
    Ok(dims)
}

/// The kind of entries, in this machine's byte order.
fn element_type(buffer: &PyUntypedBuffer, what: &str) -> PyResult<ElementType> {
    let format = buffer.format();
    let foreign = if cfg!(target_endian = "little") { &b">!"[..] } else { &b"<"[..] };
    if buffer.item_size() > 1 && format.to_bytes().first().is_some_and(|order| foreign.contains(order)) {
        return Err(PyValueError::new_err(format!("{what} must be in this machine's byte order")));
    }
    Ok(ElementType::from_format(format))
}

/// Memory of the caller for numbers of `dtype`, which it keeps alive: writable, contiguous, aligned.
pub struct CallerMemory {
    buffer: PyUntypedBuffer,
}

impl CallerMemory {
    /// Memory of an object with the buffer protocol.
    pub fn of(object: &Bound<'_, PyAny>, dtype: DType, what: &str) -> PyResult<Self> {
        if !is_buffer(object) {
            return Err(PyTypeError::new_err(format!(
                "{what} must support the buffer protocol, found {}",
                type_name(object)
            )));
        }
        let buffer = PyUntypedBuffer::get(object)?;
        let bytes = match dtype {
            DType::Float32 => 4,
            DType::Float64 => 8,
        };
        let refuse = |expected: String| Err(PyValueError::new_err(format!("{what} must be {expected}")));
        if element_type(&buffer, what)? != (ElementType::Float { bytes }) {
            return refuse(format!("{} numbers", dtype.name()));
        }
        if buffer.readonly() {
            return refuse("writable".into());
        }
        if !buffer.is_c_contiguous() {
            return refuse("contiguous".into());
        }
        if buffer.item_count() == 0 || buffer.buf_ptr().is_null() {
            return refuse("of at least one number".into());
        }
        if !(buffer.buf_ptr() as usize).is_multiple_of(bytes) {
            return refuse(format!("aligned to {bytes} bytes"));
        }
        Ok(CallerMemory { buffer })
    }

    /// Memory of an object with the buffer protocol, of any element type, to be used as bytes.
    pub fn bytes(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Self> {
        if !is_buffer(object) {
            let found = type_name(object);
            return Err(PyTypeError::new_err(format!("{what} must support the buffer protocol, found {found}")));
        }
        let buffer = PyUntypedBuffer::get(object)?;
        if buffer.readonly() || !buffer.is_c_contiguous() || buffer.buf_ptr().is_null() {
            return Err(PyValueError::new_err(format!("{what} must be writable and contiguous")));
        }
        Ok(CallerMemory { buffer })
    }

    /// Where it is, as numbers of type `E`.
    pub fn numbers<E>(&self) -> NonNull<[E]> {
        let start = NonNull::new(self.buffer.buf_ptr().cast::<E>()).unwrap_or(NonNull::dangling());
        NonNull::slice_from_raw_parts(start, self.buffer.len_bytes() / size_of::<E>())
    }

    /// Whether two pieces of memory share bytes.
    pub fn overlaps(&self, other: &CallerMemory) -> bool {
        let span = |m: &CallerMemory| (m.buffer.buf_ptr() as usize, m.buffer.buf_ptr() as usize + m.buffer.len_bytes());
        let (a, b) = (span(self), span(other));
        a.0 < b.1 && b.0 < a.1
    }
}
