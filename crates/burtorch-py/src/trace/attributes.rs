//! The content of objects, read without running Python code: items, attributes in dictionaries and slots, referents.
//!
//! Promises: runs no Python code. Does not know how the found objects are watched.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use super::probes::every;
use crate::convert::critical_section::locked;
use crate::convert::entry::visited;
use crate::convert::signals::quietly;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    PyBool, PyBytes, PyComplex, PyDict, PyFloat, PyFrozenSet, PyInt, PyList, PyModule, PySet, PyString, PyTuple, PyType,
};

/// Whether a module belongs to a library whose functions and classes are not followed. Options of pandas are followed: there
/// functions keep numbers that are not arguments.
pub fn is_of_a_library(module: &str) -> bool {
    matches!(top(module), "burtorch" | "numpy" | "scipy" | "pandas" | "builtins")
        && !module.starts_with("pandas._config")
}

/// The package of a module.
pub fn top(module: &str) -> &str {
    module.split('.').next().unwrap_or(module)
}

/// Whether a module is of Python's standard library: its functions are followed only when they run. A user's own `profile.py`
/// is not, because it does not lie where the library does.
pub fn is_standard(py: Python<'_>, module: &str) -> bool {
    static KNOWN: PyOnceLock<(Py<PyAny>, Option<String>)> = PyOnceLock::new();
    let known = KNOWN.get_or_try_init(py, || -> PyResult<_> {
        let names = py.import("sys")?.getattr("stdlib_module_names")?.unbind();
        let folder = file_of(py, "os").and_then(|file| Some(file.rsplit_once(['/', '\\'])?.0.to_owned()));
        Ok((names, folder))
    });
    let Ok((names, folder)) = known else { return false };
    let is_inside = |file: &str| {
        let is_source = file.ends_with(".py") || file.ends_with(".pyc");
        !is_source || !is_of_packages(file) && folder.as_ref().is_none_or(|folder| file.starts_with(folder))
    };
    let top = top(module);
    names.bind(py).contains(top).unwrap_or(false) && file_of(py, top).is_none_or(|file| is_inside(&file))
}

/// Whether a module lies where packages are installed.
pub fn is_installed(py: Python<'_>, module: &str) -> bool {
    file_of(py, top(module)).is_some_and(|file| is_of_packages(&file))
}

fn is_of_packages(file: &str) -> bool {
    file.contains("site-packages") || file.contains("dist-packages")
}

/// The file of an imported module, if it has one.
fn file_of(py: Python<'_>, module: &str) -> Option<String> {
    let of = || -> PyResult<Option<String>> {
        let modules = py.import("sys")?.getattr("modules")?.cast_into::<PyDict>()?;
        let Some(module) = modules.get_item(module)? else { return Ok(None) };
        let Ok(module) = module.cast_into::<PyModule>() else { return Ok(None) };
        module.dict().get_item("__file__")?.map(|file| file.extract()).transpose()
    };
    quietly(py, of).flatten()
}

/// Whether an object is a number, text or the like, without mutable content.
#[inline]
pub fn is_plain(object: &Bound<'_, PyAny>) -> bool {
    object.is_none()
        || object.cast_exact::<PyFloat>().is_ok()
        || object.cast_exact::<PyInt>().is_ok()
        || object.cast_exact::<PyString>().is_ok()
        || object.cast_exact::<PyBytes>().is_ok()
        || object.is_instance_of::<PyBool>()
        || object.cast_exact::<PyComplex>().is_ok()
}

/// The objects in a list, tuple, dict (keys, then values) or set, also of a subclass; `None` for other objects.
pub fn all_items<'py>(object: &Bound<'py, PyAny>) -> Option<Vec<Bound<'py, PyAny>>> {
    if let Ok(list) = object.cast::<PyList>() {
        return Some(list.iter().collect());
    }
    if let Ok(tuple) = object.cast::<PyTuple>() {
        return Some(tuple.iter().collect());
    }
    if let Ok(set) = object.cast_exact::<PySet>() {
        // An iterator would fail if another thread changed the set.
        #[cfg(Py_GIL_DISABLED)]
        return quietly(set.py(), || set.call_method0("copy"))?.cast::<PySet>().ok().map(|copy| copy.iter().collect());
        #[cfg(not(Py_GIL_DISABLED))]
        return Some(set.iter().collect());
    }
    if let Ok(set) = object.cast_exact::<PyFrozenSet>() {
        return Some(set.iter().collect());
    }
    (object.is_instance_of::<PySet>() || object.is_instance_of::<PyFrozenSet>()).then(|| referents(object))
}

/// Whether a class is written in Python, and not in C.
pub fn is_written_in_python(kind: &Bound<'_, PyType>) -> bool {
    // How objects of such classes are freed: the same for all of them, and for few others.
    static FREED: PyOnceLock<usize> = PyOnceLock::new();
    let freed = |kind: &Bound<'_, PyType>| {
        // SAFETY: a living type.
        unsafe { (*kind.as_type_ptr()).tp_dealloc.map_or(0, |free| free as usize) }
    };
    let known = FREED.get_or_init(kind.py(), || {
        let make = || -> PyResult<usize> {
            let py = kind.py();
            let class = py.get_type::<PyType>().call1(("Example", PyTuple::empty(py), PyDict::new(py)))?;
            Ok(freed(class.cast::<PyType>()?))
        };
        make().unwrap_or(0)
    });
    freed(kind) == *known && !has_methods_in_c(kind)
}

