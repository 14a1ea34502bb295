//! `f.bind(x, grad)`: a call that reads and writes the caller's memory and converts nothing.
//!
//! Promises: a call with Values allocates only its returned float while the path stays the same. The buffers are held
//! as long as the object lives. Everything runs under the GIL.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::exceptions::{PyAttributeError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{IntoPyDict, PyFloat, PyTuple};

use super::arguments::Arguments;
use super::calls::with_path;
use super::object::{Call, FunctionObject, or_with_arrays};
use super::pytree::Tree;
use super::state::Scalars;
use super::states::{InUse, state_of};
use super::{array_calls, long_arrays};
use crate::convert::arrays::{Array, Kind};
use crate::convert::entry::{attached, caught, entered, raise_python, visited};
use crate::convert::errors::derived;
use crate::convert::gc::HoldsObjects;
use crate::params::PyTensor;

/// The fewest numbers for which a call with Arrays is faster than one with Values, which converts nothing.
const LONG: usize = 1024;

/// The state of a bound call.
struct Binding {
    function: Py<PyAny>,
    x: Array,
    gradient: Option<Array>,
    /// The same as Python objects.
    given: [Option<Py<PyAny>>; 2],
    /// The first numbers of both, and how many there are.
    from: *const f64,
    to: *mut f64,
    n: usize,
    /// The arguments made of the numbers.
    tree: Tree,
    /// The variant of the last call.
    variant: AtomicU64,
}

/// The memory layout of a `BoundFunction`.
#[repr(C)]
struct BoundObject {
    head: ffi::PyObject,
    vectorcall: Option<ffi::vectorcallfunc>,
    binding: *mut Binding,
}

/// The type, once it is needed.
static TYPE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Makes bound calls.
pub struct PyBound;

impl PyBound {
    /// `f.bind(x, grad=None)`
    #[allow(clippy::new_ret_no_self)]
    pub fn new<'py>(mut call: Call<'py>) -> PyResult<Bound<'py, PyAny>> {
        let py = call.py();
        let named = call.take("grad");
        let gradient = call.positional.get(1).cloned().filter(|g| !g.is_none()).or(named);
        let (1 | 2, true) = (call.positional.len(), call.named.is_empty()) else {
            return Err(PyTypeError::new_err("bind() takes an array of arguments and an array for the gradient"));
        };
        let gradient = gradient.map(|g| memory_of(&g, "grads")).transpose()?;
        call.positional[0] = memory_of(&call.positional[0], "values")?;
        let given = [call.positional.first(), gradient.as_ref()].map(|object| object.cloned().map(Bound::unbind));
        let x = flat(&call.positional[0], "the arguments of bind()")?;
        let gradient = gradient.map(|g| {
            Array::writable(&g, "the gradient of bind()")?;
            flat(&g, "the gradient of bind()")
        });
        let gradient = gradient.transpose()?;
        let n = x.len();
        if let Some(g) = &gradient
            && g.len() != n
        {
            let message = format!("the gradient of bind() has {} numbers for {n} arguments", g.len());
            return Err(PyValueError::new_err(message));
        }
        let tree = tree_for(&call, &x)?;
        let binding = Binding {
            function: call.function.clone().unbind(),
            from: x.start().cast(),
            to: gradient.as_ref().map_or(ptr::null_mut(), |g| g.start().cast()),
            x,
            gradient,
            given,
            n,
            tree,
            variant: AtomicU64::new(u64::MAX),
        };
        let type_ = TYPE.get_or_try_init(py, || make_type(py))?;
        // SAFETY: the type is never freed; a new object is ours.
        unsafe {
            let object = ffi::PyType_GenericAlloc(type_.as_ptr().cast(), 0).cast::<BoundObject>();
            if !object.is_null() {
                (*object).vectorcall = Some(vectorcall);
                (*object).binding = Box::into_raw(Box::new(binding));
            }
            Bound::from_owned_ptr_or_err(py, object.cast())
        }
    }
}

/// The array of the numbers of a Tensor of one axis; other objects unchanged.
fn memory_of<'py>(object: &Bound<'py, PyAny>, which: &str) -> PyResult<Bound<'py, PyAny>> {
    match object.cast::<PyTensor>() {
        Ok(tensor) if tensor.get().n_dims() == 1 => object.getattr(which),
        _ => Ok(object.clone()),
    }
}

