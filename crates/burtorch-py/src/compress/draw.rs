//! Random draws by counter for Python.

use burtorch_core::draw::{Draw, Purpose};
use pyo3::basic::CompareOp;
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};

use crate::convert::arguments::sizes;
use crate::convert::arrays::Array;
use crate::convert::errors::IntoPython;

/// The random draws of a client in a round: a function of the seed, the round and the client.
///
/// Args:
///     seed, round, client: integers, at least 0; ValueError for others.
///
/// The same draw always gives the same numbers: those of Philox4x64-10 with the seed as key.
/// ``Draw.of(uniforms)`` uses the given numbers in [0, 1) in place of random ones: with (i + 1/2)/n for every i below n, a
/// choice among n takes every outcome once.
///
/// Example:
///     >>> import burtorch as bt
///     >>> bt.compress.Draw(seed=1, round=20, client=3)
///     Draw(seed=1, round=20, client=3)
#[pyclass(frozen, name = "Draw", module = "burtorch.compress")]
#[derive(PartialEq)]
pub struct PyDraw {
    source: Source,
}

#[derive(PartialEq)]
enum Source {
    Counter { seed: u64, round: u64, client: u64 },
    Given(Vec<f64>),
}

impl PyDraw {
    /// For compressors that draw nothing.
    pub fn none() -> Self {
        PyDraw { source: Source::Given(Vec::new()) }
    }

    /// The sequence for compression, from its start.
    pub fn sequence(&self, py: Python<'_>) -> PyResult<Draw<'_>> {
        self.sequence_for(py, Purpose::Compression)
    }

    /// The sequence for a purpose, from its start.
    pub fn sequence_for(&self, py: Python<'_>, purpose: Purpose) -> PyResult<Draw<'_>> {
        match &self.source {
            &Source::Counter { seed, round, client } => Ok(Draw::new(seed, round, client, purpose)),
            Source::Given(uniforms) => Draw::of(uniforms).or_raise(py),
        }
    }

    /// The draw of the client `k` after this one; given numbers are the same for all.
    pub fn of_sample(&self, k: usize) -> Self {
        let source = match &self.source {
            &Source::Counter { seed, round, client } => {
                Source::Counter { seed, round, client: client.wrapping_add(k as u64) }
            }
            Source::Given(uniforms) => Source::Given(uniforms.clone()),
        };
        PyDraw { source }
    }

    /// The client, unless the numbers are given.
    pub fn client(&self) -> usize {
        match self.source {
            Source::Counter { client, .. } => client as usize,
            Source::Given(_) => 0,
        }
    }
}

#[pymethods]
impl PyDraw {
    #[new]
    #[pyo3(signature = (seed, round=0, client=0))]
    fn new(
        #[pyo3(from_py_with = sizes::seed)] seed: u64,
        #[pyo3(from_py_with = sizes::round)] round: u64,
        #[pyo3(from_py_with = sizes::client)] client: u64,
    ) -> Self {
        PyDraw { source: Source::Counter { seed, round, client } }
    }

    /// A draw of these numbers, each at least 0 and below 1; ValueError for others.
    #[classmethod]
    fn of(cls: &Bound<'_, PyType>, uniforms: &Bound<'_, PyAny>) -> PyResult<Self> {
        let draw = PyDraw { source: Source::Given(Array::converted(uniforms)?.floats()) };
        draw.sequence(cls.py())?;
        Ok(draw)
    }

    fn __repr__(&self) -> String {
        match &self.source {
            Source::Counter { seed, round, client } => format!("Draw(seed={seed}, round={round}, client={client})"),
            Source::Given(uniforms) => format!("Draw.of({uniforms:?})"),
        }
    }

    fn __richcmp__(&self, py: Python<'_>, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
        super::compressor::compared(py, other.cast::<PyDraw>().ok().map(|other| self == other.get()), op)
    }

    fn __hash__(&self) -> u64 {
        match &self.source {
            Source::Counter { seed, round, client } => seed ^ round.rotate_left(20) ^ client.rotate_left(40),
            Source::Given(uniforms) => uniforms.iter().fold(1, |hash, u| hash.rotate_left(7) ^ u.to_bits()),
        }
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let (py, cls) = (slf.py(), slf.get_type());
        match &slf.get().source {
            &Source::Counter { seed, round, client } => Ok((cls.into_any(), (seed, round, client).into_pyobject(py)?)),
            Source::Given(uniforms) => Ok((cls.getattr("of")?, (uniforms.clone(),).into_pyobject(py)?)),
        }
    }
}
