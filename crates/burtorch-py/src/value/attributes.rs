//! Everything of `Value` that is not arithmetic: construction, attributes, comparison, conversion, text.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_void};
use std::ptr;

use burtorch_core::{Float, NodeId, Scalar};
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::number::{Number, number};
use super::object::{
    Unowned, ValueObject, allocate, cell_of, checked, fill, is_value, new_object, raise, raise_python, value_type,
};
use crate::cell::{AnyGraph, Cell, with_graph};
use crate::errors::IntoPython;
use crate::graph::{self, PyGraph, Sweep};

/// Makes a leaf of `x` on the current graph (or the given one), as an object of `type_`.
///
/// # Safety
/// `type_` is `Value` or a subclass; the interpreter lock is held.
#[inline(always)]
unsafe fn new_leaf(type_: *mut ffi::PyTypeObject, owner: *mut ffi::PyObject, x: f64) -> *mut ffi::PyObject {
    // SAFETY: `owner` is a living graph; no other reference into its cell is in use.
    unsafe {
        // Before anything is built: memory for a subclass may start the garbage collector, which runs Python code.
        let object = Unowned(allocate(type_));
        if object.0.is_null() {
            return ptr::null_mut();
        }
        let cell = cell_of(owner);
        if cell.busy {
            return super::object::raise_busy();
        }
        let built = match &mut cell.graph {
            AnyGraph::F64(g) if g.len() as u32 <= cell.limit && !graph::no_grad_somewhere() => {
                g.leaf(x).map(|node| (node, g.epoch()))
            }
            _ => new_leaf_slow(cell, x),
        };
        match built {
            Ok((node, epoch)) => fill(object.take(), owner, cell, node.index(), epoch),
            Err(error) => raise(error),
        }
    }
}

#[inline(never)]
fn new_leaf_slow(cell: &mut Cell, x: f64) -> burtorch_core::Result<(NodeId, u64)> {
    if with_graph!(&cell.graph, g => g.len()) as u32 > cell.limit {
        cell.collect()?;
    }
    let is_constant = graph::wants_no_grad();
    with_graph!(&mut cell.graph, g => {
        let node = if is_constant { g.constant(Scalar::lit(x)) } else { g.leaf(Scalar::lit(x)) };
        node.map(|node| (node, g.epoch()))
    })
}

/// `Value(data)` without keywords: the fast way in.
pub unsafe extern "C" fn vectorcall(
    type_: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    n: usize,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter passes living objects under its lock.
    unsafe {
        let n_positional = ffi::PyVectorcall_NARGS(n) as usize;
        if n_positional == 1
            && (keywords.is_null() || ffi::PyTuple_GET_SIZE(keywords) == 0)
            && ffi::PyFloat_CheckExact(*arguments) != 0
        {
            let owner = graph::current(Python::assume_attached());
            if owner.is_null() {
                return ptr::null_mut();
            }
            return new_leaf(type_.cast(), owner, ffi::PyFloat_AS_DOUBLE(*arguments));
        }
        call_slowly(type_, arguments, n_positional, keywords)
    }
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
    unsafe {
        let py = Python::assume_attached();
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
    }
}

/// What `Value(data, label=None, *, graph=None)` was called with.
struct Arguments<'py> {
    data: Bound<'py, PyAny>,
    label: Option<Bound<'py, PyAny>>,
    graph: Option<Bound<'py, PyAny>>,
}

impl<'py> Arguments<'py> {
    /// Reads a call. Of a subclass with an `__init__` of its own, only `data` is read: the rest is for that.
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
                return Err(PyTypeError::new_err(format!("Value() got multiple values for {name}")));
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
    // SAFETY: the interpreter passes a tuple and a dict or null under its lock.
    let (py, positional, named) = unsafe {
        let py = Python::assume_attached();
        (py, Bound::from_borrowed_ptr(py, positional), Bound::from_borrowed_ptr_or_opt(py, named))
    };
    let made = || -> PyResult<*mut ffi::PyObject> {
        let named = named.map(Bound::cast_into::<PyDict>).transpose()?;
        let Arguments { data, label, graph } = Arguments::read(type_, &positional.cast_into()?, named)?;
        // SAFETY: a living object under the interpreter lock.
        let x = match unsafe { number(data.as_ptr()) } {
            Number::Is(x) => x,
            Number::IsNot => {
                let found = data.get_type().name()?;
                return Err(PyTypeError::new_err(format!("Value() expects a real number, found {found}")));
            }
            Number::Failed => return Ok(ptr::null_mut()),
        };
        let label = label.map(|label| label_text(&label)).transpose()?;
        let owner = match &graph {
            Some(graph) => graph.cast::<PyGraph>()?.as_ptr(),
            None => graph::current(py),
        };
        if owner.is_null() {
            return Ok(ptr::null_mut());
        }
        // SAFETY: a type of ours, a living graph, the interpreter lock; a label is put on a fresh Value.
        unsafe {
            let object = new_leaf(type_, owner, x);
            if let Some(label) = label.filter(|label| !object.is_null() && !label.is_empty()) {
                cell_of(owner).labels.insert((*object.cast::<ValueObject>()).handle.start, label);
            }
            Ok(object)
        }
    };
    made().unwrap_or_else(raise_python)
}

