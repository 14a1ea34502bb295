//! The search in objects: their contents, attributes, classes and C data.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::mem::offset_of;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyModule, PyTuple, PyType, PyWeakref, PyWeakrefMethods};

use super::{Search, address};
use crate::convert::raw_bytes::raw_bytes;
use crate::convert::signals::quietly;
use crate::trace::attributes::{self, class_names, is_of_a_library, is_standard, is_written_in_python, top};
use crate::trace::code::computes;
use crate::trace::invalidate::Scope;
use crate::trace::unwatched::{self, Kind, Object};

impl Search {
    /// Items of a list, tuple, dict or set; numbers of an array.
    pub(super) fn add_contents(&mut self, object: &Bound<'_, PyAny>) {
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
    pub(super) fn add_instance(&mut self, object: &Bound<'_, PyAny>, kind: &Bound<'_, PyType>) {
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
    pub(super) fn add_attributes(&mut self, dict: &Bound<'_, PyDict>, scope: Scope) {
        let py = dict.py();
        if self.dicts.contains_key(&address(dict)) {
            return;
        }
        let k = self.watch.add_dict(dict, scope);
        self.dicts.insert(address(dict), k);
        let found = if scope == Scope::All { self.watch.take_all(py, k) } else { self.watch.take_named(py, k) };
        self.reach_all(&found);
    }

    pub(super) fn add_class(&mut self, kind: &Bound<'_, PyType>) {
        let meta = kind.get_type();
        if is_written_in_python(&meta) {
            self.reach(meta.as_any());
        }
        if !is_followed(kind) {
            return;
        }
        // SAFETY: the words of the base classes and of the metaclass lie in the class.
        unsafe { self.watch.add_object(kind, (&raw const (*kind.as_type_ptr()).tp_mro).cast()) };
        self.add_class_of(kind);
        for dict in followed(kind) {
            self.add_attributes(&dict, Scope::Class);
        }
    }

    pub(super) fn add_module(&mut self, module: &Bound<'_, PyModule>) {
        let name = module.name().map_or_else(|_| String::new(), |name| name.to_string_lossy().into_owned());
        if name == "decimal" {
            self.watch_called(module.py(), "_decimal", "getcontext");
        }
        if !matches!(top(&name), "burtorch" | "builtins") {
            self.add_attributes(&module.dict(), Scope::Named);
        }
    }

    /// The C data of an object of a C class, or of a class that derives from one.
    pub(super) fn add_c_object(&mut self, object: &Bound<'_, PyAny>, kind: &Bound<'_, PyType>) {
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
                let function = object.as_ptr().cast::<ffi::PyCFunctionObject>();
                let owner = Bound::from_borrowed_ptr_or_opt(py, (*function).m_self);
                // `getattr` and the like by another name.
                self.is_dynamic |= owner.as_ref().is_some_and(|owner| owner.is_instance_of::<PyModule>())
                    && CStr::from_ptr((*(*function).m_ml).ml_name).to_str().is_ok_and(computes);
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
}

/// Whether the attributes of a class itself are watched.
fn is_followed(class: &Bound<'_, PyType>) -> bool {
    let (module, _) = class_names(class);
    is_written_in_python(class) && !is_of_a_library(&module) && !is_standard(class.py(), &module)
}

/// The dictionaries of a class and its bases, where they are watched.
pub(super) fn followed<'py>(kind: &Bound<'py, PyType>) -> Vec<Bound<'py, PyDict>> {
    let classes = kind.mro().into_iter().filter_map(|class| class.cast_into::<PyType>().ok());
    classes.filter(is_followed).filter_map(|class| attributes::of_class(&class)).collect()
}

/// Whether the items of an object are watched.
fn is_container(object: &Bound<'_, PyAny>) -> bool {
    object.is_instance_of::<PyDict>() || object.is_instance_of::<PyTuple>() || attributes::all_items(object).is_some()
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
