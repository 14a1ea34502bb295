//! The search for the constants of a body: from the body, and from every function that runs while it is traced, through
//! globals, cells, defaults, attributes, items and classes.
//!
//! A function that runs adds names and objects. Names are looked up in the dictionaries of all known objects, including names
//! found later, so the work is linear in objects, and in names for each. If a function reads attributes by computed names
//! (`getattr`), all attributes of all objects count.
//!
//! Promises: runs no Python code. Each object is searched once. Nothing is skipped without a record.
#![allow(unsafe_code)]

mod fields;
mod functions;
mod objects;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFunction, PyList, PyModule, PyString, PyTuple, PyType};
use rustc_hash::{FxHashMap, FxHashSet};

use super::attributes;
use super::invalidate::{Scope, Watch};
use super::transform::Transform;
use super::unwatched::Kind;
use crate::node::parameter::PyParameter;

/// The largest number of searched objects.
const MOST_OBJECTS: usize = 1 << 20;

pub use fields::reads_fields;

/// A source that a body reads and that is not watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unwatched {
    /// The kind.
    pub kind: Kind,
    /// As text, with the line if it is known.
    pub text: String,
}

/// See the module header.
pub struct Search {
    /// The places found.
    pub watch: Watch,
    /// Unwatched sources.
    pub unwatched: Vec<Unwatched>,
    /// Objects and cells already found, by address; they are kept alive, so that no other takes their address.
    seen: FxHashSet<usize>,
    kept: Vec<Py<PyAny>>,
    queue: Vec<Py<PyAny>>,
    /// Functions whose names, cells and defaults have been searched.
    followed: FxHashSet<usize>,
    /// Code objects with their globals, and nested code objects.
    codes: FxHashSet<(usize, usize)>,
    inner: FxHashSet<usize>,
    /// The watched dictionaries, by address, with their numbers.
    dicts: FxHashMap<usize, usize>,
    /// Names that were found and not looked up yet.
    names: Vec<Py<PyString>>,
    /// Functions without attributes so far.
    bare: Vec<Py<PyAny>>,
    /// Whether some function reads attributes by computed names.
    is_dynamic: bool,
    /// How many dictionaries are fully watched since then.
    n_whole: usize,
    /// Functions and code that ran and were not found otherwise: the next trace starts from them too.
    pub executed: Vec<Py<PyAny>>,
}

/// The address of an object.
fn address(object: &Bound<'_, PyAny>) -> usize {
    object.as_ptr() as usize
}

