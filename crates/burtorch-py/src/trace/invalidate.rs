//! The values that a trace treats as constant, checked before every replay.
//!
//! A value at a fixed address (closure cells, slots, the code and defaults of functions, the versions of dictionaries) is one
//! word that is compared; only a word that differs leads to a full comparison. Values without such a word (lists, sets, arrays,
//! objects of C classes) are compared at every call.
//!
//! Promises: a check runs no Python code, and costs half a nanosecond for a word. From CPython 3.12 on dictionaries have no
//! versions, and their keys are looked up. Does not know how the watched values were found.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyInt, PyList, PySet, PyString};

use super::attributes;
pub use super::probes::Scope;
use super::probes::{Dict, Probe, called, context_value, counts, every, in_dict, is_same, is_special};
use crate::convert::critical_section::object_at;

/// A place in memory and its content at the trace.
struct Word {
    at: *const usize,
    before: usize,
}

/// A word that another thread may write.
///
/// # Safety
/// A word in an object that is alive.
#[inline(always)]
unsafe fn word_at(at: *const usize) -> usize {
    debug_assert!(!at.is_null());
    // SAFETY: by the contract of this function; the interpreter writes whole words.
    unsafe { AtomicUsize::from_ptr(at.cast_mut()) }.load(Ordering::Relaxed)
}

impl Word {
    /// Its content at this moment.
    ///
    /// # Safety
    /// The object that contains it is alive.
    #[inline(always)]
    unsafe fn now(&self) -> usize {
        // SAFETY: by the contract of this function.
        unsafe { word_at(self.at) }
    }
}

/// What a word holds. Every kind keeps the object that contains the word alive.
enum Owner {
    /// The address of an object; an equal number is not a change.
    Object { keeps: Py<PyAny>, held: Option<Py<PyAny>> },
    /// The version of a dictionary, by number.
    Dict(usize),
    /// Anything else: every change counts.
    Exact(Py<PyAny>),
}

/// All constants of a trace.
#[derive(Default)]
pub struct Watch {
    words: Vec<Word>,
    /// For each word what it holds.
    owners: Vec<Owner>,
    dicts: Vec<Dict>,
    probes: Vec<Probe>,
    /// Names that functions look up in objects.
    names: Option<Py<PySet>>,
    /// Calls until the next audit, if audits are on.
    pub audit_in: Option<u64>,
}

/// The version of a dictionary; `None` if dictionaries have no versions.
#[inline(always)]
unsafe fn version(dict: *mut ffi::PyObject) -> Option<*const usize> {
    #[cfg(all(not(Py_3_12), not(PyPy), not(GraalPy), target_pointer_width = "64"))]
    {
        // SAFETY: callers pass a living dict.
        Some(unsafe { (&raw const (*dict.cast::<ffi::PyDictObject>()).ma_version_tag).cast() })
    }
    #[cfg(any(Py_3_12, PyPy, GraalPy, not(target_pointer_width = "64")))]
    {
        let _ = dict;
        None
    }
}

impl Watch {
    /// Whether nothing has changed since the function was traced, and no audit is due.
    #[inline(always)]
    pub fn is_as_it_was(&mut self, py: Python<'_>) -> bool {
        // Most functions use globals only: a few words cover all of them.
        (self.probes.is_empty() && self.audit_in.is_none() && self.words_are_same()) || self.look(py)
    }

    #[inline(always)]
    fn words_are_same(&self) -> bool {
        // SAFETY: each word lies in an object that its owner keeps.
        self.words.iter().all(|word| unsafe { word.now() } == word.before)
    }

    #[inline(never)]
    fn look(&mut self, py: Python<'_>) -> bool {
        if !self.is_unchanged(py) {
            return false;
        }
        match &mut self.audit_in {
            None => true,
            Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
        }
    }

