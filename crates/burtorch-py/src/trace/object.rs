//! The raw Python object behind `Function`: calls with floats cost little more than their arithmetic.
//!
//! `object_type` creates, collects and prints it.
//!
//! Promises: no reference into the state is held while Python code runs, so a function may call itself, or be called from a
//! callback, at any time. All code here holds the GIL, or has taken the state (`states`).
#![allow(unsafe_code)]

use std::ptr;

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::keywords::{self, Keywords};
use super::state::{FunctionState, Scalars};
use super::states::{InUse, States, state_of};
use super::{audit, calls, derivatives, file, gradients, long_arrays, map, python_function, sparse, transforms};
use crate::convert::entry::{caught, entered, raise_python};
use crate::convert::errors::{if_any, is_final};
use crate::convert::refusals::{NeedsArrays, is_tracing, needed_arrays};
use crate::convert::signals::{failed_twice, text_of};
use crate::node::parameter::PyParameter;

/// A `Function` as the interpreter lays it out.
#[repr(C)]
pub struct FunctionObject {
    head: ffi::PyObject,
    pub(super) vectorcall: Option<ffi::vectorcallfunc>,
    /// Owned; null after the garbage collector has cleared the object.
    pub(super) state: *mut States,
    pub(super) weak_references: *mut ffi::PyObject,
}

/// Runs the first path at these floats, if calls with this many may use the fast path and it is valid here.
///
/// # Safety
/// As for `state_of`; `arguments` are `n` living objects.
#[inline(always)]
unsafe fn quick<'a>(
    function: *mut FunctionObject,
    arguments: *const *mut ffi::PyObject,
    n: usize,
) -> Option<&'a mut burtorch_core::program::Replay<f64, 1>> {
    // SAFETY: by the contract of this function; watching may read dictionaries of strings, which run no Python code.
    unsafe {
        let state = state_of(function)?;
        if state.quick != n || !state.watch.is_as_it_was(Python::assume_attached()) {
            return None;
        }
        let path = state.variants.first_mut()?.paths.first_mut()?;
        let Scalars::F64(replay) = &mut path.replay else { return None };
        fill(replay.inputs_mut(), &path.parameters, arguments, n)?;
        replay.checked_values().ok()?;
        Some(replay)
    }
}

/// Writes floats and parameters to the inputs of a replay; `None` if an argument is not a float.
///
/// # Safety
/// `arguments` are `n` living objects.
#[inline(always)]
unsafe fn fill(
    inputs: &mut [f64],
    parameters: &[Py<PyParameter>],
    arguments: *const *mut ffi::PyObject,
    n: usize,
) -> Option<()> {
    for (k, slot) in inputs.iter_mut().take(n).enumerate() {
        // SAFETY: by the contract of this function.
        unsafe {
            let x = *arguments.add(k);
            if ffi::PyFloat_CheckExact(x) == 0 {
                return None;
            }
            *slot = ffi::PyFloat_AS_DOUBLE(x);
        }
    }
    for (slot, parameter) in inputs.iter_mut().skip(n).zip(parameters) {
        *slot = parameter.get().number();
    }
    Some(())
}

/// `f(x, ...)`
pub(super) unsafe extern "C" fn vectorcall(
    function: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    n: usize,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter passes living objects under its lock.
    caught(|| unsafe {
        let _in_use = InUse::of_object(function);
        let n = ffi::PyVectorcall_NARGS(n) as usize;
        if names.is_null()
            && let Some(replay) = quick(function.cast(), arguments, n)
        {
            return ffi::PyFloat_FromDouble(replay.output(0, 0));
        }
        method::<{ CALL }>(function, arguments, n as ffi::Py_ssize_t, names)
    })
}

/// `f.value_and_grad(x, ...)`
pub(super) unsafe extern "C" fn value_and_grad(
    function: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    n: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: as in `vectorcall`; a tuple's entries are filled before it is seen.
    caught(|| unsafe {
        let _in_use = InUse::of_object(function);
        if names.is_null()
            && let Some(replay) = quick(function.cast(), arguments, n as usize)
        {
            replay.reverse_one();
            let value = ffi::PyFloat_FromDouble(replay.output(0, 0));
            let gradient = if n == 1 { ffi::PyFloat_FromDouble(replay.gradient(0, 0)) } else { tuple_of(replay, n) };
            let both = ffi::PyTuple_New(2);
            if value.is_null() || gradient.is_null() || both.is_null() {
                for object in [value, gradient, both] {
                    ffi::Py_XDECREF(object);
                }
                return ptr::null_mut();
            }
            ffi::PyTuple_SET_ITEM(both, 0, value);
            ffi::PyTuple_SET_ITEM(both, 1, gradient);
            return both;
        }
        method::<{ VALUE_AND_GRAD }>(function, arguments, n, names)
    })
}

