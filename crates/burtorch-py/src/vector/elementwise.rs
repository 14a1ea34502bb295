//! Element-by-element ops: operators and op functions on Vectors, with broadcasting of single scalars.
#![allow(unsafe_code)]

use burtorch_core::{NodeId, Op, Range};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;

use super::arguments::{Operand, atomically, common_owner};
use super::{PyVector, finish, functions, numpy};
use crate::cell::with_graph;
use crate::errors::{IntoPython, to_python};

/// An operator between two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symbol {
    /// `+`
    Plus,
    /// `-`
    Minus,
    /// `*`
    Times,
    /// `/`
    Over,
    /// `**`
    Power,
}

impl Symbol {
    /// The op of two values.
    pub fn op(self) -> Op {
        match self {
            Symbol::Plus => Op::Add,
            Symbol::Minus => Op::Sub,
            Symbol::Times => Op::Mul,
            Symbol::Over => Op::Div,
            Symbol::Power => Op::Pow,
        }
    }
}

/// `x op y` where at least one is a Vector, or an array beside a Value.
pub fn operator<'py>(symbol: Symbol, x: &Bound<'py, PyAny>, y: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if let Some(result) = numpy::object_array(symbol, x, y)? {
        return Ok(result);
    }
    let not_mine = || Ok(x.py().NotImplemented().into_bound(x.py()));
    let (Ok(left), Ok(right)) = (Operand::read(x), Operand::read(y)) else {
        return not_mine();
    };
    if symbol == Symbol::Power
        && let Operand::Numbers(exponent) = &right
        && let [c @ (2.0 | 3.0)] = exponent[..]
        && let Ok(vector) = x.cast::<PyVector>()
    {
        return unary(if c == 2.0 { Op::Sqr } else { Op::Pow3 }, vector);
    }
    binary(symbol.op(), left, right, x.py())
}

/// One node `op(x_k, y_k)` per element; a single scalar is used for all.
fn binary<'py>(op: Op, x: Operand, y: Operand, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
    let (n_x, n_y) = (x.len(), y.len());
    let single = |operand: &Operand, n| n == 1 && !matches!(operand, Operand::Vector(_));
    let n = match (single(&x, n_x), single(&y, n_y)) {
        (false, true) => n_x,
        (true, false) => n_y,
        _ if n_x == n_y => n_x,
        _ => {
            return Err(to_python(py, burtorch_core::Error::LengthMismatch { op: op.name(), left: n_x, right: n_y }));
        }
    };
    if n == 0 {
        return Err(PyValueError::new_err(format!("{} of no values is undefined; give at least one", op.name())));
    }
    let operands = [x, y];
    let owner = common_owner(py, &operands)?;
    let range = atomically(&owner, |cell| {
        let (xs, ys) = (operands[0].nodes(py, cell)?, operands[1].nodes(py, cell)?);
        with_graph!(&mut cell.graph, g => {
            let mut first = None;
            for k in 0..n {
                let node = g.binary_op(op, pick(&xs, k), pick(&ys, k)).or_raise(py)?;
                first.get_or_insert(node);
            }
            Ok(first.map(|first| Range::new(first, n as u32)))
        })
    })?;
    let range = range.ok_or_else(|| PyValueError::new_err("no elements"))?;
    Ok(PyVector::of_runs(&owner, &[range])?.into_bound(py).into_any())
}

/// Element `k`, or the only one.
fn pick(nodes: &[NodeId], k: usize) -> NodeId {
    if nodes.len() == 1 { nodes[0] } else { nodes[k] }
}

/// A unary op over a Vector, as one block per run.
pub fn unary<'py>(op: Op, vector: &Bound<'py, PyVector>) -> PyResult<Bound<'py, PyAny>> {
    let py = vector.py();
    let owner = vector.get().owner(py);
    let ranges = atomically(owner, |cell| {
        let ranges = vector.get().ranges_in(py, cell)?;
        with_graph!(&mut cell.graph, g => {
            ranges.into_iter().map(|range| g.map(op, range).or_raise(py)).collect::<PyResult<Vec<_>>>()
        })
    })?;
    Ok(PyVector::of_runs(owner, &ranges)?.into_bound(py).into_any())
}

/// The op function for anything that is not a Value.
///
/// # Safety
/// `x` is a living object; the interpreter lock is held.
pub unsafe fn unary_function(op: Op, x: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: by the contract of this function.
    let x = unsafe { Bound::from_borrowed_ptr(Python::assume_attached(), x) };
    finish(match x.cast::<PyVector>() {
        Ok(vector) => unary(op, vector),
        Err(_) => Err(PyTypeError::new_err(format!(
            "{}() expects a Value or a Vector, found {}",
            op.name(),
            x.get_type().name().map_or_else(|_| "something else".into(), |name| name.to_string())
        ))),
    })
}

/// The function of a binary op where neither of two arguments is a Value, or with another number of arguments.
///
/// # Safety
/// `arguments` are living objects; the interpreter lock is held.
pub unsafe fn binary_function(op: Op, arguments: &[*mut ffi::PyObject]) -> *mut ffi::PyObject {
    // SAFETY: by the contract of this function.
    let arguments: Vec<Bound<'_, PyAny>> =
        arguments.iter().map(|&x| unsafe { Bound::from_borrowed_ptr(Python::assume_attached(), x) }).collect();
    finish(match &arguments[..] {
        [sequence] => functions::fold(op, sequence),
        [x, y] => Operand::read(x).and_then(|left| binary(op, left, Operand::read(y)?, x.py())),
        _ => Err(PyTypeError::new_err(format!("{}() takes two operands, found {}", op.name(), arguments.len()))),
    })
}

/// A number slot of Value with something that is neither a Value nor a number: a Vector, an array, or not its business.
///
/// # Safety
/// `a` and `b` are living objects; the interpreter lock is held.
pub unsafe fn binary_with_arrays(symbol: Symbol, a: *mut ffi::PyObject, b: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: by the contract of this function.
    let (a, b) = unsafe {
        let py = Python::assume_attached();
        (Bound::from_borrowed_ptr(py, a), Bound::from_borrowed_ptr(py, b))
    };
    let takes = |x: &Bound<'_, PyAny>| x.is_instance_of::<PyVector>() || numpy::is_array(x);
    if takes(&a) || takes(&b) {
        return finish(operator(symbol, &a, &b));
    }
    finish(Ok(a.py().NotImplemented().into_bound(a.py())))
}
