//! Element-by-element ops: operators and op functions on Vectors, with broadcasting of single scalars.
#![allow(unsafe_code)]

use burtorch_core::{Graph, NodeId, Op, Range, Scalar, interrupt};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;

use super::arguments::{Operand, all_nodes, all_runs, appended, common_owner, n_scalars, number_of};
use super::{PyVector, finish, functions, numpy};
use crate::cell::with_graph;
use crate::errors::{IntoPython, to_python};
use crate::graph::interruptible;
use crate::params::PyTensor;

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
    let py = x.py();
    if let Some(result) = numpy::object_array(symbol, x, y)? {
        return Ok(result);
    }
    let (left, right) = match (Operand::read_all(x), Operand::read_all(y)) {
        (Ok(left), Ok(right)) => (left, right),
        (Err(error), _) | (_, Err(error)) if !error.is_instance_of::<PyTypeError>(py) => return Err(error),
        _ => return Ok(py.NotImplemented().into_bound(py)),
    };
    if symbol == Symbol::Power
        && let [Operand::Numbers(exponent)] = &right[..]
        && let [c @ (2.0 | 3.0)] = exponent[..]
        && is_many(x)
    {
        return unary(if c == 2.0 { Op::Sqr } else { Op::Pow3 }, x);
    }
    refuse_matrix_beside_vector(x, y)?;
    binary(symbol.op(), &left, &right, py)
}

/// A Vector has one dimension: pairing it with the elements of a matrix would hide a mistake.
fn refuse_matrix_beside_vector(x: &Bound<'_, PyAny>, y: &Bound<'_, PyAny>) -> PyResult<()> {
    for (vector, array) in [(x, y), (y, x)] {
        let n_dims = numpy::n_dims(array);
        if vector.is_instance_of::<PyVector>() && n_dims > 1 {
            let message = format!("a Vector has one dimension, the array has {n_dims}; use array.ravel()");
            return Err(PyValueError::new_err(message));
        }
    }
    Ok(())
}

/// One node `op(x_k, y_k)` per element; a single scalar is used for all.
fn binary<'py>(op: Op, x: &[Operand], y: &[Operand], py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
    let (n_x, n_y) = (n_scalars(x), n_scalars(y));
    let is_single = |operands: &[Operand]| matches!(operands, [operand] if operand.is_single());
    let n = match (is_single(x), is_single(y)) {
        (false, true) => n_x,
        (true, false) => n_y,
        _ if n_x == n_y => n_x,
        _ => {
            let error = burtorch_core::Error::LengthMismatch { op: op.name(), left: n_x, right: n_y };
            return Err(to_python(py, error));
        }
    };
    let owner = common_owner(py, x.iter().chain(y))?;
    let range = appended(
        &owner,
        n,
        |cell| Ok((all_nodes(py, cell, x)?, all_nodes(py, cell, y)?)),
        |graph, _, (xs, ys)| with_graph!(graph, g => interruptible(py, n, || pairwise(g, op, &xs, &ys, n)).or_raise(py)),
    )?;
    // Of no elements there are none.
    Ok(PyVector::of_runs(&owner, range.as_slice())?.into_bound(py).into_any())
}

/// Appends `n` nodes.
fn pairwise<S: Scalar>(
    graph: &mut Graph<'static, S>,
    op: Op,
    xs: &[NodeId],
    ys: &[NodeId],
    n: usize,
) -> burtorch_core::Result<Option<Range>> {
    let mut first = None;
    for k in 0..n {
        interrupt::ask_at(k)?;
        let node = graph.binary_op(op, pick(xs, k), pick(ys, k))?;
        first.get_or_insert(node);
    }
    Ok(first.map(|first| Range::new(first, n as u32)))
}

/// Element `k`, or the only one.
fn pick(nodes: &[NodeId], k: usize) -> NodeId {
    if nodes.len() == 1 { nodes[0] } else { nodes[k] }
}