/// A contiguous array of float64.
fn flat(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Array> {
    let array = Array::of(object).filter(|a| a.kind == Kind::F64 && a.shape().len() <= 1);
    let array = array.ok_or_else(|| PyTypeError::new_err(format!("{what} must be a one-dimensional float64 array")))?;
    let is_contiguous = array.strides().first().is_none_or(|&s| s == 8) || array.len() < 2;
    if !is_contiguous || !(array.start() as usize).is_multiple_of(8) || array.len() == 0 {
        return Err(PyValueError::new_err(format!("{what} must be contiguous, aligned and not empty")));
    }
    Ok(array)
}

/// One array, or one number per parameter of the body. One number may be either: a function of one number is tried first.
fn tree_for(call: &Call<'_>, x: &Array) -> PyResult<Tree> {
    let n = x.len();
    let py = call.py();
    let body = call.with(|state| state.body.clone_ref(py))?;
    let n_parameters = || body.bind(py).getattr("__code__")?.getattr("co_argcount")?.extract::<usize>();
    let n_parameters = n_parameters().unwrap_or(1);
    let array = || vec![Tree::Array { shape: vec![n], kind: Kind::F64, is_numpy: true }];
    let items = match n_parameters {
        1 if n == 1 && takes_a_number(call, x)? => vec![Tree::Number],
        1 => array(),
        _ if n_parameters == n => (0..n).map(|_| Tree::Number).collect(),
        _ => {
            let message = format!("bind() was given {n} numbers for a function of {n_parameters} arguments");
            return Err(PyValueError::new_err(message));
        }
    };
    Ok(Tree::Sequence { is_tuple: true, items })
}

/// Whether the function takes one number, by its trace or by tracing it: a body that uses its argument as an
/// array reads an entry, the length or a method of a Value, which is a TypeError or an AttributeError.
fn takes_a_number(call: &Call<'_>, x: &Array) -> PyResult<bool> {
    let py = call.py();
    if x.shape().is_empty() {
        return Ok(true);
    }
    let recorded = call.with(|state| {
        state.variants.iter().find_map(|variant| match &variant.arguments {
            Tree::Sequence { items, .. } if variant.statics.is_none() => match &items[..] {
                [Tree::Number] => Some(true),
                [Tree::Array { shape, .. }] if shape[..] == [1] => Some(false),
                _ => None,
            },
            _ => None,
        })
    })?;
    if let Some(is_number) = recorded {
        return Ok(is_number);
    }
    let mut numbers = Vec::new();
    x.read_into(&mut numbers);
    let arguments =
        Arguments { tree: Tree::Sequence { is_tuple: true, items: vec![Tree::Number] }, numbers, statics: None };
    match with_path(call, &arguments, |_| ()) {
        Ok(()) => Ok(true),
        Err(error) if error.is_instance_of::<PyTypeError>(py) || error.is_instance_of::<PyAttributeError>(py) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// The fast path: the last used path.
///
/// # Safety
/// The binding's function is living; the GIL is held.
#[inline(always)]
unsafe fn quick(binding: &Binding) -> Option<f64> {
    // SAFETY: by the contract of this function; `from` and `to` point to `n` numbers of buffers that are held.
    unsafe {
        let py = Python::assume_attached();
        let _in_use = InUse::of(binding.function.bind(py));
        let state = state_of(binding.function.as_ptr().cast::<FunctionObject>())?;
        if !state.watch.is_as_it_was(py) {
            return None;
        }
        let variant =
            state.variants.first_mut().filter(|variant| variant.id == binding.variant.load(Ordering::Relaxed))?;
        let path = variant.paths.first_mut().filter(|path| !path.takes_long())?;
        let Scalars::F64(replay) = &mut path.replay else { return None };
        let inputs = replay.inputs_mut();
        for (k, slot) in inputs.iter_mut().take(binding.n).enumerate() {
            *slot = *binding.from.add(k);
        }
        for (slot, parameter) in inputs.iter_mut().skip(binding.n).zip(&path.parameters) {
            *slot = parameter.get().number();
        }
        replay.checked_values().ok()?;
        if !binding.to.is_null() {
            replay.reverse_one();
            for (k, &g) in replay.raw_gradients().iter().enumerate() {
                *binding.to.add(k) = g + 0.0;
            }
        }
        Some(replay.output(0, 0))
    }
}

/// The value of a function that is called with Arrays, because its argument is long or its body needs them; `None` for other
/// functions.
fn of_arrays(py: Python<'_>, object: *mut BoundObject) -> PyResult<Option<f64>> {
    let mut numbers = Vec::new();
    // SAFETY: a living bound function under the GIL; the reference ends before Python code runs.
    let (function, [x, gradient], takes_an_array) = unsafe {
        let binding = &*(*object).binding;
        let given = binding.given.each_ref().map(|given| given.as_ref().map(|object| object.bind(py).clone()));
        let takes_an_array = match &binding.tree {
            Tree::Sequence { items, .. } => matches!(&items[..], [Tree::Array { .. }]),
            _ => false,
        };
        if !takes_an_array {
            binding.x.read_into(&mut numbers);
        }
        (binding.function.bind(py).clone(), given, takes_an_array)
    };
    let positional = match takes_an_array {
        true => x.into_iter().collect(),
        false => numbers.into_iter().map(|x| PyFloat::new(py, x).into_any()).collect(),
    };
    let call = Call { positional, ..Call::of(function.clone()) };
    let is_long = || takes_an_array && call.positional[0].len().is_ok_and(|n| n >= LONG);
    if !(array_calls::is_meant(&call)? || is_long() && long_arrays::are_meant(&call, long_arrays::LONG)) {
        return Ok(None);
    }
    let arguments = PyTuple::new(py, &call.positional)?;
    let value = match gradient {
        Some(gradient) if takes_an_array => {
            let out = [("out", gradient)].into_py_dict(py)?;
            function.call_method("value_and_grad", arguments, Some(&out))?.get_item(0)?
        }
        Some(gradient) => {
            let (value, found): (Bound<'_, PyAny>, Bound<'_, PyAny>) =
                function.call_method1("value_and_grad", arguments)?.extract()?;
            let found = found.extract::<f64>().map_or_else(|_| found.extract::<Vec<f64>>(), |one| Ok(vec![one]))?;
            Array::writable(&gradient, "the gradient of bind()")?.write(&found);
            value
        }
        None => function.call1(arguments)?,
    };
    match value.cast::<PyFloat>() {
        Ok(value) => Ok(Some(value.value())),
        Err(_) => Err(returns_several(&call)),
    }
}

/// The general path: finds or records the path.
fn slow(py: Python<'_>, object: *mut BoundObject) -> PyResult<f64> {
    if let Some(value) = of_arrays(py, object)? {
        return Ok(value);
    }
    // SAFETY: a living bound function under the GIL; the reference ends before Python code runs.
    let (function, tree, numbers, with_gradient) = unsafe {
        let binding = &*(*object).binding;
        let mut numbers = Vec::new();
        binding.x.read_into(&mut numbers);
        (binding.function.bind(py).clone(), binding.tree.copy(py), numbers, binding.gradient.is_some())
    };
    let call = Call::of(function);
    let arguments = Arguments { tree, numbers, statics: None };
    let results = with_path(&call, &arguments, |path| {
        let is_scalar = matches!(path.results, Tree::Number);
        is_scalar.then(|| (path.values()[0], if with_gradient { path.gradient() } else { Vec::new() }))
    });
    if results.is_err() {
        let make = || Call::of(call.function.clone());
        let with_arrays = || of_arrays(py, object)?.ok_or_else(|| returns_several(&call));
        return or_with_arrays(results.map(|_| 0.0), make, with_arrays);
    }
    let Some((value, gradient)) = results? else { return Err(returns_several(&call)) };
    let id = call.with(|state| state.variants.first().map_or(u64::MAX, |variant| variant.id))?;
    // SAFETY: as above; `to` points to as many numbers as there are arguments.
    unsafe {
        let binding = &*(*object).binding;
        binding.variant.store(id, Ordering::Relaxed);
        for (k, g) in gradient.into_iter().enumerate() {
            *binding.to.add(k) = g;
        }
    }
    Ok(value)
}

fn returns_several(call: &Call<'_>) -> PyErr {
    let name = call.with(|state| state.name.clone()).unwrap_or_default();
    let message = format!("bind() needs a function that returns one Value; {name} returned several");
    derived(call.py(), "TraceError", message)
}

unsafe extern "C" fn vectorcall(
    object: *mut ffi::PyObject,
    _arguments: *const *mut ffi::PyObject,
    n: usize,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter passes a living object under its lock.
    caught(|| unsafe {
        if ffi::PyVectorcall_NARGS(n) != 0 || !names.is_null() {
            return takes_none();
        }
        let object = object.cast::<BoundObject>();
        if let Some(value) = quick(&*(*object).binding) {
            return ffi::PyFloat_FromDouble(value);
        }
        slowly(object)
    })
}

/// The general path, separate from the fast one, which then saves few registers.
#[cold]
#[inline(never)]
fn slowly(object: *mut BoundObject) -> *mut ffi::PyObject {
    attached(|py| match slow(py, object) {
        // SAFETY: as in `vectorcall`, which calls this.
        Ok(value) => unsafe { ffi::PyFloat_FromDouble(value) },
        Err(error) => raise_python(error),
    })
}

#[cold]
#[inline(never)]
fn takes_none() -> *mut ffi::PyObject {
    raise_python(PyTypeError::new_err("a bound function takes no arguments; write to its array"))
}

/// `repr(bound)`
unsafe extern "C" fn repr(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a living bound function under the GIL; the reference ends before Python code runs.
    entered(|py| unsafe {
        let binding = &*(*object.cast::<BoundObject>()).binding;
        let (function, n, has_gradient) = (binding.function.bind(py).clone(), binding.n, binding.gradient.is_some());
        let name = Call::of(function).with(|state| state.name.clone()).unwrap_or_default();
        let and = if has_gradient { " and a gradient" } else { "" };
        let text = format!("<BoundFunction {name}, {n} numbers{and}>");
        text.into_pyobject(py).map_or(ptr::null_mut(), |text| text.into_ptr())
    })
}

/// A bound function is immutable, so there is nothing to clear: as with a tuple, a cycle through it
/// contains another object that is cleared.
unsafe extern "C" fn traverse(object: *mut ffi::PyObject, visit: ffi::visitproc, argument: *mut c_void) -> c_int {
    // SAFETY: the collector passes a living object and its own visitor; a new object has no binding yet.
    visited(|| unsafe {
        let mut result = visit(ffi::Py_TYPE(object).cast(), argument);
        let Some(binding) = (*object.cast::<BoundObject>()).binding.as_ref() else { return result };
        let mut each = |held: &Py<PyAny>| {
            if result == 0 {
                result = visit(held.as_ptr(), argument);
            }
        };
        binding.function.visit(&mut each);
        binding.x.visit(&mut each);
        binding.gradient.visit(&mut each);
        binding.given.iter().flatten().for_each(&mut each);
        result
    })
}

unsafe extern "C" fn dealloc(object: *mut ffi::PyObject) {
    // SAFETY: the interpreter calls this once, with a dead object of our type, under its lock.
    caught(|| unsafe {
        ffi::PyObject_GC_UnTrack(object.cast());
        let binding = (*object.cast::<BoundObject>()).binding;
        if !binding.is_null() {
            // During interpreter shutdown nothing can be freed: the process ends anyway.
            let _ = Python::try_attach(|_| drop(Box::from_raw(binding)));
        }
        let type_ = ffi::Py_TYPE(object);
        match (*type_).tp_free {
            Some(free) => free(object.cast()),
            None => ffi::PyObject_GC_Del(object.cast()),
        }
        ffi::Py_DECREF(type_.cast());
    })
}

fn make_type(py: Python<'_>) -> PyResult<Py<PyAny>> {
    let members = vec![
        ffi::PyMemberDef {
            name: c"__vectorcalloffset__".as_ptr(),
            type_code: ffi::Py_T_PYSSIZET,
            offset: offset_of!(BoundObject, vectorcall) as ffi::Py_ssize_t,
            flags: ffi::Py_READONLY,
            doc: ptr::null(),
        },
        ffi::PyMemberDef { name: ptr::null(), type_code: 0, offset: 0, flags: 0, doc: ptr::null() },
    ];
    let slot = |slot: i32, function: *mut c_void| ffi::PyType_Slot { slot, pfunc: function };
    let mut slots = [
        slot(ffi::Py_tp_doc, super::docs::BOUND.as_ptr() as *mut c_void),
        slot(ffi::Py_tp_call, ffi::PyVectorcall_Call as *mut c_void),
        slot(ffi::Py_tp_dealloc, dealloc as *mut c_void),
        slot(ffi::Py_tp_repr, repr as *mut c_void),
        slot(ffi::Py_tp_traverse, traverse as *mut c_void),
        slot(ffi::Py_tp_members, Vec::leak(members).as_mut_ptr().cast()),
        slot(0, ptr::null_mut()),
    ];
    let flags = ffi::Py_TPFLAGS_DEFAULT
        | ffi::Py_TPFLAGS_HAVE_GC
        | ffi::Py_TPFLAGS_HAVE_VECTORCALL
        | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION;
    let mut spec = ffi::PyType_Spec {
        name: c"burtorch.BoundFunction".as_ptr(),
        basicsize: size_of::<BoundObject>() as i32,
        itemsize: 0,
        flags: flags as u32,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: every slot has the signature its name asks for, and what the slots point to is never freed.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&raw mut spec)).map(Bound::unbind) }
}
