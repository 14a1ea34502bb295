//! Methods of `Graph` that take or return Values: new nodes, backward passes, joined branches.
#![allow(unsafe_code)]

use burtorch_core::erased::AnyNumber;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::node_values::NodeValues;
use super::of_graph::{labelled, node_of, node_value, root_of};
use super::vector::{PyVector, numbers};
use super::{joining, value};
use crate::convert::arguments::Count;
use crate::convert::critical_section::locked;
use crate::convert::errors::IntoPython;
use crate::convert::numbers;
use crate::convert::numbers::{argument_number, optional_number};
use crate::convert::signals::asked;
use crate::convert::stop::{PyStop, watched};
use crate::graph::parameters::with_values;
use crate::graph::{LONG, PyGraph, Sweep};
use crate::node::numbers as of_node;

#[pymethods]
impl PyGraph {
    /// A Value for the node with this index. Raises IndexError if it does not exist.
    fn node<'py>(slf: &Bound<'py, Self>, index: u32) -> PyResult<Bound<'py, PyAny>> {
        locked(slf, || {
            slf.get().settle(slf.py())?;
            node_value(slf, index)
        })
    }

    /// A Value for the node with this label, the lowest of several. Raises KeyError if there is no such label.
    fn labelled<'py>(slf: &Bound<'py, Self>, label: &str) -> PyResult<Bound<'py, PyAny>> {
        locked(slf, || {
            slf.get().settle(slf.py())?;
            labelled(slf, label)
        })
    }

    /// A leaf on this graph: the same as Value(data, graph=self).
    fn value<'py>(slf: &Bound<'py, Self>, data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let keywords = PyDict::new(slf.py());
        keywords.set_item("graph", slf)?;
        // SAFETY: the type object exists once the module is loaded.
        let class = unsafe { Bound::from_borrowed_ptr(slf.py(), value::value_type().cast()) };
        class.call((data,), Some(&keywords))
    }

    /// A number that receives no gradient, as a Value.
    fn constant<'py>(slf: &Bound<'py, Self>, data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if slf.get().with_as_is(slf.py(), |cell| Ok(cell.is_busy()))? {
            // In a traced function every leaf that is not an argument is a constant.
            return Self::value(slf, data);
        }
        locked(slf, || {
            let before = slf.get().set_no_grad(slf.py(), true)?;
            let value = Self::value(slf, data);
            slf.get().set_no_grad(slf.py(), before)?;
            value
        })
    }

    /// Contiguous leaves from a sequence, buffer or array of numbers, flattened in row-major order.
    ///
    /// Raises TypeError for data that are not real numbers, ValueError for an empty sequence.
    pub(crate) fn vector(slf: &Bound<'_, Self>, data: &Bound<'_, PyAny>) -> PyResult<Py<PyVector>> {
        let scalar_type = slf.get().scalar_type(slf.py())?;
        if scalar_type.fits_float() {
            return PyVector::leaves(slf, &numbers(data)?);
        }
        PyVector::special_leaves(slf, &of_node::read_many(data, scalar_type)?)
    }

    /// The data of all nodes by index: `graph.values[i:j]` shares memory that never moves, and copies otherwise.
    #[getter]
    fn values(slf: &Bound<'_, Self>) -> PyResult<NodeValues> {
        slf.get().settle(slf.py())?;
        Ok(NodeValues { graph: slf.clone().unbind() })
    }

    /// Append the open branches to this graph, by number; their Values and Vectors become this graph's.
    ///
    /// Linear in the nodes appended, which up to `threads` threads copy, by default one per core. The
    /// result does not depend on their speed. The graph keeps the memory of the branches for the next ones.
    ///
    /// Raises:
    ///     ValueError: no branches are open, or threads is below 1.
    ///     BusyError: a thread is still in one of them, or one has open branches.
    ///     GraphFullError, MemoryError: not enough memory; nothing was appended, the branches are still open.
    #[pyo3(signature = (threads=None))]
    fn join(slf: &Bound<'_, Self>, threads: Option<Count>) -> PyResult<()> {
        let n_threads = threads.map(|n| n.positive("threads")).transpose()?;
        joining::join(slf, n_threads.unwrap_or_else(burtorch_core::sync::n_cores))
    }

    /// Drop the open branches: nothing is appended, and their Values are stale.
    ///
    /// Raises ValueError if none are open, BusyError while a thread is in one of them.
    fn drop_branches(slf: &Bound<'_, Self>) -> PyResult<()> {
        joining::discard(slf)
    }

    /// Add seed times the gradient of `root` to the leaves and parameters that it depends on.
    ///
    /// With skip_zero_adjoints, nodes whose adjoint is exactly 0 are skipped, so 0 * inf below them never occurs.
    /// With `stop` (a Stop) or `deadline` (seconds from now) it may end early: a StoppedError, and all gradients are unchanged.
    #[pyo3(signature = (root, seed=1.0, *, skip_zero_adjoints=false, stop=None, deadline=None))]
    fn backward(
        slf: &Bound<'_, Self>,
        root: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = argument_number)] seed: f64,
        skip_zero_adjoints: bool,
        stop: Option<&Bound<'_, PyStop>>,
        #[pyo3(from_py_with = optional_number)] deadline: Option<f64>,
    ) -> PyResult<()> {
        let (py, stop) = (slf.py(), watched(stop, deadline)?);
        locked(slf, || {
            let root = root_of(py, slf, root)?;
            slf.get().not_traced(py, "backward()")?;
            let sweep = Sweep { root, seed, skip_zero_adjoints };
            match stop {
                Some(stop) => slf.get().sweep_until(py, stop, sweep, None),
                None => slf.get().sweep(py, sweep),
            }
        })
    }

    /// Recompute the nodes that `root` depends on, from the current data of leaves and parameters, and return its data.
    fn recompute<'py>(slf: &Bound<'py, Self>, root: &Bound<'_, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        slf.get().not_traced(py, "recompute()")?;
        let data = locked(slf, || Self::recomputed(slf, root))?;
        numbers::into_python(py, data)
    }
}

impl PyGraph {
    fn recomputed(slf: &Bound<'_, Self>, root: &Bound<'_, PyAny>) -> PyResult<AnyNumber> {
        let py = slf.py();
        let root = node_of(py, slf, root)?;
        // The refusals of a short call apply to a long one too.
        let is_long = slf.get().with(py, |cell| Ok(cell.graph.len()))? > LONG;
        if is_long {
            slf.get().released(py, |graph, parameters| {
                with_values(py, parameters, |given| asked(|| graph.recompute(root, given)))?.or_raise(py)?;
                graph.number(root, false).or_raise(py)
            })
        } else {
            slf.get().with(py, |cell| {
                let parameters = &cell.parameters;
                let graph = &mut cell.graph;
                with_values(py, parameters, |given| graph.recompute(root, given))?.or_raise(py)?;
                graph.number(root, false).or_raise(py)
            })
        }
    }
}
