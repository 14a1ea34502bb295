//! The base class of all compressors.

use burtorch_core::compress::{Client, Compressor, Count, Quantiser, Sparsifier};
use pyo3::basic::CompareOp;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::draw::PyDraw;
use super::message::PyMessage;
use crate::convert::arguments::Count as Integer;
use crate::convert::arrays::Array;
use crate::convert::errors::IntoPython;

/// The base of all compressors; created as one of its subclasses.
#[pyclass(frozen, subclass, name = "Compressor", module = "burtorch.compress")]
pub struct PyCompressor {
    compressor: Compressor,
}

const NEEDS_CLIENTS: &str = "PermK needs n_clients=, the number of clients";

/// The result of `==` or `!=`, if both have the same class.
pub fn compared(py: Python<'_>, is_equal: Option<bool>, op: CompareOp) -> PyResult<Py<PyAny>> {
    match (is_equal, op) {
        (Some(is_equal), CompareOp::Eq | CompareOp::Ne) => {
            Ok((is_equal == matches!(op, CompareOp::Eq)).into_pyobject(py)?.to_owned().into_any().unbind())
        }
        _ => Ok(py.NotImplemented()),
    }
}

/// A constructor argument.
#[derive(IntoPyObject)]
enum Constant {
    Count(usize),
    Share(f64),
}

/// The class of a sparsifier, and the names and constants of its arguments.
fn of_sparsifier(sparsifier: Sparsifier) -> (&'static str, Option<(&'static str, Constant)>) {
    let count = |count| match count {
        Count::Of(k) => Some(("k", Constant::Count(k))),
        Count::Fraction(share) => Some(("fraction", Constant::Share(share))),
    };
    match sparsifier {
        Sparsifier::All => ("Identity", None),
        Sparsifier::RandK(k) => ("RandK", count(k)),
        Sparsifier::RandSeqK(k) => ("RandSeqK", count(k)),
        Sparsifier::PermK => ("PermK", None),
        Sparsifier::TopK(k) => ("TopK", count(k)),
        Sparsifier::TopLeK(k) => ("TopLEK", count(k)),
        Sparsifier::Bernoulli(p) => ("Bernoulli", Some(("p", Constant::Share(p)))),
    }
}

fn of_quantiser(quantiser: Quantiser) -> (&'static str, Option<(&'static str, Constant)>) {
    let levels = |levels| Some(("levels", Constant::Count(usize::from(levels))));
    match quantiser {
        Quantiser::None => ("Identity", None),
        Quantiser::Natural => ("Natural", None),
        Quantiser::Dithering(n) => ("QSGD", levels(n)),
        Quantiser::NaturalDithering(n) => ("NaturalDithering", levels(n)),
        Quantiser::Ternary => ("TernGrad", None),
        Quantiser::Sign => ("ScaledSign", None),
    }
}

fn text((class, argument): (&str, Option<(&str, Constant)>)) -> String {
    match argument {
        None => format!("{class}()"),
        Some((name, Constant::Count(n))) => format!("{class}({name}={n})"),
        Some((name, Constant::Share(share))) => format!("{class}({name}={share:?})"),
    }
}

impl PyCompressor {
    /// The compressor itself.
    pub fn compressor(&self) -> Compressor {
        self.compressor
    }

    /// A sparsifier followed by a quantiser.
    pub fn of(py: Python<'_>, sparsifier: Sparsifier, quantiser: Quantiser) -> PyResult<Self> {
        Ok(PyCompressor { compressor: Compressor::new(sparsifier, quantiser).or_raise(py)? })
    }

    /// The client that compresses, with its draws; `none` if it needs none.
    pub fn settings<'a>(
        &self,
        draw: Option<&'a Bound<'_, PyDraw>>,
        client: Option<Integer>,
        n_clients: Option<Integer>,
        none: &'a PyDraw,
    ) -> PyResult<(Client, &'a PyDraw)> {
        let client = match (self.compressor.sparsifier(), n_clients) {
            (Sparsifier::PermK, None) => {
                return Err(PyValueError::new_err(NEEDS_CLIENTS));
            }
            (Sparsifier::PermK, Some(n)) => {
                let n = n.positive("n_clients")?;
                let own = draw.map_or(0, |draw| draw.get().client());
                Client { index: client.map_or(Ok(own), |client| client.within("client", 0..=n - 1))?, n }
            }
            _ => Client::ALONE,
        };
        match draw {
            Some(draw) => Ok((client, draw.get())),
            None if !self.compressor.is_random() => Ok((client, none)),
            None => {
                let message = "this compressor is random: pass draw=, such as bt.compress.Draw(seed, round, client)";
                Err(PyValueError::new_err(message))
            }
        }
    }

    fn constant(
        &self,
        py: Python<'_>,
        d: Integer,
        n_clients: Option<Integer>,
        of: fn(&Compressor, usize, usize) -> burtorch_core::Result<f64>,
    ) -> PyResult<f64> {
        if n_clients.is_none() && self.compressor.sparsifier() == Sparsifier::PermK {
            return Err(PyValueError::new_err(NEEDS_CLIENTS));
        }
        let n_clients = n_clients.map_or(Ok(1), |n| n.positive("n_clients"))?;
        of(&self.compressor, d.positive("d")?, n_clients).or_raise(py)
    }
}