/// `tp_init` does nothing: `new` has read the arguments. It is there for subclasses that call it.
pub unsafe extern "C" fn init(
    _value: *mut ffi::PyObject,
    _positional: *mut ffi::PyObject,
    _named: *mut ffi::PyObject,
) -> c_int {
    0
}

/// A label must be text.
fn label_text(label: &Bound<'_, PyAny>) -> PyResult<String> {
    label.extract().map_err(|_| PyTypeError::new_err("the label of a Value must be a str"))
}

/// `.data`
unsafe extern "C" fn get_data(value: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: a living Value under the interpreter lock, as in every getter here.
    unsafe {
        match read(value, |cell, node| with_graph!(&cell.graph, g => g.value(node).map(Float::to_f64))) {
            Some(x) => ffi::PyFloat_FromDouble(x),
            None => ptr::null_mut(),
        }
    }
}

/// `.grad`
unsafe extern "C" fn get_grad(value: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: as in `get_data`.
    unsafe {
        match read(value, |cell, node| with_graph!(&cell.graph, g => g.grad(node).map(Float::to_f64))) {
            Some(x) => ffi::PyFloat_FromDouble(x),
            None => ptr::null_mut(),
        }
    }
}

/// Checks the value and reads its graph; `None` with an error set.
#[inline(always)]
unsafe fn read<T>(
    value: *mut ffi::PyObject,
    f: impl FnOnce(&mut Cell, NodeId) -> burtorch_core::Result<T>,
) -> Option<T> {
    // SAFETY: callers pass a living Value under the interpreter lock; `f` calls no Python code.
    let (cell, node) = unsafe { checked(value.cast()) }?;
    match f(cell, node) {
        Ok(result) => Some(result),
        Err(error) => {
            raise(error);
            None
        }
    }
}

/// The number to assign, or `None` with an error set.
unsafe fn assigned(name: &str, x: *mut ffi::PyObject) -> Option<f64> {
    if x.is_null() {
        raise_python(PyTypeError::new_err(format!("cannot delete {name} of a Value")));
        return None;
    }
    // SAFETY: a living object under the interpreter lock.
    match unsafe { number(x) } {
        Number::Is(x) => Some(x),
        Number::IsNot => {
            raise_python(PyTypeError::new_err(format!("{name} of a Value must be a real number")));
            None
        }
        Number::Failed => None,
    }
}

unsafe extern "C" fn set_data(value: *mut ffi::PyObject, x: *mut ffi::PyObject, _: *mut c_void) -> c_int {
    // SAFETY: a living Value under the interpreter lock.
    unsafe {
        let Some(x) = assigned("data", x) else {
            return -1;
        };
        let set = read(value, |cell, node| with_graph!(&mut cell.graph, g => g.set_value(node, Scalar::lit(x))));
        if set.is_some() { 0 } else { -1 }
    }
}

unsafe extern "C" fn set_grad(value: *mut ffi::PyObject, x: *mut ffi::PyObject, _: *mut c_void) -> c_int {
    // SAFETY: a living Value under the interpreter lock.
    unsafe {
        let Some(x) = assigned("grad", x) else {
            return -1;
        };
        let set = read(value, |cell, node| with_graph!(&mut cell.graph, g => g.set_grad(node, Scalar::lit(x))));
        if set.is_some() { 0 } else { -1 }
    }
}

