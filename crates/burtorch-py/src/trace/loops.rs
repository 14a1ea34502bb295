//! `bt.scan`, `bt.while_loop`, `bt.fori_loop`, `bt.cond` and `bt.checkpoint`.
//!
//! Promises: inside a trace with Arrays one instruction is appended to it; outside, the loop is traced like a Function of its
//! arguments, and runs. Does not know how bodies are traced.

use burtorch_core::array::{Checkpoint, Dims, Element, ScanOptions, Type};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt, PyTuple};

use super::arguments::hold_values;
use super::containers::Nest;
use super::control::{Control, known_predicate, mask};
use super::transform::{Argnums, Rule, Transform};
use super::transforms::{function, transform};
use crate::array::array::PyArray;
use crate::array::guard::truth;
use crate::array::trace::current;
use crate::convert::buffer::type_name;
use crate::convert::errors::if_any;
use crate::convert::refusals::{is_tracing, met_values, needs_arrays};

/// Runs a loop step by step in Python, as its arguments or the numbers that its bodies capture are Values.
type StepByStep<'a, 'py> = &'a dyn Fn(&Bound<'py, PyModule>) -> PyResult<Bound<'py, PyAny>>;

/// The results of a loop or branch at these arguments; of Values outside of traces, those of its steps one by one.
fn done_or<'py>(
    f: &Bound<'py, PyAny>,
    name: &'static str,
    control: Control,
    positional: &[Bound<'py, PyAny>],
    step_by_step: StepByStep<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = f.py();
    if is_tracing() || current(py).is_some() {
        return done(f, name, control, positional);
    }
    let steps = || step_by_step(&py.import("burtorch._loops")?);
    if hold_values(positional)? {
        return steps();
    }
    met_values();
    match done(f, name, control, positional) {
        Err(error) if met_values() && error.is_instance_of::<PyTypeError>(py) => steps(),
        done => done,
    }
}

/// The results of a loop or branch at these arguments.
fn done<'py>(
    f: &Bound<'py, PyAny>,
    name: &'static str,
    control: Control,
    positional: &[Bound<'py, PyAny>],
) -> PyResult<Bound<'py, PyAny>> {
    let py = f.py();
    let made: Transform = transform(f, name, Rule::Control(control), Argnums::All, false)?;
    let positional = positional.iter().map(with_masks).collect::<PyResult<Vec<_>>>()?;
    if current(py).is_some() {
        return made.apply(py, &positional, None);
    }
    if is_tracing() {
        return Err(needs_arrays(py, &format!("{name}()")));
    }
    function(f, made)?.call1(PyTuple::new(py, positional)?)
}

/// An argument with Python bools as NumPy's: a carry of a bool stays a bool.
fn with_masks<'py>(argument: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let mut leaves = Vec::new();
    let nest = Nest::of(argument, &mut leaves)?;
    if !leaves.iter().any(|leaf| leaf.is_instance_of::<PyBool>()) {
        return Ok(argument.clone());
    }
    for leaf in leaves.iter_mut().filter(|leaf| leaf.is_instance_of::<PyBool>()) {
        *leaf = mask(leaf)?;
    }
    nest.build(argument.py(), &mut leaves.into_iter())
}

/// Refuses an object that is not callable.
fn callable(f: &Bound<'_, PyAny>, name: &str) -> PyResult<()> {
    if f.is_callable() {
        return Ok(());
    }
    Err(PyTypeError::new_err(format!("{name}() takes a function, found {}", type_name(f))))
}

/// A number of steps, or of steps between checkpoints.
fn steps(x: Option<&Bound<'_, PyAny>>, name: &str, least: usize) -> PyResult<Option<usize>> {
    let Some(x) = x else { return Ok(None) };
    match if_any(x.py(), x.extract::<usize>())? {
        Some(n) if n >= least => Ok(Some(n)),
        _ => Err(PyValueError::new_err(format!("{name} an integer of at least {least}"))),
    }
}

/// Refuses what JAX refuses: `unroll` is a bool or a positive integer.
fn check_unroll(unroll: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    match unroll {
        Some(found) if !found.is_instance_of::<PyBool>() => steps(Some(found), "unroll is a bool or", 1).map(drop),
        _ => Ok(()),
    }
}