/// `f.grad(x, ...)`
pub(super) unsafe extern "C" fn grad(
    function: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    n: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: as in `vectorcall`.
    caught(|| unsafe {
        let _in_use = InUse::of_object(function);
        if names.is_null()
            && let Some(replay) = quick(function.cast(), arguments, n as usize)
        {
            replay.reverse_one();
            return if n == 1 { ffi::PyFloat_FromDouble(replay.gradient(0, 0)) } else { tuple_of(replay, n) };
        }
        method::<{ GRAD }>(function, arguments, n, names)
    })
}

/// The gradient as a tuple of floats, or null.
unsafe fn tuple_of(replay: &burtorch_core::program::Replay<f64, 1>, n: ffi::Py_ssize_t) -> *mut ffi::PyObject {
    // SAFETY: every entry is filled before the tuple is seen; the replay has `n` inputs with gradients.
    unsafe {
        let tuple = ffi::PyTuple_New(n);
        if tuple.is_null() {
            return tuple;
        }
        for (k, &x) in replay.raw_gradients().iter().enumerate() {
            let x = ffi::PyFloat_FromDouble(x + 0.0);
            if x.is_null() {
                ffi::Py_DECREF(tuple);
                return x;
            }
            ffi::PyTuple_SET_ITEM(tuple, k as ffi::Py_ssize_t, x);
        }
        tuple
    }
}

/// A call as the methods receive it.
pub struct Call<'py> {
    /// The function itself.
    pub function: Bound<'py, PyAny>,
    /// Positional arguments.
    pub positional: Vec<Bound<'py, PyAny>>,
    /// Keyword arguments.
    pub named: Vec<(String, Bound<'py, PyAny>)>,
    /// The keywords that it accepts.
    pub keywords: Keywords,
    /// Whether it uses Arrays because of its arguments.
    pub with_arrays: bool,
    /// The state that the calls of this thread use.
    pub _in_use: InUse,
}

impl<'py> Call<'py> {
    /// A call without arguments.
    pub fn of(function: Bound<'py, PyAny>) -> Self {
        let _in_use = InUse::of(&function);
        let (positional, named, with_arrays) = (Vec::new(), Vec::new(), false);
        Call { function, positional, named, keywords: Keywords::CALL, with_arrays, _in_use }
    }

    /// The interpreter.
    pub fn py(&self) -> Python<'py> {
        self.function.py()
    }

    /// The raw function.
    pub fn object(&self) -> *mut FunctionObject {
        self.function.as_ptr().cast()
    }

    /// Removes a keyword argument.
    pub fn take(&mut self, name: &str) -> Option<Bound<'py, PyAny>> {
        let at = self.named.iter().position(|(known, _)| known == name)?;
        let (_, value) = self.named.remove(at);
        (!value.is_none()).then_some(value)
    }

    /// Runs `f` on the state.
    pub fn with<T>(&self, f: impl FnOnce(&mut FunctionState) -> T) -> PyResult<T> {
        // SAFETY: a living Function under the GIL; `f` is ours and runs no Python code.
        let state = unsafe { state_of(self.object()) };
        state.map(f).ok_or_else(|| PyTypeError::new_err("this Function is being destroyed"))
    }
}

/// A method of a function.
type Method = for<'py> fn(Call<'py>) -> PyResult<Bound<'py, PyAny>>;

const CALL: usize = 0;
const VALUE_AND_GRAD: usize = 1;
const GRAD: usize = 2;
/// With `trace`, `vjp`, `jvp`, `hvp` and `compile`, those which trace with Arrays because of long arguments.
const TAKES_LONG_ARRAYS: [usize; 8] = [CALL, VALUE_AND_GRAD, GRAD, 4, 8, 9, 10, 23];
/// The sparse derivatives and their patterns.
const SPARSE: [usize; 4] = [13, 14, 15, 16];

/// How long arguments are because of which a method traces with Arrays.
const fn long_for(method: usize) -> usize {
    let mut k = 0;
    while k < TAKES_LONG_ARRAYS.len() {
        if TAKES_LONG_ARRAYS[k] == method {
            return long_arrays::LONG;
        }
        if k < SPARSE.len() && SPARSE[k] == method {
            return long_arrays::LONG_FOR_ENTRIES;
        }
        k += 1;
    }
    usize::MAX
}

const MAP_OPTIONS: &[&str] = &["threads", "out", "stop", "deadline"];