/// Wraps a getter that may fail with a Python error.
unsafe fn getter(
    value: *mut ffi::PyObject,
    f: impl FnOnce(Python<'_>, *mut ffi::PyObject, &mut Cell, NodeId) -> PyResult<Py<PyAny>>,
) -> *mut ffi::PyObject {
    // SAFETY: a living Value under the interpreter lock.
    unsafe {
        let Some((cell, node)) = checked(value.cast()) else {
            return ptr::null_mut();
        };
        let py = Python::assume_attached();
        match f(py, (*value.cast::<ValueObject>()).owner, cell, node) {
            Ok(object) => object.into_ptr(),
            Err(error) => raise_python(error),
        }
    }
}

unsafe extern "C" fn get_index(value: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: as in `get_data`.
    unsafe { getter(value, |py, _, _, node| Ok(node.index().into_pyobject(py)?.into_any().unbind())) }
}

unsafe extern "C" fn get_op(value: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: as in `get_data`.
    unsafe {
        getter(value, |py, _, cell, node| {
            let op = with_graph!(&cell.graph, g => g.op(node)).or_raise(py)?;
            Ok(op.name().into_pyobject(py)?.into_any().unbind())
        })
    }
}

unsafe extern "C" fn get_graph(value: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: a living Value owns its graph.
    unsafe {
        let owner = (*value.cast::<ValueObject>()).owner;
        ffi::Py_INCREF(owner);
        owner
    }
}

unsafe extern "C" fn get_label(value: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: as in `get_data`.
    unsafe {
        getter(value, |py, _, cell, node| {
            let label = cell.labels.get(&node.index()).cloned();
            Ok(label.unwrap_or_default().into_pyobject(py)?.into_any().unbind())
        })
    }
}

unsafe extern "C" fn set_label(value: *mut ffi::PyObject, label: *mut ffi::PyObject, _: *mut c_void) -> c_int {
    // SAFETY: a living Value under the interpreter lock.
    unsafe {
        let py = Python::assume_attached();
        let text = match Bound::from_borrowed_ptr_or_opt(py, label).map(|label| label_text(&label)) {
            None => String::new(),
            Some(Ok(text)) => text,
            Some(Err(error)) => {
                raise_python(error);
                return -1;
            }
        };
        let Some((cell, node)) = checked(value.cast()) else {
            return -1;
        };
        if text.is_empty() {
            cell.labels.remove(&node.index());
        } else {
            cell.labels.insert(node.index(), text);
        }
        0
    }
}

unsafe extern "C" fn get_operands(value: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: as in `get_data`; new values are made after the graph has been read.
    unsafe {
        getter(value, |py, owner, cell, node| {
            let mut nodes = Vec::new();
            let epoch = with_graph!(&cell.graph, g => {
                g.for_each_operand(node, |run| {
                    if let Some(range) = run.nodes() {
                        nodes.extend((0..range.len()).filter_map(|k| range.get(k)));
                    }
                });
                g.epoch()
            });
            let values = nodes.into_iter().map(|node| {
                let made = new_object(owner, cell, node.index(), epoch);
                Bound::from_owned_ptr_or_err(py, made)
            });
            let values = values.collect::<PyResult<Vec<_>>>()?;
            Ok(PyTuple::new(py, values)?.into_any().unbind())
        })
    }
}

/// `v.backward(seed=1.0)`
unsafe extern "C" fn backward(
    value: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    n: ffi::Py_ssize_t,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter passes living objects under its lock: `n` positional ones, then one per keyword.
    unsafe {
        let mut seed = 1.0;
        if n != 0 || !keywords.is_null() {
            let py = Python::assume_attached();
            let by_keyword = !keywords.is_null()
                && ffi::PyTuple_GET_SIZE(keywords) == 1
                && Bound::from_borrowed_ptr(py, ffi::PyTuple_GET_ITEM(keywords, 0)).eq("seed").unwrap_or(false);
            if !(n == 1 && keywords.is_null() || n == 0 && by_keyword) {
                return raise_python(PyTypeError::new_err("backward() takes one argument: seed, a number"));
            }
            match number(*arguments) {
                Number::Is(x) => seed = x,
                Number::IsNot => {
                    return raise_python(PyTypeError::new_err("the seed of backward() must be a real number"));
                }
                Number::Failed => return ptr::null_mut(),
            }
        }
        let Some((cell, node)) = checked(value.cast()) else {
            return ptr::null_mut();
        };
        match graph::sweep(Python::assume_attached(), cell, Sweep { root: node, seed, skip_zero_adjoints: false }) {
            Ok(()) => {
                ffi::Py_INCREF(ffi::Py_None());
                ffi::Py_None()
            }
            Err(error) => raise_python(error),
        }
    }
}

/// `v.detach()`
unsafe extern "C" fn detach(value: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    struct Detach;
    impl super::object::Build<1> for Detach {
        fn build<S: Scalar>(
            self,
            graph: &mut burtorch_core::Graph<'static, S>,
            [x]: [NodeId; 1],
        ) -> burtorch_core::Result<NodeId> {
            graph.detach(x)
        }
    }
    // SAFETY: a living Value under the interpreter lock.
    unsafe { super::object::append((*value.cast::<ValueObject>()).owner, [value.cast()], Detach) }
}

/// `v.same_node(w)`
unsafe extern "C" fn same_node(value: *mut ffi::PyObject, other: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a living Value and a living object under the interpreter lock.
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
}

/// Lone values are not pickled: a graph is.
unsafe extern "C" fn reduce(_value: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let message = "a Value cannot be pickled or copied without its graph; use float(v), or save the graph";
    raise_python(PyTypeError::new_err(message))
}

unsafe extern "C" fn round(
    value: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    n: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: `n` living objects under the interpreter lock.
    unsafe {
        let py = Python::assume_attached();
        let arguments = (0..n.max(0) as usize).map(|k| Bound::from_borrowed_ptr(py, *arguments.add(k)));
        let x = Bound::from_owned_ptr_or_opt(py, get_data(value, ptr::null_mut()));
        let Some(x) = x else { return ptr::null_mut() };
        match PyTuple::new(py, arguments.collect::<Vec<_>>()).and_then(|a| x.call_method1("__round__", a)) {
            Ok(result) => result.into_ptr(),
            Err(error) => raise_python(error),
        }
    }
}

unsafe extern "C" fn format(value: *mut ffi::PyObject, spec: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a living Value and a living object under the interpreter lock.
    unsafe {
        if ffi::PyUnicode_Check(spec) == 0 {
            return raise_python(PyTypeError::new_err("__format__() expects a str"));
        }
        let length = ffi::PyObject_Length(spec);
        if length < 0 {
            return ptr::null_mut();
        }
        if length == 0 {
            return ffi::PyObject_Str(value);
        }
        let x = get_data(value, ptr::null_mut());
        if x.is_null() {
            return ptr::null_mut();
        }
        let text = ffi::PyObject_Format(x, spec);
        ffi::Py_DECREF(x);
        text
    }
}

/// `repr(v)`, as micrograd prints it.
pub unsafe extern "C" fn repr(value: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a living Value under the interpreter lock.
    unsafe {
        let py = Python::assume_attached();
        let data = Bound::from_owned_ptr_or_opt(py, get_data(value, ptr::null_mut()));
        let Some(data) = data else {
            // A stale value still has a text: repr must not fail while an error is being shown.
            ffi::PyErr_Clear();
            return "<stale Value>".into_pyobject(py).map_or(ptr::null_mut(), |text| text.into_ptr());
        };
        let grad = Bound::from_owned_ptr_or_opt(py, get_grad(value, ptr::null_mut()));
        let Some(grad) = grad else {
            return ptr::null_mut();
        };
        match std::format!("Value(data={data}, grad={grad})").into_pyobject(py) {
            Ok(text) => text.into_ptr(),
            Err(_) => ptr::null_mut(),
        }
    }
}

/// `hash(v)`: by node, the same for all its handles, also when reclaim renumbers it.
pub unsafe extern "C" fn hash(value: *mut ffi::PyObject) -> ffi::Py_hash_t {
    // SAFETY: a living Value under the interpreter lock.
    unsafe {
        let Some((cell, node)) = checked(value.cast()) else {
            return -1;
        };
        let graph = with_graph!(&cell.graph, g => g.id());
        let mixed = cell.serial(node.index()).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17) ^ graph;
        let hash = mixed as ffi::Py_hash_t;
        if hash == -1 { -2 } else { hash }
    }
}

