//! Whole or real numbers read from any buffer or nested sequence of one or two dimensions.
//!
//! Promises: input is checked before it is used; long arrays are read piece by piece, with checks for signals in between. NumPy
//! is imported only to convert numbers in another byte order, float16 and long double.
#![allow(unsafe_code)]

use pyo3::buffer::{ElementType, PyUntypedBuffer};
use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt, PyIterator, PyList, PyString, PyTuple};

use super::TokenIdArray;
use super::masked::buffer_of;
use super::token_ids_quick::quick_symbols;
use crate::convert::entry::check_signals;
use crate::convert::errors::{if_any, instead, numpy};
use crate::convert::numbers::{is_text, number_of, real};
use crate::convert::signals::{ask_at, read_at_length};

/// Up to two dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dims {
    n: usize,
    dims: [usize; 2],
}

impl Dims {
    /// One dimension.
    pub fn one(n: usize) -> Self {
        Dims { n: 1, dims: [n, 1] }
    }

    /// Rows and columns.
    pub fn two(rows: usize, columns: usize) -> Self {
        Dims { n: 2, dims: [rows, columns] }
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
    /// Whether it may be a fraction.
    const IS_REAL: bool;
    /// Reads one entry of `bytes` of this kind, if that kind is acceptable.
    ///
    /// # Safety
    /// `at` may be read for the size of the kind.
    unsafe fn from_memory(kind: ElementType, at: *const u8, what: &str) -> PyResult<Self>;
    fn from_object(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Self>;
    /// Appends `n` consecutive entries if they need no conversion; returns whether it did.
    ///
    /// # Safety
    /// `at` may be read for `n` entries of this kind.
    unsafe fn add_all(_kind: ElementType, _at: *const u8, _n: usize, _out: &mut Vec<Self>) -> bool {
        false
    }
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
    const IS_REAL: bool = false;

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
                let message = format!("{what} must be integers, found {}", type_name(object));
                instead(object.py(), error, PyTypeError::new_err(message))
            }
        })?;
        number
            .try_into()
            .map_err(|_| PyIndexError::new_err(format!("{what}: {number} is out of range: expected 0 or more")))
    }
}

impl Read for f64 {
    const IS_REAL: bool = true;

    unsafe fn from_memory(kind: ElementType, at: *const u8, what: &str) -> PyResult<Self> {
        // SAFETY: by the contract of this function; entries need not be aligned.
        unsafe {
            match kind {
                ElementType::Float { bytes: 4 } => Ok(f64::from(at.cast::<f32>().read_unaligned())),
                ElementType::Float { bytes: 8 } => Ok(at.cast::<f64>().read_unaligned()),
                ElementType::Bool => Ok(f64::from(u8::from(at.read() != 0))),
                _ => match whole_number(kind, at) {
                    Some(number) => Ok(number as f64),
                    None => Err(PyTypeError::new_err(format!("{what} must be numbers (float32, float64 or integers)"))),
                },
            }
        }
    }

    unsafe fn add_all(kind: ElementType, at: *const u8, n: usize, out: &mut Vec<f64>) -> bool {
        // SAFETY: by the contract of this function; entries need not be aligned.
        let single = |k: usize| f64::from(unsafe { at.cast::<f32>().add(k).read_unaligned() });
        match kind {
            _ if n == 0 => return false,
            ElementType::Float { bytes: 4 } => out.extend((0..n).map(single)),
            ElementType::Float { bytes: 8 } => {
                out.reserve(n);
                // SAFETY: as above; the vector has room.
                unsafe {
                    std::ptr::copy_nonoverlapping(at, out.as_mut_ptr().add(out.len()).cast::<u8>(), n * 8);
                    out.set_len(out.len() + n);
                }
            }
            _ => return false,
        }
        true
    }

    fn from_object(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Self> {
        match number_of(object)? {
            Some(x) => Ok(x),
            None => real(object, &format!("{what} must be numbers")),
        }
    }
}

/// One whole number.
pub fn token_id(object: &Bound<'_, PyAny>, what: &str) -> PyResult<u32> {
    u32::from_object(object, what)
}

/// The name of an object's type, for messages.
pub fn type_name(object: &Bound<'_, PyAny>) -> String {
    object.get_type().name().map_or_else(|_| "another type".into(), |name| name.to_string_lossy().into_owned())
}

/// Whether an object supports the buffer protocol.
pub fn is_buffer(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: this accepts any object.
    unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) == 1 }
}

