//! Exchange of messages between processes, through a Python function.

use std::sync::{Arc, Mutex};

use burtorch_core::{Error, Result};
use pyo3::prelude::*;

use crate::convert::arrays::{Kind, filled};
use crate::convert::buffer::read_numbers;
use crate::convert::gc::{HoldsObjects, Visitor};

/// The function, and its last exception. `gather(own)` returns the messages of all processes, in order.
pub struct Exchange {
    gather: Py<PyAny>,
    raised: Mutex<Option<PyErr>>,
}

impl HoldsObjects for Arc<Exchange> {
    fn visit(&self, visit: &mut Visitor<'_>) {
        self.gather.visit(visit);
    }
}

impl Exchange {
    /// With this function.
    pub fn new(gather: Py<PyAny>) -> Arc<Self> {
        Arc::new(Exchange { gather, raised: Mutex::new(None) })
    }

    /// The exception of the function, once.
    pub fn raised(&self) -> Option<PyErr> {
        self.raised.lock().map_or(None, |mut raised| raised.take())
    }
}

/// The same for the core.
pub struct PyExchange(pub Arc<Exchange>);

impl burtorch_core::opt::Exchange for PyExchange {
    fn gather(&self, own: &[f64], all: &mut Vec<f64>) -> Result<()> {
        let done = Python::attach(|py| {
            let own = filled(py, &[own.len()], Kind::F64, own)?;
            let found = self.0.gather.bind(py).call1((own,))?;
            all.clear();
            read_numbers(&found, all, "what processes sent").map(drop)
        });
        done.map_err(|error: PyErr| {
            // A process that sends nothing has failed before, and its error is the cause.
            if !own.is_empty()
                && let Ok(mut raised) = self.0.raised.lock()
            {
                *raised = Some(error);
            }
            Error::Interrupted
        })
    }
}
