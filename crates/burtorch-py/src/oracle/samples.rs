//! The gradients of single samples: shown one after another, as rows, or compressed.
//!
//! Promises: signals are checked between samples. Does not know the kinds of engines.

use burtorch_core::sync::Stop;
use burtorch_core::{DType, Error};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyList, PyMemoryView, PySlice};

use super::engine::{Want, WantSample};
use super::{PyOracle, begin, or_none};
use crate::compress::{AnyLargest, PyCompressor, PyDraw, PyMessage};
use crate::convert::arrays::Array;
use crate::convert::entry::check_signals;
use crate::convert::errors::{IntoPython, if_any, to_python};
use crate::convert::numbers::optional_number;
use crate::convert::stop::{PyStop, until, watched};
use crate::params::{PyParameters, with_params, zeros};

#[pymethods]
impl PyOracle {
    /// Calls `visit(k, loss, grad)` for each sample: its number, its loss, and its own gradient.
    ///
    /// The gradient is a FlatArray over `params.grads`, overwritten for the next sample; an exception ends the pass. Costs
    /// one forward and one backward pass per sample, and the memory of one gradient. The oracle cannot be used within `visit`
    /// (BusyError). `stop=` and `deadline=` end it with a StoppedError; visited samples were complete.
    ///
    /// Example:
    ///     >>> import burtorch as bt
    ///     >>> params = bt.Parameters(dtype="float64")
    ///     >>> oracle = bt.Oracle(bt.nn.Linear(params, 1, 1, bias=False))
    ///     >>> params.values[:] = [1.0]
    ///     >>> oracle.per_sample([[1.0], [2.0]], [[0.0], [0.0]], lambda k, loss, grad: print(k, loss, list(grad)))
    ///     0 1.0 [2.0]
    ///     1 4.0 [8.0]
    #[pyo3(signature = (contexts, targets, visit, *, stop=None, deadline=None))]
    fn per_sample(
        &self,
        py: Python<'_>,
        contexts: &Bound<'_, PyAny>,
        targets: &Bound<'_, PyAny>,
        visit: &Bound<'_, PyAny>,
        stop: Option<&Bound<'_, PyStop>>,
        #[pyo3(from_py_with = optional_number)] deadline: Option<f64>,
    ) -> PyResult<()> {
        until(py, watched(stop, deadline)?, || self.visited(py, contexts, targets, visit))
    }

    /// The gradient of each sample, as the rows of a memoryview of shape (b, n) in the parameters' dtype.
    ///
    /// `numpy.asarray` of it copies nothing. Needs b times the memory of a gradient; `per_sample` needs one.
    ///
    /// With `compress=c` a list of b Messages: `c.compress` of each gradient, sample k with the draw of client `draw.client + k`
    /// (given numbers are the same for all). With TopK, with nothing frozen and a built-in model or a callable that reads no other
    /// Parameters, only the parts in flight and b messages are in memory; otherwise the messages and one gradient. `params.grads`
    /// does not change. PermK is refused: clients share its draw. `stop=` and `deadline=` end it with a StoppedError.
    ///
    /// Example:
    ///     >>> import burtorch as bt
    ///     >>> params = bt.Parameters(dtype="float64")
    ///     >>> oracle = bt.Oracle(bt.nn.Linear(params, 2, 1, bias=False))
    ///     >>> params.values[:] = [1.0, 0.0]
    ///     >>> x, y = [[1.0, 2.0], [3.0, 1.0]], [[0.0], [0.0]]
    ///     >>> [list(row) for row in oracle.per_sample_grads(x, y).tolist()]
    ///     [[2.0, 4.0], [18.0, 6.0]]
    ///     >>> [m.indices.tolist() for m in oracle.per_sample_grads(x, y, compress=bt.compress.TopK(1))]
    ///     [[1], [0]]
    #[pyo3(signature = (contexts, targets=None, *, compress=None, draw=None, stop=None, deadline=None))]
    #[allow(clippy::too_many_arguments, reason = "keywords of Python")]
    fn per_sample_grads<'py>(
        &self,
        py: Python<'py>,
        contexts: &Bound<'py, PyAny>,
        targets: Option<&Bound<'py, PyAny>>,
        compress: Option<&Bound<'py, PyCompressor>>,
        draw: Option<&Bound<'py, PyDraw>>,
        stop: Option<&Bound<'_, PyStop>>,
        #[pyo3(from_py_with = optional_number)] deadline: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let targets = &or_none(py, targets);
        let Some(compressor) = compress else {
            if draw.is_some() {
                return Err(PyValueError::new_err("draw is for compress=, a compressor"));
            }
            return until(py, watched(stop, deadline)?, || self.rows_of_samples(py, contexts, targets));
        };
        until(py, watched(stop, deadline)?, || self.compressed_samples(py, contexts, targets, (compressor.get(), draw)))
    }

    /// The Euclidean norm of each sample's gradient, without storing more than one of them. `stop=` and `deadline=` end it with a
    /// StoppedError.
    #[pyo3(signature = (contexts, targets=None, *, stop=None, deadline=None))]
    fn per_sample_grad_norms(
        &self,
        py: Python<'_>,
        contexts: &Bound<'_, PyAny>,
        targets: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyStop>>,
        #[pyo3(from_py_with = optional_number)] deadline: Option<f64>,
    ) -> PyResult<Vec<f64>> {
        let mut norms = Vec::new();
        let want = Want::Norms(&mut norms);
        until(py, watched(stop, deadline)?, || self.run(py, contexts, &or_none(py, targets), want))?;
        Ok(norms)
    }

    /// The loss of each sample of a batch. Gradients do not change. `stop=` and `deadline=` end it with a StoppedError.
    #[pyo3(signature = (contexts, targets=None, *, stop=None, deadline=None))]
    fn losses(
        &self,
        py: Python<'_>,
        contexts: &Bound<'_, PyAny>,
        targets: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyStop>>,
        #[pyo3(from_py_with = optional_number)] deadline: Option<f64>,
    ) -> PyResult<Vec<f64>> {
        let mut losses = Vec::new();
        let want = Want::Losses(&mut losses);
        until(py, watched(stop, deadline)?, || self.run(py, contexts, &or_none(py, targets), want))?;
        Ok(losses)
    }
}

/// Checks whether to end before the next sample.
pub(super) fn between_samples(py: Python<'_>) -> PyResult<()> {
    check_signals(py)?;
    if Stop::ends_work() { Err(to_python(py, Error::Interrupted)) } else { Ok(()) }
}

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
                between_samples(py)?;
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
            // That of NumPy comes without being written to, which would take as long as many samples.
            let memory = match if_any(py, py.import("numpy"))? {
                Some(numpy) => numpy.call_method1("empty", (bytes, "uint8"))?,
                None => py.get_type::<PyByteArray>().call1((bytes,))?,
            };
            let memory = PyMemoryView::from(&memory)?;
            let flat = memory.call_method1("cast", (format,))?;
            for k in 0..n {
                between_samples(py)?;
                let row = flat.get_item(PySlice::new(py, (k * d) as isize, (k * d + d) as isize, 1))?;
                let row = self.memory_of(Some(&row), "a row")?;
                engine.sample(py, k, WantSample::Row(row))?;
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
                between_samples(py)?;
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
                    engine.sample(py, k, WantSample::Row(self.memory_of(Some(all), "a gradient")?))?;
                    message.get().fill(py, &Array::converted(all)?, compressor.compressor(), &mut draws, client)?;
                }
                messages.append(message)?;
            }
            Ok(messages.into_any())
        })?
    }
}