/// The positional arguments of a class.
fn arguments<'py>(
    py: Python<'py>,
    (_, argument): (&str, Option<(&'static str, Constant)>),
) -> PyResult<Bound<'py, PyTuple>> {
    match argument {
        None => Ok(PyTuple::empty(py)),
        Some(("fraction", share)) => (py.None(), share).into_pyobject(py),
        Some((_, constant)) => (constant,).into_pyobject(py),
    }
}

/// An object of the class of this compressor.
fn instance<'py>(py: Python<'py>, sparsifier: Sparsifier, quantiser: Quantiser) -> PyResult<Bound<'py, PyAny>> {
    let parts = if quantiser == Quantiser::None { of_sparsifier(sparsifier) } else { of_quantiser(quantiser) };
    py.import("burtorch.compress")?.getattr(parts.0)?.call1(arguments(py, parts)?)
}

#[pymethods]
impl PyCompressor {
    /// Compress a vector: an array or a sequence of numbers. float32 stays float32; all other types become float64.
    ///
    /// `draw` gives the random numbers; PermK also needs `client` (by default the draw's) and `n_clients`. `out`: a Message whose
    /// memory is reused, and which is then returned. Returns a Message.
    ///
    /// Raises ValueError for an empty vector, for NaN or infinities if numbers are compared or rounded, for k above the length,
    /// and for too few given draws; `out` is then empty. BusyError: `out` is in use.
    #[pyo3(signature = (x, draw=None, out=None, *, client=None, n_clients=None))]
    fn compress<'py>(
        &self,
        py: Python<'py>,
        x: &Bound<'py, PyAny>,
        draw: Option<&Bound<'py, PyDraw>>,
        out: Option<Bound<'py, PyMessage>>,
        client: Option<Integer>,
        n_clients: Option<Integer>,
    ) -> PyResult<Bound<'py, PyMessage>> {
        let none = PyDraw::none();
        let (client, draw) = self.settings(draw, client, n_clients, &none)?;
        let array = Array::converted(x)?;
        if array.shape().len() != 1 {
            let message = format!("a vector to compress must have one dimension, found {}", array.shape().len());
            return Err(PyValueError::new_err(message));
        }
        let out = out.map_or_else(|| Bound::new(py, PyMessage::new()), Ok)?;
        out.get().fill(py, &array, self.compressor, &mut draw.sequence(py)?, client)?;
        Ok(out)
    }

    /// The constant of an unbiased compressor for vectors of `d` numbers: E |C(x) - x|^2 <= omega |x|^2.
    ///
    /// `n_clients` is for PermK. Raises ValueError for a biased compressor.
    #[pyo3(signature = (d, n_clients=None))]
    fn omega(&self, py: Python<'_>, d: Integer, n_clients: Option<Integer>) -> PyResult<f64> {
        self.constant(py, d, n_clients, Compressor::omega)
    }

    /// The constant of a contractive compressor for vectors of `d` numbers: E |C(x) - x|^2 <= (1 - alpha) |x|^2.
    ///
    /// `n_clients` is for PermK. Raises ValueError for a compressor that is not contractive.
    #[pyo3(signature = (d, n_clients=None))]
    fn alpha(&self, py: Python<'_>, d: Integer, n_clients: Option<Integer>) -> PyResult<f64> {
        self.constant(py, d, n_clients, Compressor::alpha)
    }

    /// The expected share of numbers that is sent (at most, for TopLEK), for vectors of `d` numbers.
    #[pyo3(signature = (d, n_clients=None))]
    fn density(&self, py: Python<'_>, d: Integer, n_clients: Option<Integer>) -> PyResult<f64> {
        self.constant(py, d, n_clients, Compressor::density)
    }

    fn __repr__(&self) -> String {
        let (sparsifier, quantiser) = (self.compressor.sparsifier(), self.compressor.quantiser());
        match (sparsifier, quantiser) {
            (_, Quantiser::None) => text(of_sparsifier(sparsifier)),
            (Sparsifier::All, _) => text(of_quantiser(quantiser)),
            _ => format!("Compose({}, {})", text(of_sparsifier(sparsifier)), text(of_quantiser(quantiser))),
        }
    }

    fn __richcmp__(&self, py: Python<'_>, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
        let other = other.cast::<PyCompressor>().ok();
        compared(py, other.map(|other| self.compressor == other.get().compressor), op)
    }

    fn __hash__(&self) -> u64 {
        // FNV-1a of the text, which distinguishes compressors.
        let text = self.__repr__();
        text.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let py = slf.py();
        let (sparsifier, quantiser) = (slf.get().compressor.sparsifier(), slf.get().compressor.quantiser());
        let arguments = match (sparsifier, quantiser) {
            (_, Quantiser::None) => arguments(py, of_sparsifier(sparsifier))?,
            (Sparsifier::All, _) => arguments(py, of_quantiser(quantiser))?,
            _ => {
                let parts = [(sparsifier, Quantiser::None), (Sparsifier::All, quantiser)];
                let parts = parts.map(|(sparsifier, quantiser)| instance(py, sparsifier, quantiser));
                PyTuple::new(py, parts.into_iter().collect::<PyResult<Vec<_>>>()?)?
            }
        };
        Ok((slf.get_type().into_any(), arguments))
    }
}
