//! `oracle.stream`: a gradient returned in parts while the rest is computed.
//!
//! Promises: parts come in a fixed order, one at a time, on the caller's thread or on another; an exception there ends the pass.
//! Does not know how the gradient is divided.

use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;

use burtorch_core::sync::Stop;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyMemoryView, PyRange, PySlice};

use super::PyOracle;
use super::call::Asked;
use super::engine::{Want, WantStream};
use super::kernel_parameters::in_params;
use crate::convert::buffer::{FlatArray, type_name};
use crate::convert::numbers::optional_number;
use crate::convert::stop::{PyStop, watched, within};
use crate::convert::threads::detached;
use crate::params::with_params;

/// Parts that wait for another thread: copies take memory, ranges of the gradient hardly any.
const COPIES: usize = 1;
const RANGES: usize = 256;

/// A finished range, and its gradient if the whole one is not kept.
type Part = (Range<usize>, Option<FlatArray>);

/// The receiver of parts.
struct Receiving {
    emit: Py<PyAny>,
    /// The whole gradient, if it is kept.
    whole: Option<Py<PyMemoryView>>,
}

impl Receiving {
    fn take(&self, py: Python<'_>, (range, copy): Part) -> PyResult<()> {
        let (start, stop) = (range.start as isize, range.end as isize);
        let gradient = match (copy, &self.whole) {
            (Some(copy), _) => PyMemoryView::from(Bound::new(py, copy)?.as_any())?.into_any(),
            (None, Some(whole)) => whole.bind(py).get_item(PySlice::new(py, start, stop, 1))?,
            (None, None) => py.None().into_bound(py),
        };
        self.emit.bind(py).call1((PyRange::new(py, start, stop)?, gradient)).map(drop)
    }

    /// Receives parts until all have come or the token is set; returns the exception that ended the pass.
    fn take_all(self, parts: &Receiver<Part>, stop: Option<&Stop>) -> Option<PyErr> {
        let parts = parts.iter().take_while(|_| !stop.is_some_and(Stop::is_set));
        let raised = parts.into_iter().find_map(|part| Python::attach(|py| self.take(py, part)).err());
        Python::attach(|_| drop(self));
        raised
    }
}

#[pymethods]
impl PyOracle {
    /// The loss of a batch, with its gradient emitted in parts: `emit(range, gradient)` is called as soon as the gradient of a
    /// tensor is final, with its range of parameters and a memoryview.
    ///
    /// Args:
    ///     contexts, targets, at, out: as in a call. None for targets if the model takes none.
    ///     emit: called once for each part. An exception ends the pass and is raised; the gradient is 0 then.
    ///     keep: whether the gradient stays in `params.grads`, or in `out`. Otherwise parts are copies, `params.grads` does not
    ///         change, and a batch that is computed in one block (one sample of a GPT, up to 64 of other models) with nothing
    ///         frozen needs memory only for the parts in flight, not for a gradient.
    ///     on_thread: whether `emit` runs on another thread, so that sending overlaps with computing. The call returns when it
    ///         is done.
    ///     stop, deadline: a token and seconds that end the pass with a StoppedError; the gradient is 0 then.
    ///
    /// The last layers come first, in the same order for every batch; each parameter comes once, with the bits of the whole
    /// gradient; unused parameters come last. The parts of a batch of several blocks come during the backward pass of its last
    /// block. A traced callable passes parts on while its program runs, if the gradient is a plain sum
    /// over samples; otherwise the gradient is computed as a whole, then its tensors follow, the newest first, with
    /// consecutive single numbers in one range. The oracle and its parameters cannot be used within `emit`
    /// (BusyError).
    ///
    /// Example:
    ///     >>> import burtorch as bt
    ///     >>> params = bt.Parameters(dtype="float64")
    ///     >>> oracle = bt.Oracle(bt.nn.MLP(params, [2, 3, 1]))
    ///     >>> x, y = [[1.0, 2.0]], [[0.5]]
    ///     >>> parts = {}
    ///     >>> loss = oracle.stream(x, y, parts.__setitem__)
    ///     >>> list(parts), loss == oracle.loss(x, y)
    ///     ([range(12, 13), range(9, 12), range(6, 9), range(0, 6)], True)
    ///     >>> list(parts[range(9, 12)]) == list(oracle.grad(x, y)[9:12])
    ///     True
    #[pyo3(signature = (contexts, targets, emit, at=None, out=None, *, keep=true, on_thread=false, stop=None, deadline=None))]
    #[allow(clippy::too_many_arguments, reason = "keywords of Python")]
    fn stream<'py>(
        &self,
        py: Python<'py>,
        contexts: &Bound<'py, PyAny>,
        targets: &Bound<'py, PyAny>,
        emit: &Bound<'py, PyAny>,
        at: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
        keep: bool,
        on_thread: bool,
        stop: Option<&Bound<'py, PyStop>>,
        #[pyo3(from_py_with = optional_number)] deadline: Option<f64>,
    ) -> PyResult<f64> {
        if out.is_some() && !keep {
            return Err(PyValueError::new_err("out needs keep=True; otherwise the gradient is not stored"));
        }
        let asked = Asked { batch: (contexts, targets), at, out, wanted: None };
        let stop = watched(stop, deadline)?;
        within(py, stop.clone(), || self.streamed(py, asked, emit, (keep, on_thread), stop))
    }
}

