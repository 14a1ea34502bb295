//! Element-by-element ops: operators and op functions on Vectors, with broadcasting of single scalars.
#![allow(unsafe_code)]

use burtorch_core::Op;
use burtorch_core::array::Dims;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::arguments::{Operand, all_nodes, all_runs, appended, common_owner, n_scalars};
use super::plain::or_plain;
use super::{PyVector, finish, functions, numpy};
use crate::array::array::PyArray;
use crate::array::functions::{any_array, array_of, of_op};
use crate::array::of_graph::without_rows;
use crate::convert::buffer::type_name;
use crate::convert::entry::attached;
use crate::convert::errors::{IntoPython, if_any, to_python};
use crate::convert::numbers::number_of;
use crate::convert::refusals::{is_tracing, needs_arrays};
use crate::convert::signals::text_of;
use crate::graph::interruptible;
use crate::node::parameter::{PyParameter, value_of};
use crate::node::tensor_items::is_of_arrays;
use crate::node::value::is_value;
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
    /// `//`
    FloorOver,
    /// `%`
    Modulo,
}

impl Symbol {
    /// The op of two values.
    pub fn op(self) -> Op {
        match self {
            Symbol::Plus => Op::SUM,
            Symbol::Minus => Op::DIFFERENCE,
            Symbol::Times => Op::PRODUCT,
            Symbol::Over => Op::QUOTIENT,
            Symbol::Power => Op::POWER,
            Symbol::FloorOver => Op::FLOOR_QUOTIENT,
            Symbol::Modulo => Op::REMAINDER,
        }
    }

    /// The operator of an op of two values.
    fn of(op: Op) -> Option<Symbol> {
        use Symbol::{FloorOver, Minus, Modulo, Over, Plus, Power, Times};
        [Plus, Minus, Times, Over, Power, FloorOver, Modulo].into_iter().find(|symbol| symbol.op() == op)
    }
}

/// `x op y` if at least one is a Vector, or an array beside a Value.
pub fn operator<'py>(symbol: Symbol, x: &Bound<'py, PyAny>, y: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    if is_of_arrays(&[x.clone(), y.clone()])? {
        // Tensors of one axis take lists, too.
        let (x, y) = (&without_rows(x)?, &without_rows(y)?);
        return match symbol {
            Symbol::Power => crate::array::operators::power(x, y),
            _ => crate::array::operators::row(symbol.op(), x, y),
        };
    }
    crate::convert::buffer::refuse_masked(x)?;
    crate::convert::buffer::refuse_masked(y)?;
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
        return unary(if c == 2.0 { Op::SQUARE } else { Op::CUBE }, x);
    }
    refuse_matrices(x, y)?;
    binary(symbol.op(), &left, &right, py)
}

/// Refuses an array of several dimensions beside Values and Vectors, whose shapes cannot be paired with it: in a trace Arrays
/// are used instead.
fn refuse_matrices(x: &Bound<'_, PyAny>, y: &Bound<'_, PyAny>) -> PyResult<()> {
    refuse_shapes(x, y)?;
    for (operand, array) in [(x, y), (y, x)] {
        // SAFETY: a living object under the GIL.
        let is_value = unsafe { is_value(operand.as_ptr()) } || operand.is_instance_of::<PyParameter>();
        if !(is_value || is_many(operand)) {
            continue;
        }
        let n_dims = if_any(x.py(), numpy::read_dims(array))?.unwrap_or(0);
        if n_dims > 1 {
            if is_tracing() {
                return Err(needs_arrays(x.py(), "an array of several dimensions"));
            }
            let (found, instead) = if is_value {
                ("a Value has no dimensions", "trace it with bt.function, or use array.ravel()")
            } else {
                ("a Vector has one dimension", "use array.ravel()")
            };
            return Err(PyValueError::new_err(format!("{found}, the array has {n_dims}; {instead}")));
        }
    }
    Ok(())
}

/// Refuses a Tensor of several dimensions beside many numbers of another shape: their numbers are paired in order.
fn refuse_shapes(x: &Bound<'_, PyAny>, y: &Bound<'_, PyAny>) -> PyResult<()> {
    let shape = |operand: &Bound<'_, PyAny>| -> PyResult<Option<Vec<usize>>> {
        match operand.cast::<PyTensor>() {
            Ok(tensor) => Ok(Some(tensor.get().tensor().shape().dims().iter().map(|&n| n as usize).collect())),
            Err(_) if operand.is_instance_of::<PyVector>() => Ok(Some(vec![operand.len()?])),
            Err(_) => Ok(None),
        }
    };
    let (Some(left), Some(right)) = (shape(x)?, shape(y)?) else { return Ok(()) };
    if left == right || left.len().max(right.len()) < 2 {
        return Ok(());
    }
    if is_tracing() {
        return Err(needs_arrays(x.py(), "a Tensor of several dimensions"));
    }
    let text = |shape: &[usize]| Dims::new(shape).map_or_else(|_| format!("{shape:?}"), |dims| dims.to_string());
    Err(PyValueError::new_err(format!(
        "operands of shapes {} and {} are not paired number by number; use bt.array(tensor), which broadcasts as NumPy does",
        text(&left),
        text(&right)
    )))
}

