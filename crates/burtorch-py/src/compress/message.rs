//! Compressed vectors for Python.
#![allow(clippy::useless_conversion)] // from float64, but not from float32

use burtorch_core::DType;
use burtorch_core::compress::{Client, Compressor, Largest, Message, Number};
use burtorch_core::draw::Draw;
use pyo3::basic::CompareOp;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple, PyType};

use super::compressor::compared;
use crate::convert::arrays::{Array, Kind, empty, filled, of_integers};
use crate::convert::buffer::{copied_bytes, type_name};
use crate::convert::errors::IntoPython;
use crate::convert::exclusive::Guarded;
use crate::convert::numbers::argument_number;
use crate::convert::signals::asked;

/// A compressed vector, sent in place of the vector. Created by a compressor's ``compress``, and by ``from_bytes``.
///
/// `len(message)` is the length of the vector.
///
/// Example:
///     >>> import burtorch as bt
///     >>> message = bt.compress.TopK(2).compress([1.0, -3.0, 2.0, 0.5])
///     >>> message.indices.tolist(), message.values.tolist(), message.decompress().tolist()
///     ([1, 2], [-3.0, 2.0], [0.0, -3.0, 2.0, 0.0])
///     >>> message.bits, bt.compress.Message.from_bytes(message.to_bytes()) == message
///     (132.0, True)
#[pyclass(frozen, name = "Message", module = "burtorch.compress")]
pub struct PyMessage {
    message: Guarded<AnyMessage>,
}

/// With float32 or float64 numbers.
pub enum AnyMessage {
    F32(Message<f32>),
    F64(Message<f64>),
}

/// Runs the same code for both types.
macro_rules! of_either {
    ($message:expr, $name:ident => $body:expr) => {
        match $message {
            AnyMessage::F32($name) => $body,
            AnyMessage::F64($name) => $body,
        }
    };
}

/// Fills a message from an array.
pub trait Fill: Number {
    /// The message of this type; replaces one of the other type.
    fn message(any: &mut AnyMessage) -> &mut Message<Self>;
    /// The largest numbers of this type.
    fn largest(any: &mut AnyLargest) -> Option<&mut Largest<Self>>;
}

/// The largest numbers of a vector that arrives in parts, of either type.
pub enum AnyLargest {
    F32(Largest<f32>),
    F64(Largest<f64>),
}

impl AnyLargest {
    /// For a vector of `d` numbers, if the compressor sends these.
    pub fn of(compressor: Compressor, dtype: DType, d: usize) -> burtorch_core::Result<Option<Self>> {
        Ok(match dtype {
            DType::Float32 => compressor.largest(d)?.map(AnyLargest::F32),
            _ => compressor.largest(d)?.map(AnyLargest::F64),
        })
    }
}

impl Fill for f32 {
    fn message(any: &mut AnyMessage) -> &mut Message<f32> {
        loop {
            match any {
                AnyMessage::F32(message) => return message,
                AnyMessage::F64(_) => *any = AnyMessage::F32(Message::new()),
            }
        }
    }

    fn largest(any: &mut AnyLargest) -> Option<&mut Largest<f32>> {
        if let AnyLargest::F32(largest) = any { Some(largest) } else { None }
    }
}

impl Fill for f64 {
    fn message(any: &mut AnyMessage) -> &mut Message<f64> {
        loop {
            match any {
                AnyMessage::F64(message) => return message,
                AnyMessage::F32(_) => *any = AnyMessage::F64(Message::new()),
            }
        }
    }

    fn largest(any: &mut AnyLargest) -> Option<&mut Largest<f64>> {
        if let AnyLargest::F64(largest) = any { Some(largest) } else { None }
    }
}

impl PyMessage {
    /// The message of an empty vector.
    pub fn new() -> Self {
        PyMessage { message: Guarded::new(AnyMessage::F64(Message::new()), "this message") }
    }