/// Comparison by data, with values and numbers; not with anything else, not even if the value is stale.
pub unsafe extern "C" fn compare(a: *mut ffi::PyObject, b: *mut ffi::PyObject, how: c_int) -> *mut ffi::PyObject {
    // SAFETY: living objects under the interpreter lock, the first a Value.
    unsafe {
        let y = if is_value(b) {
            match data_of(b) {
                Some(y) => y,
                None => return ptr::null_mut(),
            }
        } else if ffi::PyLong_Check(b) != 0 {
            return compare_with_int(a, b, how);
        } else {
            match number(b) {
                Number::Is(y) => y,
                Number::Failed => return ptr::null_mut(),
                Number::IsNot => {
                    ffi::Py_INCREF(ffi::Py_NotImplemented());
                    return ffi::Py_NotImplemented();
                }
            }
        };
        let Some(x) = data_of(a) else {
            return ptr::null_mut();
        };
        let holds = match how {
            ffi::Py_LT => x < y,
            ffi::Py_LE => x <= y,
            ffi::Py_EQ => x == y,
            ffi::Py_NE => x != y,
            ffi::Py_GT => x > y,
            _ => x >= y,
        };
        ffi::PyBool_FromLong(holds.into())
    }
}

/// Integers are compared exactly, also those that no float holds, as Python compares a float with them.
unsafe fn compare_with_int(a: *mut ffi::PyObject, b: *mut ffi::PyObject, how: c_int) -> *mut ffi::PyObject {
    // SAFETY: a living Value and a living int under the interpreter lock.
    unsafe {
        let x = get_data(a, ptr::null_mut());
        if x.is_null() {
            return x;
        }
        let result = ffi::PyObject_RichCompare(x, b, how);
        ffi::Py_DECREF(x);
        result
    }
}