impl Search {
    /// Searches a body, other functions that are known to run, and static arguments.
    pub fn of(body: &Bound<'_, PyAny>, known: &[Py<PyAny>], statics: &[Bound<'_, PyAny>]) -> PyResult<Search> {
        let py = body.py();
        let mut search = Search {
            watch: Watch::default(),
            unwatched: Vec::new(),
            seen: FxHashSet::default(),
            kept: Vec::new(),
            queue: Vec::new(),
            followed: FxHashSet::default(),
            codes: FxHashSet::default(),
            inner: FxHashSet::default(),
            dicts: FxHashMap::default(),
            names: Vec::new(),
            bare: Vec::new(),
            is_dynamic: false,
            n_whole: 0,
            executed: Vec::new(),
        };
        match body.cast::<PyFunction>() {
            Ok(_) => search.add_function(body, true)?,
            Err(_) => {
                search.add_name(&PyString::intern(py, "__call__"))?;
                search.reach(body);
            }
        }
        statics.iter().for_each(|object| search.reach(object));
        search.drain(py)?;
        for function in known {
            search.executed(function.bind(py))?;
        }
        Ok(search)
    }

    /// A function, or a code object and its globals as a tuple, that runs while the body is traced.
    pub fn executed(&mut self, what: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = what.py();
        if let Ok(pair) = what.cast_exact::<PyTuple>() {
            if let Ok(globals) = pair.get_item(1)?.cast_into::<PyDict>() {
                self.add_code(&pair.get_item(0)?, &globals, true)?;
            }
        } else {
            self.add_function(what, true)?;
        }
        self.executed.push(what.clone().unbind());
        self.drain(py)
    }

    /// Whether a code object is known to be made by a function that was found: then its function is, too.
    pub fn is_inner(&self, code: &Bound<'_, PyAny>) -> bool {
        self.inner.contains(&address(code))
    }

    /// Whether a function has been searched.
    pub fn is_known(&self, function: &Bound<'_, PyAny>) -> bool {
        self.followed.contains(&address(function))
    }

    /// Records an unwatched source.
    pub fn note(&mut self, kind: Kind, text: String) {
        let new = Unwatched { kind, text };
        if !self.unwatched.contains(&new) {
            self.unwatched.push(new);
        }
    }

    /// Called after the trace: the items that the body appended to lists are watched from now on.
    pub fn finish(mut self, py: Python<'_>) -> PyResult<(Watch, Vec<Unwatched>, Vec<Py<PyAny>>)> {
        for item in self.watch.settle(py) {
            self.reach(&item);
        }
        self.drain(py)?;
        Ok((self.watch, self.unwatched, self.executed))
    }

    /// Adds an object to the search.
    pub fn reach(&mut self, object: &Bound<'_, PyAny>) {
        if attributes::is_plain(object) || !self.seen.insert(address(object)) {
            return;
        }
        if self.seen.len() > MOST_OBJECTS {
            if self.seen.len() == MOST_OBJECTS + 1 {
                self.note(
                    Kind::Hidden,
                    format!("reads more than {MOST_OBJECTS} objects, the most that a replay watches"),
                );
            }
            return;
        }
        self.kept.push(object.clone().unbind());
        self.queue.push(object.clone().unbind());
    }

    fn reach_all(&mut self, objects: &[Bound<'_, PyAny>]) {
        objects.iter().for_each(|object| self.reach(object));
    }

    /// A name that is looked up in objects.
    pub fn add_name(&mut self, name: &Bound<'_, PyString>) -> PyResult<()> {
        if !self.watch.has_name(name) {
            self.names.push(name.clone().unbind());
        }
        Ok(())
    }

    /// Searches everything that was added. Names and objects lead to each other: repeats until neither adds more.
    fn drain(&mut self, py: Python<'_>) -> PyResult<()> {
        loop {
            if let Some(object) = self.queue.pop() {
                self.look_at(object.bind(py))?;
            } else if let Some(name) = self.names.pop() {
                if self.watch.add_name(name.bind(py))? {
                    let found = self.watch.add_name_to_dicts(py, name.bind(py));
                    self.reach_all(&found);
                }
            } else if self.is_dynamic && !self.bare.is_empty() {
                for function in std::mem::take(&mut self.bare) {
                    let object = function.as_ptr().cast::<ffi::PyFunctionObject>();
                    // SAFETY: a living function; the word of its attributes lies in it.
                    unsafe { self.watch.add_object(function.bind(py), (&raw const (*object).func_dict).cast()) };
                }
            } else if self.is_dynamic && self.n_whole < self.watch.n_dicts() {
                let (dict, scope) = self.watch.dict(py, self.n_whole);
                if scope == Scope::Class || scope == Scope::Named && !is_of_a_module(&dict) {
                    let found = self.watch.take_all(py, self.n_whole);
                    self.reach_all(&found);
                }
                self.n_whole += 1;
            } else {
                return Ok(());
            }
        }
    }

    fn look_at(&mut self, object: &Bound<'_, PyAny>) -> PyResult<()> {
        // There may be many of these, and they have only items.
        if object.is_exact_instance_of::<PyTuple>()
            || object.is_exact_instance_of::<PyList>()
            || object.is_exact_instance_of::<PyDict>()
        {
            self.add_contents(object);
            return Ok(());
        }
        if object.is_instance_of::<PyParameter>() {
            return Ok(());
        }
        if object.is_instance_of::<PyFunction>() {
            return self.add_function(object, false);
        }
        if let Ok(kind) = object.cast::<PyType>() {
            self.add_class(kind);
            return Ok(());
        }
        if let Ok(module) = object.cast::<PyModule>() {
            self.add_module(module);
            return Ok(());
        }
        if super::object_type::is_function(object) {
            return self.add_recorded(object);
        }
        if let Ok(transform) = object.cast::<Transform>() {
            self.reach(transform.get().function().bind(object.py()));
            return Ok(());
        }
        self.add_contents(object);
        let kind = object.get_type();
        if attributes::is_written_in_python(&kind) {
            self.add_instance(object, &kind);
        }
        self.add_c_object(object, &kind);
        Ok(())
    }
}

/// Whether a dictionary belongs to a module.
fn is_of_a_module(dict: &Bound<'_, PyDict>) -> bool {
    ["__name__", "__spec__"].iter().all(|name| dict.contains(*name).unwrap_or(false))
}
