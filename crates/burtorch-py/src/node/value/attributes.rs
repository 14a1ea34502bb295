//! Attributes and methods of `Value`, except arithmetic: `construct` makes values, `convert` turns them into numbers.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_void};
use std::ptr;

use burtorch_core::erased::AnyNumber;
use burtorch_core::{NodeId, Quick, Scalar};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;

use super::check::{checked, checked_for_gradient, checked_for_sweep, checked_mut};
use super::construct::label_text;
use super::convert::{format, int, round};
use super::object::{ValueObject, cell_of, is_value};
use super::operands;
use super::samples;
use crate::array::trace::refuse_writing;
use crate::convert::entry::{attached, caught, raise, raise_python};
use crate::convert::errors::IntoPython;
use crate::convert::numbers::{self, Number, number};
use crate::convert::stop::watched_by;
use crate::graph::cell::Cell;
use crate::graph::{self, PyGraph, Sweep};
use crate::node::critical_section::slot;
use crate::node::numbers as of_node;
use crate::params::PySubset;

/// `.data`
pub unsafe extern "C" fn get_data(value: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    let run = || {
        // SAFETY: a living Value under the GIL, as in every getter here.
        unsafe { number_or_object(value, false) }
    };
    // SAFETY: objects that the interpreter passes.
    unsafe { slot(&[value], run) }
}

/// `.grad`
pub unsafe extern "C" fn get_grad(value: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    let run = || {
        // SAFETY: as in `get_data`.
        unsafe { number_or_object(value, true) }
    };
    // SAFETY: objects that the interpreter passes.
    unsafe { slot(&[value], run) }
}

/// The data or the gradient: a float, or a Decimal or a tuple if a float is too narrow.
#[inline(always)]
unsafe fn number_or_object(value: *mut ffi::PyObject, of_grad: bool) -> *mut ffi::PyObject {
    // SAFETY: a living Value under the GIL.
    unsafe {
        let checked = if of_grad { checked_for_gradient(value.cast()) } else { checked(value.cast()) };
        let Some((cell, node)) = checked else {
            return ptr::null_mut();
        };
        if cell.is_busy() && cell.is_traced() {
            return raise_python(crate::convert::refusals::reading_refused());
        }
        if let Err(error) = crate::convert::refusals::refuse_reading("the number of a Value of another graph") {
            return raise_python(error);
        }
        match of_node::plain(&cell.graph, node, of_grad) {
            Ok(Some(x)) => ffi::PyFloat_FromDouble(x),
            Ok(None) if samples::holds_samples(value) => {
                let x = samples::number(value, of_grad, if of_grad { ".grad of a Value" } else { ".data of a Value" });
                x.map_or_else(raise_python, |x| ffi::PyFloat_FromDouble(x))
            }
            Ok(None) => special(cell.graph.number(node, of_grad)),
            Err(error) => raise(error),
        }
    }
}

#[cold]
#[inline(never)]
fn special(taken: burtorch_core::Result<AnyNumber>) -> *mut ffi::PyObject {
    attached(|py| match taken.or_raise(py).and_then(|number| numbers::into_python(py, number)) {
        Ok(object) => object.into_ptr(),
        Err(error) => raise_python(error),
    })
}

/// Checks the value and reads its graph; `None` with an error set.
#[inline(always)]
pub unsafe fn read<T>(
    value: *mut ffi::PyObject,
    f: impl FnOnce(&mut Cell, NodeId) -> burtorch_core::Result<T>,
) -> Option<T> {
    // SAFETY: callers pass a living Value under the GIL; `f` calls no Python code.
    let (cell, _) = unsafe { checked(value.cast()) }?;
    if cell.is_busy() && cell.is_traced() {
        raise_python(crate::convert::refusals::reading_refused());
        return None;
    }
    if let Err(error) = crate::convert::refusals::refuse_reading("the number of a Value of another graph") {
        raise_python(error);
        return None;
    }
    // SAFETY: as above.
    unsafe { peek(value, f) }
}

/// As `read`, also while a function is traced: for numbers that are recorded, or do not leave this module.
#[inline(always)]
pub unsafe fn peek<T>(
    value: *mut ffi::PyObject,
    f: impl FnOnce(&mut Cell, NodeId) -> burtorch_core::Result<T>,
) -> Option<T> {
    // SAFETY: as in `read`.
    unsafe { checked(value.cast()) }.and_then(|(cell, node)| or_raised(f(cell, node)))
}

