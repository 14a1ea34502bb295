//! Sets of parameters for `wanted=`, and the predicted time of their gradients.

use burtorch_core::oracle::Cost;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::engine::Want;
use super::{PyOracle, or_none};
use crate::params::PySubset;

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

    /// Predict the seconds for a gradient of a set, as a dict: "seconds", their parts "loss", "sweep" (adjoints down to the lowest
    /// tensor of the set), "numbers" and "ranges" (the overhead of each range), and "bound", the name of the largest part.
    ///
    /// Args:
    ///     wanted: a set of `subset`, or an argument of it.
    ///     contexts, targets: a batch as in a call; by default the last one.
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
        &self,
        py: Python<'py>,
        wanted: &Bound<'py, PyAny>,
        contexts: Option<&Bound<'py, PyAny>>,
        targets: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let subset = PySubset::of(self.params.bind(py), wanted)?;
        let mut cost = Cost::default();
        let want = Want::Cost(subset.get().set(), &mut cost);
        match contexts {
            Some(contexts) => self.run(py, contexts, &or_none(py, targets), want)?,
            None if targets.is_some() => return Err(PyValueError::new_err("targets are for contexts")),
            None => self.engine.with(py, |engine| engine.run(py, want))??,
        };
        let table = PyDict::new(py);
        table.set_item("seconds", cost.seconds())?;
        table.set_item("bound", cost.bound())?;
        cost.parts().iter().try_for_each(|(name, seconds)| table.set_item(name, seconds))?;
        Ok(table)
    }
}