    /// Whether nothing has changed, without counting a call.
    pub fn is_unchanged(&mut self, py: Python<'_>) -> bool {
        (0..self.words.len()).all(|k| self.is_word_as_it_was(py, k)) && {
            let Watch { probes, dicts, names, .. } = self;
            probes.iter_mut().all(|probe| probe.is_as_it_was(py, dicts, names.as_ref()))
        }
    }

    fn is_word_as_it_was(&mut self, py: Python<'_>, k: usize) -> bool {
        // SAFETY: as in `words_are_same`.
        let mut now = unsafe { self.words[k].now() };
        if now == self.words[k].before {
            return true;
        }
        let is_same = match &mut self.owners[k] {
            Owner::Exact(_) => false,
            Owner::Dict(at) => self.dicts[*at].is_as_it_was(py, self.names.as_ref()),
            Owner::Object { keeps, held } => {
                // SAFETY: the word is the address of an object, or null.
                let object = unsafe { object_at(keeps.bind(py), self.words[k].at) };
                match (object, held) {
                    // Another object, but perhaps the same number.
                    (Some(object), Some(held)) if is_same(&object, held) => {
                        now = object.as_ptr() as usize;
                        // Released at once through a bound reference: PyO3 delays a release if it did not take the GIL itself.
                        drop(std::mem::replace(held, object.unbind()).into_bound(py));
                        true
                    }
                    _ => false,
                }
            }
        };
        if is_same {
            self.words[k].before = now;
        }
        is_same
    }

