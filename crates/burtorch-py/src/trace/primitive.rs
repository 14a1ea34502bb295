//! `@bt.primitive`: a Python function with a user-defined derivative, eager and in traced functions.
//!
//! Promises: no reference into a graph or a function's state is held while the user's code runs. If that code raises
//! during a replay, the replay is abandoned and the function traced again, so that the error is raised in its usual place;
//! errors for which that is impossible are kept in [`raised`].

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ThreadId;

use burtorch_core::program::primitive::{Failed, Primitive, append_evaluated};
use burtorch_core::sync::caller;
use pyo3::exceptions::{PyException, PyReferenceError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple, PyWeakrefMethods, PyWeakrefReference};

use super::array_primitive;
use crate::convert::buffer::type_name;
use crate::convert::errors::IntoPython;
use crate::convert::numbers::number_of;
use crate::convert::signals::quietly;
use crate::graph::PyGraph;
use crate::graph::cell::AnyGraph;
use crate::node::vector::{Operand, all_nodes, atomically, common_owner, wrap};

/// For each thread the error of a primitive that failed in a replay for it, on this thread or on one of the pool, and whether
/// it is a special one.
static RAISED: Mutex<Vec<(ThreadId, bool, PyErr)>> = Mutex::new(Vec::new());
/// Whether there is one, which every call checks. Relaxed, as the lock publishes the errors.
static HAS_RAISED: AtomicBool = AtomicBool::new(false);

/// Takes the error of a primitive that failed in a replay for this thread, if there is one.
#[inline(always)]
pub fn raised() -> Option<PyErr> {
    if HAS_RAISED.load(Ordering::Relaxed) { of_this_thread().map(|(_, error)| error) } else { None }
}

#[cold]
fn of_this_thread() -> Option<(bool, PyErr)> {
    let mut all = RAISED.lock().unwrap_or_else(PoisonError::into_inner);
    let me = caller();
    let place = all.iter().position(|(thread, ..)| *thread == me);
    let found = place.map(|place| all.swap_remove(place)).map(|(_, is_special, error)| (is_special, error));
    HAS_RAISED.store(!all.is_empty(), Ordering::Relaxed);
    found
}

/// As [`raised`], for special exceptions: Ctrl-C must not be lost because a trace follows.
pub fn interrupted() -> Option<PyErr> {
    let found = if HAS_RAISED.load(Ordering::Relaxed) { of_this_thread() } else { None };
    found.and_then(|(is_special, error)| is_special.then_some(error))
}

/// Keeps the error for the thread whose work this is: the last one, but a special one rather than another.
fn keep(py: Python<'_>, error: PyErr) -> Failed {
    let mut kept = (caller(), !error.is_instance_of::<PyException>(py), error);
    let mut all = RAISED.lock().unwrap_or_else(PoisonError::into_inner);
    let not_kept = match all.iter_mut().find(|known| known.0 == kept.0) {
        Some(known) => {
            if kept.1 || !known.1 {
                std::mem::swap(known, &mut kept);
            }
            Some(kept)
        }
        None => {
            all.push(kept);
            HAS_RAISED.store(true, Ordering::Relaxed);
            None
        }
    };
    drop(all);
    // Dropped errors may run Python code.
    drop(not_kept);
    Failed
}

/// A Python function of real numbers with a user-defined derivative rule.
///
/// Called with numbers it is the function. Called with Values or Vectors it appends one node: the function is called with floats (and
/// lists of them), then its derivative, and every replay calls back into Python. Called with Arrays, as by `bt.grad` and the
/// other transforms, the function and the rules that derivatives need are traced, and replays call no Python.
///
/// Args:
///     function: takes numbers, and sequences of numbers, by position; returns one number. It must be
///         deterministic.
///
/// Raises:
///     TypeError: the function is not callable, did not return a number, or has no derivative yet.
///     ValueError: the derivative returned a wrong number of contributions.
///
/// Values support only first derivatives. Arrays support those of any order, in both modes with either rule.
///
/// Example:
///     >>> import math
///     >>> import burtorch as bt
///     >>> @bt.primitive
///     ... def hypotenuse(x, y):
///     ...     return math.hypot(x, y)
///     >>> @hypotenuse.defvjp
///     ... def _(g, z, x, y):
///     ...     return g * x / z, g * y / z
///     >>> x = bt.Value(3.0)
///     >>> hypotenuse(x, 4.0).backward()
///     >>> x.grad
///     0.6
///     >>> f = bt.function(lambda x, y: 2.0 * hypotenuse(x, y))
///     >>> f.value_and_grad(3.0, 4.0)
///     (10.0, (1.2, 1.6))
#[pyclass(frozen, name = "primitive", module = "burtorch", weakref)]
pub struct PyPrimitive {
    function: Py<PyAny>,
    vjp: Mutex<Option<Py<PyAny>>>,
    jvp: Mutex<Option<Py<PyAny>>>,
}