/// A loop over the first axis of arrays: `carry, y = f(carry, x)` for each x of xs; returns the last carry and all y stacked.
///
/// Args:
///     f: a function of the carry and of one slice of xs that returns a tuple of the next carry and of a result to stack.
///     init: the first carry: a number, an array, a Value, or lists, tuples and dicts of them. A carry keeps its structure, shapes and
///         dtypes.
///     xs: arrays with the same extent along their first axis, in containers; or None.
///     length: the number of steps; required without xs.
///     reverse: whether to start from the last slice.
///     checkpoint: the carries that reverse mode keeps: None for all, k for every k-th one, "sqrt" for k near the square
///         root of the number of steps; the others are recomputed.
///     unroll: has no effect; JAX has it.
///
/// Raises:
///     TraceError: the carry changes its structure, shape or dtype, or f does not return a tuple of two.
///     ValueError: arrays of different lengths, another length than that of xs, or neither xs nor length.
///
/// f is traced once, whatever the length. Values and first derivatives are those of a Python loop. With Values, outside of traced
/// functions, f is called for each step, and results that are Values are stacked as a Vector.
///
/// Example:
///     >>> import burtorch as bt, numpy as np
///     >>> bt.scan(lambda total, x: (total + x, total * x), 0.0, np.array([1.0, 2.0, 3.0]))
///     (6.0, array([0., 2., 9.]))
#[pyfunction]
#[pyo3(signature = (f, init, xs=None, length=None, reverse=false, checkpoint=None, *, unroll=None))]
fn scan<'py>(
    f: &Bound<'py, PyAny>,
    init: Bound<'py, PyAny>,
    xs: Option<Bound<'py, PyAny>>,
    length: Option<&Bound<'py, PyAny>>,
    reverse: bool,
    checkpoint: Option<&Bound<'py, PyAny>>,
    unroll: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    check_unroll(unroll)?;
    let length = steps(length, "length is", 0)?;
    let is_sqrt = checkpoint.is_some_and(|x| x.extract::<&str>().is_ok_and(|x| x == "sqrt"));
    let checkpoint = match is_sqrt {
        true => Checkpoint::Sqrt,
        false => steps(checkpoint, "checkpoint is None, \"sqrt\", or", 1)?.map_or(Checkpoint::None, Checkpoint::Every),
    };
    let xs = xs.unwrap_or_else(|| f.py().None().into_bound(f.py()));
    let control = Control::Scan(ScanOptions { length, reverse, checkpoint });
    let arguments = [init, xs];
    done_or(f, "scan", control, &arguments, &|loops| {
        loops.getattr("scan_step_by_step")?.call1((f, &arguments[0], &arguments[1], length, reverse))
    })
}

/// `carry = body(carry)` while `cond(carry)` is true; returns the last carry.
///
/// Args:
///     cond: a function of the carry that returns one bool.
///     body: a function of the carry that returns the next one.
///     init: the first carry, as for `scan`.
///     max_steps: the largest number of steps.
///
/// Raises:
///     TraceError: the carry changes its structure, shape or dtype, or cond does not return a single bool.
///
/// Both functions are traced once. Reverse mode keeps the carry of each step.
///
/// Example:
///     >>> import burtorch as bt
///     >>> bt.while_loop(lambda x: x < 100.0, lambda x: x * 3.0, 1.0)
///     243.0
#[pyfunction]
#[pyo3(signature = (cond, body, init, max_steps=None))]
fn while_loop<'py>(
    cond: Bound<'py, PyAny>,
    body: &Bound<'py, PyAny>,
    init: Bound<'py, PyAny>,
    max_steps: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    callable(&cond, "while_loop")?;
    let most = steps(max_steps, "max_steps is", 0)?;
    let control = Control::While { condition: cond.clone().unbind(), most };
    let arguments = [init];
    done_or(body, "while_loop", control, &arguments, &|loops| {
        loops.getattr("while_step_by_step")?.call1((&cond, body, &arguments[0], most))
    })
}

/// `carry = body(i, carry)` for the integers i from lower to upper, upper excluded; returns the last carry.
///
/// Args:
///     lower: the first integer, or an Array of one.
///     upper: the integer after the last, or an Array of one.
///     body: a function of the integer, an Array, and the carry that returns the next carry.
///     init: the first carry, as for `scan`.
///     unroll: has no effect; JAX has it.
///
/// Raises:
///     TraceError: the carry changes its structure, shape or dtype.
///     TypeError: bounds that are not integers.
///
/// Example:
///     >>> import burtorch as bt
///     >>> bt.fori_loop(1, 5, lambda i, x: x * i, 1.0)
///     24.0
#[pyfunction]
#[pyo3(signature = (lower, upper, body, init, *, unroll=None))]
fn fori_loop<'py>(
    lower: &Bound<'py, PyAny>,
    upper: &Bound<'py, PyAny>,
    body: &Bound<'py, PyAny>,
    init: Bound<'py, PyAny>,
    unroll: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    check_unroll(unroll)?;
    let is_computed = |x: &Bound<'py, PyAny>| match x.cast::<PyArray>() {
        Ok(array) => array.get().type_of() == Type { dims: Dims::SCALAR, element: Element::Int },
        Err(_) => false,
    };
    if is_tracing() && [lower, upper].into_iter().any(|x| type_name(x) == "Value") {
        return Err(needs_arrays(lower.py(), "fori_loop()"));
    }
    if is_computed(lower) || is_computed(upper) {
        let loops = lower.py().import("burtorch._loops")?;
        return loops.getattr("fori_between")?.call1((lower, upper, body, init));
    }
    let bound = |x: &Bound<'py, PyAny>| match if_any(x.py(), x.extract::<i64>())? {
        Some(k) => Ok(k),
        None => {
            let found = if x.is_instance_of::<PyInt>() { "a larger one".into() } else { type_name(x) };
            let message = format!("the bounds of fori_loop() must be 64-bit integers, found {found}");
            Err(PyTypeError::new_err(message))
        }
    };
    let (lower, upper) = (bound(lower)?, bound(upper)?);
    let arguments = [init];
    done_or(body, "fori_loop", Control::Fori(lower, upper), &arguments, &|loops| {
        loops.getattr("fori_step_by_step")?.call1((lower, upper, body, &arguments[0]))
    })
}

