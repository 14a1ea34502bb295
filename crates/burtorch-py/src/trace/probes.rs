//! Comparison of the constants of a trace that are more than one word: dictionaries, lists, sets, arrays, objects of C classes.
//!
//! Promises: a comparison runs no Python code. Does not know which of them a trace watches.
#![allow(unsafe_code)]

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyInt, PyList, PySet, PyString, PyWeakref, PyWeakrefMethods};

use super::attributes;
use crate::convert::critical_section::locked;
use crate::convert::raw_bytes::has_raw_bytes;
use crate::convert::signals::quietly;

/// Which keys of a dictionary are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The listed ones, including those that are absent.
    Listed,
    /// The names that some function uses.
    Named,
    /// For a class: these names, and the names of special methods.
    Class,
    /// All, in order.
    All,
}

/// A dictionary and its content at the trace.
pub(super) struct Dict {
    pub(super) dict: Py<PyDict>,
    pub(super) scope: Scope,
    pub(super) entries: Vec<(Py<PyAny>, Option<Py<PyAny>>)>,
}

/// The places to compare at every call.
pub(super) enum Probe {
    /// The items of a list.
    List(Py<PyList>, Vec<Py<PyAny>>),
    /// The items of a set.
    Items(Py<PyAny>, Vec<Py<PyAny>>),
    /// The bytes of an array; the objects in it are kept alive, as in `Referents`.
    Bytes(Py<PyAny>, Vec<u8>, Vec<Py<PyAny>>),
    /// The objects that an object of a C class refers to, by address; they are kept alive, so that no other takes their place.
    Referents(Py<PyAny>, Vec<usize>, Vec<Py<PyAny>>),
    /// The text of the result of a C function.
    Called(Py<PyAny>, String),
    /// The value of a context variable.
    Context(Py<PyAny>, Option<Py<PyAny>>),
    /// A dictionary, on versions of Python without dictionary versions.
    Dict(usize),
    /// The dictionary of attributes of an object, or of the target of a weak reference.
    Own(Py<PyAny>, Py<PyDict>),
}

/// Whether an object is the same as at the trace, or an equal number or text. Runs no Python code.
pub(super) fn is_same(now: &Bound<'_, PyAny>, before: &Py<PyAny>) -> bool {
    let before = before.bind(now.py());
    if now.is(before) {
        return true;
    }
    if !now.get_type().is(before.get_type()) {
        return false;
    }
    if let (Ok(a), Ok(b)) = (now.cast::<PyFloat>(), before.cast::<PyFloat>()) {
        // A subclass written in Python may hold more than a number.
        return a.value().to_bits() == b.value().to_bits() && !attributes::is_written_in_python(&now.get_type());
    }
    let is_whole = now.cast_exact::<PyInt>().is_ok() || now.cast_exact::<PyString>().is_ok();
    is_whole && now.eq(before).unwrap_or(false)
}