/// As `read`, for changes of a node.
unsafe fn write<T>(
    value: *mut ffi::PyObject,
    f: impl FnOnce(&mut Cell, NodeId) -> burtorch_core::Result<T>,
) -> Option<T> {
    // SAFETY: as in `read`.
    unsafe { checked_mut(value.cast()) }.and_then(|(cell, node)| or_raised(f(cell, node)))
}

#[inline(always)]
fn or_raised<T>(result: burtorch_core::Result<T>) -> Option<T> {
    match result {
        Ok(result) => Some(result),
        Err(error) => {
            raise(error);
            None
        }
    }
}

/// The number to assign, or `None` with an error set.
unsafe fn assigned(name: &str, value: *mut ffi::PyObject, x: *mut ffi::PyObject) -> Option<AnyNumber> {
    if x.is_null() {
        raise_python(PyTypeError::new_err(format!("cannot delete {name} of a Value")));
        return None;
    }
    if let Err(error) = attached(|py| refuse_writing(py, name, "Value")) {
        raise_python(error);
        return None;
    }
    // SAFETY: a living Value and a living object under the GIL.
    let read = unsafe {
        if ffi::PyFloat_CheckExact(x) != 0 {
            return Some(AnyNumber::One(ffi::PyFloat_AS_DOUBLE(x)));
        }
        attached(|py| of_node::read(&Bound::from_borrowed_ptr(py, x), of_node::type_of(value)))
    };
    match read {
        Ok(Some(given)) => Some(given),
        Ok(None) => {
            raise_python(PyTypeError::new_err(format!("{name} of a Value must be a real number, such as 0.0")));
            None
        }
        Err(error) => {
            raise_python(error);
            None
        }
    }
}

unsafe extern "C" fn set_data(value: *mut ffi::PyObject, x: *mut ffi::PyObject, _: *mut c_void) -> c_int {
    let run = || {
        // SAFETY: a living Value under the GIL.
        unsafe {
            let Some(x) = assigned("data", value, x) else {
                return -1;
            };
            let set = write(value, |cell, node| cell.graph.set_number(node, &x, false));
            if set.is_some() { 0 } else { -1 }
        }
    };
    // SAFETY: objects that the interpreter passes.
    unsafe { slot(&[value], run) }
}

unsafe extern "C" fn set_grad(value: *mut ffi::PyObject, x: *mut ffi::PyObject, _: *mut c_void) -> c_int {
    let run = || {
        // SAFETY: a living Value under the GIL.
        unsafe {
            let Some(x) = assigned("grad", value, x) else {
                return -1;
            };
            let set = write(value, |cell, node| cell.graph.set_number(node, &x, true));
            if set.is_some() { 0 } else { -1 }
        }
    };
    // SAFETY: objects that the interpreter passes.
    unsafe { slot(&[value], run) }
}

/// Wraps a getter: `f` reads the graph and creates no Python objects, whose creation might run any code; its result
/// is converted to one afterwards.
unsafe fn getter<T: for<'py> IntoPyObject<'py>>(
    value: *mut ffi::PyObject,
    f: impl FnOnce(&mut Cell, NodeId) -> burtorch_core::Result<T>,
) -> *mut ffi::PyObject {
    // SAFETY: a living Value under the GIL; the reference into its graph ends before objects are made.
    unsafe {
        let Some(read) = checked(value.cast()).map(|(cell, node)| f(cell, node)) else {
            return ptr::null_mut();
        };
        attached(|py| match read.or_raise(py).and_then(|read| read.into_py_any(py)) {
            Ok(object) => object.into_ptr(),
            Err(error) => raise_python(error),
        })
    }
}

unsafe extern "C" fn get_index(value: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    let run = || {
        // SAFETY: as in `get_data`.
        unsafe { getter(value, |_, node| Ok(node.index())) }
    };
    // SAFETY: objects that the interpreter passes.
    unsafe { slot(&[value], run) }
}

unsafe extern "C" fn get_op(value: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    let run = || {
        // SAFETY: as in `get_data`.
        unsafe { getter(value, |cell, node| cell.graph.op(node).map(|op| op.name())) }
    };
    // SAFETY: objects that the interpreter passes.
    unsafe { slot(&[value], run) }
}

unsafe extern "C" fn get_graph(value: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    let run = || {
        // SAFETY: a living Value owns its graph.
        unsafe {
            let owner = (*value.cast::<ValueObject>()).owner;
            ffi::Py_INCREF(owner);
            owner
        }
    };
    // SAFETY: objects that the interpreter passes.
    unsafe { slot(&[value], run) }
}