fn rule<'py>(py: Python<'py>, place: &Mutex<Option<Py<PyAny>>>) -> Option<Bound<'py, PyAny>> {
    place.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|rule| rule.bind(py).clone())
}

fn set_rule(place: &Mutex<Option<Py<PyAny>>>, rule: &Bound<'_, PyAny>, what: &str) -> PyResult<()> {
    if !rule.is_callable() {
        return Err(PyTypeError::new_err(format!("{what}() takes a Python function")));
    }
    let before = place.lock().unwrap_or_else(PoisonError::into_inner).replace(rule.clone().unbind());
    drop(before);
    Ok(())
}

#[pymethods]
impl PyPrimitive {
    #[new]
    #[pyo3(signature = (function, /))]
    fn new(function: &Bound<'_, PyAny>) -> PyResult<Self> {
        if !function.is_callable() {
            return Err(PyTypeError::new_err("primitive() takes a Python function"));
        }
        Ok(PyPrimitive { function: function.clone().unbind(), vjp: Mutex::new(None), jvp: Mutex::new(None) })
    }

    /// Sets the derivative and returns the rule; usable as a decorator.
    ///
    /// Args:
    ///     rule: called as rule(g, y, *args) with the adjoint g of the result y; returns the contribution to each
    ///         argument, in its structure. It must be linear in g: for Values it is called with g = 1.0.
    ///
    /// Example:
    ///     >>> import burtorch as bt
    ///     >>> square = bt.primitive(lambda x: x * x)
    ///     >>> _ = square.defvjp(lambda g, y, x: g * 2.0 * x)
    ///     >>> bt.function(square).grad(3.0)
    ///     6.0
    #[pyo3(signature = (rule, /))]
    fn defvjp<'py>(&self, rule: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        set_rule(&self.vjp, &rule, "defvjp")?;
        Ok(rule)
    }

    /// Sets the directional derivative and returns the rule; usable as a decorator. Without defvjp() gradients use it too.
    ///
    /// Args:
    ///     rule: called as rule(tangents, y, *args) with a tuple of tangents shaped like the arguments; returns a number.
    ///
    /// Example:
    ///     >>> import burtorch as bt
    ///     >>> square = bt.primitive(lambda x: x * x)
    ///     >>> _ = square.defjvp(lambda t, z, x: 2.0 * t[0] * x)
    ///     >>> bt.jvp(square)(3.0, 1.0)
    ///     (9.0, 6.0)
    #[pyo3(signature = (rule, /))]
    fn defjvp<'py>(&self, rule: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        set_rule(&self.jvp, &rule, "defjvp")?;
        Ok(rule)
    }

    /// The Python function.
    #[getter(__wrapped__)]
    fn wrapped<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.function.bind(py).clone()
    }

    #[pyo3(signature = (*args))]
    fn __call__<'py>(slf: &Bound<'py, Self>, args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        if array_primitive::is_meant(args)? {
            return array_primitive::call(slf, args);
        }
        let operands = args.iter().map(|x| Operand::read_all(&x)).collect::<PyResult<Vec<_>>>()?;
        if operands.iter().flatten().all(|x| matches!(x, Operand::Numbers(_))) {
            return slf.get().function.bind(py).call1(args);
        }
        let count = |operands: &Vec<Operand>| operands.iter().map(Operand::len).sum::<usize>();
        let is_one = |operands: &Vec<Operand>| operands.len() == 1 && operands[0].is_single();
        let shape: Vec<Option<usize>> =
            args.iter().zip(&operands).map(|(x, o)| (!is_one(o) || is_sequence(&x)).then(|| count(o))).collect();
        let primitive = PyWeakrefReference::new(slf)?.unbind();
        let call: Arc<dyn Primitive> = Arc::new(PythonCall { primitive, name: slf.get().name(py), shape });
        append(slf, &call, &operands.into_iter().flatten().collect::<Vec<_>>())
    }

    /// `copy.copy` and `copy.deepcopy`: the primitive, as for functions of Python.
    fn __copy__<'py>(slf: &Bound<'py, Self>) -> Bound<'py, Self> {
        slf.clone()
    }

    fn __deepcopy__<'py>(slf: &Bound<'py, Self>, memo: &Bound<'py, PyAny>) -> Bound<'py, Self> {
        let _ = memo;
        slf.clone()
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!("<primitive {}>", self.name(py))
    }

    fn __traverse__(&self, visit: pyo3::PyVisit<'_>) -> Result<(), pyo3::PyTraverseError> {
        visit.call(&self.function)?;
        for place in [&self.vjp, &self.jvp] {
            if let Ok(rule) = place.try_lock()
                && let Some(rule) = rule.as_ref()
            {
                visit.call(rule)?;
            }
        }
        Ok(())
    }

    fn __clear__(&self) {
        for place in [&self.vjp, &self.jvp] {
            let rule = place.lock().unwrap_or_else(PoisonError::into_inner).take();
            drop(rule);
        }
    }
}

