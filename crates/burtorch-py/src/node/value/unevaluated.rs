//! Gradients without values: `evaluate=False` of op functions, and Values that are evaluated on demand.
//!
//! An unevaluated Value is marked by one bit in the epoch of its handle, so that the first check of every use fails and
//! ends here: other Values pay nothing. Such a node has one handle until it is evaluated.
#![allow(unsafe_code)]

use burtorch_core::Op;
use burtorch_core::graph::UNEVALUATED;
use burtorch_core::ops::Arity;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyTuple};

use super::object::{cell_of, is_value, new_object};
use crate::convert::entry::{attached, raise_python};
use crate::convert::errors::IntoPython;
use crate::convert::signals::text_of;
use crate::node::vector::{Operand, all_nodes, atomically};

/// The keywords of a call of an op function: `Some(evaluate)`, or `None` with an error set.
///
/// # Safety
/// `keywords` is null or a tuple of names, whose values follow the `n` positional arguments; the GIL is held.
pub unsafe fn read_keywords(
    op: Op,
    arguments: *const *mut ffi::PyObject,
    n: usize,
    keywords: *mut ffi::PyObject,
) -> Option<bool> {
    if keywords.is_null() {
        return Some(true);
    }
    // SAFETY: by the contract of this function.
    attached(|py| unsafe { read_some(py, op, arguments, n, keywords) })
}

/// # Safety
/// As for `read_keywords`; there are keywords.
unsafe fn read_some(
    py: Python<'_>,
    op: Op,
    arguments: *const *mut ffi::PyObject,
    n: usize,
    keywords: *mut ffi::PyObject,
) -> Option<bool> {
    // SAFETY: by the contract of this function.
    let names = unsafe { Bound::from_borrowed_ptr(py, keywords).cast_into_unchecked::<PyTuple>() };
    let mut evaluate = true;
    for (k, name) in names.iter().enumerate() {
        // SAFETY: by the contract of this function.
        let value = unsafe { Bound::from_borrowed_ptr(py, *arguments.add(n + k)) };
        if !name.eq("evaluate").unwrap_or(false) {
            let message = format!("{}() got an unexpected keyword argument {}", op.name(), text_of(&name));
            raise_python(PyTypeError::new_err(message));
            return None;
        }
        let Ok(given) = value.cast::<PyBool>() else {
            raise_python(PyTypeError::new_err("evaluate must be True or False"));
            return None;
        };
        evaluate = given.is_true();
    }
    Some(evaluate)
}

/// Appends an op without evaluating it.
///
/// # Safety
/// `arguments` are living objects; the GIL is held.
pub unsafe fn append_unevaluated(op: Op, arguments: &[*mut ffi::PyObject]) -> *mut ffi::PyObject {
    attached(|py| {
        // SAFETY: by the contract of this function.
        let operands: Vec<_> = arguments.iter().map(|&x| unsafe { Bound::from_borrowed_ptr(py, x) }).collect();
        append(py, op, &operands).unwrap_or_else(raise_python)
    })
}

fn append<'py>(py: Python<'py>, op: Op, operands: &[Bound<'py, PyAny>]) -> PyResult<*mut ffi::PyObject> {
    let info = op.info();
    if info.reads_output {
        let message = format!("the derivative of {} reads its value; leave out evaluate=False", info.name);
        return Err(PyValueError::new_err(message));
    }
    let n = if info.arity == Arity::Unary { 1 } else { 2 };
    // SAFETY: a living object under the GIL.
    let has_value = operands.iter().any(|x| unsafe { is_value(x.as_ptr()) });
    if operands.len() != n || !has_value {
        let message = format!(
            "{}(evaluate=False) takes {n} operands, Values or numbers, at least one of them a Value",
            info.name
        );
        return Err(PyTypeError::new_err(message));
    }
    let read = |x: &Bound<'py, PyAny>| Operand::read_all(x);
    let operands = operands.iter().map(read).collect::<PyResult<Vec<_>>>()?.into_iter().flatten().collect::<Vec<_>>();
    let owner = crate::node::vector::common_owner(py, &operands)?;
    let new = atomically(&owner, |cell| {
        let nodes = all_nodes(py, cell, &operands)?;
        if nodes.len() != n {
            let message = format!("{}(evaluate=False) takes Values and numbers, not Vectors", info.name);
            return Err(PyTypeError::new_err(message));
        }
        let node = cell.graph.append_unevaluated(op, nodes[0], nodes.get(1).copied()).or_raise(py)?;
        let pending = if cell.graph.records_gradients() { UNEVALUATED } else { 0 };
        cell.n_unevaluated += 1;
        Ok((node.index(), cell.graph.epoch() | pending))
    })?;
    // SAFETY: a living graph under the GIL; nothing else refers into its cell.
    new.made(|(node, epoch)| Ok(unsafe { new_object(owner.as_ptr(), cell_of(owner.as_ptr()), node, epoch) }))
}
