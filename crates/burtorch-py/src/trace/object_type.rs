//! The type of Functions: creation, garbage collection, repr, and the names of methods.
//!
//! Promises: a Function that the garbage collector has cleared refuses calls. Does not know what its methods do.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;
use std::ptr;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::keywords::unexpected;
use super::object::{Call, FunctionObject, grad, method, value_and_grad, vectorcall};
use super::python_function::{Docstring, of_instance};
use super::state::{FunctionState, Options};
use super::states;
use crate::convert::arguments::DtypeName;
use crate::convert::buffer::type_name;
use crate::convert::entry::{caught, entered, raise_python, visited};
use crate::convert::errors::if_any;
use crate::convert::gc::HoldsObjects;

static mut TYPE: *mut ffi::PyTypeObject = ptr::null_mut();

/// The options of recording.
const OPTIONS: &[&str] = &["dtype", "optimize", "max_paths", "max_variants", "max_nodes", "audit"];

impl Default for Options {
    fn default() -> Self {
        let dtype = burtorch_core::DType::Float64;
        let (max_paths, max_variants, max_nodes) = (64, 16, 10_000_000);
        Options {
            dtype,
            has_dtype: false,
            fast: false,
            max_paths,
            max_variants,
            max_nodes,
            audit: true,
            is_quiet: false,
        }
    }
}

fn options(named: &mut Call<'_>) -> PyResult<Options> {
    let text = |x: Option<Bound<'_, PyAny>>| x.map(|x| x.extract::<String>()).transpose();
    let dtype = named.take("dtype").map(|dtype| dtype.extract::<DtypeName>()).transpose()?;
    let has_dtype = dtype.is_some();
    let dtype = match dtype.as_ref().map(DtypeName::name) {
        None | Some("float64") => burtorch_core::DType::Float64,
        Some("float32") => burtorch_core::DType::Float32,
        Some(other) => {
            let message = format!("dtype of a function must be \"float64\" or \"float32\", found {other:?}");
            return Err(PyValueError::new_err(message));
        }
    };
    let fast = match text(named.take("optimize"))?.as_deref() {
        None | Some("exact") => false,
        Some("fast") => true,
        Some(other) => {
            return Err(PyValueError::new_err(format!("optimize must be \"exact\" or \"fast\", found {other:?}")));
        }
    };
    let mut at_least_one = |name: &str, default: usize| -> PyResult<usize> {
        let Some(x) = named.take(name) else { return Ok(default) };
        match if_any(x.py(), x.extract::<usize>())? {
            Some(n) if n > 0 => Ok(n),
            _ => Err(PyValueError::new_err(format!("{name} must be an integer of at least 1"))),
        }
    };
    let max_paths = at_least_one("max_paths", Options::default().max_paths)?;
    let max_variants = at_least_one("max_variants", Options::default().max_variants)?;
    let max_nodes = at_least_one("max_nodes", Options::default().max_nodes as usize)?.min(1 << 29) as u32;
    let audit = match named.named.iter().position(|(name, _)| name == "audit") {
        None => true,
        Some(at) => named.named.remove(at).1.extract::<bool>()?,
    };
    Ok(Options { dtype, has_dtype, fast, max_paths, max_variants, max_nodes, audit, is_quiet: false })
}

/// A Function with this state, or null.
///
/// # Safety
/// The type of Functions, or one that derives from it, under the GIL.
unsafe fn allocated(type_: *mut ffi::PyTypeObject, state: FunctionState) -> *mut FunctionObject {
    // SAFETY: by the contract of this function; the object is filled before it is seen.
    unsafe {
        let object = (*type_).tp_alloc.unwrap_or(ffi::PyType_GenericAlloc)(type_, 0).cast::<FunctionObject>();
        if !object.is_null() {
            (*object).vectorcall = Some(vectorcall);
            (*object).state = Box::into_raw(Box::new(states::of(state)));
        }
        object
    }
}