unsafe extern "C" fn get_label(value: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    let run = || {
        // SAFETY: as in `get_data`.
        unsafe { getter(value, |cell, node| Ok(cell.graph.label(node).unwrap_or_default().to_string())) }
    };
    // SAFETY: objects that the interpreter passes.
    unsafe { slot(&[value], run) }
}

unsafe extern "C" fn set_label(value: *mut ffi::PyObject, label: *mut ffi::PyObject, _: *mut c_void) -> c_int {
    let run = || {
        // SAFETY: a living Value under the GIL.
        unsafe {
            let text = attached(|py| Bound::from_borrowed_ptr_or_opt(py, label).map(|label| label_text(&label)));
            let text = match text {
                None => String::new(),
                Some(Ok(text)) => text,
                Some(Err(error)) => {
                    raise_python(error);
                    return -1;
                }
            };
            let set = write(value, |cell, node| cell.graph.set_label(node, &text));
            if set.is_some() { 0 } else { -1 }
        }
    };
    // SAFETY: objects that the interpreter passes.
    unsafe { slot(&[value], run) }
}

/// `v.backward(seed=1.0, wanted=None, stop=None, deadline=None)`
unsafe extern "C" fn backward(
    value: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    n: ffi::Py_ssize_t,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let run = || {
        // SAFETY: the interpreter passes living objects under its lock: `n` positional ones, then one per keyword.
        unsafe {
            let (mut seed, mut wanted, mut until) = (1.0, ptr::null_mut(), None);
            if n != 0 || !keywords.is_null() {
                let n_keywords = if keywords.is_null() { 0 } else { ffi::PyTuple_GET_SIZE(keywords) };
                let mut given = [ptr::null_mut(); 4];
                let mut is_known = n <= 1;
                if n == 1 {
                    given[0] = *arguments;
                }
                for k in 0..n_keywords {
                    let name = ffi::PyTuple_GET_ITEM(keywords, k);
                    let is = |known: &str| attached(|py| Bound::from_borrowed_ptr(py, name).eq(known).unwrap_or(false));
                    match ["seed", "wanted", "stop", "deadline"].iter().position(|known| is(known)) {
                        Some(place) if given[place].is_null() => given[place] = *arguments.offset(n + k),
                        _ => is_known = false,
                    }
                }
                if !is_known {
                    let message = "backward() takes seed, a number, and by keyword wanted, a set of parameters, stop and deadline";
                    return raise_python(PyTypeError::new_err(message));
                }
                wanted = given[1];
                if !given[2].is_null() || !given[3].is_null() {
                    let watched = attached(|py| {
                        let [stop, deadline] = [given[2], given[3]].map(|x| Bound::from_borrowed_ptr_or_opt(py, x));
                        watched_by(stop.as_ref(), deadline.as_ref())
                    });
                    match watched {
                        Ok(stop) => until = stop,
                        Err(error) => return raise_python(error),
                    }
                }
                if !given[0].is_null() {
                    match number(given[0]) {
                        Number::Is(x) => seed = x,
                        Number::IsNot => {
                            return raise_python(PyTypeError::new_err("the seed of backward() must be a real number"));
                        }
                        Number::Failed => return ptr::null_mut(),
                    }
                }
            }
            let Some((_, root)) = checked_for_sweep(value.cast()) else {
                return ptr::null_mut();
            };
            let owner = (*value.cast::<ValueObject>()).owner;
            let py = Python::assume_attached();
            let is_some = !wanted.is_null() && wanted != ffi::Py_None();
            let swept = match is_some || until.is_some() {
                false => graph::sweep(py, owner, Sweep { root, seed, skip_zero_adjoints: false }),
                true => attached(|py| {
                    let graph = Bound::from_borrowed_ptr(py, owner).cast_into_unchecked::<PyGraph>();
                    let read = || graph.get().read_parameters(py);
                    let wanted = if is_some { Some(Bound::from_borrowed_ptr(py, wanted)) } else { None };
                    let subset = wanted.map(|wanted| PySubset::of_any(&wanted, &read()?)).transpose()?;
                    // Calls into Python may have changed the graph.
                    let Some((_, root)) = checked_for_sweep(value.cast()) else { return Err(PyErr::fetch(py)) };
                    let subset = subset.as_ref().map(Bound::get);
                    let sweep = Sweep { root, seed, skip_zero_adjoints: false };
                    match until {
                        Some(stop) => graph.get().sweep_until(py, stop, sweep, subset),
                        None => graph.get().sweep_for(py, sweep, subset),
                    }
                }),
            };
            match swept {
                Ok(()) => {
                    ffi::Py_INCREF(ffi::Py_None());
                    ffi::Py_None()
                }
                Err(error) => raise_python(error),
            }
        }
    };
    // SAFETY: objects that the interpreter passes.
    unsafe { slot(&[value], run) }
}

