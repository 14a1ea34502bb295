//! The search in functions: their code, globals, cells and defaults, and the names that code looks up.
#![allow(unsafe_code)]

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFunction, PyString, PyTuple};

use super::{Search, address};
use crate::convert::critical_section::object_at;
use crate::trace::attributes::{is_of_a_library, is_standard};
use crate::trace::code::{Names, computes};
use crate::trace::invalidate::Scope;

impl Search {
    /// A traced function may run as a replay: the sources of its trace count.
    pub(super) fn add_recorded(&mut self, function: &Bound<'_, PyAny>) -> PyResult<()> {
        let body = function.getattr("__wrapped__")?;
        match body.cast::<PyFunction>() {
            Ok(_) => self.add_function(&body, true)?,
            Err(_) => self.reach(&body),
        }
        for known in crate::trace::object_type::executed(function) {
            self.executed(known.bind(function.py()))?;
        }
        Ok(())
    }

    /// A function that was found, or that runs. For one that was only found, its attributes count, unless running functions
    /// cannot be identified.
    pub(super) fn add_function(&mut self, function: &Bound<'_, PyAny>, is_executed: bool) -> PyResult<()> {
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
        if !is_executed && crate::trace::observe::SEES_FUNCTIONS || !self.followed.insert(address(function)) {
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
        if !is_standard(py, &module) && names.computes() {
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
        // Code that names one of these has been treated so already, or is of the standard library: see `fields`.
        if let Some(held) = self.add_listed(&builtins, name).filter(|_| !computes(name.to_str().unwrap_or_default())) {
            self.reach(&held);
        }
        Ok(())
    }

    /// A module that is imported.
    fn add_import(&mut self, name: &Bound<'_, PyString>) -> PyResult<()> {
        let modules = name.py().import("sys")?.getattr("modules")?.cast_into::<PyDict>()?;
        if crate::trace::probes::in_dict(&modules, name).is_some()
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
            return crate::trace::probes::in_dict(dict, name);
        }
        self.kept.push(name.clone().into_any().unbind());
        self.watch.add_key(dict.py(), k, name)
    }
}

fn is_identifier(text: &Bound<'_, PyString>) -> bool {
    // SAFETY: living text.
    text.len().is_ok_and(|n| n < 100) && unsafe { ffi::PyUnicode_IsIdentifier(text.as_ptr()) == 1 }
}