    /// Watches a word that is the address of an object, or null; returns the object.
    ///
    /// # Safety
    /// The word lies in `keeps`, at a place that does not change while that lives.
    pub unsafe fn add_object<'py>(&mut self, keeps: &Bound<'py, PyAny>, at: *const usize) -> Option<Bound<'py, PyAny>> {
        // SAFETY: by the contract of this function.
        let object = unsafe { object_at(keeps, at) };
        self.words.push(Word { at, before: object.as_ref().map_or(0, |object| object.as_ptr() as usize) });
        self.owners.push(Owner::Object { keeps: keeps.clone().unbind(), held: object.clone().map(Bound::unbind) });
        object
    }

    /// Watches which dictionary holds the attributes of an object.
    pub fn add_own(&mut self, object: &Bound<'_, PyAny>, own: &Bound<'_, PyDict>) {
        match attributes::own_at(object, own) {
            // SAFETY: a word of the object, at the same place while it lives.
            Some(at) => drop(unsafe { self.add_object(object, at) }),
            None => self.probes.push(Probe::Own(object.clone().unbind(), own.clone().unbind())),
        }
    }

    /// As `add_own`, for the target of a weak reference, which is not kept alive.
    pub fn add_own_of_weak(&mut self, reference: &Bound<'_, PyAny>, own: &Bound<'_, PyDict>) {
        self.probes.push(Probe::Own(reference.clone().unbind(), own.clone().unbind()));
    }

    /// Watches a word for any change.
    ///
    /// # Safety
    /// As for `add_object`.
    pub unsafe fn add_exact(&mut self, keeps: &Bound<'_, PyAny>, at: *const usize) {
        // SAFETY: by the contract of this function.
        self.words.push(Word { at, before: unsafe { word_at(at) } });
        self.owners.push(Owner::Exact(keeps.clone().unbind()));
    }

    /// Watches a dictionary, with no keys yet; returns its number.
    pub fn add_dict(&mut self, dict: &Bound<'_, PyDict>, scope: Scope) -> usize {
        let k = self.dicts.len();
        self.dicts.push(Dict { dict: dict.clone().unbind(), scope, entries: Vec::new() });
        // SAFETY: a living dict, which the entry keeps.
        match unsafe { version(dict.as_ptr()) } {
            Some(at) => {
                // SAFETY: as above.
                self.words.push(Word { at, before: unsafe { word_at(at) } });
                self.owners.push(Owner::Dict(k));
            }
            None => self.probes.push(Probe::Dict(k)),
        }
        k
    }

    /// The dictionary with this number, and its watched keys.
    pub fn dict<'py>(&self, py: Python<'py>, k: usize) -> (Bound<'py, PyDict>, Scope) {
        (self.dicts[k].dict.bind(py).clone(), self.dicts[k].scope)
    }

    /// How many dictionaries are watched.
    pub fn n_dicts(&self) -> usize {
        self.dicts.len()
    }

    /// Watches a key with its present value; returns the value.
    pub fn add_key<'py>(&mut self, py: Python<'py>, k: usize, key: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
        let dict = &mut self.dicts[k];
        let held = in_dict(dict.dict.bind(py), key);
        if held.is_some() || dict.scope == Scope::Listed {
            dict.entries.push((key.clone().unbind(), held.clone().map(Bound::unbind)));
        }
        held
    }

    /// Watches all keys of a dictionary, in order, instead of single names; returns the values with their keys.
    pub fn take_all<'py>(&mut self, py: Python<'py>, k: usize) -> Vec<Bound<'py, PyAny>> {
        let dict = &mut self.dicts[k];
        dict.scope = Scope::All;
        dict.entries.clear();
        let mut found = Vec::new();
        every(&dict.dict.bind(py).clone(), |key, value| {
            dict.entries.push((key.clone().unbind(), Some(value.clone().unbind())));
            found.extend([key.unbind().into_bound(py), value.unbind().into_bound(py)]);
            true
        });
        found
    }

    /// Watches the used names in a dictionary; returns their values.
    pub fn take_named<'py>(&mut self, py: Python<'py>, k: usize) -> Vec<Bound<'py, PyAny>> {
        let (dict, of_class) = (self.dicts[k].dict.bind(py).clone(), self.dicts[k].scope == Scope::Class);
        let mut keys = Vec::new();
        every(&dict, |key, _| {
            if counts(&key, self.names.as_ref(), of_class) {
                keys.push(key.unbind().into_bound(py));
            }
            true
        });
        keys.iter().filter_map(|key| self.add_key(py, k, key)).collect()
    }

    /// Whether a name has been added.
    pub fn has_name(&self, name: &Bound<'_, PyString>) -> bool {
        self.names.as_ref().is_some_and(|names| names.bind(name.py()).contains(name).unwrap_or(false))
    }

    /// Adds a name that functions look up; returns whether it is new.
    pub fn add_name(&mut self, name: &Bound<'_, PyString>) -> PyResult<bool> {
        let py = name.py();
        if self.names.is_none() {
            self.names = Some(PySet::empty(py)?.unbind());
        }
        let Some(names) = &self.names else { return Ok(false) };
        let names = names.bind(py);
        let is_new = !names.contains(name)?;
        if is_new {
            names.add(name)?;
        }
        Ok(is_new)
    }

    /// The dictionaries in which a new name has to be looked up, with their values for it.
    pub fn add_name_to_dicts<'py>(&mut self, py: Python<'py>, name: &Bound<'py, PyAny>) -> Vec<Bound<'py, PyAny>> {
        let mut found = Vec::new();
        let special = is_special(name);
        for k in 0..self.dicts.len() {
            let looks = match self.dicts[k].scope {
                Scope::Named => true,
                Scope::Class => !special,
                Scope::Listed | Scope::All => false,
            };
            if looks {
                found.extend(self.add_key(py, k, name));
            }
        }
        found
    }

    /// Watches the items of a list; returns them.
    pub fn add_list<'py>(&mut self, list: &Bound<'py, PyList>) -> Vec<Bound<'py, PyAny>> {
        let items: Vec<_> = list.iter().collect();
        let held = items.iter().map(|item| item.clone().unbind()).collect();
        self.probes.push(Probe::List(list.clone().unbind(), held));
        items
    }

    /// Watches the items of a set.
    pub fn add_items(&mut self, object: &Bound<'_, PyAny>, items: Vec<Bound<'_, PyAny>>) {
        let items = items.into_iter().map(Bound::unbind).collect();
        self.probes.push(Probe::Items(object.clone().unbind(), items));
    }

    /// Watches the numbers of an array.
    pub fn add_bytes(&mut self, object: &Bound<'_, PyAny>, bytes: Vec<u8>, held: &[Bound<'_, PyAny>]) {
        let held = held.iter().map(|held| held.clone().unbind()).collect();
        self.probes.push(Probe::Bytes(object.clone().unbind(), bytes, held));
    }

    /// Watches the objects that an object of a C class refers to.
    pub fn add_referents(&mut self, object: &Bound<'_, PyAny>, held: &[Bound<'_, PyAny>]) {
        let addresses = held.iter().map(|held| held.as_ptr() as usize).collect();
        let held = held.iter().map(|held| held.clone().unbind()).collect();
        self.probes.push(Probe::Referents(object.clone().unbind(), addresses, held));
    }

    /// Watches the result of a C function by its text: the check runs no Python code.
    pub fn add_called(&mut self, function: &Bound<'_, PyAny>) {
        self.probes.push(Probe::Called(function.clone().unbind(), called(function)));
    }

    /// Watches a context variable; returns its value.
    pub fn add_context<'py>(&mut self, variable: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
        let value = context_value(variable);
        self.probes.push(Probe::Context(variable.clone().unbind(), value.clone().map(Bound::unbind)));
        value
    }

    /// Called after a trace. Items that the body itself appended to lists, such as a log, do not count as a change; changed
    /// numbers and removed items do. Returns the appended items.
    pub fn settle<'py>(&mut self, py: Python<'py>) -> Vec<Bound<'py, PyAny>> {
        let mut filled = Vec::new();
        for probe in &mut self.probes {
            let Probe::List(list, before) = probe else { continue };
            let list: Vec<_> = list.bind(py).iter().collect();
            let is_filled = |(k, now): (usize, &Bound<'_, PyAny>)| match before.get(k) {
                Some(before) if now.is(before) => true,
                _ => !now.is_instance_of::<PyFloat>() && !now.is_instance_of::<PyInt>(),
            };
            if list.len() >= before.len() && list.iter().enumerate().all(is_filled) {
                filled.extend(list.iter().skip(before.len()).cloned());
                *before = list.into_iter().map(Bound::unbind).collect();
            }
        }
        filled
    }

    /// Calls `f` with every object held, for the garbage collector.
    pub fn for_each(&self, mut f: impl FnMut(*mut ffi::PyObject)) {
        let mut all = |objects: &[Py<PyAny>]| objects.iter().for_each(|object| f(object.as_ptr()));
        for owner in &self.owners {
            match owner {
                Owner::Object { keeps, held } => {
                    all(std::slice::from_ref(keeps));
                    all(held.as_slice());
                }
                Owner::Exact(keeps) => all(std::slice::from_ref(keeps)),
                Owner::Dict(_) => {}
            }
        }
        for dict in &self.dicts {
            all(std::slice::from_ref(dict.dict.as_any()));
            for (key, held) in &dict.entries {
                all(std::slice::from_ref(key));
                all(held.as_slice());
            }
        }
        for probe in &self.probes {
            match probe {
                Probe::List(object, held) => {
                    all(std::slice::from_ref(object.as_any()));
                    all(held);
                }
                Probe::Items(object, held) | Probe::Referents(object, _, held) | Probe::Bytes(object, _, held) => {
                    all(std::slice::from_ref(object));
                    all(held);
                }
                Probe::Called(object, _) => all(std::slice::from_ref(object)),
                Probe::Context(object, held) => {
                    all(std::slice::from_ref(object));
                    all(held.as_slice());
                }
                Probe::Dict(_) => {}
                Probe::Own(object, own) => {
                    all(std::slice::from_ref(object));
                    all(std::slice::from_ref(own.as_any()));
                }
            }
        }
        all(self.names.as_ref().map(Py::as_any).map(std::slice::from_ref).unwrap_or_default());
    }
}