    /// Compresses a vector of `d` numbers into it; `numbers` gives the sent ones, if the compressor can choose them in advance.
    /// `false`, with no effect, if not.
    pub fn fill_chosen(
        &self,
        py: Python<'_>,
        dtype: DType,
        d: usize,
        compression: (Compressor, &mut Draw<'_>, Client),
        numbers: impl FnOnce(&[u32]) -> PyResult<Vec<f64>>,
    ) -> PyResult<bool> {
        fn fill<F: Fill>(
            message: &mut Message<F>,
            d: usize,
            (compressor, draw, client): (Compressor, &mut Draw<'_>, Client),
            numbers: impl FnOnce(&[u32]) -> PyResult<Vec<f64>>,
            failed: &mut Option<PyErr>,
        ) -> burtorch_core::Result<bool> {
            compressor.compress_chosen(d, draw, client, message, |message, n, list| {
                let indices: Vec<u32> = (0..n).map(|k| message.index(k) as u32).collect();
                match numbers(&indices) {
                    Ok(numbers) => list.extend(numbers.into_iter().map(F::from_f64)),
                    Err(error) => *failed = Some(error),
                }
                Ok(())
            })
        }
        let mut failed = None;
        let message = &mut *self.message.enter(py)?;
        let done = match dtype {
            DType::Float32 => fill(f32::message(message), d, compression, numbers, &mut failed),
            _ => fill(f64::message(message), d, compression, numbers, &mut failed),
        };
        failed.map_or_else(|| done.or_raise(py), Err)
    }

    /// Makes it the message of a vector whose parts have arrived.
    pub fn fill_largest(
        &self,
        py: Python<'_>,
        largest: AnyLargest,
        compressor: Compressor,
        draw: &mut Draw<'_>,
    ) -> PyResult<()> {
        let message = &mut *self.message.enter(py)?;
        match largest {
            AnyLargest::F32(largest) => compressor.compress_largest(largest, draw, f32::message(message)),
            AnyLargest::F64(largest) => compressor.compress_largest(largest, draw, f64::message(message)),
        }
        .or_raise(py)
    }

    /// Compresses an array into it.
    pub fn fill(
        &self,
        py: Python<'_>,
        x: &Array,
        compressor: Compressor,
        draw: &mut Draw<'_>,
        client: Client,
    ) -> PyResult<()> {
        let message = &mut *self.message.enter(py)?;
        let done = match (x.kind, x.in_place::<f32>(), x.in_place::<f64>()) {
            (_, Some(x), _) => asked(|| compressor.compress(x, draw, client, f32::message(message))),
            (_, _, Some(x)) => asked(|| compressor.compress(x, draw, client, f64::message(message))),
            (Kind::F32, ..) => {
                let copy: Vec<f32> = x.floats().into_iter().map(|x| x as f32).collect();
                asked(|| compressor.compress(&copy, draw, client, f32::message(message)))
            }
            _ => asked(|| compressor.compress(&x.floats(), draw, client, f64::message(message))),
        };
        done.or_raise(py)
    }
}

#[pymethods]
impl PyMessage {
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(of_either!(&*self.message.look(py)?, message => message.len()))
    }

    /// The sent coordinates, an array of int64.
    #[getter]
    fn indices<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let message = &*self.message.look(py)?;
        let indices: Vec<_> = of_either!(message, message => message.entries().map(|(i, _)| i as i64).collect());
        of_integers(py, &[indices.len()], &indices)
    }