/// `v.detach()`
unsafe extern "C" fn detach(value: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let run = || {
        #[derive(Clone, Copy)]
        struct Detach;
        impl super::append::Build<1> for Detach {
            unsafe fn build_quick<S: Scalar>(self, graph: Quick<'_, 'static, S>, [x]: [NodeId; 1]) -> NodeId {
                // SAFETY: by the contract of this function.
                unsafe { graph.detach(x) }
            }

            fn step(&self) -> super::step::Step {
                super::step::Step::Detach
            }
        }
        // SAFETY: a living Value under the GIL; what `append` returns is a Value of the same graph.
        unsafe {
            let owner = (*value.cast::<ValueObject>()).owner;
            let copy = super::append::append(owner, [value.cast()], Detach);
            let cell = cell_of(owner);
            if cell.is_busy() && cell.is_traced() && !copy.is_null() {
                super::guards::detached(cell, copy.cast(), value.cast());
            }
            copy
        }
    };
    // SAFETY: objects that the interpreter passes.
    unsafe { slot(&[value], run) }
}

/// `math.trunc(v)`
unsafe extern "C" fn trunc(value: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a living Value under the GIL.
    caught(|| unsafe { int(value) })
}

/// `v.same_node(w)`
unsafe extern "C" fn same_node(value: *mut ffi::PyObject, other: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let run = || {
        // SAFETY: a living Value and a living object under the GIL.
        unsafe {
            if !is_value(other) {
                return raise_python(PyTypeError::new_err("same_node() expects a Value"));
            }
            let (a, b) = (value.cast::<ValueObject>(), other.cast::<ValueObject>());
            let (Some((_, x)), Some((_, y))) = (checked(a), checked(b)) else {
                return ptr::null_mut();
            };
            ffi::PyBool_FromLong(((*a).owner == (*b).owner && x == y).into())
        }
    };
    // SAFETY: objects that the interpreter passes.
    unsafe { slot(&[value, other], run) }
}

/// `v.to_string()`
unsafe extern "C" fn to_string(value: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let run = || {
        // SAFETY: a living Value under the GIL; its owner is a living Graph.
        attached(|py| unsafe {
            let object = value.cast::<ValueObject>();
            let Some((_, node)) = checked(object) else { return ptr::null_mut() };
            if let Err(error) = crate::convert::refusals::refuse_reading("to_string() of a Value") {
                return raise_python(error);
            }
            let graph =
                pyo3::Borrowed::from_ptr(py, (*object).owner).cast_unchecked::<crate::graph::PyGraph>().to_owned();
            match graph.get().with(py, |cell| cell.graph.describe(node).or_raise(py)) {
                Ok(text) => pyo3::types::PyString::new(py, &text).into_ptr(),
                Err(error) => raise_python(error),
            }
        })
    };
    // SAFETY: objects that the interpreter passes.
    unsafe { slot(&[value], run) }
}

/// Single values cannot be pickled: pickle the graph.
unsafe extern "C" fn reduce(_value: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let message = "a Value cannot be pickled or copied without its graph; use float(v), or save the graph";
    caught(|| raise_python(PyTypeError::new_err(message)))
}

const fn attribute(
    name: &'static CStr,
    doc: &'static CStr,
    get: ffi::getter,
    set: Option<ffi::setter>,
) -> ffi::PyGetSetDef {
    ffi::PyGetSetDef { name: name.as_ptr(), get: Some(get), set, doc: doc.as_ptr(), closure: ptr::null_mut() }
}