/// The methods with slow calls, by number, with their keywords.
const METHODS: &[(Keywords, Method)] = &[
    (Keywords::CALL, calls::call),
    (passed_on("value_and_grad", &["argnums", "wanted", "out"]), gradients::value_and_grad),
    (passed_on("grad", &["argnums", "wanted", "out"]), gradients::grad),
    (own("bind", &["grad"]), calls::bind),
    (passed_on("trace", &[]), calls::record_now),
    (own("stats", &[]), calls::stats),
    (own("program", &[]), calls::program),
    (own("forget", &[]), calls::forget),
    (passed_on("vjp", &[]), derivatives::vjp),
    (passed_on("jvp", &[]), derivatives::jvp),
    (passed_on("hvp", &["argnums"]), derivatives::hvp),
    (passed_on("hessian", &["argnums", "out"]), derivatives::hessian),
    (passed_on("jacobian", &["argnums", "out"]), derivatives::jacobian),
    (passed_on("hessian_sparsity", &["argnums"]), sparse::hessian_sparsity),
    (passed_on("jacobian_sparsity", &["argnums"]), sparse::jacobian_sparsity),
    (passed_on("sparse_hessian", &["argnums", "out"]), sparse::sparse_hessian),
    (passed_on("sparse_jacobian", &["argnums", "out"]), sparse::sparse_jacobian),
    (passed_on("map", MAP_OPTIONS), map::map),
    (passed_on("map_value_and_grad", MAP_OPTIONS), map::map_value_and_grad),
    (own("__reduce__", &[]), file::reduce),
    (own("save", &[]), file::save_to),
    (own("audit", &[]), audit::audit),
    (passed_on("value_and_param_grad", &[]), transforms::value_and_param_grad),
    (passed_on("compile", &[]), calls::compile),
    (own("__copy__", &[]), python_function::copy),
    (own("__deepcopy__", &[]), python_function::deepcopy),
];

/// Options, and static arguments of the body.
const fn passed_on(method: &'static str, options: &'static [&'static str]) -> Keywords {
    Keywords { method, options, are_passed_on: true }
}

/// Options only.
const fn own(method: &'static str, options: &'static [&'static str]) -> Keywords {
    Keywords { method, options, are_passed_on: false }
}

/// What a call has done, or `again`, if its body needs Arrays: it is traced with them from now on.
pub fn or_with_arrays<'py, T>(
    done: PyResult<T>,
    make: impl Fn() -> Call<'py>,
    again: impl FnOnce() -> PyResult<T>,
) -> PyResult<T> {
    let Err(error) = done else { return done };
    let needs = if is_tracing() { NeedsArrays::No } else { needed_arrays() };
    let call = make();
    if needs == NeedsArrays::No || is_final(call.py(), &error) {
        return Err(error);
    }
    match call.with(|state| state.uses_arrays = true).and_then(|()| again()) {
        Err(with_arrays) if needs == NeedsArrays::Perhaps && !is_final(call.py(), &with_arrays) => {
            call.with(|state| state.uses_arrays = false)?;
            // An error about Vectors says nothing where Arrays fail for another reason.
            Err(match text_of(error.value(call.py())).contains("Vector") {
                true => failed_twice(call.py(), &error, with_arrays),
                false => failed_twice(call.py(), &with_arrays, error),
            })
        }
        again => again,
    }
}

/// Any method, with its arguments as Python objects.
pub(super) unsafe extern "C" fn method<const K: usize>(
    function: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    n: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    entered(|py| {
        // SAFETY: the interpreter passes `n` positional arguments, then one per name, under its lock.
        let at = |k: usize| unsafe { Bound::from_borrowed_ptr(py, *arguments.add(k)) };
        let n = n as usize;
        // SAFETY: as above; names are null or a tuple.
        let (function, names) =
            unsafe { (Bound::from_borrowed_ptr(py, function), Bound::from_borrowed_ptr_or_opt(py, names)) };
        let (keywords, run) = METHODS[K];
        let names = match names.map(Bound::cast_into::<PyTuple>).transpose() {
            Ok(names) => names,
            Err(_) => return ptr::null_mut(),
        };
        let make = || {
            let mut call = Call { positional: (0..n).map(at).collect(), keywords, ..Call::of(function.clone()) };
            if let Some(names) = &names {
                call.named = names.iter().enumerate().map(|(k, name)| (text_of(&name), at(n + k))).collect();
            }
            call
        };
        let call = make();
        let is_known = |(name, _): &(String, _)| keywords.options.contains(&name.as_str());
        if !keywords.are_passed_on
            && !call.named.iter().all(is_known)
            && let Err(error) = keywords::check(&call)
        {
            return raise_python(error);
        }
        let least = const { long_for(K) };
        let done = match least < usize::MAX && long_arrays::are_meant(&call, least) {
            true => long_arrays::run(call, run, make),
            false => run(call),
        };
        match or_with_arrays(done, make, || run(make())) {
            Ok(result) => match super::primitive::raised() {
                None => result.into_ptr(),
                Some(error) => raise_python(error),
            },
            Err(error) => {
                let other = match error.is_instance_of::<PyTypeError>(py) && n > 0 {
                    true => match if_any(py, python_function::other_call(&function, &make().positional)) {
                        Ok(other) => other.flatten(),
                        Err(error) => return raise_python(error),
                    },
                    false => None,
                };
                let Some((function, positional)) = other else { return raise_python(error) };
                let n_named = names.as_ref().map_or(0, |names| names.len());
                let named = (n..n + n_named).map(at).collect::<Vec<_>>();
                let all: Vec<_> = positional.iter().chain(&named).map(Bound::as_ptr).collect();
                let names = names.as_ref().map_or(ptr::null_mut(), Bound::as_ptr);
                // SAFETY: living objects, of which `positional` and `named` keep those alive that are new.
                unsafe { method::<K>(function.as_ptr(), all.as_ptr(), positional.len() as ffi::Py_ssize_t, names) }
            }
        }
    })
}
