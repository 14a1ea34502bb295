//! A traced function called with Values: its program is appended to their graph, without running the body.
//!
//! Promises: Values, gradients and results are those of the body. If the body might return an object that this
//! cannot make, or if comparisons have to be recorded, the body runs. Holds no reference into a state or a graph
//! while Python code runs.
#![allow(unsafe_code)]

use burtorch_core::program::inline;
use burtorch_core::{DType, NodeId, Program};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

use super::arguments::Arguments;
use super::calls::with_path;
use super::object::Call;
use super::pytree::Tree;
use crate::convert::arrays::Kind;
use crate::convert::errors::IntoPython;
use crate::convert::numbers::number_of;
use crate::convert::refusals::needed_arrays;
use crate::graph::cell::AnyGraph;
use crate::graph::{PyGraph, wants_no_grad};
use crate::node::value::is_value;
use crate::node::vector::{New, Operand, PyVector, all_nodes, atomically, common_owner, wrap};

/// Arguments with Values among them.
#[derive(Default)]
struct Mixed {
    operands: Vec<Operand>,
}

impl Mixed {
    /// Splits an argument; `None` for objects that only the body understands.
    fn read(&mut self, object: &Bound<'_, PyAny>, depth: usize) -> PyResult<Option<Tree>> {
        // SAFETY: a living object under the GIL.
        if unsafe { is_value(object.as_ptr()) } {
            self.operands.push(Operand::Value(object.clone().unbind()));
            return Ok(Some(Tree::Number));
        }
        if let Ok(vector) = object.cast_exact::<PyVector>() {
            let shape = vec![vector.get().n()];
            self.operands.push(Operand::Vector(vector.clone().unbind()));
            return Ok(Some(Tree::Array { shape, kind: Kind::F64, is_numpy: false }));
        }
        if let Some(x) = number_of(object)? {
            self.operands.push(Operand::Numbers(vec![x]));
            return Ok(Some(Tree::Number));
        }
        let items: Vec<Bound<'_, PyAny>> = if depth > 8 {
            return Ok(None);
        } else if let Ok(list) = object.cast_exact::<PyList>() {
            list.iter().collect()
        } else if let Ok(tuple) = object.cast_exact::<PyTuple>() {
            tuple.iter().collect()
        } else if let Ok(dict) = object.cast_exact::<PyDict>()
            && dict.keys().iter().all(|key| key.is_exact_instance_of::<PyString>())
        {
            dict.values().iter().collect()
        } else {
            return Ok(None);
        };
        let mut parts = Vec::with_capacity(items.len());
        for item in &items {
            let Some(part) = self.read(item, depth + 1)? else { return Ok(None) };
            parts.push(part);
        }
        Ok(Some(match object.cast_exact::<PyDict>() {
            Ok(dict) => Tree::Dict { keys: dict.keys().iter().map(Bound::unbind).collect(), items: parts },
            Err(_) => Tree::Sequence { is_tuple: object.is_instance_of::<PyTuple>(), items: parts },
        }))
    }
}

/// Results that can only have been Values: a list may have been a Vector.
fn is_plain(results: &Tree) -> bool {
    match results {
        Tree::Number => true,
        Tree::Sequence { is_tuple: true, items } | Tree::Dict { items, .. } => items.iter().all(is_plain),
        _ => false,
    }
}

/// The numbers of the operands, if their graph has the function's type and is in its usual state.
fn numbers(owner: &Bound<'_, PyGraph>, mixed: &Mixed, dtype: DType) -> PyResult<Option<Vec<f64>>> {
    let py = owner.py();
    let is_ready = owner.get().look(py, |cell| {
        let fits =
            matches!((&cell.graph, dtype), (AnyGraph::F64(_), DType::Float64) | (AnyGraph::F32(_), DType::Float32));
        Ok(fits && !cell.is_busy() && cell.n_unevaluated == 0)
    })?;
    if !is_ready || wants_no_grad() {
        return Ok(None);
    }
    let mut numbers = Vec::new();
    for operand in &mixed.operands {
        if let Operand::Numbers(given) = operand {
            numbers.extend(given);
            continue;
        }
        owner.get().with(py, |cell| {
            for node in operand.runs(py, cell)?.into_iter().flat_map(|run| run.nodes()) {
                numbers.push(match &cell.graph {
                    AnyGraph::F32(g) => f64::from(g.value(node).or_raise(py)?),
                    AnyGraph::F64(g) => g.value(node).or_raise(py)?,
                    _ => f64::NAN, // `is_ready` has asked
                });
            }
            Ok(())
        })?;
    }
    Ok(Some(numbers))
}

/// The results of the function on Values, or `None` where the body has to run.
pub fn call<'py>(call: &Call<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = call.py();
    if !call.named.is_empty() {
        return Ok(None);
    }
    let mut mixed = Mixed::default();
    let mut items = Vec::with_capacity(call.positional.len());
    for x in &call.positional {
        let Some(item) = mixed.read(x, 0)? else { return Ok(None) };
        items.push(item);
    }
    let owner = common_owner(py, &mixed.operands)?;
    let dtype = call.with(|state| state.options.dtype)?;
    let Some(numbers) = numbers(&owner, &mixed, dtype)? else { return Ok(None) };
    let arguments = Arguments { tree: Tree::Sequence { is_tuple: true, items }, numbers, statics: None };
    let found = with_path(call, &arguments, |path| {
        let is_simple = is_plain(&path.results) && path.parameters.is_empty() && !path.program.calls_primitives();
        is_simple.then(|| (path.program.clone(), path.results.copy(py)))
    });
    let found = match found {
        // Functions that cannot be traced can still be called with Values.
        Err(error) if error.get_type(py).name()? == "TraceError" => {
            needed_arrays();
            None
        }
        found => found?,
    };
    let Some((program, results)) = found else { return Ok(None) };
    let outputs = append(&owner, &mixed, &program)?;
    outputs.made(|outputs| {
        let mut outputs = outputs.into_iter().map(|node| wrap(&owner, node));
        build(py, &results, &mut outputs).map(Some)
    })
}

fn append<'a, 'py>(
    owner: &'a Bound<'py, PyGraph>,
    mixed: &Mixed,
    program: &Program,
) -> PyResult<New<'a, 'py, Vec<NodeId>>> {
    let py = owner.py();
    atomically(owner, |cell| {
        let inputs = all_nodes(py, cell, &mixed.operands)?;
        match &mut cell.graph {
            AnyGraph::F32(g) => inline::append(program, g, &inputs).or_raise(py),
            AnyGraph::F64(g) => inline::append(program, g, &inputs).or_raise(py),
            _ => Ok(Vec::new()), // `numbers` has asked
        }
    })
}

/// Values in the shape of the results.
fn build<'py>(
    py: Python<'py>,
    tree: &Tree,
    values: &mut impl Iterator<Item = PyResult<Bound<'py, PyAny>>>,
) -> PyResult<Bound<'py, PyAny>> {
    Ok(match tree {
        Tree::Sequence { items, .. } => {
            let mut parts = Vec::with_capacity(items.len());
            for item in items {
                parts.push(build(py, item, values)?);
            }
            PyTuple::new(py, parts)?.into_any()
        }
        Tree::Dict { keys, items } => {
            let dict = PyDict::new(py);
            for (key, item) in keys.iter().zip(items) {
                dict.set_item(key, build(py, item, values)?)?;
            }
            dict.into_any()
        }
        _ => match values.next() {
            Some(value) => value?,
            None => py.None().into_bound(py),
        },
    })
}