/// Reads whole numbers of one or two dimensions into `out`, replacing its content.
pub fn read_token_ids(object: &Bound<'_, PyAny>, out: &mut Vec<u32>, what: &str) -> PyResult<Dims> {
    match plain_token_ids(object, out) {
        Some(dims) => Ok(dims),
        None => {
            out.clear();
            read_into(object, out, what, 0)
        }
    }
}

fn plain_token_ids(object: &Bound<'_, PyAny>, out: &mut Vec<u32>) -> Option<Dims> {
    if is_text(object) {
        return None;
    }
    if let Ok(array) = object.cast::<TokenIdArray>() {
        out.clear();
        out.extend_from_slice(&array.get().symbols);
        return Some(array.get().dims());
    }
    quick_symbols(object, out)
}

/// Reads whole numbers into `symbols` where the first number is one (`true`), real ones into `numbers` otherwise.
pub fn read_either(
    object: &Bound<'_, PyAny>,
    symbols: &mut Vec<u32>,
    numbers: &mut Vec<f64>,
    what: &str,
) -> PyResult<(bool, Dims)> {
    if let Some(dims) = plain_token_ids(object, symbols) {
        return Ok((true, dims));
    }
    let object = &with_lists(object)?;
    if holds_integers(object)? {
        return Ok((true, read_token_ids(object, symbols, what)?));
    }
    Ok((false, read_numbers(object, numbers, what)?))
}

/// Reads real numbers of one or two dimensions into `out`, replacing its content.
pub fn read_numbers(object: &Bound<'_, PyAny>, out: &mut Vec<f64>, what: &str) -> PyResult<Dims> {
    out.clear();
    read_into(object, out, what, 0)
}

/// Whether an array holds bools.
pub fn holds_bools(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(matches!(ElementType::from_format(buffer_of(object)?.format()), ElementType::Bool))
}

/// The same entries with lists in place of iterators, which give their entries once.
fn with_lists<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let entries: Vec<_> = if object.is_instance_of::<PyIterator>() {
        read_at_length(object.try_iter()?, Ok)?
    } else {
        let is_of_iterators = |first: Bound<'py, PyAny>| first.is_instance_of::<PyIterator>();
        match (object.cast::<PyList>(), object.cast::<PyTuple>()) {
            (Ok(list), _) if list.get_item(0).is_ok_and(is_of_iterators) => list.iter().collect(),
            (_, Ok(tuple)) if tuple.get_item(0).is_ok_and(is_of_iterators) => tuple.iter().collect(),
            _ => return Ok(object.clone()),
        }
    };
    let entries = entries.into_iter().map(|entry| match entry.is_instance_of::<PyIterator>() {
        true => Ok(PyList::new(entry.py(), read_at_length(entry.try_iter()?, Ok)?)?.into_any()),
        false => Ok(entry),
    });
    Ok(PyList::new(object.py(), entries.collect::<PyResult<Vec<_>>>()?)?.into_any())
}

/// Whether an array or a (nested) sequence holds integers, judged by its first number.
fn holds_integers(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let mut object = object.clone();
    for _ in 0..=MAX_DIMS {
        if is_text(&object) {
            return Ok(false);
        }
        if is_buffer(&object) && !is_number(&object)? {
            let kind = ElementType::from_format(buffer_of(&object)?.format());
            return Ok(matches!(kind, ElementType::SignedInteger { .. } | ElementType::UnsignedInteger { .. }));
        }
        if is_number(&object)? {
            break;
        }
        match object.try_iter()?.next() {
            Some(first) => object = first?,
            None => return Ok(true),
        }
    }
    Ok(object.is_instance_of::<PyInt>() || object.hasattr("__index__")?)
}

/// The largest number of dimensions of a batch.
const MAX_DIMS: usize = 2;

/// Whether an object without a buffer has entries; a string does not count as having any.
fn is_sequence(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(!object.is_instance_of::<PyString>() && if_any(object.py(), object.try_iter())?.is_some())
}