/// One node `op(x_k, y_k)` per element; a single scalar is broadcast.
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
        |graph, _, (xs, ys)| interruptible(py, n, || graph.pairwise(op, &xs, &ys, n)).or_raise(py),
    )?;
    // No elements give no nodes.
    range.made(|range| Ok(PyVector::of_runs(&owner, range.as_slice())?.into_bound(py).into_any()))
}

/// A unary op over a Vector or a Tensor, as one block per run.
pub fn unary<'py>(op: Op, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    if is_of_arrays(std::slice::from_ref(x))? {
        return of_op(op, std::slice::from_ref(x));
    }
    let operands = Operand::read_all(x)?;
    let owner = common_owner(py, &operands)?;
    let n = n_scalars(&operands);
    let ranges = appended(
        &owner,
        n,
        |cell| all_runs(py, cell, &operands),
        |graph, _, ranges| {
            let mapped =
                || ranges.into_iter().map(|range| graph.map(op, range)).collect::<burtorch_core::Result<Vec<_>>>();
            interruptible(py, n, mapped).or_raise(py)
        },
    )?;
    ranges.made(|ranges| Ok(PyVector::of_runs(&owner, &ranges)?.into_bound(py).into_any()))
}

/// The op function for an argument that is not a Value.
///
/// # Safety
/// `x` is a living object; the GIL is held.
pub unsafe fn unary_function(op: Op, x: *mut ffi::PyObject) -> *mut ffi::PyObject {
    attached(|py| {
        // SAFETY: by the contract of this function.
        let mut x = unsafe { Bound::from_borrowed_ptr(py, x) };
        if let Ok(number) = x.cast::<PyParameter>() {
            x = match value_of(number) {
                Ok(value) => value,
                Err(error) => return finish(Err(error)),
            };
        }
        match is_of_arrays(std::slice::from_ref(&x)) {
            Ok(false) => {}
            Ok(true) => return finish(of_op(op, &[x])),
            Err(error) => return finish(Err(error)),
        }
        finish(or_plain(py, &[x], false, |x| match x {
            [x] if is_many(x) => unary(op, x),
            // SAFETY: a living object under the GIL: here a number, on a graph of its own.
            [x] if unsafe { is_value(x.as_ptr()) } => x.call_method0(op.name()),
            _ => Err(not_a_vector(op, &x[0])),
        }))
    })
}

/// Whether this is a container of many scalars with its own operators.
pub fn is_many(x: &Bound<'_, PyAny>) -> bool {
    x.is_instance_of::<PyVector>() || x.is_instance_of::<PyTensor>()
}

/// The error for other objects.
pub fn not_a_vector(op: Op, x: &Bound<'_, PyAny>) -> PyErr {
    let found = type_name(x);
    PyTypeError::new_err(format!("{}() expects a Value, a Vector or real numbers, found {found}", op.name()))
}

/// The function of a binary op if one of two arguments is neither a Value nor a number, or with another number of
/// arguments.
///
/// # Safety
/// `arguments` are living objects; the GIL is held.
pub unsafe fn binary_function(op: Op, arguments: &[*mut ffi::PyObject]) -> *mut ffi::PyObject {
    // SAFETY: by the contract of this function.
    unsafe {
        with_arguments(arguments, |py, arguments| {
            let read = arguments.iter().map(|x| x.cast::<PyParameter>().map_or_else(|_| Ok(x.clone()), value_of));
            let arguments = &read.collect::<PyResult<Vec<_>>>()?;
            match is_of_arrays(arguments)? {
                true => of_op(op, arguments),
                false => or_plain(py, arguments, true, |arguments| binary_of(op, arguments)),
            }
        })
    }
}

/// A Vector or Tensor as an Array; other objects unchanged.
pub fn with_one_axis<'py>(x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    match is_many(x) {
        true if is_tracing() => Err(needs_arrays(x.py(), "a reduction with axis=")),
        true => array_of(x.clone(), &PyTuple::empty(x.py())).map(Bound::into_any),
        false => Ok(x.clone()),
    }
}

/// The call of a reduction of one Array or array of numbers with `axis` or `keepdims` among its keywords; `None` for other calls.
///
/// # Safety
/// The arguments of a call as the interpreter passes them, with keywords, under its lock.
pub unsafe fn with_axis(
    op: Op,
    arguments: *const *mut ffi::PyObject,
    n: usize,
    keywords: *mut ffi::PyObject,
) -> Option<*mut ffi::PyObject> {
    if n != 1 {
        return None;
    }
    attached(|py| {
        // SAFETY: by the contract of this function: one argument, then one for each name.
        let (x, names) = unsafe {
            let names = Bound::from_borrowed_ptr(py, keywords).cast_into_unchecked::<PyTuple>();
            (Bound::from_borrowed_ptr(py, *arguments), names)
        };
        let mut given = Vec::with_capacity(names.len());
        for (k, name) in names.iter().enumerate() {
            // SAFETY: as above.
            given.push((text_of(&name), unsafe { Bound::from_borrowed_ptr(py, *arguments.add(n + k)) }));
        }
        let with_axis = given.iter().any(|(name, _)| name == "axis" || name == "keepdims");
        let x = match with_axis && !any_array(std::slice::from_ref(&x)) {
            true => match with_one_axis(&x).and_then(|x| without_rows(&x)) {
                Ok(x) => x,
                Err(error) => return Some(finish(Err(error))),
            },
            false => x,
        };
        let takes = x.is_instance_of::<PyArray>() || with_axis && numpy::is_array(&x);
        takes.then(|| finish(crate::array::functions::with_axis(op, &x, &given)))
    })
}

