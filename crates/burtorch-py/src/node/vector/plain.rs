//! Op functions of plain numbers and arrays: the op runs on a temporary graph and returns plain numbers.
//!
//! Promises: numbers give a float, arrays and sequences an array of their shape, float32 if all arrays are float32; two
//! arrays are broadcast as in NumPy. No other graph is read or changed.
#![allow(unsafe_code)]

use burtorch_core::Graph;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use super::arguments::{DEEPEST, numbers};
use super::{PyVector, numpy};
use crate::convert::errors::{IntoPython, if_any, numpy};
use crate::convert::numbers::number_of;
use crate::convert::signals::ask_at;
use crate::graph::PyGraph;
use crate::graph::cell::AnyGraph;
use crate::node::of_graph::{leaf, node_of};
use crate::node::value;

/// `f` of the arguments, or, if all of them are plain numbers, of the same numbers on a temporary graph.
/// With `broadcasts`, arrays of different shapes are broadcast.
pub fn or_plain<'py>(
    py: Python<'py>,
    arguments: &[Bound<'py, PyAny>],
    broadcasts: bool,
    f: impl Fn(&[Bound<'py, PyAny>]) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let nothing = arguments.first().is_none_or(|first| first.is_none());
    if nothing || !are_plain(arguments.iter().cloned(), 0)? {
        return f(arguments);
    }
    Plain::read(py, arguments, broadcasts)?.call(py, f)
}

/// Whether this is a number, an array of numbers, or a list or tuple (of lists or tuples) of numbers.
fn is_plain(x: &Bound<'_, PyAny>, depth: usize) -> PyResult<bool> {
    let py = x.py();
    if depth == 0 && x.is_none() || if_any(py, number_of(x))?.flatten().is_some() {
        return Ok(true);
    }
    if let Ok(list) = x.cast_exact::<PyList>() {
        return are_plain(list.iter(), depth + 1);
    }
    if let Ok(tuple) = x.cast_exact::<PyTuple>() {
        return are_plain(tuple.iter(), depth + 1);
    }
    Ok(numpy::is_array(x) && if_any(py, numpy::holds_numbers(x))?.unwrap_or(false))
}

/// The same of all of them.
pub fn are_plain<'py>(all: impl Iterator<Item = Bound<'py, PyAny>>, depth: usize) -> PyResult<bool> {
    if depth > DEEPEST {
        return Ok(false);
    }
    for (k, x) in all.enumerate() {
        ask_at(x.py(), k)?;
        if !is_plain(&x, depth)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Plain arguments.
struct Plain<'py> {
    /// Numbers, and arrays and flat lists of them.
    arguments: Vec<Given<'py>>,
    /// The shape of an elementwise result.
    shape: Option<Bound<'py, PyAny>>,
    is_float32: bool,
}

enum Given<'py> {
    One(f64),
    Many(Bound<'py, PyAny>),
}

impl<'py> Plain<'py> {
    fn read(py: Python<'py>, arguments: &[Bound<'py, PyAny>], broadcasts: bool) -> PyResult<Self> {
        let (mut given, mut arrays, mut n_float32) = (Vec::new(), Vec::new(), 0);
        for argument in arguments.iter().filter(|argument| !argument.is_none()) {
            if let Some(x) = number_of(argument)? {
                given.push(Given::One(x));
                continue;
            }
            crate::convert::buffer::refuse_masked(argument)?;
            let array = match numpy::is_array(argument) {
                true => argument.clone(),
                false => numpy(py)?.call_method1("asarray", (argument, "float64"))?,
            };
            n_float32 += usize::from(numpy::is_float32(&array)?);
            arrays.push(array.clone());
            given.push(Given::Many(array));
        }
        let is_float32 = n_float32 > 0 && n_float32 == arrays.len();
        let mut shape = None;
        if broadcasts && arrays.len() > 1 {
            let common = numpy(py)?.call_method1("broadcast_arrays", PyTuple::new(py, &arrays)?)?;
            let mut common = common.try_iter()?;
            for given in given.iter_mut().filter(|given| matches!(given, Given::Many(_))) {
                if let Some(array) = common.next() {
                    *given = Given::Many(array?);
                }
            }
        }
        if let Some(Given::Many(array)) = given.iter().find(|given| matches!(given, Given::Many(_))) {
            shape = Some(array.getattr("shape")?);
        }
        Ok(Plain { arguments: given, shape, is_float32 })
    }

    /// `f` of them, as numbers.
    fn call(
        self,
        py: Python<'py>,
        f: impl Fn(&[Bound<'py, PyAny>]) -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let dtype = if self.is_float32 { "float32" } else { "float64" };
        let graph = if self.is_float32 { AnyGraph::F32(Graph::new()) } else { AnyGraph::F64(Graph::new()) };
        let graph = Bound::new(py, PyGraph::around(graph, false))?;
        let mut operands = Vec::with_capacity(self.arguments.len());
        for given in &self.arguments {
            operands.push(match given {
                Given::One(x) => leaf(&graph, *x)?.1,
                Given::Many(array) if array.getattr("size")?.extract::<usize>()? == 0 => {
                    PyVector::of_runs(&graph, &[])?.into_bound(py).into_any()
                }
                Given::Many(array) => {
                    let flat = array.call_method1("astype", (dtype,))?.call_method0("ravel")?;
                    PyVector::leaves(&graph, &numbers(&flat)?)?.into_bound(py).into_any()
                }
            });
        }
        self.numbers_of(&graph, f(&operands)?)
    }

    /// The numbers of a result.
    fn numbers_of(&self, graph: &Bound<'py, PyGraph>, result: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = result.py();
        if let Ok(several) = result.cast::<PyTuple>() {
            let all = several.iter().map(|result| self.numbers_of(graph, result)).collect::<PyResult<Vec<_>>>()?;
            return Ok(PyTuple::new(py, all)?.into_any());
        }
        if let Ok(vector) = result.cast::<PyVector>() {
            let array = numpy(py)?.call_method1("array", (vector.get().array(py, false)?,))?;
            return match &self.shape {
                Some(shape)
                    if py.import("math")?.call_method1("prod", (shape,))?.extract::<usize>()? == vector.len()? =>
                {
                    array.call_method1("reshape", (shape,))
                }
                _ => Ok(array),
            };
        }
        // SAFETY: a living object under the GIL.
        if !unsafe { value::is_value(result.as_ptr()) } {
            return Ok(result);
        }
        let node = node_of(py, graph, &result)?;
        let x = graph.get().look(py, |cell| cell.graph.float(node).or_raise(py))?;
        Ok(x.into_pyobject(py)?.into_any())
    }
}
