//! What a body may read through attributes: of objects that it closes over or names, of what those hold, of `self`.
//!
//! In words: an attribute is looked up without running Python code, in the object's own dictionary and in those of its
//! classes. Where it is a method or a property, that function is followed, and what it names is looked up as well.
//!
//! Promises: runs no Python code. Attributes that a class computes in `__getattr__` or `__getattribute__` are not found.
//! Knows nothing of how what is found is watched.
#![allow(unsafe_code)]

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{
    PyBytes, PyDict, PyFloat, PyFrozenSet, PyFunction, PyInt, PyList, PyModule, PySet, PyString, PyTuple, PyType,
};

/// Where an attribute was found.
pub enum Found<'py> {
    /// In a dictionary: of the object or, where it has none of that name, of a class.
    Name(Bound<'py, PyDict>, Bound<'py, PyAny>),
    /// In a slot of the object: the slot, as [`in_slot`] takes it, and what it holds.
    Slot(Bound<'py, PyAny>, Bound<'py, PyAny>),
    /// Code that runs when it is read or called.
    Code(Bound<'py, PyAny>),
}

/// Whether the attributes of an object are looked at: numbers, text, modules and the like have none that matter, and
/// those of burtorch and of the libraries it is used with do not change a recording.
pub fn has_attributes(object: &Bound<'_, PyAny>) -> bool {
    let has_none = is_plain(object) || object.is_instance_of::<PyModule>() || object.is_instance_of::<PyFunction>();
    if has_none || object.cast_exact::<PyTuple>().is_ok() {
        return false;
    }
    let is_class = object.is_instance_of::<PyType>();
    let kind = object.cast::<PyType>().cloned().unwrap_or_else(|_| object.get_type());
    if kind.module().is_ok_and(|module| is_of_a_library(&module.to_string_lossy())) {
        return false;
    }
    is_written_in_python(&kind) || !is_class && own(object).is_some()
}

/// Classes that are written in C keep what they have where it does not change.
fn is_written_in_python(kind: &Bound<'_, PyType>) -> bool {
    // SAFETY: a living type.
    unsafe { ffi::PyType_HasFeature(kind.as_type_ptr(), ffi::Py_TPFLAGS_HEAPTYPE) != 0 }
}

/// Whether a module is of a library whose functions and objects are not followed.
pub fn is_of_a_library(module: &str) -> bool {
    matches!(module.split('.').next(), Some("burtorch" | "numpy" | "scipy" | "builtins"))
}

/// Whether an object is a number, text or the like, which hold nothing that could change.
#[inline]
pub fn is_plain(object: &Bound<'_, PyAny>) -> bool {
    object.is_none()
        || object.is_instance_of::<PyInt>()
        || object.is_instance_of::<PyFloat>()
        || object.is_instance_of::<PyString>()
        || object.is_instance_of::<PyBytes>()
}

/// Whether an object is a tuple of numbers and text, or of such tuples: it never changes.
pub fn is_fixed(object: &Bound<'_, PyAny>) -> bool {
    let is_flat = |object: &Bound<'_, PyAny>| {
        object.cast_exact::<PyTuple>().is_ok_and(|tuple| tuple.iter_borrowed().all(|item| is_plain(&item)))
    };
    object
        .cast_exact::<PyTuple>()
        .is_ok_and(|tuple| tuple.iter_borrowed().all(|item| is_plain(&item) || is_flat(&item)))
}

/// Whether an object is a list, tuple or dict, and not of a subclass.
pub fn is_builtin_container(object: &Bound<'_, PyAny>) -> bool {
    object.cast_exact::<PyList>().is_ok()
        || object.cast_exact::<PyTuple>().is_ok()
        || object.cast_exact::<PyDict>().is_ok()
}

/// Whether an object is a list, tuple, dict or set, also of a subclass.
pub fn has_items(object: &Bound<'_, PyAny>) -> bool {
    object.is_instance_of::<PyList>()
        || object.is_instance_of::<PyTuple>()
        || object.is_instance_of::<PyDict>()
        || object.is_instance_of::<PySet>()
        || object.is_instance_of::<PyFrozenSet>()
}