fn read_into<T: Read>(object: &Bound<'_, PyAny>, out: &mut Vec<T>, what: &str, depth: usize) -> PyResult<Dims> {
    if is_text(object) {
        return Err(PyTypeError::new_err(format!("{what} must be numbers, found {}", type_name(object))));
    }
    if is_buffer(object) {
        return read_buffer(object, out, what);
    }
    if depth == 0 && !object.is_instance_of::<PyList>() && object.hasattr(pyo3::intern!(object.py(), "tocsr"))? {
        let found = type_name(object);
        return Err(PyTypeError::new_err(format!(
            "{what} of this oracle are dense or in the CSR format, found {found}"
        )));
    }
    if depth == MAX_DIMS {
        return Err(PyValueError::new_err(format!("{what} have more than two dimensions")));
    }
    if !is_sequence(object)? {
        return Err(PyTypeError::new_err(format!(
            "{what} must be an array or a sequence, found {}",
            type_name(object)
        )));
    }
    let mut width = None;
    let mut n = 0;
    for entry in object.try_iter()? {
        let entry = entry?;
        ask_at(object.py(), out.len())?;
        let found = if is_number(&entry)? {
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
    Ok(width.map_or(Dims::one(n), |width| Dims::two(n, width)))
}

/// Whether an entry is a number. NumPy's scalars are buffers without dimensions.
fn is_number(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    if object.is_instance_of::<PyInt>() || object.is_instance_of::<PyFloat>() || is_text(object) {
        return Ok(true);
    }
    if is_buffer(object) {
        return Ok(PyUntypedBuffer::get(object).map_or(true, |buffer| buffer.dimensions() == 0));
    }
    is_sequence(object).map(|is_sequence| !is_sequence)
}

/// Entries of an array between two checks for signals.
const PIECE: usize = 1 << 16;

/// A copy by NumPy of numbers in another byte order, and, for real numbers, of float16 and long double.
fn converted<'py, T: Read>(
    object: &Bound<'py, PyAny>,
    buffer: &PyUntypedBuffer,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let is_foreign = is_foreign(buffer);
    let is_other =
        T::IS_REAL && matches!(buffer.format().to_bytes(), [b'e' | b'g'] | [b'=' | b'@' | b'<' | b'>', b'e' | b'g']);
    if !(is_foreign || is_other) {
        return Ok(None);
    }
    let found = numpy(object.py())?.call_method1("asarray", (object,))?;
    let dtype = found.getattr("dtype")?;
    match dtype.getattr("kind")?.extract::<char>()? {
        'f' if T::IS_REAL => found.call_method1("astype", ("float64",)).map(Some),
        'i' | 'u' | 'f' => found.call_method1("astype", (dtype.call_method1("newbyteorder", ("=",))?,)).map(Some),
        _ => Ok(None),
    }
}

fn read_buffer<T: Read>(object: &Bound<'_, PyAny>, out: &mut Vec<T>, what: &str) -> PyResult<Dims> {
    let buffer = buffer_of(object)?;
    if let Some(native) = converted::<T>(object, &buffer)? {
        return read_buffer(&native, out, what);
    }
    let kind = element_type(&buffer, what)?;
    let dims = match *buffer.shape() {
        [n] => Dims::one(n),
        [n, width] => Dims::two(n, width),
        ref shape => {
            return Err(PyValueError::new_err(format!(
                "{what} must have one or two dimensions, found {}",
                shape.len()
            )));
        }
    };
    let size = buffer.item_size();
    if buffer.is_c_contiguous() {
        let (start, n) = (buffer.buf_ptr().cast::<u8>(), buffer.item_count());
        if n > PIECE {
            out.reserve(n);
        }
        for first in (0..n).step_by(PIECE) {
            if first > 0 {
                check_signals(object.py())?;
            }
            let piece = PIECE.min(n - first);
            // SAFETY: a contiguous buffer, which is held here, holds `n` consecutive entries of `size` bytes.
            if unsafe { T::add_all(kind, start.add(first * size), piece, out) } {
                continue;
            }
            for k in first..first + piece {
                // SAFETY: as above.
                out.push(unsafe { T::from_memory(kind, start.add(k * size), what)? });
            }
        }
        return Ok(dims);
    }
    for i in 0..dims.dims[0] {
        ask_at(object.py(), i)?;
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
pub fn element_type(buffer: &PyUntypedBuffer, what: &str) -> PyResult<ElementType> {
    if is_foreign(buffer) {
        return Err(PyValueError::new_err(format!("{what} must be in this machine's byte order")));
    }
    Ok(ElementType::from_format(buffer.format()))
}

/// Whether entries are in the other byte order.
fn is_foreign(buffer: &PyUntypedBuffer) -> bool {
    let foreign = if cfg!(target_endian = "little") { &b">!"[..] } else { &b"<"[..] };
    buffer.item_size() > 1 && buffer.format().to_bytes().first().is_some_and(|order| foreign.contains(order))
}