/// A unary op over a Vector or a Tensor, as one block per run.
pub fn unary<'py>(op: Op, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    let operands = Operand::read_all(x)?;
    let owner = common_owner(py, &operands)?;
    let n = n_scalars(&operands);
    let ranges = appended(
        &owner,
        n,
        |cell| all_runs(py, cell, &operands),
        |graph, _, ranges| {
            with_graph!(graph, g => interruptible(py, n, || {
                ranges.into_iter().map(|range| g.map(op, range)).collect::<burtorch_core::Result<Vec<_>>>()
            }).or_raise(py))
        },
    )?;
    Ok(PyVector::of_runs(&owner, &ranges)?.into_bound(py).into_any())
}

/// The op function for anything that is not a Value.
///
/// # Safety
/// `x` is a living object; the interpreter lock is held.
pub unsafe fn unary_function(op: Op, x: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: by the contract of this function.
    let x = unsafe { Bound::from_borrowed_ptr(Python::assume_attached(), x) };
    finish(if is_many(&x) { unary(op, &x) } else { Err(not_a_vector(op, &x)) })
}

/// Whether this stands for many scalars with operators of their own.
pub fn is_many(x: &Bound<'_, PyAny>) -> bool {
    x.is_instance_of::<PyVector>() || x.is_instance_of::<PyTensor>()
}

/// The error for something else.
pub fn not_a_vector(op: Op, x: &Bound<'_, PyAny>) -> PyErr {
    let found = x.get_type().name().map_or_else(|_| "something else".into(), |name| name.to_string());
    PyTypeError::new_err(format!("{}() expects a Value or a Vector, found {found}", op.name()))
}

/// The function of a binary op where one of two arguments is neither a Value nor a number, or with another number of
/// arguments.
///
/// # Safety
/// `arguments` are living objects; the interpreter lock is held.
pub unsafe fn binary_function(op: Op, arguments: &[*mut ffi::PyObject]) -> *mut ffi::PyObject {
    // SAFETY: by the contract of this function.
    let arguments: Vec<Bound<'_, PyAny>> =
        arguments.iter().map(|&x| unsafe { Bound::from_borrowed_ptr(Python::assume_attached(), x) }).collect();
    finish(match &arguments[..] {
        [sequence] => functions::fold(op, sequence),
        [sequence, nothing] if nothing.is_none() => functions::fold(op, sequence),
        [x, y] => refuse_matrix_beside_vector(x, y)
            .and_then(|()| binary(op, &Operand::read_all(x)?, &Operand::read_all(y)?, x.py())),
        _ => Err(PyTypeError::new_err(format!("{}() takes two operands, found {}", op.name(), arguments.len()))),
    })
}

/// The function of an op with a constant where the first of two arguments is not a Value: a Vector, and a number.
///
/// # Safety
/// `arguments` are living objects; the interpreter lock is held.
pub unsafe fn constant_function(op: Op, arguments: &[*mut ffi::PyObject]) -> *mut ffi::PyObject {
    // SAFETY: by the contract of this function.
    let arguments: Vec<Bound<'_, PyAny>> =
        arguments.iter().map(|&x| unsafe { Bound::from_borrowed_ptr(Python::assume_attached(), x) }).collect();
    let symbol = match op {
        Op::AddConstant => Symbol::Plus,
        Op::DivByConstant => Symbol::Over,
        Op::PowConstant => Symbol::Power,
        _ => Symbol::Times,
    };
    finish(match &arguments[..] {
        [x, c] if is_many(x) => match number_of(c) {
            Ok(Some(_)) => operator(symbol, x, c),
            Ok(None) => Err(PyTypeError::new_err(format!("the constant of {}() must be a real number", op.name()))),
            Err(error) => Err(error),
        },
        _ => Err(PyTypeError::new_err(format!("{}() takes a Value or a Vector, and a number", op.name()))),
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
    match crate::scalars::with_decimal(symbol, &a, &b) {
        Ok(None) => {}
        Ok(Some(result)) => return finish(Ok(result)),
        Err(error) => return finish(Err(error)),
    }
    let takes = |x: &Bound<'_, PyAny>| is_many(x) || numpy::is_array(x);
    if takes(&a) || takes(&b) {
        return finish(operator(symbol, &a, &b));
    }
    finish(Ok(a.py().NotImplemented().into_bound(a.py())))
}