/// Whether sequences hold the same objects, or equal numbers.
fn are_same(now: &[Bound<'_, PyAny>], before: &[Py<PyAny>]) -> bool {
    now.len() == before.len() && now.iter().zip(before).all(|(now, before)| is_same(now, before))
}

/// Whether a list holds these items.
fn holds(list: &Bound<'_, PyList>, items: &[Py<PyAny>]) -> bool {
    locked(list, || {
        let n = list.len();
        // SAFETY: a living list of `n` items, whose lock is held: comparing addresses runs no code that could change it.
        let differs =
            |k: &usize| unsafe { ffi::PyList_GET_ITEM(list.as_ptr(), *k as ffi::Py_ssize_t) } != items[*k].as_ptr();
        n == items.len() && (0..n).filter(differs).all(|k| list.get_item(k).is_ok_and(|now| is_same(&now, &items[k])))
    })
}

/// Calls `f` with every key and value, until it returns false.
pub fn every(dict: &Bound<'_, PyDict>, mut f: impl FnMut(Bound<'_, PyAny>, Bound<'_, PyAny>) -> bool) -> bool {
    let (mut at, mut key, mut value) = (0, std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: a living dict, whose lock is held; what is found is made references of ours, and `f` does not change the dict.
    locked(dict, || unsafe {
        while ffi::PyDict_Next(dict.as_ptr(), &raw mut at, &raw mut key, &raw mut value) != 0 {
            if !f(Bound::from_borrowed_ptr(dict.py(), key), Bound::from_borrowed_ptr(dict.py(), value)) {
                return false;
            }
        }
        true
    })
}

/// The value that a dict, or a subclass, has under a key.
pub fn in_dict<'py>(dict: &Bound<'py, PyDict>, key: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    // SAFETY: living objects; the C function calls no method of a subclass, and an error is cleared.
    unsafe {
        #[cfg(Py_GIL_DISABLED)]
        {
            let mut held = std::ptr::null_mut();
            if ffi::PyDict_GetItemRef(dict.as_ptr(), key.as_ptr(), &raw mut held) < 0 {
                ffi::PyErr_Clear();
            }
            Bound::from_owned_ptr_or_opt(dict.py(), held)
        }
        #[cfg(not(Py_GIL_DISABLED))]
        {
            let held = ffi::PyDict_GetItemWithError(dict.as_ptr(), key.as_ptr());
            if held.is_null() {
                ffi::PyErr_Clear();
            }
            Bound::from_borrowed_ptr_or_opt(dict.py(), held)
        }
    }
}

impl Dict {
    pub(super) fn is_as_it_was(&self, py: Python<'_>, names: Option<&Py<PySet>>) -> bool {
        let dict = self.dict.bind(py);
        if self.scope == Scope::All {
            let mut before = self.entries.iter();
            return every(dict, |key, value| {
                let Some((k, Some(held))) = before.next() else { return false };
                is_same(&key, k) && is_same(&value, held)
            }) && before.next().is_none();
        }
        let is_held = |(key, held): &(Py<PyAny>, Option<Py<PyAny>>)| match (in_dict(dict, key.bind(py)), held) {
            (None, None) => true,
            (Some(now), Some(held)) => is_same(&now, held),
            _ => false,
        };
        if !self.entries.iter().all(is_held) {
            return false;
        }
        if self.scope == Scope::Listed {
            return true;
        }
        // No watched name may have been added.
        let (mut n, of_class) = (0, self.scope == Scope::Class);
        every(dict, |key, _| {
            n += usize::from(counts(&key, names, of_class));
            true
        });
        n == self.entries.iter().filter(|(_, held)| held.is_some()).count()
    }
}

/// Whether a key is among the names, or for a class a special method.
pub(super) fn counts(key: &Bound<'_, PyAny>, names: Option<&Py<PySet>>, of_class: bool) -> bool {
    let py = key.py();
    names.is_some_and(|names| names.bind(py).contains(key).unwrap_or(false)) || of_class && is_special(key)
}

/// Whether a key of a class is the name of a special method, or of a mechanism that classes use instead.
pub(super) fn is_special(key: &Bound<'_, PyAny>) -> bool {
    let Ok(name) = key.cast::<PyString>() else { return false };
    let Ok(name) = name.to_str() else { return false };
    const OTHERS: &[&str] = &[
        "__doc__",
        "__module__",
        "__dict__",
        "__weakref__",
        "__qualname__",
        "__annotations__",
        // Annotations of CPython 3.14, which are created on first use.
        "__annotate__",
        "__annotate_func__",
        "__annotations_cache__",
        "__conditional_annotations__",
        "__slotnames__",
        "__abstractmethods__",
        "__static_attributes__",
        "__firstlineno__",
        "__slots__",
    ];
    name.starts_with("__") && name.ends_with("__") && !OTHERS.contains(&name)
}

impl Probe {
    pub(super) fn is_as_it_was(&mut self, py: Python<'_>, dicts: &[Dict], names: Option<&Py<PySet>>) -> bool {
        match self {
            Probe::List(list, items) => holds(list.bind(py), items),
            Probe::Items(object, items) => {
                attributes::all_items(object.bind(py)).is_some_and(|now| are_same(&now, items))
            }
            Probe::Bytes(object, before, _) => has_raw_bytes(object.bind(py), before),
            Probe::Referents(object, before, _) => attributes::addresses(object.bind(py)) == *before,
            Probe::Called(function, text) => called(function.bind(py)) == *text,
            Probe::Context(variable, held) => match (context_value(variable.bind(py)), &*held) {
                (None, None) => true,
                (Some(now), Some(held)) => is_same(&now, held),
                _ => false,
            },
            Probe::Dict(k) => dicts[*k].is_as_it_was(py, names),
            Probe::Own(object, own) => {
                let object = object.bind(py);
                let target = object.cast::<PyWeakref>().ok().map(PyWeakrefMethods::upgrade);
                let now = target.unwrap_or_else(|| Some(object.clone())).and_then(|object| attributes::own(&object));
                now.is_some_and(|now| now.is(own.bind(py)))
            }
        }
    }
}

/// The text of the result of a C function.
pub(super) fn called(function: &Bound<'_, PyAny>) -> String {
    let text = || Ok(function.call0()?.repr()?.to_string_lossy().into_owned());
    quietly(function.py(), text).unwrap_or_default()
}

/// The value of a context variable; `None` if it has none.
pub fn context_value<'py>(variable: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    let mut value = std::ptr::null_mut();
    // SAFETY: a living context variable; an error is taken.
    unsafe {
        if ffi::PyContextVar_Get(variable.as_ptr(), std::ptr::null_mut(), &raw mut value) < 0 {
            ffi::PyErr_Clear();
        }
        Bound::from_owned_ptr_or_opt(variable.py(), value)
    }
}
