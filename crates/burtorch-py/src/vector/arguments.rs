//! Reading arguments: numbers from anything that holds numbers, and operands from Values, Vectors and numbers.
#![allow(unsafe_code)]

use burtorch_core::{Error, NodeId, Range, Scalar, View};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use super::{PyVector, views};
use crate::cell::{Cell, with_graph};
use crate::errors::{IntoPython, to_python};
use crate::graph::PyGraph;
use crate::value::{self, Number};

/// The number in a Python or NumPy scalar, if it is one.
pub fn number_of(object: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
    // SAFETY: a living object under the interpreter lock.
    match unsafe { value::number(object.as_ptr()) } {
        Number::Is(x) => Ok(Some(x)),
        Number::IsNot => Ok(None),
        Number::Failed => Err(PyErr::fetch(object.py())),
    }
}

/// All numbers of a buffer of floats, or of a sequence (of sequences) of numbers, by rows.
pub fn numbers(object: &Bound<'_, PyAny>) -> PyResult<Vec<f64>> {
    if let Ok(buffer) = PyBuffer::<f64>::get(object) {
        return buffer.to_vec(object.py());
    }
    if let Ok(buffer) = PyBuffer::<f32>::get(object) {
        return Ok(buffer.to_vec(object.py())?.into_iter().map(f64::from).collect());
    }
    let mut all = Vec::new();
    collect_numbers(object, &mut all, 0)?;
    Ok(all)
}

fn collect_numbers(object: &Bound<'_, PyAny>, all: &mut Vec<f64>, depth: usize) -> PyResult<()> {
    if object.is_instance_of::<pyo3::types::PyString>() || depth > 32 {
        return Err(PyTypeError::new_err("expected numbers, or a sequence of numbers"));
    }
    for item in object.try_iter()? {
        let item = item?;
        match number_of(&item)? {
            Some(x) => all.push(x),
            None if item.try_iter().is_ok() => collect_numbers(&item, all, depth + 1)?,
            None => {
                return Err(PyTypeError::new_err(format!("expected a real number, found {}", item.get_type().name()?)));
            }
        }
    }
    Ok(())
}

/// One operand, or a run of them.
pub enum Operand {
    /// A Value; it is alive and on the graph, but its number may change until it is read.
    Value(Py<PyAny>),
    /// A Vector.
    Vector(Py<PyVector>),
    /// Numbers, which will be constants.
    Numbers(Vec<f64>),
}

impl Operand {
    /// Reads a Value, a Vector, a number, or a sequence or array of numbers.
    pub fn read(object: &Bound<'_, PyAny>) -> PyResult<Operand> {
        if let Ok(vector) = object.cast::<PyVector>() {
            return Ok(Operand::Vector(vector.clone().unbind()));
        }
        // SAFETY: a living object under the interpreter lock.
        if unsafe { value::is_value(object.as_ptr()) } {
            return Ok(Operand::Value(object.clone().unbind()));
        }
        Ok(Operand::Numbers(match number_of(object)? {
            Some(x) => vec![x],
            None => numbers(object)?,
        }))
    }

    /// Reads the items of a sequence that may mix all of these.
    pub fn read_all(object: &Bound<'_, PyAny>) -> PyResult<Vec<Operand>> {
        if object.is_instance_of::<PyVector>() {
            return Ok(vec![Operand::read(object)?]);
        }
        object.try_iter()?.map(|item| Operand::read(&item?)).collect()
    }

    /// How many scalars.
    pub fn len(&self) -> usize {
        match self {
            Operand::Value(_) => 1,
            Operand::Vector(vector) => vector.get().n(),
            Operand::Numbers(numbers) => numbers.len(),
        }
    }

    /// The graph it belongs to.
    pub fn owner<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyGraph>> {
        match self {
            // SAFETY: a living Value owns its graph, which is a PyGraph.
            Operand::Value(object) => unsafe {
                let owner = (*object.as_ptr().cast::<value::ValueObject>()).owner;
                Some(Bound::from_borrowed_ptr(py, owner).cast_into_unchecked())
            },
            Operand::Vector(vector) => Some(vector.get().owner(py).clone()),
            Operand::Numbers(_) => None,
        }
    }

    /// Its nodes as views, appending constants for numbers.
    pub fn views(&self, py: Python<'_>, cell: &mut Cell) -> PyResult<Vec<View>> {
        Ok(match self {
            Operand::Value(object) => {
                // SAFETY: a living Value of this cell's graph, as `common_owner` has checked.
                let handle = unsafe { &mut (*object.as_ptr().cast::<value::ValueObject>()).handle };
                let node = NodeId::from_index(handle.start);
                handle.epoch = with_graph!(&cell.graph, g => g.check(node, handle.epoch)).or_raise(py)?;
                vec![View::from(node)]
            }
            Operand::Vector(vector) => views(vector.get().ranges_in(py, cell)?),
            Operand::Numbers(numbers) => with_graph!(&mut cell.graph, g => {
                let values: Vec<_> = numbers.iter().map(|&x| Scalar::lit(x)).collect();
                vec![View::Nodes(g.constants(&values).or_raise(py)?)]
            }),
        })
    }

    /// Its nodes, one by one.
    pub fn nodes(&self, py: Python<'_>, cell: &mut Cell) -> PyResult<Vec<NodeId>> {
        let ranges = self.views(py, cell)?.into_iter().filter_map(|view| match view {
            View::Nodes(range) => Some(range),
            View::Parameters(_) => None,
        });
        let all: Vec<Range> = ranges.collect();
        Ok(all.iter().flat_map(|r| (0..r.len()).filter_map(|k| r.get(k))).collect())
    }
}

/// The one graph of all operands. At least one must have a graph.
pub fn common_owner<'py>(py: Python<'py>, operands: &[Operand]) -> PyResult<Bound<'py, PyGraph>> {
    let mut owners = operands.iter().filter_map(|operand| operand.owner(py));
    let first = owners
        .next()
        .ok_or_else(|| PyTypeError::new_err("expected at least one Value or Vector among the operands"))?;
    if owners.any(|owner| !owner.is(&first)) {
        return Err(to_python(py, Error::GraphMismatch { what: "a value" }));
    }
    Ok(first)
}

/// Runs `build` on the graph; on an error the graph is as it was.
pub fn atomically<T>(owner: &Bound<'_, PyGraph>, build: impl FnOnce(&mut Cell) -> PyResult<T>) -> PyResult<T> {
    let py = owner.py();
    owner.get().with(py, |cell| {
        super::reclaim_if_due(py, cell)?;
        let mark = with_graph!(&cell.graph, g => g.mark());
        let result = build(cell);
        if result.is_err() {
            with_graph!(&mut cell.graph, g => g.rewind(mark)).or_raise(py)?;
        }
        result
    })
}