/// A Function with this state.
pub fn made(py: Python<'_>, state: FunctionState) -> PyResult<Bound<'_, PyAny>> {
    // SAFETY: the type is made when the module is loaded; a new reference of ours, or null with an error set.
    unsafe { Bound::from_owned_ptr_or_err(py, allocated(TYPE, state).cast()) }
}

/// How a Function is traced.
pub fn options_of(function: &Bound<'_, PyAny>) -> Option<Options> {
    if !is_function(function) {
        return None;
    }
    Call::of(function.clone()).with(|state| state.options).ok()
}

/// The error of a body that is not callable, such as a method that `@classmethod` has wrapped.
fn no_function(body: Option<&Bound<'_, PyAny>>) -> PyResult<PyErr> {
    let message = "Function() takes one Python function";
    let wrapped = match body {
        Some(body) if if_any(body.py(), body.getattr("__get__"))?.is_some() => type_name(body),
        _ => return Ok(PyTypeError::new_err(message)),
    };
    Ok(PyTypeError::new_err(format!("{message}, found a {wrapped}: write @{wrapped} above @bt.function")))
}

/// `Function(body, *, dtype, optimize, max_paths, max_variants, max_nodes, audit)`
unsafe extern "C" fn new(
    type_: *mut ffi::PyTypeObject,
    positional: *mut ffi::PyObject,
    named: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter passes a type of ours, a tuple, and a dict or null, under its lock.
    entered(|py| unsafe {
        let make = || -> PyResult<*mut ffi::PyObject> {
            let positional = Bound::from_borrowed_ptr(py, positional).cast_into::<PyTuple>()?;
            let only = positional.get_item(0).ok().filter(|_| positional.len() == 1);
            let body = match only {
                Some(body) if body.is_callable() => body,
                only => return Err(no_function(only.as_ref())?),
            };
            let mut call = Call::of(body.clone());
            if let Some(named) = Bound::from_borrowed_ptr_or_opt(py, named) {
                for (name, value) in named.cast_into::<pyo3::types::PyDict>()?.iter() {
                    call.named.push((name.extract()?, value));
                }
            }
            let options = options(&mut call)?;
            if let Some((name, _)) = call.named.first() {
                return Err(unexpected("Function()", name, OPTIONS.iter().copied()));
            }
            let state = FunctionState::new(&body, options);
            Ok(allocated(type_, state).cast())
        };
        make().unwrap_or_else(raise_python)
    })
}

unsafe extern "C" fn traverse(object: *mut ffi::PyObject, visit: ffi::visitproc, argument: *mut c_void) -> c_int {
    // SAFETY: the collector passes a living object and its own visitor.
    visited(|| unsafe {
        let type_ = ffi::Py_TYPE(object).cast::<ffi::PyObject>();
        let mut result = visit(type_, argument);
        let mut each = |held: *mut ffi::PyObject| {
            if result == 0 && !held.is_null() {
                result = visit(held, argument);
            }
        };
        if let Some(all) = (*object.cast::<FunctionObject>()).state.as_ref() {
            states::each(all, |state| {
                each(state.body.as_ptr());
                state.watch.for_each(&mut each);
                state.variants.visit(&mut |held| each(held.as_ptr()));
                state.arrays.visit(&mut |held| each(held.as_ptr()));
                state.derived.iter().for_each(|(_, held)| each(held.as_ptr()));
                state.executed.iter().for_each(|held| each(held.as_ptr()));
            });
        }
        result
    })
}

unsafe extern "C" fn clear(object: *mut ffi::PyObject) -> c_int {
    // SAFETY: the collector passes a living object; the state is taken out before it is dropped, as that may run code.
    caught(|| unsafe {
        let function = object.cast::<FunctionObject>();
        let state = std::mem::replace(&mut (*function).state, ptr::null_mut());
        if !state.is_null() {
            // During shutdown of the interpreter nothing can be released: the process ends anyway.
            let _ = Python::try_attach(|_| drop(Box::from_raw(state)));
        }
        0
    })
}

unsafe extern "C" fn dealloc(object: *mut ffi::PyObject) {
    // SAFETY: the interpreter calls this once, with a dead object of our type, under its lock.
    caught(|| unsafe {
        ffi::PyObject_GC_UnTrack(object.cast());
        if !(*object.cast::<FunctionObject>()).weak_references.is_null() {
            ffi::PyObject_ClearWeakRefs(object);
        }
        clear(object);
        let type_ = ffi::Py_TYPE(object);
        match (*type_).tp_free {
            Some(free) => free(object.cast()),
            None => ffi::PyObject_GC_Del(object.cast()),
        }
        ffi::Py_DECREF(type_.cast());
    })
}

/// `repr(f)`
unsafe extern "C" fn repr(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a living Function under the GIL.
    entered(|py| unsafe {
        let call = Call::of(Bound::from_borrowed_ptr(py, object));
        let text = call.with(|s| format!("<Function {}>", s.name)).unwrap_or_else(|_| "<Function>".into());
        text.into_pyobject(py).map_or(ptr::null_mut(), |text| text.into_ptr())
    })
}

/// `f.__get__(instance, class)`
unsafe extern "C" fn descriptor_get(
    function: *mut ffi::PyObject,
    instance: *mut ffi::PyObject,
    _class: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: living objects, or null for no instance, under the GIL.
    entered(|py| unsafe {
        let function = Bound::from_borrowed_ptr(py, function);
        let bound = match Bound::from_borrowed_ptr_or_opt(py, instance) {
            Some(instance) => of_instance(&function, &instance),
            None => Ok(function),
        };
        bound.map_or_else(raise_python, Bound::into_ptr)
    })
}

/// `f.__wrapped__`
unsafe extern "C" fn wrapped(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: a living Function under the GIL.
    entered(|py| unsafe {
        let call = Call::of(Bound::from_borrowed_ptr(py, object));
        call.with(|state| state.body.clone_ref(py)).unwrap_or_else(|_| py.None()).into_ptr()
    })
}

/// An attribute of the body.
unsafe extern "C" fn of_body(object: *mut ffi::PyObject, name: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: as in `wrapped`; the name is a static string.
    caught(|| unsafe {
        let body = wrapped(object, ptr::null_mut());
        let found = ffi::PyObject_GetAttrString(body, name.cast::<c_char>());
        ffi::Py_DECREF(body);
        found
    })
}

/// `f.program`
unsafe extern "C" fn program(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: a living Function under the GIL.
    caught(|| unsafe { method::<6>(object, ptr::null(), 0, ptr::null_mut()) })
}

macro_rules! methods {
    ($($name:literal $function:expr, $doc:expr;)*) => {
        vec![ $( ffi::PyMethodDef {
            ml_name: $name.as_ptr(),
            ml_meth: ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: $function },
            ml_flags: ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
            ml_doc: $doc.as_ptr(),
        }, )* ffi::PyMethodDef::zeroed() ]
    };
}