/// Whether a class defines methods or operators in C.
fn has_methods_in_c(kind: &Bound<'_, PyType>) -> bool {
    let is_in_c = |held: Bound<'_, PyAny>| {
        // SAFETY: descriptors of these types start with the class that they are of.
        unsafe {
            let of = ffi::Py_TYPE(held.as_ptr());
            (of == &raw mut ffi::PyMethodDescr_Type || of == &raw mut ffi::PyWrapperDescr_Type)
                && (*held.as_ptr().cast::<ffi::PyDescrObject>()).d_type == kind.as_type_ptr()
        }
    };
    of_class(kind).is_some_and(|dict| !every(&dict, |_, held| !is_in_c(held)))
}

/// The module name that a class reports, and its own name.
pub fn class_names(kind: &Bound<'_, PyType>) -> (String, String) {
    let text =
        |x: PyResult<Bound<'_, PyString>>| x.map_or_else(|_| String::new(), |x| x.to_string_lossy().into_owned());
    (text(kind.module()), text(kind.name()))
}

/// The dictionary of an object's own attributes; that of a function is not made for this.
pub fn own<'py>(object: &Bound<'py, PyAny>) -> Option<Bound<'py, PyDict>> {
    if let Ok(kind) = object.cast::<PyType>() {
        return of_class(kind);
    }
    // SAFETY: a living object; the result is a reference of ours, or null with an error, which is taken.
    let dict = unsafe {
        Bound::from_owned_ptr_or_err(object.py(), ffi::PyObject_GenericGetDict(object.as_ptr(), std::ptr::null_mut()))
    };
    dict.ok()?.cast_into::<PyDict>().ok()
}

/// Where an object refers to the dictionary of its own attributes; `None` if that is not known for objects of its class.
pub fn own_at(object: &Bound<'_, PyAny>, own: &Bound<'_, PyDict>) -> Option<*const usize> {
    // Before the object, and before the two words of the garbage collector, where it has them.
    let before = if cfg!(Py_GIL_DISABLED) { 1 } else { 3 } * size_of::<usize>() as isize;
    // SAFETY: a living object of a class with a dictionary at this place, which is compared with the one that it has.
    unsafe {
        let kind = ffi::Py_TYPE(object.as_ptr());
        let offset = match (ffi::PyType_HasFeature(kind, ffi::Py_TPFLAGS_MANAGED_DICT), (*kind).tp_dictoffset) {
            (0, offset) if offset > 0 => offset,
            // None, or counted from the end of an object of variable length.
            (0, _) => return None,
            _ => -before,
        };
        let at = object.as_ptr().cast::<u8>().offset(offset).cast::<usize>().cast_const();
        (at.read() == own.as_ptr() as usize).then_some(at)
    }
}

/// The dictionary of a class itself, without those of its bases.
pub fn of_class<'py>(kind: &Bound<'py, PyType>) -> Option<Bound<'py, PyDict>> {
    // SAFETY: a living type; its dictionary, borrowed, is alive while the type is.
    let dict = unsafe {
        let dict = (*kind.as_type_ptr()).tp_dict;
        Bound::from_borrowed_ptr_or_opt(kind.py(), dict)
    };
    dict?.cast_into::<PyDict>().ok()
}

/// The offsets of an object's slots (`__slots__`) declared by a class.
pub fn slots(object: &Bound<'_, PyAny>, class: &Bound<'_, PyType>) -> Vec<*const usize> {
    let Some(dict) = of_class(class) else { return Vec::new() };
    let place = |descriptor: Bound<'_, PyAny>| -> Option<*const usize> {
        // SAFETY: a descriptor of exactly this type has this layout; its offset lies inside objects of the class.
        unsafe {
            if ffi::Py_TYPE(descriptor.as_ptr()) != &raw mut ffi::PyMemberDescr_Type {
                return None;
            }
            let member = (*descriptor.as_ptr().cast::<ffi::PyMemberDescrObject>()).d_member.cast::<ffi::PyMemberDef>();
            let is_object = (*member).type_code == ffi::Py_T_OBJECT_EX;
            is_object.then(|| object.as_ptr().cast::<u8>().offset((*member).offset).cast::<usize>().cast_const())
        }
    };
    dict.values().iter().filter_map(place).collect()
}

/// All objects that an object reports to the garbage collector.
pub fn referents<'py>(object: &Bound<'py, PyAny>) -> Vec<Bound<'py, PyAny>> {
    let py = object.py();
    // SAFETY: the addresses are of objects that the object holds, and nothing ran since they were read; its lock is held.
    let held = |at| unsafe { Bound::from_borrowed_ptr(py, at as *mut ffi::PyObject) };
    locked(object, || addresses(object).into_iter().map(held).collect())
}

/// The addresses of the referents of an object, without its class.
pub fn addresses(object: &Bound<'_, PyAny>) -> Vec<usize> {
    unsafe extern "C" fn note(held: *mut ffi::PyObject, all: *mut c_void) -> c_int {
        visited(|| {
            // SAFETY: called below with a living vector.
            unsafe { (*all.cast::<Vec<usize>>()).push(held as usize) };
            0
        })
    }
    let mut all: Vec<usize> = Vec::new();
    // SAFETY: a living object, whose lock is held; traversing calls the visitor only, and runs no Python code.
    locked(object, || unsafe {
        let kind = ffi::Py_TYPE(object.as_ptr());
        if let Some(traverse) = (*kind).tp_traverse
            && ffi::PyObject_IS_GC(object.as_ptr()) != 0
        {
            traverse(object.as_ptr(), note, (&raw mut all).cast());
        }
        all.retain(|&held| held != kind as usize);
    });
    all
}

/// Whether an object reports its content to the garbage collector.
pub fn has_referents(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: a living object.
    unsafe { ffi::PyObject_IS_GC(object.as_ptr()) != 0 && (*ffi::Py_TYPE(object.as_ptr())).tp_traverse.is_some() }
}