impl PyPrimitive {
    /// For adjoints, and along directions.
    pub fn rules<'py>(&self, py: Python<'py>) -> [Option<Bound<'py, PyAny>>; 2] {
        [rule(py, &self.vjp), rule(py, &self.jvp)]
    }

    pub fn name(&self, py: Python<'_>) -> String {
        let name = quietly(py, || self.function.bind(py).getattr("__name__")?.extract());
        name.unwrap_or_else(|| "primitive".into())
    }
}

/// The error for differentiating a primitive without rules.
pub fn no_derivative(name: &str) -> PyErr {
    PyTypeError::new_err(format!("the primitive {name} has no derivative; give it one with defvjp"))
}

/// Whether an argument of one scalar is nevertheless a sequence.
fn is_sequence(x: &Bound<'_, PyAny>) -> bool {
    quietly(x.py(), || x.hasattr("__len__")).unwrap_or(false)
}

/// Evaluates a primitive on operands and appends its node.
fn append<'py>(
    primitive: &Bound<'py, PyPrimitive>,
    call: &Arc<dyn Primitive>,
    operands: &[Operand],
) -> PyResult<Bound<'py, PyAny>> {
    let py = primitive.py();
    let owner = common_owner(py, operands)?;
    let mut x = Vec::new();
    for operand in operands {
        read(&owner, operand, &mut x)?;
    }
    // The user's code, before anything is appended.
    let mut partials = vec![0.0; x.len()];
    let failed = |Failed| raised().unwrap_or_else(|| PyValueError::new_err("the primitive failed"));
    let y = call.value(&x).map_err(failed)?;
    call.partials(&x, y, &mut partials).map_err(failed)?;
    let node = atomically(&owner, |cell| {
        let nodes = all_nodes(py, cell, operands)?;
        let mut calls = cell.trace.as_mut().filter(|trace| trace.is_active).map(|trace| {
            if !trace.primitives.iter().any(|known| known.is(primitive)) {
                trace.primitives.push(primitive.clone().into_any().unbind());
            }
            &mut trace.calls
        });
        match &mut cell.graph {
            AnyGraph::F32(g) => append_evaluated(call, g, &nodes, (y, &partials), calls.take()).or_raise(py),
            AnyGraph::F64(g) => append_evaluated(call, g, &nodes, (y, &partials), calls.take()).or_raise(py),
            _ => Err(PyTypeError::new_err("primitives need a float64 or float32 graph")),
        }
    })?;
    node.made(|node| wrap(&owner, node))
}

/// The numbers of an operand.
fn read(owner: &Bound<'_, PyGraph>, operand: &Operand, to: &mut Vec<f64>) -> PyResult<()> {
    let py = owner.py();
    match operand {
        Operand::Numbers(numbers) => to.extend(numbers),
        Operand::Tensor(_) => return Err(PyTypeError::new_err("a primitive takes Values, Vectors and numbers")),
        _ => owner.get().with(py, |cell| {
            for node in operand.runs(py, cell)?.into_iter().flat_map(|run| run.nodes()) {
                to.push(match &cell.graph {
                    AnyGraph::F32(g) => f64::from(g.value(node).or_raise(py)?),
                    AnyGraph::F64(g) => g.value(node).or_raise(py)?,
                    _ => return Err(PyTypeError::new_err("primitives need a float64 or float32 graph")),
                });
            }
            Ok(())
        })?,
    }
    Ok(())
}

/// A primitive with the shape of its arguments: `None` for a number, the length for a sequence. Programs are shared, so they
/// refer to the primitive weakly; the owner of a program holds the primitive, where the garbage collector sees it.
struct PythonCall {
    primitive: Py<PyWeakrefReference>,
    name: String,
    shape: Vec<Option<usize>>,
}

impl PythonCall {
    fn primitive<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyPrimitive>> {
        let primitive = self.primitive.bind(py).upgrade_as::<PyPrimitive>()?;
        primitive.ok_or_else(|| PyReferenceError::new_err(format!("the primitive {} no longer exists", self.name)))
    }