/// The attributes of `Value`.
pub fn attributes() -> Vec<ffi::PyGetSetDef> {
    vec![
        attribute(
            c"data",
            c"The number this node holds: a float; a tuple of floats on a graph of lanes, a Decimal on a float128 one. Assigning changes this node only; graph.recompute(root) re-evaluates.",
            get_data,
            Some(set_data),
        ),
        attribute(
            c"grad",
            c"The gradient: summed over sweeps for a leaf, of the last sweep for any other node; 0.0 before any.",
            get_grad,
            Some(set_grad),
        ),
        attribute(
            c"index",
            c"The node's present number in its graph. Reclaim may renumber; Graph(reclaim=False) never does.",
            get_index,
            None,
        ),
        attribute(c"op", c"The name of the op that made this node.", get_op, None),
        attribute(c"operands", c"The values this node was computed from, as a tuple. One node is one object: while a Value of it is alive, that is what stands here, so id() tells nodes apart. Linear in their number, and in the Values made since the last call.", operands::get_operands, None),
        attribute(c"_prev", c"The values this node was computed from, as a set, and as micrograd has them: of a power with a constant exponent the base only.", operands::get_prev, None),
        attribute(c"_op", c"The op that made this node, as micrograd names it: + * **2 ReLU tanh ..., empty for a leaf.", operands::get_symbol, None),
        attribute(c"graph", c"The Graph this node belongs to.", get_graph, None),
        attribute(c"label", c"A name for this node, empty unless set.", get_label, Some(set_label)),
    ]
}

/// The methods of `Value` that are not ops.
pub fn methods() -> Vec<ffi::PyMethodDef> {
    use super::methods::method;
    vec![
        method(
            c"backward",
            c"backward($self, seed=1.0, *, wanted=None, stop=None, deadline=None)\n--\n\nAdd seed times the gradient of this node to its leaves and parameters. One pass in reverse building order; no recursion. Linear in the nodes between this one and the lowest it depends on. wanted: a Subset of Parameters, or what Parameters.subset takes: only these gradients are added to, those of leaves and of all other parameters stay as they are, and the sweep ends where nothing wanted lies below. stop, deadline: a Stop, and seconds from now: once it is set or they have passed the sweep ends with a StoppedError, and gradients are as before; that costs a copy of those of parameters.",
            ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
            ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: backward },
        ),
        method(c"_backward", c"_backward($self, /)\n--\n\nAdd what this node contributes, by its present grad, to the grad of its operands, as micrograd's closures do. Called for each node below a root whose grad is 1, in reverse building order, this is backward(). Linear in the operands.", ffi::METH_NOARGS, ffi::PyMethodDefPointer { PyCFunction: operands::backward_step }),
        method(c"detach", c"detach($self, /)\n--\n\nA copy of the data through which no gradient flows.", ffi::METH_NOARGS, ffi::PyMethodDefPointer { PyCFunction: detach }),
        method(c"to_string", c"to_string($self, /)\n--\n\nOne line about the node: name, op and operands, data, gradient, index. Source: asString of the paper.", ffi::METH_NOARGS, ffi::PyMethodDefPointer { PyCFunction: to_string }),
        method(c"same_node", c"same_node($self, other, /)\n--\n\nWhether both values stand for one node of one graph.", ffi::METH_O, ffi::PyMethodDefPointer { PyCFunction: same_node }),
        method(c"__trunc__", c"__trunc__($self, /)\n--\n\nThe data without its fraction, as an int.", ffi::METH_NOARGS, ffi::PyMethodDefPointer { PyCFunction: trunc }),
        method(c"__round__", c"__round__($self, ndigits=None, /)\n--\n\nThe nearest integer as a new Value; with ndigits the data, rounded as a float is.", ffi::METH_FASTCALL, ffi::PyMethodDefPointer { PyCFunctionFast: round }),
        method(c"__format__", c"__format__($self, spec, /)\n--\n\nThe data, formatted as a float is; repr(self) for an empty spec.", ffi::METH_O, ffi::PyMethodDefPointer { PyCFunction: format }),
        method(c"__reduce__", c"__reduce__($self, /)\n--\n\nRaises TypeError: a Value is not pickled without its graph.", ffi::METH_NOARGS, ffi::PyMethodDefPointer { PyCFunction: reduce }),
        method(c"__array_function__", c"__array_function__($self, function, types, arguments, keywords, /)\n--\n\nFunctions of NumPy that reduce give what they give of a number; others do what they do of objects.", ffi::METH_VARARGS, ffi::PyMethodDefPointer { PyCFunction: crate::node::vector::array_function }),
        method(c"__array_ufunc__", c"__array_ufunc__($self, ufunc, method, *inputs, **keywords)\n--\n\nThe operator or op that a ufunc of NumPy stands for; other ufuncs raise a TypeError that names them.", ffi::METH_VARARGS | ffi::METH_KEYWORDS, ffi::PyMethodDefPointer { PyCFunctionWithKeywords: crate::node::vector::array_ufunc }),
    ]
}