/// `f` of the arguments of a call.
///
/// # Safety
/// `arguments` are living objects; the GIL is held.
unsafe fn with_arguments(
    arguments: &[*mut ffi::PyObject],
    f: impl for<'py> FnOnce(Python<'py>, &[Bound<'py, PyAny>]) -> PyResult<Bound<'py, PyAny>>,
) -> *mut ffi::PyObject {
    attached(|py| {
        // SAFETY: by the contract of this function.
        let arguments = arguments.iter().map(|&x| unsafe { Bound::from_borrowed_ptr(py, x) });
        finish(f(py, &arguments.collect::<Vec<_>>()))
    })
}

/// A Value, a `bt.parameter` or a number: an operand without a length.
fn scalar(x: &Bound<'_, PyAny>) -> PyResult<Option<Operand>> {
    Ok(Operand::read_one(x)?.filter(|operand| matches!(operand, Operand::Value(_) | Operand::Numbers(_))))
}

/// The one Value of a Vector.
fn as_value<'py>(vector: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    vector.get_item(0)
}

fn binary_of<'py>(op: Op, arguments: &[Bound<'py, PyAny>]) -> PyResult<Bound<'py, PyAny>> {
    if let [x, y] = arguments
        && let (Some(x), Some(y)) = (scalar(x)?, scalar(y)?)
    {
        return as_value(&binary(op, &[x], &[y], arguments[0].py())?);
    }
    match arguments {
        [sequence] => functions::fold(op, sequence),
        [sequence, nothing] if nothing.is_none() => functions::fold(op, sequence),
        [x, y] => {
            refuse_matrices(x, y).and_then(|()| binary(op, &Operand::read_all(x)?, &Operand::read_all(y)?, x.py()))
        }
        _ => Err(PyTypeError::new_err(format!("{}() takes two operands, found {}", op.name(), arguments.len()))),
    }
}

/// The function of an op with a constant if the first of two arguments is not a Value: a Vector, and a number.
///
/// # Safety
/// `arguments` are living objects; the GIL is held.
pub unsafe fn constant_function(op: Op, arguments: &[*mut ffi::PyObject]) -> *mut ffi::PyObject {
    // SAFETY: by the contract of this function.
    unsafe {
        with_arguments(arguments, |py, arguments| match arguments {
            [x, _] if is_of_arrays(std::slice::from_ref(x))? => of_op(op, arguments),
            [x, c] => or_plain(py, std::slice::from_ref(x), false, |x| constant_of(op, &[x[0].clone(), c.clone()])),
            _ => constant_of(op, arguments),
        })
    }
}

fn constant_of<'py>(op: Op, arguments: &[Bound<'py, PyAny>]) -> PyResult<Bound<'py, PyAny>> {
    match arguments {
        [x, c] if is_many(x) => match number_of(c) {
            // If the op is an operator with a constant, the operator's nodes.
            Ok(Some(_)) => match op.info().like.and_then(Symbol::of) {
                Some(symbol) => operator(symbol, x, c),
                None => Operand::read_all(x).and_then(|xs| binary(op, &xs, &Operand::read_all(c)?, x.py())),
            },
            Ok(None) => Err(PyTypeError::new_err(format!("the constant of {}() must be a real number", op.name()))),
            Err(error) => Err(error),
        },
        // SAFETY: living objects under the GIL.
        [x, c] if unsafe { is_value(x.as_ptr()) } => x.call_method1(op.name(), (c,)),
        _ => Err(PyTypeError::new_err(format!("{}() takes a Value or a Vector, and a number", op.name()))),
    }
}

/// A number slot of Value with an operand that is neither a Value nor a number: a Vector, an array, or an unsupported object.
///
/// # Safety
/// `a` and `b` are living objects; the GIL is held.
pub unsafe fn binary_with_arrays(symbol: Symbol, a: *mut ffi::PyObject, b: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: by the contract of this function.
    unsafe { with_arguments(&[a, b], |_, arguments| with_arrays(symbol, &arguments[0], &arguments[1])) }
}

fn with_arrays<'py>(symbol: Symbol, a: &Bound<'py, PyAny>, b: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if let Some(result) = crate::node::numbers::with_decimal(symbol, a, b)? {
        return Ok(result);
    }
    let takes = |x: &Bound<'_, PyAny>| is_many(x) || numpy::is_array(x);
    if takes(a) || takes(b) {
        return operator(symbol, a, b);
    }
    Ok(a.py().NotImplemented().into_bound(a.py()))
}