/// `f(*args)` if pred is true, else `g(*args)`; only one of them is computed.
///
/// Args:
///     pred: one bool or number (0 is false), or an Array of one.
///     f: a function of the arguments.
///     g: a function that returns the same structure, shapes and dtypes.
///     args: numbers, arrays, or lists, tuples and dicts of them.
///
/// Raises:
///     TraceError: f and g return different structures, shapes or dtypes.
///     TypeError: pred is not a single bool or number.
///
/// Both functions are traced. Under vmap with a predicate that differs from row to row both are computed.
///
/// Example:
///     >>> import burtorch as bt
///     >>> h = lambda x: bt.cond(x > 0.0, lambda x: x * x, lambda x: -x, x)
///     >>> bt.grad(h)(3.0), bt.grad(h)(-3.0)
///     (6.0, -1.0)
#[pyfunction]
#[pyo3(signature = (pred, f, g, *args))]
fn cond<'py>(
    pred: Bound<'py, PyAny>,
    f: &Bound<'py, PyAny>,
    g: Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    callable(&g, "cond")?;
    if is_tracing() && current(f.py()).is_none() {
        return Err(needs_arrays(f.py(), "cond()"));
    }
    // An Array of a graph has a number.
    if let Ok(array) = pred.cast::<PyArray>()
        && array.get().trace(f.py()).get().depth() == 0
        && current(f.py()).is_none()
    {
        let chosen = if truth(array)? { f } else { &g };
        return chosen.call1(args);
    }
    let known = known_predicate(&pred)?;
    // Without arguments nothing is to be traced.
    if let (Some(yes), true) = (known, args.is_empty() && !is_tracing() && current(f.py()).is_none()) {
        return if yes { f.call0() } else { g.call0() };
    }
    let predicate = known.is_none().then_some(pred);
    let positional: Vec<_> = predicate.into_iter().chain(args.iter()).collect();
    let chosen = if known == Some(false) { &g } else { f };
    let control = Control::Cond { no: g.clone().unbind(), known };
    done_or(f, "cond", control, &positional, &|_| chosen.call1(args))
}

/// The same function, but reverse mode keeps only its arguments and recomputes its intermediate results.
///
/// Args:
///     f: a function of numbers, arrays, and lists, tuples and dicts of them.
///
/// Values and first derivatives have the bits of f; a gradient takes less memory, and the time of one more f.
///
/// Example:
///     >>> import burtorch as bt, numpy as np
///     >>> layer = bt.checkpoint(lambda x: np.tanh(np.exp(x)))
///     >>> bt.grad(lambda x: layer(layer(x)))(0.0) == bt.grad(lambda x: np.tanh(np.exp(np.tanh(np.exp(x)))))(0.0)
///     True
#[pyfunction]
#[pyo3(signature = (f))]
fn checkpoint<'py>(f: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    function(f, transform(f, "checkpoint", Rule::Checkpoint, Argnums::All, false)?)
}

/// The same function, as a transform: traced with Arrays.
#[pyfunction]
#[pyo3(signature = (f, /))]
fn _value_of<'py>(f: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    function(f, transform(f, "vjp", Rule::Checkpoint, Argnums::All, false)?)
}

/// Adds the loops to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(scan, m)?)?;
    m.add_function(wrap_pyfunction!(while_loop, m)?)?;
    m.add_function(wrap_pyfunction!(fori_loop, m)?)?;
    m.add_function(wrap_pyfunction!(cond, m)?)?;
    m.add_function(wrap_pyfunction!(_value_of, m)?)?;
    m.add_function(wrap_pyfunction!(checkpoint, m)?)
}
