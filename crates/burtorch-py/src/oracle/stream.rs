//! `oracle.stream`: a gradient returned in parts while the rest is computed.
//!
//! Promises: parts come in a fixed order, one at a time, on the caller's thread or on another; an exception there ends the pass.
//! Does not know how the gradient is divided.

use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, sync_channel};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyMemoryView, PyRange, PySlice};

use super::PyOracle;
use super::call::Asked;
use super::engine::{Want, WantStream};
use crate::convert::buffer::{FlatArray, type_name};
use crate::convert::threads::detached;

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

    /// Receives all parts; returns the exception that ended the pass.
    fn take_all(self, parts: &Receiver<Part>) -> Option<PyErr> {
        let raised = parts.iter().find_map(|part| Python::attach(|py| self.take(py, part)).err());
        Python::attach(|_| drop(self));
        raised
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
        let thread =
            std::thread::Builder::new().name("burtorch stream".into()).spawn(move || receiving.take_all(&parts))?;
        let take = &mut |range, copy| sender.send((range, copy)).is_ok();
        let ran = self.run(py, x, y, Want::Stream(WantStream { at, out: memory, keeps, take }));
        drop(sender);
        match detached(py, || thread.join()) {
            Ok(Some(raised)) => Err(raised),
            Ok(None) => ran,
            Err(panic) => resume_unwind(panic),
        }
    }
}
