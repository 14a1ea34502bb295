//! The search for the constants of a body: from the body, and from every function that runs while it is traced, through
//! globals, cells, defaults, attributes, items and classes.
//!
//! A function that runs adds names and objects. Names are looked up in the dictionaries of all known objects, including names
//! found later, so the work is linear in objects, and in names for each. If a function reads attributes by computed names
//! (`getattr`), all attributes of all objects count.
//!
//! Promises: runs no Python code. Each object is searched once. Nothing is skipped without a record.
#![allow(unsafe_code)]

use std::mem::offset_of;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFunction, PyList, PyModule, PyString, PyTuple, PyType, PyWeakref, PyWeakrefMethods};
use rustc_hash::{FxHashMap, FxHashSet};

use super::attributes::{self, class_names, is_of_a_library, is_standard, is_written_in_python, top};
use super::code::Names;
use super::invalidate::{Scope, Watch};
use super::transform::Transform;
use super::unwatched::{self, Kind, Object};
use crate::convert::critical_section::object_at;
use crate::convert::raw_bytes::raw_bytes;
use crate::convert::signals::quietly;
use crate::node::parameter::PyParameter;

/// The largest number of searched objects.
const MOST_OBJECTS: usize = 1 << 20;

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
        if is_written_in_python(&kind) {
            self.add_instance(object, &kind);
        }
        self.add_c_object(object, &kind);
        Ok(())
    }

    /// Items of a list, tuple, dict or set; numbers of an array.
    fn add_contents(&mut self, object: &Bound<'_, PyAny>) {
        let py = object.py();
        if let Ok(list) = object.cast::<PyList>() {
            let items = self.watch.add_list(list);
            self.reach_all(&items);
        } else if let Ok(tuple) = object.cast::<PyTuple>() {
            tuple.iter().for_each(|item| self.reach(&item));
        } else if let Ok(dict) = object.cast::<PyDict>() {
            let k = self.watch.add_dict(dict, Scope::All);
            let found = self.watch.take_all(py, k);
            self.reach_all(&found);
        } else if let Some(items) = attributes::all_items(object) {
            self.reach_all(&items);
            self.watch.add_items(object, items);
        } else if let Some(bytes) = raw_bytes(object) {
            let held = objects_in(object);
            self.reach_all(&held);
            self.watch.add_bytes(object, bytes, &held);
        }
    }

    /// Attributes of an object of a Python class: its own, those of its slots, and those of its classes.
    fn add_instance(&mut self, object: &Bound<'_, PyAny>, kind: &Bound<'_, PyType>) {
        self.reach(kind.as_any());
        let (module, _) = class_names(kind);
        let of_library = is_of_a_library(&module);
        if let Some(own) = attributes::own(object) {
            self.watch.add_own(object, &own);
            self.add_attributes(&own, if of_library { Scope::All } else { Scope::Named });
        }
        for class in kind.mro().iter() {
            let Ok(class) = class.cast::<PyType>() else { continue };
            for at in attributes::slots(object, class) {
                // SAFETY: a slot lies in its object.
                if let Some(held) = unsafe { self.watch.add_object(object, at) } {
                    self.reach(&held);
                }
            }
        }
        if !of_library {
            self.add_class_of(object);
        }
    }

    /// Which class an object has.
    fn add_class_of(&mut self, object: &Bound<'_, PyAny>) {
        // SAFETY: a word of the object.
        unsafe {
            let at = object.as_ptr().cast::<u8>().add(offset_of!(ffi::PyObject, ob_type)).cast();
            self.watch.add_object(object, at);
        }
    }

    /// The target of a weak reference: its attributes are watched, and it is not kept alive.
    fn add_weak(&mut self, reference: &Bound<'_, PyAny>, object: &Bound<'_, PyAny>) {
        let kind = object.get_type();
        match attributes::own(object).filter(|_| is_written_in_python(&kind)) {
            Some(own) if unwatched::c_base(&kind).is(object.py().get_type::<PyAny>()) => {
                self.reach(kind.as_any());
                self.watch.add_own_of_weak(reference, &own);
                self.add_attributes(&own, Scope::Named);
            }
            // An object with more than attributes is kept alive: its contents are read by its address.
            _ => self.reach(object),
        }
    }

    /// The attributes in a dictionary.
    fn add_attributes(&mut self, dict: &Bound<'_, PyDict>, scope: Scope) {
        let py = dict.py();
        if self.dicts.contains_key(&address(dict)) {
            return;
        }
        let k = self.watch.add_dict(dict, scope);
        self.dicts.insert(address(dict), k);
        let found = if scope == Scope::All { self.watch.take_all(py, k) } else { self.watch.take_named(py, k) };
        self.reach_all(&found);
    }

    fn add_class(&mut self, kind: &Bound<'_, PyType>) {
        let py = kind.py();
        let meta = kind.get_type();
        if is_written_in_python(&meta) {
            self.reach(meta.as_any());
        }
        let is_followed = |class: &Bound<'_, PyType>| {
            let (module, _) = class_names(class);
            is_written_in_python(class) && !is_of_a_library(&module) && !is_standard(py, &module)
        };
        if !is_followed(kind) {
            return;
        }
        // SAFETY: the words of the base classes and of the metaclass lie in the class.
        unsafe { self.watch.add_object(kind, (&raw const (*kind.as_type_ptr()).tp_mro).cast()) };
        self.add_class_of(kind);
        for class in kind.mro().iter() {
            let Ok(class) = class.cast_into::<PyType>() else { continue };
            if is_followed(&class)
                && let Some(dict) = attributes::of_class(&class)
            {
                self.add_attributes(&dict, Scope::Class);
            }
        }
    }

    fn add_module(&mut self, module: &Bound<'_, PyModule>) {
        let name = module.name().map_or_else(|_| String::new(), |name| name.to_string_lossy().into_owned());
        if name == "decimal" {
            self.watch_called(module.py(), "_decimal", "getcontext");
        }
        if !matches!(top(&name), "burtorch" | "builtins") {
            self.add_attributes(&module.dict(), Scope::Named);
        }
    }

    /// The C data of an object of a C class, or of a class that derives from one.
    fn add_c_object(&mut self, object: &Bound<'_, PyAny>, kind: &Bound<'_, PyType>) {
        let py = object.py();
        // SAFETY: living objects; the word of what a weak reference refers to follows the head.
        unsafe {
            if ffi::PyWeakref_Check(object.as_ptr()) != 0 {
                self.watch.add_exact(object, object.as_ptr().add(1).cast::<usize>());
                if let Some(held) = object.cast::<PyWeakref>().ok().and_then(PyWeakrefMethods::upgrade) {
                    self.add_weak(object, &held);
                }
                return;
            }
            if ffi::PyContextVar_CheckExact(object.as_ptr()) != 0 {
                if let Some(held) = self.watch.add_context(object) {
                    self.reach(&held);
                }
                return;
            }
            if ffi::PyCFunction_Check(object.as_ptr()) != 0 {
                // A bound method: of its object.
                let owner = (*object.as_ptr().cast::<ffi::PyCFunctionObject>()).m_self;
                let owner = Bound::from_borrowed_ptr_or_opt(py, owner);
                if let Some(owner) = owner.filter(|owner| !owner.is_instance_of::<PyModule>()) {
                    self.reach(&owner);
                }
                return;
            }
        }
        let base = unwatched::c_base(kind);
        let (module, class) = class_names(&base);
        if (module.as_str(), class.as_str()) == ("_thread", "_local") {
            // Its dictionary is that of this thread.
            if let Some(Ok(own)) = quietly(py, || Ok(object.getattr("__dict__")?.cast_into::<PyDict>())) {
                self.add_attributes(&own, Scope::All);
            }
            return;
        }
        if let ("collections", "OrderedDict" | "defaultdict") = (module.as_str(), class.as_str()) {
            // Its order is not that of the dictionary it is; its factory is not in the dictionary.
            let held = attributes::referents(object);
            self.reach_all(&held);
            self.watch.add_referents(object, &held);
        }
        if module == "_ctypes" {
            // The objects that a pointer, or a structure with pointers, refers to.
            match quietly(py, || object.getattr("_objects")).filter(|held| !held.is_none()) {
                Some(held) => self.reach(&held),
                None if class == "_Pointer" => self.add_opaque(object, &base),
                None => {}
            }
        }
        if class == "Decimal" {
            self.watch_called(py, "_decimal", "getcontext");
        }
        if matches!(class.as_str(), "attrgetter" | "methodcaller") {
            self.is_dynamic = true;
        }
        if class == "cython_function_or_method" {
            self.add_cython(object);
        } else if raw_bytes(object).is_none() && !is_container(object) {
            self.add_opaque(object, &base);
        }
    }

    /// Watches the result of a function of a C module, called without arguments.
    pub fn watch_called(&mut self, py: Python<'_>, module: &str, name: &str) {
        if let Some(function) = quietly(py, || py.import(module)?.getattr(name))
            && self.seen.insert(address(&function))
        {
            self.kept.push(function.clone().unbind());
            self.watch.add_called(&function);
        }
    }

    fn add_opaque(&mut self, object: &Bound<'_, PyAny>, base: &Bound<'_, PyType>) {
        match unwatched::of_object(object, base) {
            Object::Known => {}
            Object::Holds => {
                let held = attributes::referents(object);
                self.reach_all(&held);
                self.watch.add_referents(object, &held);
            }
            Object::Unwatched(kind) => {
                let (module, class) = class_names(&object.get_type());
                let name = if module == "builtins" { class } else { format!("{module}.{class}") };
                if let Some(text) = kind.text(&format!("an object of type {name}")) {
                    self.note(kind, text);
                }
            }
        }
    }

    /// Calls of functions made by Cython are not visible to the profiler.
    fn add_cython(&mut self, function: &Bound<'_, PyAny>) {
        let py = function.py();
        let text = |name: &str| quietly(py, || function.getattr(name)?.extract::<String>()).unwrap_or_default();
        let (module, name) = (text("__module__"), text("__name__"));
        if unwatched::is_random_of_numpy(&module) {
            self.note(Kind::Random, format!("draws random numbers by {module}.{name}()"));
        } else if !is_of_a_library(&module) {
            self.note(Kind::Hidden, format!("reads {module}.{name}(), which a replay cannot watch"));
        }
        if let Some(owner) = quietly(py, || function.getattr("__self__")) {
            self.reach(&owner);
        }
    }

    /// A traced function may run as a replay: the sources of its trace count.
    fn add_recorded(&mut self, function: &Bound<'_, PyAny>) -> PyResult<()> {
        let body = function.getattr("__wrapped__")?;
        match body.cast::<PyFunction>() {
            Ok(_) => self.add_function(&body, true)?,
            Err(_) => self.reach(&body),
        }
        for known in super::object_type::executed(function) {
            self.executed(known.bind(function.py()))?;
        }
        Ok(())
    }

    /// A function that was found, or that runs. For one that was only found, its attributes count, unless running functions
    /// cannot be identified.
    fn add_function(&mut self, function: &Bound<'_, PyAny>, is_executed: bool) -> PyResult<()> {
        let py = function.py();
        if self.seen.insert(address(function)) {
            self.kept.push(function.clone().unbind());
        }
        let object = function.as_ptr().cast::<ffi::PyFunctionObject>();
        // SAFETY: a living function; the word of its attributes lies in it.
        let own = unsafe {
            let at = (&raw const (*object).func_dict).cast();
            object_at(function, at).and_then(|_| self.watch.add_object(function, at))
        };
        match own.map(|own| own.cast_into::<PyDict>()) {
            Some(Ok(own)) => self.add_attributes(&own, Scope::Named),
            _ => self.bare.push(function.clone().unbind()),
        }
        if !is_executed && super::observe::SEES_FUNCTIONS || !self.followed.insert(address(function)) {
            return Ok(());
        }
        let globals = function.getattr("__globals__")?.cast_into::<PyDict>()?;
        let module: String = globals.get_item("__name__")?.and_then(|name| name.extract().ok()).unwrap_or_default();
        if !is_executed && (is_of_a_library(&module) || is_standard(py, &module)) {
            return Ok(());
        }
        // SAFETY: a living function; its code and defaults are words of it, replaced while all other threads stand still.
        unsafe {
            self.watch.add_object(function, (&raw const (*object).func_code).cast());
            for at in [&raw const (*object).func_defaults, &raw const (*object).func_kwdefaults] {
                // A call that succeeds without defaults needs none.
                let held = object_at(function, at.cast()).and_then(|_| self.watch.add_object(function, at.cast()));
                held.iter().for_each(|held| self.reach(held));
            }
        }
        if let Ok(cells) = function.getattr("__closure__")?.cast_into::<PyTuple>() {
            cells.iter().for_each(|cell| self.add_cell(&cell));
        }
        self.add_code(&function.getattr("__code__")?, &globals, is_executed)
    }

    fn add_cell(&mut self, cell: &Bound<'_, PyAny>) {
        if !self.seen.insert(address(cell)) {
            return;
        }
        self.kept.push(cell.clone().unbind());
        // SAFETY: a living cell; its content is a word of it.
        let held = unsafe {
            let at = (&raw const (*cell.as_ptr().cast::<ffi::PyCellObject>()).ob_ref).cast::<usize>();
            self.watch.add_object(cell, at)
        };
        if let Some(held) = held {
            self.reach(&held);
        }
    }

    /// Names that a code object looks up in its globals and in objects.
    pub fn add_code(
        &mut self,
        code: &Bound<'_, PyAny>,
        globals: &Bound<'_, PyDict>,
        is_executed: bool,
    ) -> PyResult<()> {
        let py = code.py();
        if is_executed {
            self.add_name(&code.getattr("co_name")?.cast_into::<PyString>()?)?;
        }
        if !self.codes.insert((address(code), address(globals))) {
            return Ok(());
        }
        self.kept.push(code.clone().unbind());
        let names = Names::of(code)?;
        for inner in &names.inner {
            self.kept.push(inner.clone().unbind());
            self.inner.insert(address(inner));
        }
        let module: String = globals.get_item("__name__")?.and_then(|name| name.extract().ok()).unwrap_or_default();
        let computes = |name: &Bound<'_, PyString>| {
            let name = name.to_str().unwrap_or_default();
            matches!(name, "getattr" | "hasattr" | "vars" | "dir" | "eval" | "exec" | "attrgetter" | "globals")
                || matches!(name, "__dict__" | "__getattribute__" | "import_module" | "__import__")
        };
        if !is_standard(py, &module) && names.globals.iter().chain(&names.attributes).any(computes) {
            self.is_dynamic = true;
            for text in names.texts.iter().filter(|text| is_identifier(text)) {
                self.add_name(text)?;
                self.add_import(text)?;
                self.add_global(globals, text)?;
            }
        }
        for name in &names.globals {
            self.add_global(globals, name)?;
        }
        for name in &names.imports {
            self.add_import(name)?;
        }
        for name in names.attributes.iter().chain(&names.imports) {
            self.add_name(name)?;
        }
        Ok(())
    }

    /// A name in the globals of a function, or else in the builtins.
    fn add_global(&mut self, globals: &Bound<'_, PyDict>, name: &Bound<'_, PyString>) -> PyResult<()> {
        let py = name.py();
        if let Some(held) = self.add_listed(globals, name) {
            self.reach(&held);
            return Ok(());
        }
        let builtins = py.import("builtins")?.dict();
        if let Some(held) = self.add_listed(&builtins, name) {
            self.reach(&held);
        }
        Ok(())
    }

    /// A module that is imported.
    fn add_import(&mut self, name: &Bound<'_, PyString>) -> PyResult<()> {
        let modules = name.py().import("sys")?.getattr("modules")?.cast_into::<PyDict>()?;
        if super::probes::in_dict(&modules, name).is_some()
            && let Some(held) = self.add_listed(&modules, name)
        {
            self.reach(&held);
        }
        Ok(())
    }

    /// Watches single names in a dictionary; returns the value.
    fn add_listed<'py>(&mut self, dict: &Bound<'py, PyDict>, name: &Bound<'py, PyString>) -> Option<Bound<'py, PyAny>> {
        let key = address(dict) ^ 1;
        let k = match self.dicts.get(&key) {
            Some(&k) => k,
            None => {
                let k = self.watch.add_dict(dict, Scope::Listed);
                self.dicts.insert(key, k);
                k
            }
        };
        if !self.codes.insert((address(name), key)) {
            return super::probes::in_dict(dict, name);
        }
        self.kept.push(name.clone().into_any().unbind());
        self.watch.add_key(dict.py(), k, name)
    }
}