impl PyOracle {
    /// The loss of a batch; `emit` receives its gradient in parts.
    pub(super) fn streamed<'py>(
        &self,
        py: Python<'py>,
        asked: Asked<'_, 'py>,
        emit: &Bound<'py, PyAny>,
        (keeps, on_thread): (bool, bool),
        stop: Option<Stop>,
    ) -> PyResult<f64> {
        let Asked { batch: (x, y), at, out, .. } = asked;
        if !emit.is_callable() {
            let found = type_name(emit);
            return Err(PyTypeError::new_err(format!("emit must be a callable emit(range, gradient), found {found}")));
        }
        let at = self.point(at)?;
        let memory = self.memory_of(out, "out")?;
        let whole = match keeps {
            true => Some(PyMemoryView::from(&self.written_to(py, out)?)?.unbind()),
            false => None,
        };
        let receiving = Receiving { emit: emit.clone().unbind(), whole };
        if !on_thread {
            let mut raised = None;
            let take = &mut |range, copy| {
                raised = Python::attach(|py| receiving.take(py, (range, copy))).err();
                raised.is_none()
            };
            let ran = self.run(py, x, y, Want::Stream(WantStream { at, out: memory, keeps, take }));
            return raised.map_or(ran, Err);
        }
        let (sender, parts) = sync_channel(if keeps { RANGES } else { COPIES });
        let thread = std::thread::Builder::new()
            .name("burtorch stream".into())
            .spawn(move || receiving.take_all(&parts, stop.as_ref()))?;
        // The receiver reads the gradient: neither the oracle nor the parameters are free again before it has received all.
        let mut left = self.params.get().with(py, |params| with_params!(params, p => p.len()))?;
        let (mut sender, mut thread, mut received) = (Some(sender), Some(thread), None);
        let take = &mut |range: Range<usize>, copy| {
            left = left.saturating_sub(range.len());
            let was_sent = sender.as_ref().is_some_and(|sender| sender.send((range, copy)).is_ok());
            if left > 0 {
                return was_sent;
            }
            sender = None;
            received = thread.take().map(JoinHandle::join);
            was_sent && matches!(received, None | Some(Ok(None)))
        };
        let ran = self.run(py, x, y, Want::Stream(WantStream { at, out: memory, keeps, take }));
        drop(sender);
        let joined = || received.or_else(|| thread.map(JoinHandle::join)).unwrap_or(Ok(None));
        match detached(py, joined) {
            Ok(Some(raised)) => Err(raised),
            // The token was set after the gradient was computed, but before its parts were emitted.
            Ok(None) if ran.is_ok() && Stop::ends_work() => {
                let mut memory = self.memory_of(out, "out")?;
                if keeps {
                    in_params(&self.params, py, |params| {
                        params.zero(memory.as_mut());
                        Ok(())
                    })?;
                }
                ran
            }
            Ok(None) => ran,
            Err(panic) => resume_unwind(panic),
        }
    }
}
