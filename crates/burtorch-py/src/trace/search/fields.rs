//! The search in objects whose attributes the standard library reads for the body, by names that the body does not contain:
//! `dataclasses.asdict`, `copy.copy`, `optparse.Values.ensure_value`, `"{0.k}".format`.
//!
//! Such a function reads attributes of its arguments, so all attributes of those arguments count that were found before; an
//! object that the body makes is no constant.
#![allow(unsafe_code)]

use std::ffi::CStr;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFunction, PyModule, PyString, PyTuple, PyType};

use super::objects::followed;
use super::{Search, address};
use crate::trace::attributes;
use crate::trace::code::Names;
use crate::trace::invalidate::Scope;

/// Whether a function of the standard library reads attributes by computed names. Those of `functools` copy or store what
/// decorated functions have.
pub fn reads_fields(module: &str, code: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(attributes::top(module) != "functools" && Names::of(code)?.computes())
}

impl Search {
    /// A frame that is being entered, of a function that reads attributes of its arguments.
    pub fn add_arguments(&mut self, frame: &Bound<'_, PyAny>) -> PyResult<()> {
        for argument in frame.getattr("f_locals")?.call_method0("values")?.try_iter()? {
            let argument = argument?;
            if let Ok(all) = argument.cast_exact::<PyTuple>() {
                all.iter().try_for_each(|item| self.add_fields(&item))?;
            } else if let Ok(all) = argument.cast_exact::<PyDict>() {
                all.values().iter().try_for_each(|item| self.add_fields(&item))?;
            }
            self.add_fields(&argument)?;
        }
        Ok(())
    }

    /// A method of C that is being called.
    pub fn add_method(&mut self, function: &Bound<'_, PyAny>) -> PyResult<()> {
        // SAFETY: the caller passes a function of C; its definition has a name.
        let (name, owner) = unsafe {
            let object = function.as_ptr().cast::<ffi::PyCFunctionObject>();
            let owner = Bound::from_borrowed_ptr_or_opt(function.py(), (*object).m_self);
            (CStr::from_ptr((*(*object).m_ml).ml_name).to_bytes(), owner)
        };
        let Some(owner) = owner else { return Ok(()) };
        match name {
            b"__reduce_ex__" | b"__reduce__" | b"__getstate__" | b"__dir__" => self.add_fields(&owner),
            b"format" | b"format_map" => match owner.cast::<PyString>() {
                Ok(text) => self.add_names_in(text),
                Err(_) => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// The names behind dots in a format, such as `"{0.k}"`.
    fn add_names_in(&mut self, text: &Bound<'_, PyString>) -> PyResult<()> {
        let py = text.py();
        for part in text.to_string_lossy().split('.').skip(1) {
            let name: String = part.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            self.add_name(&PyString::intern(py, &name))?;
        }
        self.drain(py)
    }

    /// All attributes of an object, if it was found before.
    fn add_fields(&mut self, object: &Bound<'_, PyAny>) -> PyResult<()> {
        let is_other = object.is_instance_of::<PyModule>() || object.is_instance_of::<PyFunction>();
        if attributes::is_plain(object) || is_other || !self.seen.contains(&address(object)) {
            return Ok(());
        }
        let kind = object.cast::<PyType>().cloned().unwrap_or_else(|_| object.get_type());
        if !attributes::is_written_in_python(&kind) {
            return Ok(());
        }
        let own = (!object.is(&kind)).then(|| attributes::own(object)).flatten();
        let of_classes = followed(&kind).into_iter().map(|dict| (dict, Scope::Class));
        for (dict, scope) in own.into_iter().map(|own| (own, Scope::Named)).chain(of_classes) {
            self.add_all(&dict, scope);
        }
        self.drain(object.py())
    }

    fn add_all(&mut self, dict: &Bound<'_, PyDict>, scope: Scope) {
        let py = dict.py();
        self.add_attributes(dict, scope);
        if let Some(&k) = self.dicts.get(&address(dict))
            && self.watch.dict(py, k).1 != Scope::All
        {
            let found = self.watch.take_all(py, k);
            self.reach_all(&found);
        }
    }
}