/// Whether a dictionary belongs to a module.
fn is_of_a_module(dict: &Bound<'_, PyDict>) -> bool {
    ["__name__", "__spec__"].iter().all(|name| dict.contains(*name).unwrap_or(false))
}

/// Whether the items of an object are watched.
fn is_container(object: &Bound<'_, PyAny>) -> bool {
    object.is_instance_of::<PyDict>() || object.is_instance_of::<PyTuple>() || attributes::all_items(object).is_some()
}

fn is_identifier(text: &Bound<'_, PyString>) -> bool {
    // SAFETY: living text.
    text.len().is_ok_and(|n| n < 100) && unsafe { ffi::PyUnicode_IsIdentifier(text.as_ptr()) == 1 }
}

/// The objects in an array of objects.
fn objects_in<'py>(array: &Bound<'py, PyAny>) -> Vec<Bound<'py, PyAny>> {
    let all = || -> PyResult<Vec<Bound<'py, PyAny>>> {
        let modules = array.py().import("sys")?.getattr("modules")?.cast_into::<PyDict>()?;
        let Some(numpy) = modules.get_item("numpy")? else { return Ok(Vec::new()) };
        if !array.is_instance(&numpy.getattr("ndarray")?)? {
            return Ok(Vec::new());
        }
        // Without methods of a subclass.
        let plain = numpy.getattr("asarray")?.call1((array,))?;
        if !plain.getattr("dtype")?.getattr("hasobject")?.extract::<bool>()? {
            return Ok(Vec::new());
        }
        plain.getattr("flat")?.try_iter()?.map(|item| item.map(|item| of_record(item))).collect()
    };
    quietly(array.py(), all).unwrap_or_default()
}

/// The fields of a NumPy record, as a tuple; any other object unchanged.
fn of_record(item: Bound<'_, PyAny>) -> Bound<'_, PyAny> {
    let is_record = item.get_type().name().is_ok_and(|name| name == "void");
    if is_record { quietly(item.py(), || item.call_method0("item")).unwrap_or(item) } else { item }
}