/// The objects in a list, tuple, dict (keys, then values) or set, also of a subclass; `None` for anything else.
pub fn all_items<'py>(object: &Bound<'py, PyAny>) -> Option<Vec<Bound<'py, PyAny>>> {
    if let Ok(list) = object.cast::<PyList>() {
        return Some(list.iter().collect());
    }
    if let Ok(tuple) = object.cast::<PyTuple>() {
        return Some(tuple.iter().collect());
    }
    if let Ok(dict) = object.cast_exact::<PyDict>() {
        return Some(dict.iter().flat_map(|(key, value)| [key, value]).collect());
    }
    if let Ok(dict) = object.cast::<PyDict>() {
        // SAFETY: a living dict; the C functions do not ask what a subclass makes of them.
        let both = unsafe {
            let keys = Bound::from_owned_ptr_or_opt(object.py(), ffi::PyDict_Keys(dict.as_ptr()))?;
            let values = Bound::from_owned_ptr_or_opt(object.py(), ffi::PyDict_Values(dict.as_ptr()))?;
            [keys, values]
        };
        return Some(both.iter().filter_map(|list| list.cast::<PyList>().ok()).flat_map(|list| list.iter()).collect());
    }
    if let Ok(set) = object.cast_exact::<PySet>() {
        return Some(set.iter().collect());
    }
    object.cast_exact::<PyFrozenSet>().ok().map(|set| set.iter().collect())
}

/// Whether a class, written in Python, computes attributes that it does not have.
pub fn makes_up_attributes(object: &Bound<'_, PyAny>) -> bool {
    ["__getattr__", "__getattribute__"].iter().any(|name| {
        let name = PyString::intern(object.py(), name);
        in_classes(object, &name).is_some_and(|(_, held)| held.is_instance_of::<PyFunction>())
    })
}

/// Whether a name is an attribute of a type whose attributes do not change: of burtorch, numbers, text, lists and the like.
pub fn is_of_a_known_type(name: &Bound<'_, PyString>) -> bool {
    let py = name.py();
    let has = |object: &Bound<'_, PyAny>| object.hasattr(name).unwrap_or(false);
    let types = [
        py.get_type::<PyFloat>(),
        py.get_type::<PyInt>(),
        py.get_type::<PyString>(),
        py.get_type::<PyList>(),
        py.get_type::<PyTuple>(),
        py.get_type::<PyDict>(),
        py.get_type::<PySet>(),
        py.get_type::<PyFunction>(),
        py.get_type::<crate::vector::PyVector>(),
    ];
    types.iter().any(|kind| has(kind.as_any()))
        || py
            .import("burtorch")
            .is_ok_and(|module| has(module.as_any()) || module.getattr("Value").is_ok_and(|value| has(&value)))
}

/// The dictionary of an object's own attributes.
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

/// The dictionary of a class itself, not of what it inherits.
fn of_class<'py>(kind: &Bound<'py, PyType>) -> Option<Bound<'py, PyDict>> {
    // SAFETY: a living type; its dictionary, borrowed, is alive while the type is.
    let dict = unsafe {
        let dict = (*kind.as_type_ptr()).tp_dict;
        Bound::from_borrowed_ptr_or_opt(kind.py(), dict)
    };
    dict?.cast_into::<PyDict>().ok()
}

/// What the classes of an object have under a name, and which of them.
fn in_classes<'py>(
    object: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
) -> Option<(Bound<'py, PyDict>, Bound<'py, PyAny>)> {
    let kind = object.cast::<PyType>().cloned().unwrap_or_else(|_| object.get_type());
    for class in kind.mro().iter() {
        let class = class.cast_into::<PyType>().ok()?;
        if is_written_in_python(&class)
            && let Some(dict) = of_class(&class)
            && let Ok(Some(held)) = dict.get_item(name)
        {
            return Some((dict, held));
        }
    }
    None
}

/// What a slot of an object holds: reading it like this runs no Python code.
pub fn in_slot<'py>(object: &Bound<'py, PyAny>, slot: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    // SAFETY: living objects; the result is a reference of ours, or null with an error, which is taken.
    let held = unsafe {
        let get = (*ffi::Py_TYPE(slot.as_ptr())).tp_descr_get?;
        let held = get(slot.as_ptr(), object.as_ptr(), ffi::Py_TYPE(object.as_ptr()).cast());
        Bound::from_owned_ptr_or_err(object.py(), held)
    };
    held.ok()
}

/// Where the attribute of this name is; `None` where there is none.
pub fn find<'py>(object: &Bound<'py, PyAny>, name: &Bound<'py, PyString>) -> Option<Found<'py>> {
    let of_class = in_classes(object, name);
    if let Some((_, held)) = &of_class {
        let is_a = |kind: &str| held.get_type().name().is_ok_and(|name| name == kind);
        if is_a("property") {
            return held.getattr("fget").ok().map(Found::Code);
        }
        if is_a("member_descriptor") && !object.is_instance_of::<PyType>() {
            return in_slot(object, held).map(|found| Found::Slot(held.clone(), found));
        }
    }
    if let Some(dict) = own(object)
        && let Ok(Some(held)) = dict.get_item(name)
    {
        return Some(Found::Name(dict, held));
    }
    let (dict, held) = of_class?;
    if held.is_instance_of::<PyFunction>() || held.hasattr("__func__").unwrap_or(false) {
        return Some(Found::Code(held));
    }
    Some(Found::Name(dict, held))
}