    /// Numbers in the shape of the arguments.
    fn arguments<'py>(&self, py: Python<'py>, mut x: &[f64]) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let mut take = |n: usize| {
            let (first, rest) = x.split_at(n.min(x.len()));
            x = rest;
            first
        };
        let each = self.shape.iter().map(|shape| match shape {
            None => Ok(take(1).first().copied().unwrap_or(f64::NAN).into_pyobject(py)?.into_any()),
            Some(n) => Ok(PyList::new(py, take(*n))?.into_any()),
        });
        each.collect()
    }

    fn number(&self, result: &Bound<'_, PyAny>, what: &str) -> PyResult<f64> {
        number_of(result)?.ok_or_else(|| {
            let found = type_name(result);
            PyTypeError::new_err(format!("{what} {} must return a real number, found {found}", self.name))
        })
    }

    fn call<'py>(
        &self,
        rule: &Bound<'py, PyAny>,
        before: &[Bound<'py, PyAny>],
        x: &[f64],
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = rule.py();
        let arguments: Vec<_> = before.iter().cloned().chain(self.arguments(py, x)?).collect();
        let arguments = PyTuple::new(py, arguments)?;
        super::observe::unobserved(|| rule.call1(arguments))
    }

    fn try_partials(&self, py: Python<'_>, x: &[f64], y: f64, partials: &mut [f64]) -> PyResult<()> {
        let this = self.primitive(py)?;
        let this = this.get();
        let y = y.into_pyobject(py)?.into_any();
        let Some(vjp) = rule(py, &this.vjp) else {
            let mut direction = vec![0.0; x.len()];
            for k in 0..x.len() {
                direction[k] = 1.0;
                partials[k] = self.along(py, x, &y, &direction)?;
                direction[k] = 0.0;
            }
            return Ok(());
        };
        let result = self.call(&vjp, &[1.0_f64.into_pyobject(py)?.into_any(), y], x)?;
        let mut found = Vec::with_capacity(x.len());
        let parts: Vec<Bound<'_, PyAny>> = match result.cast::<PyTuple>() {
            Ok(parts) if self.shape.len() > 1 || parts.len() == 1 => parts.iter().collect(),
            _ => vec![result],
        };
        for (part, shape) in parts.iter().zip(&self.shape) {
            match shape {
                None => found.push(self.number(part, "the derivative of")?),
                Some(_) => {
                    for item in part.try_iter()? {
                        found.push(self.number(&item?, "the derivative of")?);
                    }
                }
            }
        }
        if parts.len() != self.shape.len() || found.len() != x.len() {
            return Err(PyValueError::new_err(format!(
                "the derivative of {} returned {} numbers for {} arguments of {} numbers",
                self.name,
                found.len(),
                self.shape.len(),
                x.len()
            )));
        }
        partials.copy_from_slice(&found);
        Ok(())
    }

    /// The directional derivative, by its rule.
    fn along(&self, py: Python<'_>, x: &[f64], y: &Bound<'_, PyAny>, direction: &[f64]) -> PyResult<f64> {
        let jvp = rule(py, &self.primitive(py)?.get().jvp).ok_or_else(|| no_derivative(&self.name))?;
        let tangents = PyTuple::new(py, self.arguments(py, direction)?)?.into_any();
        let result = self.call(&jvp, &[tangents, y.clone().into_any()], x)?;
        self.number(&result, "the derivative of")
    }
}

impl Primitive for PythonCall {
    fn name(&self) -> &str {
        &self.name
    }

    fn value(&self, x: &[f64]) -> Result<f64, Failed> {
        Python::attach(|py| {
            let result = self.primitive(py).and_then(|this| self.call(this.get().function.bind(py), &[], x));
            result.and_then(|result| self.number(&result, "the primitive")).map_err(|error| keep(py, error))
        })
    }

    fn partials(&self, x: &[f64], y: f64, partials: &mut [f64]) -> Result<(), Failed> {
        Python::attach(|py| self.try_partials(py, x, y, partials).map_err(|error| keep(py, error)))
    }

    fn tangent(&self, x: &[f64], y: f64, direction: &[f64]) -> Option<Result<f64, Failed>> {
        Python::attach(|py| {
            rule(py, &self.primitive(py).ok()?.get().jvp)?;
            let y = y.into_pyobject(py).ok()?.into_any();
            Some(self.along(py, x, &y, direction).map_err(|error| keep(py, error)))
        })
    }
}

/// Adds the class to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyPrimitive>()
}
