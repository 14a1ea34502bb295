//! Values and Vectors of a graph as Arrays of it, with their gradient.
//!
//! Promises: only in the graph of the Array beside them; a backward pass hands the gradients of all of them on in one pass over the
//! graph of Values. Values are known to Python only: this does not know their nodes.

use burtorch_core::array::{Data, Dims, Keep, Swept};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PyType};

use super::array::PyArray;
use super::eager::{floats, home_of};
use super::trace::{ArrayTrace, current};
use crate::convert::arrays::Array;
use crate::convert::errors::IntoPython;
use crate::convert::refusals::is_tracing;
use crate::graph::{PyGraph, wants_no_grad};

/// The owner of Arrays, and operands of them.
type Lifted<'py> = (Bound<'py, ArrayTrace>, Vec<Bound<'py, PyAny>>);

/// Whether an object is a Value, and whether a Vector.
fn kind_of(object: &Bound<'_, PyAny>) -> PyResult<[bool; 2]> {
    static TYPES: [PyOnceLock<Py<PyType>>; 2] = [const { PyOnceLock::new() }; 2];
    let py = object.py();
    let is = |k: usize, name| Ok::<_, PyErr>(object.is_exact_instance(TYPES[k].import(py, "burtorch._core", name)?));
    Ok([is(0, "Value")?, is(1, "Vector")?])
}

/// Whether an object is a Value or a Vector.
pub(super) fn is_of_values(object: &Bound<'_, PyAny>) -> bool {
    kind_of(object).is_ok_and(|kind| kind.contains(&true))
}

/// The Array of a Value or Vector of the graph of `home`; `None` of another object or graph.
pub(super) fn lifted<'py>(
    home: &Bound<'py, ArrayTrace>,
    object: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyArray>>> {
    let (py, [is_value, is_vector]) = (home.py(), kind_of(object)?);
    let Some(eager) = home.get().eager().filter(|_| is_value || is_vector) else { return Ok(None) };
    let graph = graph_of(object)?;
    if !graph.get().arrays.get(py).is_some_and(|arrays| arrays.home.is(home)) {
        return Ok(None);
    }
    let data = object.getattr(pyo3::intern!(py, "data"))?;
    let (dims, numbers) = match is_value {
        true => (Dims::SCALAR, vec![data.extract()?]),
        false => {
            let numbers = Array::converted(&data)?.floats();
            (Dims::new(&[numbers.len()]).or_raise(py)?, numbers)
        }
    };
    let numbers = floats(numbers, eager.tape.dtype());
    let made = match eager.tape.records() && !wants_no_grad() {
        true => eager.tape.lifted(dims, numbers, Box::new(object.clone().unbind())),
        false => eager.tape.leaf(dims, numbers, false),
    };
    PyArray::of_graph(home, made.or_raise(py)?).map(Some)
}

fn graph_of<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyGraph>> {
    Ok(object.getattr(pyo3::intern!(object.py(), "graph"))?.cast_into()?)
}

/// Operands with Arrays for Values and Vectors, and the owner of their Arrays: that of Arrays among them, if there are any.
/// `None` if there are no Values, or they are of another graph or of a trace.
pub(super) fn lifted_operands<'py>(
    trace: &Bound<'py, ArrayTrace>,
    operands: &[Bound<'py, PyAny>],
) -> PyResult<Option<Lifted<'py>>> {
    let py = trace.py();
    if trace.get().eager().is_none() || is_tracing() || current(py).is_some() {
        return Ok(None);
    }
    let kinds = operands.iter().map(kind_of).collect::<PyResult<Vec<_>>>()?;
    let Some(first) = kinds.iter().position(|kind| kind.contains(&true)) else { return Ok(None) };
    let home = match operands.iter().any(|object| object.is_instance_of::<PyArray>()) {
        true => trace.clone(),
        false => home_of(&graph_of(&operands[first])?)?,
    };
    let mut all = Vec::with_capacity(operands.len());
    for (object, kind) in operands.iter().zip(kinds) {
        if kind.contains(&true) {
            let Some(array) = lifted(&home, object)? else { return Ok(None) };
            all.push(array.into_any());
        } else {
            all.push(object.clone());
        }
    }
    Ok(Some((home, all)))
}

/// Adds the gradients that a pass over Arrays has found for Values and Vectors to what these depend on.
pub(super) fn hand_on(py: Python<'_>, swept: &Swept) -> PyResult<()> {
    let mut found: Vec<(Py<PyAny>, Vec<f64>)> = Vec::new();
    swept.for_each_lifted(&mut |source: &Keep, gradient| {
        let gradient = match gradient {
            Data::F64(x) => x.clone(),
            Data::F32(x) => x.iter().map(|&x| x.into()).collect(),
            _ => Vec::new(),
        };
        if let Some(source) = source.downcast_ref::<Py<PyAny>>() {
            found.push((source.clone_ref(py), gradient));
        }
    });
    let is_unreached = |x: &f64| *x == 0.0 && x.is_sign_negative();
    let (nodes, seeds) = (PyList::empty(py), PyList::empty(py));
    for (source, gradient) in &found {
        let source = source.bind(py);
        if !gradient.iter().any(is_unreached) {
            nodes.append(source)?;
            gradient.iter().try_for_each(|&x| seeds.append(x))?;
            continue;
        }
        for (k, x) in gradient.iter().enumerate().filter(|(_, x)| !is_unreached(x)) {
            match kind_of(source)? {
                [true, _] => nodes.append(source)?,
                _ => nodes.append(source.get_item(k)?)?,
            }
            seeds.append(x)?;
        }
    }
    if nodes.is_empty() {
        return Ok(());
    }
    let graph = graph_of(found[0].0.bind(py))?;
    let mark = graph.call_method0(pyo3::intern!(py, "mark"))?;
    let of_values = py.import("burtorch._core")?;
    let root = of_values.call_method1(pyo3::intern!(py, "inner_product"), (nodes, seeds));
    let done = root.and_then(|root| root.call_method0(pyo3::intern!(py, "backward")));
    graph.call_method1(pyo3::intern!(py, "rewind"), (mark,))?;
    done.map(drop)
}
