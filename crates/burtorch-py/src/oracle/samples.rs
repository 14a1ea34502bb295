//! The gradients of single samples: shown one after another, as rows, or compressed.
//!
//! Promises: signals are checked between samples. Does not know the kinds of engines.

use burtorch_core::{DType, Error};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyList, PyMemoryView, PySlice};

use super::engine::WantSample;
use super::{PyOracle, begin};
use crate::compress::{AnyLargest, PyCompressor, PyDraw, PyMessage};
use crate::convert::arrays::Array;
use crate::convert::entry::check_signals;
use crate::convert::errors::{IntoPython, to_python};
use crate::params::{PyParameters, with_params, zeros};

impl PyOracle {
    /// Calls `visit(k, loss, grad)` for each sample.
    pub(super) fn visited(
        &self,
        py: Python<'_>,
        x: &Bound<'_, PyAny>,
        y: &Bound<'_, PyAny>,
        visit: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.engine.with(py, |engine| {
            for k in 0..begin(engine.as_mut(), x, y)? {
                // One sample may be too short to check for signals.
                check_signals(py)?;
                let loss = engine.sample(py, k, WantSample::Gradient(None))?;
                visit.call1((k, loss, PyParameters::grads_array(self.params.bind(py))?))?;
            }
            Ok(())
        })?
    }

    /// The gradients as rows of memory of Python.
    pub(super) fn rows_of_samples<'py>(
        &self,
        py: Python<'py>,
        x: &Bound<'py, PyAny>,
        y: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.engine.with(py, |engine| {
            let n = begin(engine.as_mut(), x, y)?;
            let d = self.params.get().with(py, |params| with_params!(params, p => p.len()))?;
            let (format, size) = if self.params.get().dtype_of() == DType::Float32 { ("f", 4) } else { ("d", 8) };
            let bytes = n.saturating_mul(d).saturating_mul(size);
            if bytes > isize::MAX as usize {
                return Err(to_python(py, Error::OutOfMemory { bytes, what: "the gradients of all samples" }));
            }
            // Python's own comes without being written to.
            let memory = py.get_type::<PyByteArray>().call1((bytes,))?;
            let memory = PyMemoryView::from(&memory)?;
            let flat = memory.call_method1("cast", (format,))?;
            for k in 0..n {
                check_signals(py)?;
                let row = flat.get_item(PySlice::new(py, (k * d) as isize, (k * d + d) as isize, 1))?;
                let row = self.memory_of(Some(&row), "a row")?;
                engine.sample(py, k, WantSample::Gradient(row))?;
            }
            memory.call_method1("cast", (format, (n, d)))
        })?
    }

    /// The compressed gradient of each sample.
    pub(super) fn compressed_samples<'py>(
        &self,
        py: Python<'py>,
        x: &Bound<'py, PyAny>,
        y: &Bound<'py, PyAny>,
        (compressor, draw): (&PyCompressor, Option<&Bound<'py, PyDraw>>),
    ) -> PyResult<Bound<'py, PyAny>> {
        crate::convert::refusals::refuse_reading("the gradients of an oracle")?;
        let none = PyDraw::none();
        let (client, draw) = compressor.settings(draw, None, None, &none)?;
        let (dtype, d) = (self.params.get().dtype_of(), self.params.bind(py).len()?);
        let mut all = None;
        let messages = PyList::empty(py);
        self.engine.with(py, |engine| {
            for k in 0..begin(engine.as_mut(), x, y)? {
                check_signals(py)?;
                let message = Bound::new(py, PyMessage::new())?;
                let draw = draw.of_sample(k);
                let mut draws = draw.sequence(py)?;
                if let Some(mut largest) = AnyLargest::of(compressor.compressor(), dtype, d).or_raise(py)? {
                    engine.sample(py, k, WantSample::Largest(&mut largest))?;
                    message.get().fill_largest(py, largest, compressor.compressor(), &mut draws)?;
                } else {
                    let all = match &all {
                        Some(all) => all,
                        None => all.insert(zeros(py, dtype, d)?),
                    };
                    engine.sample(py, k, WantSample::Gradient(self.memory_of(Some(all), "a gradient")?))?;
                    message.get().fill(py, &Array::converted(all)?, compressor.compressor(), &mut draws, client)?;
                }
                messages.append(message)?;
            }
            Ok(messages.into_any())
        })?
    }
}
