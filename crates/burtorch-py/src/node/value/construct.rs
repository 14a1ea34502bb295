//! Construction of a `Value`: the fast call with one float, and the general one with a label and a graph.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;

use burtorch_core::NodeId;
use burtorch_core::erased::AnyNumber;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::free_list;
use super::object::{Unowned, ValueObject, allocate, cell_of, fill, revive, value_type};
use crate::convert::buffer::type_name;
use crate::convert::entry::{attached, caught, entered, raise, raise_python};
use crate::convert::errors::IntoPython;
use crate::convert::signals::text_of;
use crate::graph::cell::AnyGraph;
use crate::graph::critical_section::locked_graph;
use crate::graph::{self, PyGraph};
use crate::node::numbers as of_node;

/// Makes a leaf of `x` on `owner`, as a `Value`, through the fast path of `append_at_once` if it is open.
///
/// # Safety
/// `owner` is a living `Graph`; the GIL is held.
#[inline(always)]
unsafe fn new_leaf(owner: *mut ffi::PyObject, x: f64) -> *mut ffi::PyObject {
    // SAFETY: by the contract of this function; nothing here calls Python code.
    unsafe {
        let cell = cell_of(owner);
        let object = free_list::first();
        if let AnyGraph::F64(g) = &mut cell.graph
            && !object.is_null()
        {
            let epoch = g.epoch();
            if let Some(quick) = g.quick()
                && quick.has_room_for_leaf()
            {
                return revive(object, owner, &mut cell.handles, quick.leaf(x), epoch);
            }
        }
        new_leaf_slow(value_type(), owner, &AnyNumber::One(x))
    }
}

/// As `new_leaf`, for any type of object and state of the graph.
///
/// # Safety
/// `type_` is `Value` or a subclass; else as for `new_leaf`.
#[inline(never)]
unsafe fn new_leaf_slow(type_: *mut ffi::PyTypeObject, owner: *mut ffi::PyObject, x: &AnyNumber) -> *mut ffi::PyObject {
    // SAFETY: by the contract of this function, and as in `new_leaf`.
    unsafe {
        // Before anything is built, because allocating a subclass may start the garbage collector, which runs Python code.
        let object = Unowned(allocate(type_));
        if object.0.is_null() {
            return ptr::null_mut();
        }
        let cell = cell_of(owner);
        if cell.is_busy() && !cell.is_traced() {
            return super::check::raise_busy(cell);
        }
        let is_constant = graph::wants_no_grad();
        let built = cell.collect_if_due().and_then(|()| {
            let node = cell.graph.append_number(x, is_constant)?;
            Ok((node, cell.graph.epoch()))
        });
        match built {
            Ok((node, epoch)) => fill(object.take(), owner, cell, node.index(), epoch),
            Err(error) => raise(error),
        }
    }
}

/// `Value(data)` without keywords: the fast path.
pub unsafe extern "C" fn vectorcall(
    type_: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    n: usize,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter passes living objects under its lock.
    caught(|| unsafe {
        let n_positional = ffi::PyVectorcall_NARGS(n) as usize;
        if n_positional == 1
            && (keywords.is_null() || ffi::PyTuple_GET_SIZE(keywords) == 0)
            && ffi::PyFloat_CheckExact(*arguments) != 0
            && type_ == value_type().cast()
        {
            let owner = graph::current(Python::assume_attached());
            if owner.is_null() {
                return ptr::null_mut();
            }
            return locked_graph(owner, || new_leaf(owner, ffi::PyFloat_AS_DOUBLE(*arguments)));
        }
        call_slowly(type_, arguments, n_positional, keywords)
    })
}

/// Turns a vectorcall into a call of `new`.
#[inline(never)]
unsafe fn call_slowly(
    type_: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    n: usize,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: as in `vectorcall`: `n` positional arguments, then one per keyword.
    attached(|py| unsafe {
        let positional = (0..n).map(|k| Bound::from_borrowed_ptr(py, *arguments.add(k)));
        let build = || -> PyResult<Py<PyAny>> {
            let positional = PyTuple::new(py, positional.collect::<Vec<_>>())?;
            let named = PyDict::new(py);
            if !keywords.is_null() {
                let names = Bound::from_borrowed_ptr(py, keywords).cast_into::<PyTuple>()?;
                for (k, name) in names.iter().enumerate() {
                    named.set_item(name, Bound::from_borrowed_ptr(py, *arguments.add(n + k)))?;
                }
            }
            let made = new(type_.cast(), positional.as_ptr(), named.as_ptr());
            Bound::from_owned_ptr_or_err(py, made).map(Bound::unbind)
        };
        match build() {
            Ok(value) => value.into_ptr(),
            Err(error) => raise_python(error),
        }
    })
}

/// The arguments of a call `Value(data, label=None, *, graph=None)`.
struct Arguments<'py> {
    data: Bound<'py, PyAny>,
    label: Option<Bound<'py, PyAny>>,
    graph: Option<Bound<'py, PyAny>>,
}