    /// The numbers at these coordinates, an array of the message's dtype.
    #[getter]
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let message = &*self.message.look(py)?;
        let values: Vec<_> = of_either!(message, message => message.entries().map(|(_, x)| f64::from(x)).collect());
        filled(py, &[values.len()], kind(message), &values)
    }

    /// "float32" or "float64".
    #[getter]
    fn dtype(&self, py: Python<'_>) -> PyResult<&'static str> {
        Ok(name(&*self.message.look(py)?))
    }

    /// Bits in theory, by the formula in the manual: coordinates that follow from draws cost nothing.
    #[getter]
    fn bits(&self, py: Python<'_>) -> PyResult<f64> {
        Ok(of_either!(&*self.message.look(py)?, message => message.bits()))
    }

    /// Bytes of `to_bytes()`, with the header.
    #[getter]
    fn n_bytes(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(of_either!(&*self.message.look(py)?, message => message.n_bytes()))
    }

    /// The decompressed vector, as an array of the message's dtype; or written into `out`, which is returned.
    ///
    /// Raises ValueError for an `out` of another length, TypeError for one that is not an array of floats.
    #[pyo3(signature = (out=None))]
    fn decompress<'py>(&self, py: Python<'py>, out: Option<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        let message = &*self.message.look(py)?;
        let len = of_either!(message, message => message.len());
        let out = out.map_or_else(|| empty(py, &[len], kind(message)), Ok)?;
        let array = target(&out, len)?;
        array.fill(0.0);
        of_either!(message, message => array.update(message.entries().map(|(i, x)| (i, f64::from(x))), |_, x| x))?;
        Ok(out)
    }

    /// Add `scale` times the decompressed vector to `out`, an array of floats, at the sent coordinates only.
    ///
    /// Raises ValueError for an `out` of another length, TypeError for one that is not an array of floats.
    #[pyo3(signature = (out, scale=1.0))]
    fn add_to(
        &self,
        py: Python<'_>,
        out: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = argument_number)] scale: f64,
    ) -> PyResult<()> {
        let message = &*self.message.look(py)?;
        let array = target(out, of_either!(message, message => message.len()))?;
        let entries = |(i, x)| (i, scale * x);
        of_either!(message, message => {
            array.update(message.entries().map(|(i, x)| entries((i, f64::from(x)))), |before, x| before + x)
        })
    }

    /// The message as bytes.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let mut bytes = Vec::new();
        let message = &*self.message.look(py)?;
        asked(|| of_either!(message, message => message.append_bytes(&mut bytes))).or_raise(py)?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// The message from the bytes of `to_bytes()`.
    ///
    /// `dtype`: "float32" or "float64", to refuse the other one. Raises FormatError for bytes that are not a valid message (too
    /// few, say) or have the other dtype; TypeError for an argument that is not bytes.
    #[classmethod]
    #[pyo3(signature = (data, dtype=None))]
    fn from_bytes(cls: &Bound<'_, PyType>, data: &Bound<'_, PyAny>, dtype: Option<&str>) -> PyResult<Self> {
        let py = cls.py();
        let Some(bytes) = copied_bytes(data, "a message")? else {
            return Err(PyTypeError::new_err(format!("a message is read from bytes, found {}", type_name(data))));
        };
        let is_wide = match dtype {
            None => bytes.first().is_some_and(|tag| tag % 16 == 1),
            Some("float32") => false,
            Some("float64") => true,
            Some(other) => {
                let message = format!("dtype must be \"float32\" or \"float64\", found {other:?}");
                return Err(PyValueError::new_err(message));
            }
        };
        let (mut narrow, mut wide) = (Message::new(), Message::new());
        asked(|| if is_wide { wide.read_bytes(&bytes) } else { narrow.read_bytes(&bytes) }).or_raise(py)?;
        let message = if is_wide { AnyMessage::F64(wide) } else { AnyMessage::F32(narrow) };
        Ok(PyMessage { message: Guarded::new(message, "this message") })
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let message = &*self.message.look(py)?;
        let (n_sent, len, n_bytes) = of_either!(message, m => (m.n_sent(), m.len(), m.n_bytes()));
        Ok(format!("Message({n_sent} of {len} numbers, {}, {n_bytes} bytes)", name(message)))
    }

    fn __richcmp__(&self, py: Python<'_>, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
        let Ok(other) = other.cast::<PyMessage>() else { return compared(py, None, op) };
        let (message, other) = (self.message.look(py)?, other.get().message.look(py)?);
        let is_equal = match (&*message, &*other) {
            (AnyMessage::F32(a), AnyMessage::F32(b)) => a == b,
            (AnyMessage::F64(a), AnyMessage::F64(b)) => a == b,
            _ => false,
        };
        compared(py, Some(is_equal), op)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let bytes = slf.get().to_bytes(slf.py())?;
        Ok((slf.get_type().getattr("from_bytes")?, (bytes,).into_pyobject(slf.py())?))
    }
}

fn name(message: &AnyMessage) -> &'static str {
    if let AnyMessage::F32(_) = message { "float32" } else { "float64" }
}

fn kind(message: &AnyMessage) -> Kind {
    if let AnyMessage::F32(_) = message { Kind::F32 } else { Kind::F64 }
}

/// A writable float array of this length.
fn target(out: &Bound<'_, PyAny>, len: usize) -> PyResult<Array> {
    let array = Array::writable(out, "out")?;
    if array.shape() == [len] {
        return Ok(array);
    }
    Err(PyValueError::new_err(format!("out must have shape ({len},), found {:?}", array.shape())))
}