/// Whether an object is a Function.
pub fn is_function(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: the type is made when the module is loaded; under the GIL.
    unsafe { !TYPE.is_null() && ffi::PyObject_TypeCheck(object.as_ptr(), TYPE) != 0 }
}

/// The functions that ran while a Function was traced.
pub fn executed(function: &Bound<'_, PyAny>) -> Vec<Py<PyAny>> {
    let held = |state: &mut FunctionState| state.executed.iter().map(|held| held.clone_ref(function.py())).collect();
    Call::of(function.clone()).with(held).unwrap_or_default()
}

/// Makes the type and adds it to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    // SAFETY: while the module is loaded, under the GIL; what the slots point to is leaked.
    unsafe {
        if TYPE.is_null() {
            TYPE = make_type(m.py())?;
            let class = Bound::from_borrowed_ptr(m.py(), TYPE.cast());
            class.setattr("__doc__", Docstring(class.getattr("__doc__")?.unbind()))?;
        }
        m.add("Function", Bound::from_borrowed_ptr(m.py(), TYPE.cast()))
    }
}

/// # Safety
/// The GIL is held.
unsafe fn make_type(py: Python<'_>) -> PyResult<*mut ffi::PyTypeObject> {
    use super::docs;
    let all = methods! {
        c"value_and_grad" value_and_grad, docs::VALUE_AND_GRAD;
        c"grad" grad, docs::GRAD;
        c"bind" method::<3>, docs::BIND;
        c"trace" method::<4>, docs::TRACE;
        c"stats" method::<5>, docs::STATS;
        c"forget" method::<7>, docs::FORGET;
        c"vjp" method::<8>, docs::VJP;
        c"jvp" method::<9>, docs::JVP;
        c"hvp" method::<10>, docs::HVP;
        c"hessian" method::<11>, docs::HESSIAN;
        c"jacobian" method::<12>, docs::JACOBIAN;
        c"hessian_sparsity" method::<13>, docs::HESSIAN_SPARSITY;
        c"jacobian_sparsity" method::<14>, docs::JACOBIAN_SPARSITY;
        c"sparse_hessian" method::<15>, docs::SPARSE_HESSIAN;
        c"sparse_jacobian" method::<16>, docs::SPARSE_JACOBIAN;
        c"map" method::<17>, docs::MAP;
        c"map_value_and_grad" method::<18>, docs::MAP_VALUE_AND_GRAD;
        c"__reduce__" method::<19>, docs::REDUCE;
        c"save" method::<20>, docs::SAVE;
        c"audit" method::<21>, docs::AUDIT;
        c"value_and_param_grad" method::<22>, docs::VALUE_AND_PARAM_GRAD;
        c"compile" method::<23>, docs::COMPILE;
        c"__copy__" method::<24>, docs::COPY;
        c"__deepcopy__" method::<25>, docs::DEEPCOPY;
    };
    let attribute = |name: &'static std::ffi::CStr, get: ffi::getter, doc: &'static std::ffi::CStr| ffi::PyGetSetDef {
        name: name.as_ptr(),
        get: Some(get),
        set: None,
        doc: doc.as_ptr(),
        closure: name.as_ptr() as *mut c_void,
    };
    let attributes = vec![
        attribute(c"__wrapped__", wrapped, c"The Python function."),
        attribute(c"__name__", of_body, c"The name of the Python function."),
        attribute(c"__qualname__", of_body, c"The qualified name of the Python function."),
        attribute(c"program", program, docs::PROGRAM),
        ffi::PyGetSetDef::default(),
    ];
    let member = |name: &'static std::ffi::CStr, offset: usize| ffi::PyMemberDef {
        name: name.as_ptr(),
        type_code: ffi::Py_T_PYSSIZET,
        offset: offset as ffi::Py_ssize_t,
        flags: ffi::Py_READONLY,
        doc: ptr::null(),
    };
    let members = vec![
        member(c"__weaklistoffset__", offset_of!(FunctionObject, weak_references)),
        member(c"__vectorcalloffset__", offset_of!(FunctionObject, vectorcall)),
        ffi::PyMemberDef { name: ptr::null(), type_code: 0, offset: 0, flags: 0, doc: ptr::null() },
    ];
    let slot = |slot: i32, function: *mut c_void| ffi::PyType_Slot { slot, pfunc: function };
    let mut slots = [
        slot(ffi::Py_tp_doc, docs::FUNCTION.as_ptr() as *mut c_void),
        slot(ffi::Py_tp_new, new as *mut c_void),
        slot(ffi::Py_tp_call, ffi::PyVectorcall_Call as *mut c_void),
        slot(ffi::Py_tp_dealloc, dealloc as *mut c_void),
        slot(ffi::Py_tp_traverse, traverse as *mut c_void),
        slot(ffi::Py_tp_clear, clear as *mut c_void),
        slot(ffi::Py_tp_repr, repr as *mut c_void),
        slot(ffi::Py_tp_descr_get, descriptor_get as *mut c_void),
        slot(ffi::Py_tp_methods, Vec::leak(all).as_mut_ptr().cast()),
        slot(ffi::Py_tp_getset, Vec::leak(attributes).as_mut_ptr().cast()),
        slot(ffi::Py_tp_members, Vec::leak(members).as_mut_ptr().cast()),
        slot(0, ptr::null_mut()),
    ];
    let flags = ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_HAVE_GC | ffi::Py_TPFLAGS_HAVE_VECTORCALL;
    let mut spec = ffi::PyType_Spec {
        name: c"burtorch.Function".as_ptr(),
        basicsize: size_of::<FunctionObject>() as i32,
        itemsize: 0,
        flags: flags as u32,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: every slot has the signature that its name requires, and the data of slots is never freed.
    unsafe {
        let type_ = ffi::PyType_FromSpec(&raw mut spec).cast::<ffi::PyTypeObject>();
        if type_.is_null() { Err(PyErr::fetch(py)) } else { Ok(type_) }
    }
}