/// The number a Value holds, or `None` with an error set.
///
/// # Safety
/// `value` is a living Value; the interpreter lock is held.
#[inline(always)]
unsafe fn data_of(value: *mut ffi::PyObject) -> Option<f64> {
    // SAFETY: by the contract of this function.
    unsafe { read(value, |cell, node| with_graph!(&cell.graph, g => g.value(node).map(Float::to_f64))) }
}

/// `bool(v)`
pub unsafe extern "C" fn truth(value: *mut ffi::PyObject) -> c_int {
    // SAFETY: a living Value under the interpreter lock.
    match unsafe { read(value, |cell, node| with_graph!(&cell.graph, g => g.value(node).map(Float::to_f64))) } {
        Some(x) => (x != 0.0).into(),
        None => -1,
    }
}

/// `float(v)`: the data; the gradient is dropped.
pub unsafe extern "C" fn float(value: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a living Value under the interpreter lock.
    unsafe { get_data(value, ptr::null_mut()) }
}

/// `int(v)`: the data, towards zero.
pub unsafe extern "C" fn int(value: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a living Value under the interpreter lock.
    unsafe {
        match read(value, |cell, node| with_graph!(&cell.graph, g => g.value(node).map(Float::to_f64))) {
            Some(x) => ffi::PyLong_FromDouble(x),
            None => ptr::null_mut(),
        }
    }
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
            c"The number this node holds. Assigning changes this node only; graph.recompute(root) re-evaluates.",
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
        attribute(c"operands", c"The values this node was computed from, as a tuple.", get_operands, None),
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
            c"backward($self, seed=1.0)\n--\n\nAdd seed times the gradient of this node to its leaves and parameters. One pass in reverse building order; no recursion. Linear in the nodes between this one and the lowest it depends on.",
            ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
            ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: backward },
        ),
        method(c"detach", c"detach($self, /)\n--\n\nA copy of the data through which no gradient flows.", ffi::METH_NOARGS, ffi::PyMethodDefPointer { PyCFunction: detach }),
        method(c"same_node", c"same_node($self, other, /)\n--\n\nWhether both values stand for one node of one graph.", ffi::METH_O, ffi::PyMethodDefPointer { PyCFunction: same_node }),
        method(c"__round__", c"__round__($self, ndigits=None, /)\n--\n\nThe data, rounded as a float is.", ffi::METH_FASTCALL, ffi::PyMethodDefPointer { PyCFunctionFast: round }),
        method(c"__format__", c"__format__($self, spec, /)\n--\n\nThe data, formatted as a float is; repr(self) for an empty spec.", ffi::METH_O, ffi::PyMethodDefPointer { PyCFunction: format }),
        method(c"__reduce__", c"__reduce__($self, /)\n--\n\nRaises TypeError: a Value is not pickled without its graph.", ffi::METH_NOARGS, ffi::PyMethodDefPointer { PyCFunction: reduce }),
        method(c"__array_ufunc__", c"__array_ufunc__($self, ufunc, method, *inputs, **keywords)\n--\n\nLets NumPy operators defer to Value; other ufuncs raise TypeError that names the op to use.", ffi::METH_VARARGS | ffi::METH_KEYWORDS, ffi::PyMethodDefPointer { PyCFunctionWithKeywords: crate::vector::array_ufunc }),
    ]
}