impl<'py> Arguments<'py> {
    /// Reads a call. For a subclass with its own `__init__`, only `data` is read: the rest is for `__init__`.
    fn read(
        type_: *mut ffi::PyTypeObject,
        positional: &Bound<'py, PyTuple>,
        named: Option<Bound<'py, PyDict>>,
    ) -> PyResult<Self> {
        // SAFETY: both are living types, as the interpreter calls their constructor.
        let init_of = |type_: *mut ffi::PyTypeObject| unsafe { (*type_).tp_init.map(|f| f as usize) };
        let is_ours = type_ == value_type() || init_of(type_) == init_of(value_type());
        let (mut data, mut label, mut graph) = (positional.get_item(0).ok(), None, None);
        if is_ours {
            if positional.len() > 2 {
                return Err(PyTypeError::new_err("Value() takes a number, and optionally label= and graph="));
            }
            label = positional.get_item(1).ok();
        }
        for (name, value) in named.iter().flatten() {
            let place = match name.extract::<String>()?.as_str() {
                "data" => &mut data,
                "label" if is_ours => &mut label,
                "graph" if is_ours => &mut graph,
                _ if !is_ours => continue,
                other => {
                    let message = format!("Value() got an unexpected keyword argument {other:?}");
                    return Err(PyTypeError::new_err(message));
                }
            };
            if place.replace(value).is_some() {
                return Err(PyTypeError::new_err(format!("Value() got multiple values for {}", text_of(&name))));
            }
        }
        let data = data.ok_or_else(|| PyTypeError::new_err("Value() needs a number: Value(3.0)"))?;
        let given = |x: &Bound<'py, PyAny>| !x.is_none();
        Ok(Arguments { data, label: label.filter(given), graph: graph.filter(given) })
    }
}

/// `tp_new`: `Value(data, label=None, *, graph=None)`.
pub unsafe extern "C" fn new(
    type_: *mut ffi::PyTypeObject,
    positional: *mut ffi::PyObject,
    named: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let made = |py: Python<'_>| -> PyResult<*mut ffi::PyObject> {
        // SAFETY: the interpreter passes a tuple and a dict or null under its lock.
        let (positional, named) =
            unsafe { (Bound::from_borrowed_ptr(py, positional), Bound::from_borrowed_ptr_or_opt(py, named)) };
        let named = named.map(Bound::cast_into::<PyDict>).transpose()?;
        let Arguments { data, label, graph } = Arguments::read(type_, &positional.cast_into()?, named)?;
        let label = label.map(|label| label_text(&label)).transpose()?;
        let owner = match &graph {
            Some(graph) => graph.cast::<PyGraph>()?.as_ptr(),
            None => graph::current(py),
        };
        if owner.is_null() {
            return Ok(ptr::null_mut());
        }
        // SAFETY: a living graph.
        unsafe { locked_graph(owner, || make(type_, owner, &data, label)) }
    };
    entered(|py| made(py).unwrap_or_else(raise_python))
}
/// A Value on the graph, for `new`.
///
/// # Safety
/// `owner` is a living `Graph`, `type_` is `Value` or a subclass; the GIL is held.
unsafe fn make(
    type_: *mut ffi::PyTypeObject,
    owner: *mut ffi::PyObject,
    data: &Bound<'_, PyAny>,
    label: Option<String>,
) -> PyResult<*mut ffi::PyObject> {
    let py = data.py();
    // SAFETY: a living graph under the GIL; the reference into its cell ends here.
    let scalar_type = unsafe { cell_of(owner).graph.scalar_type() };
    let Some(x) = of_node::read(data, scalar_type)? else {
        let found = type_name(data);
        return Err(PyTypeError::new_err(format!("Value() expects a real number, found {found}")));
    };
    // SAFETY: a type of ours, a living graph, the GIL; a label is put on a fresh Value.
    unsafe {
        let before = cell_of(owner).graph.mark();
        let object = new_leaf_slow(type_, owner, &x);
        if let Some(label) = label.filter(|_| !object.is_null()) {
            let handle = &raw mut (*object.cast::<ValueObject>()).handle;
            let set = || cell_of(owner).graph.set_label(NodeId::from_index((*handle).start), &label);
            let labelled = catch_unwind(AssertUnwindSafe(set));
            if !matches!(labelled, Ok(Ok(()))) {
                // The node goes before its object, which may run Python code.
                (*handle).kill();
                cell_of(owner).graph.take_back(before);
                ffi::Py_DECREF(object);
                labelled.unwrap_or_else(|panic| resume_unwind(panic)).or_raise(py)?;
            }
        }
        Ok(object)
    }
}

/// `tp_init` does nothing: `new` has read the arguments. It is there for subclasses that call it.
pub unsafe extern "C" fn init(
    _value: *mut ffi::PyObject,
    _positional: *mut ffi::PyObject,
    _named: *mut ffi::PyObject,
) -> c_int {
    caught(|| 0)
}

/// A label must be text.
pub fn label_text(label: &Bound<'_, PyAny>) -> PyResult<String> {
    label.extract().map_err(|_| PyTypeError::new_err("the label of a Value must be a str"))
}
