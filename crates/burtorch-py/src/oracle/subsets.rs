//! Sets of parameters for `wanted=`, and the predicted time of their gradients.

use std::time::Instant;

use burtorch_core::DType;
use burtorch_core::oracle::Cost;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::engine::Want;
use super::{PyOracle, or_none};
use crate::convert::arrays::{Kind, empty};
use crate::convert::buffer::CallerMemory;
use crate::params::PySubset;

/// How often a call is measured beside its computation, and for how long.
const ROUNDS: usize = 100;
const FEWEST_ROUNDS: usize = 4;
const SECONDS: f64 = 0.1;

fn timed<T>(work: impl FnOnce() -> PyResult<T>) -> PyResult<f64> {
    let began = Instant::now();
    work()?;
    Ok(began.elapsed().as_secs_f64())
}

#[pymethods]
impl PyOracle {
    /// Prepare a set of parameters for `wanted=`: `Parameters.subset` of this oracle's parameters.
    ///
    /// Example:
    ///     >>> import burtorch as bt
    ///     >>> params = bt.Parameters(dtype="float64")
    ///     >>> model = bt.nn.Linear(params, 2, 1)
    ///     >>> params.values[:] = [1.0, 2.0, 0.0]
    ///     >>> oracle = bt.Oracle(model)
    ///     >>> s = oracle.subset(range(1, 3))
    ///     >>> loss, some = oracle([[1.0, 1.0]], [[1.0]], wanted=s)
    ///     >>> loss, list(some), list(oracle.grad([[1.0, 1.0]], [[1.0]]))
    ///     (4.0, [4.0, 4.0], [4.0, 4.0, 4.0])
    fn subset<'py>(&self, py: Python<'py>, wanted: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PySubset>> {
        PySubset::of(self.params.bind(py), wanted)
    }

    /// Predict the seconds for a gradient of a set, as a dict: "seconds", their parts "call" (reading the arguments), "loss", "sweep"
    /// (adjoints down to the lowest tensor of the set), "numbers" and "ranges" (the overhead of each range), and "bound", the name
    /// of the largest part.
    ///
    /// Args:
    ///     wanted: a set of `subset`, or an argument of it.
    ///     contexts, targets: a batch as in a call; by default the last one, as arrays.
    ///
    /// The first call for a shape of batches measures the tensors of the model, for some 0.3 seconds; later calls compute no
    /// gradient. The prediction is for `grad(..., wanted=set, out=memory)` with memory for the numbers of the set, under the load
    /// of the machine during the measurement. For built-in models only.
    ///
    /// Example:
    ///     >>> import burtorch as bt
    ///     >>> params = bt.Parameters(dtype="float64")
    ///     >>> oracle = bt.Oracle(bt.nn.MLP(params, [2, 64, 64, 1]))
    ///     >>> cost = oracle.cost(range(4416, 4417), [[1.0, 1.0]], [[1.0]])
    ///     >>> cost["seconds"] < 0.01, cost["bound"] in cost
    ///     (True, True)
    #[pyo3(signature = (wanted, contexts=None, targets=None))]
    fn cost<'py>(
        slf: &Bound<'py, Self>,
        wanted: &Bound<'py, PyAny>,
        contexts: Option<&Bound<'py, PyAny>>,
        targets: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (py, this) = (slf.py(), slf.get());
        let subset = PySubset::of(this.params.bind(py), wanted)?;
        let mut cost = Cost::default();
        let want = Want::Cost(subset.get().set(), &mut cost);
        let batch = contexts.map(|contexts| [contexts.clone(), or_none(py, targets)]);
        match &batch {
            Some([x, y]) => this.run(py, x, y, want)?,
            None if targets.is_some() => return Err(PyValueError::new_err("targets are for contexts")),
            None => this.engine.with(py, |engine| engine.run(py, want))??,
        };
        cost.call = match this.engine.with(py, |engine| engine.overhead(None))? {
            Some(known) => known,
            None => Self::overhead(slf, batch)?,
        };
        let table = PyDict::new(py);
        table.set_item("seconds", cost.seconds())?;
        table.set_item("bound", cost.bound())?;
        cost.parts().iter().try_for_each(|(name, seconds)| table.set_item(name, seconds))?;
        Ok(table)
    }
}

impl PyOracle {
    /// Seconds that a call for a set takes besides its computation: both are measured for a single number, in turns.
    fn overhead<'py>(slf: &Bound<'py, Self>, batch: Option<[Bound<'py, PyAny>; 2]>) -> PyResult<f64> {
        let (py, this) = (slf.py(), slf.get());
        let batch = match batch {
            Some(batch) => batch,
            None => this.engine.with(py, |engine| engine.arrays(py))??,
        };
        let (params, dtype) = (this.params.bind(py), this.params.get().dtype_of());
        let n = params.len()? as u32;
        let last = n - 1..n;
        let subset = PySubset::of_ranges(params, vec![last])?;
        let out = empty(py, &[1], if dtype == DType::Float32 { Kind::F32 } else { Kind::F64 })?;
        let options = PyDict::new(py);
        options.set_item("wanted", &subset)?;
        options.set_item("out", &out)?;
        let (grad, [mut whole, mut computation]) = (slf.getattr("grad")?, [f64::INFINITY; 2]);
        let began = Instant::now();
        for round in 0..ROUNDS {
            if round >= FEWEST_ROUNDS && began.elapsed().as_secs_f64() > SECONDS {
                break;
            }
            whole = whole.min(timed(|| grad.call((&batch[0], &batch[1]), Some(&options)))?);
            let want = Want::Some(subset.get().set(), CallerMemory::of(&out, dtype, "out")?, None, true);
            computation = computation.min(timed(|| this.engine.with(py, |engine| engine.run(py, want))?)?);
        }
        let found = (whole - computation).max(0.0);
        this.engine.with(py, |engine| engine.overhead(Some(found)))?;
        Ok(found)
    }
}
