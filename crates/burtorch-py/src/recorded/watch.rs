//! What a recording took for constant: closed-over names and globals, looked at again before every replay.
//!
//! Promises: a closure cell or global that holds another number or object than when the function was recorded is
//! noticed, also of the Python functions it calls; so are numbers in lists, dicts and arrays held there, and numbers in
//! modules that are named. Attributes of other objects are not looked at. A look costs a nanosecond or two per closure
//! cell, and nothing per global while the module's names stay as they are (CPython up to 3.11; later a look-up each).
#![allow(unsafe_code)]

use std::collections::HashSet;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyFunction, PyInt, PyList, PyModule, PyString, PyTuple};

use super::arrays::Array;
use super::parameter::PyParameter;
use crate::vector::number_of;

/// More functions than this are not followed.
const MOST_FUNCTIONS: usize = 256;

/// Where a constant was found.
enum Place {
    Cell(Py<PyAny>),
    Name(Py<PyDict>, Py<PyString>),
}

/// One constant.
struct Entry {
    place: Place,
    /// What was there; `None` for a name that was not defined.
    held: Option<Py<PyAny>>,
    /// Its numbers, if it can change in place.
    contents: Option<Vec<f64>>,
}

/// All constants of a recording.
#[derive(Default)]
pub struct Watch {
    entries: Vec<Entry>,
    /// Dictionaries and the versions they had.
    versions: Vec<(*mut ffi::PyObject, u64)>,
    /// How many entries, from the first, have to be looked at even if no dictionary has changed.
    always: usize,
}

/// The version that CPython gives a dictionary at every change; `None` where there is none.
#[inline(always)]
unsafe fn version(dict: *mut ffi::PyObject) -> Option<u64> {
    #[cfg(all(not(Py_3_12), not(PyPy), not(GraalPy)))]
    {
        #[repr(C)]
        struct Prefix {
            head: ffi::PyObject,
            used: ffi::Py_ssize_t,
            version: u64,
        }
        // SAFETY: callers pass a living dict; its layout in CPython 3.9 to 3.11 begins like this.
        Some(unsafe { (*dict.cast::<Prefix>()).version })
    }
    #[cfg(any(Py_3_12, PyPy, GraalPy))]
    {
        let _ = dict;
        None
    }
}

/// The numbers of a list, dict or array; `None` for what is not watched inside.
fn contents_of(object: &Bound<'_, PyAny>) -> Option<Vec<f64>> {
    let numbers = |items: &mut dyn Iterator<Item = Bound<'_, PyAny>>| {
        items.map(|x| plain_number(&x)).collect::<Option<Vec<f64>>>()
    };
    if let Ok(list) = object.cast_exact::<PyList>() {
        return numbers(&mut list.iter());
    }
    if let Ok(dict) = object.cast_exact::<PyDict>() {
        return numbers(&mut dict.values().iter());
    }
    if object.is_instance_of::<pyo3::types::PyBytes>() || object.is_instance_of::<PyString>() {
        return None;
    }
    let mut all = Vec::new();
    Array::of(object)?.read_into(&mut all);
    Some(all)
}

/// A float or an int, also of a subclass (NumPy's float64 is one). Asking runs no Python code.
fn plain_number(object: &Bound<'_, PyAny>) -> Option<f64> {
    let is_plain = object.is_instance_of::<PyFloat>() || object.is_instance_of::<PyInt>();
    is_plain.then(|| number_of(object).ok().flatten()).flatten()
}

fn same_bits(a: &[f64], b: &[f64]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}

impl Entry {
    fn new(place: Place, held: Option<Bound<'_, PyAny>>) -> Self {
        let contents = held.as_ref().filter(|held| !held.is_instance_of::<PyParameter>()).and_then(contents_of);
        Entry { place, held: held.map(Bound::unbind), contents }
    }

    /// What is there now.
    fn now<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        match &self.place {
            // SAFETY: a living cell; the result is a reference of ours, or null for an empty one.
            Place::Cell(cell) => unsafe { Bound::from_owned_ptr_or_opt(py, ffi::PyCell_Get(cell.as_ptr())) },
            Place::Name(names, name) => names.bind(py).get_item(name).ok().flatten(),
        }
    }

    fn is_as_it_was(&mut self, py: Python<'_>) -> bool {
        let now = self.now(py);
        let is_held = match (&now, &self.held) {
            (Some(now), Some(held)) => now.is(held),
            (None, None) => true,
            _ => return false,
        };
        if !is_held {
            // Another object, but perhaps the same number.
            let (Some(now), Some(held)) = (&now, &self.held) else { return false };
            let numbers = (plain_number(now), plain_number(held.bind(py)));
            let (Some(a), Some(b)) = numbers else { return false };
            if a.to_bits() != b.to_bits() || !now.get_type().is(held.bind(py).get_type()) {
                return false;
            }
            // At once, by way of a bound reference: PyO3 puts off what is dropped where it has not taken the lock itself.
            drop(self.held.replace(now.clone().unbind()).map(|before| before.into_bound(py)));
        }
        match (&self.contents, &now) {
            (Some(before), Some(now)) => contents_of(now).is_some_and(|numbers| same_bits(before, &numbers)),
            _ => true,
        }
    }
}

impl Watch {
    /// Whether everything is as it was when the function was recorded.
    #[inline(always)]
    pub fn is_as_it_was(&mut self, py: Python<'_>) -> bool {
        self.entries.is_empty() || self.look(py)
    }

    #[inline(never)]
    fn look(&mut self, py: Python<'_>) -> bool {
        // SAFETY: the dictionaries are held by entries.
        let same = |&(dict, before): &(*mut ffi::PyObject, u64)| unsafe { version(dict) } == Some(before);
        let names_are_same = self.versions.iter().all(same);
        let to_look_at = if names_are_same { self.always } else { self.entries.len() };
        if !self.entries[..to_look_at].iter_mut().all(|entry| entry.is_as_it_was(py)) {
            return false;
        }
        if !names_are_same {
            self.note_versions();
        }
        true
    }

    fn note_versions(&mut self) {
        for (dict, before) in &mut self.versions {
            // SAFETY: the dictionaries are held by entries.
            *before = unsafe { version(*dict) }.unwrap_or(u64::MAX);
        }
    }

    /// Looks through a function, and those it names, for what a recording takes for constant.
    pub fn of(body: &Bound<'_, PyAny>) -> PyResult<Watch> {
        let mut watch = Watch::default();
        let mut seen = HashSet::new();
        let mut open = vec![body.clone()];
        while let Some(function) = open.pop() {
            if seen.len() < MOST_FUNCTIONS && seen.insert(function.as_ptr() as usize) {
                watch.add_function(&function, &mut open)?;
            }
        }
        // Cells, and names whose numbers can change in place, come first.
        let is_first = |entry: &Entry| entry.contents.is_some() || matches!(entry.place, Place::Cell(_));
        watch.entries.sort_by_key(|entry| !is_first(entry));
        watch.always = watch.entries.iter().take_while(|entry| is_first(entry)).count();
        let mut dicts: Vec<*mut ffi::PyObject> = watch
            .entries
            .iter()
            .filter_map(|entry| match &entry.place {
                Place::Name(names, _) => Some(names.as_ptr()),
                Place::Cell(_) => None,
            })
            .collect();
        dicts.sort_unstable();
        dicts.dedup();
        watch.versions = dicts.into_iter().map(|dict| (dict, 0)).collect();
        watch.note_versions();
        Ok(watch)
    }

    fn add_function<'py>(&mut self, function: &Bound<'py, PyAny>, open: &mut Vec<Bound<'py, PyAny>>) -> PyResult<()> {
        let py = function.py();
        if !function.is_instance_of::<PyFunction>() {
            // A recorded function is inlined: what it wraps counts. So does the function of a method.
            for name in ["__wrapped__", "__func__"] {
                open.extend(function.getattr_opt(name)?);
            }
            return Ok(());
        }
        let globals = function.getattr("__globals__")?.cast_into::<PyDict>()?;
        let module: Option<String> = globals.get_item("__name__")?.and_then(|name| name.extract().ok());
        let root = module.as_deref().and_then(|name| name.split('.').next());
        if matches!(root, Some("burtorch" | "numpy" | "scipy")) && !self.entries.is_empty() {
            return Ok(());
        }
        if let Ok(cells) = function.getattr("__closure__")?.cast_into::<PyTuple>() {
            for cell in cells.iter() {
                let held = cell.getattr_opt("cell_contents").unwrap_or(None);
                self.add(Place::Cell(cell.unbind()), held, open);
            }
        }
        let mut names = Vec::new();
        names_of(&function.getattr("__code__")?, &mut names, 0)?;
        let builtins = py.import("builtins")?;
        for name in &names {
            match globals.get_item(name)? {
                Some(held) => {
                    if let Ok(module) = held.cast::<PyModule>() {
                        self.add_numbers_of(module, &names)?;
                    }
                    self.add(Place::Name(globals.clone().unbind(), name.clone().unbind()), Some(held), open);
                }
                None if builtins.hasattr(name)? => {
                    self.add(Place::Name(globals.clone().unbind(), name.clone().unbind()), None, open);
                }
                None => {}
            }
        }
        Ok(())
    }

    fn add<'py>(&mut self, place: Place, held: Option<Bound<'py, PyAny>>, open: &mut Vec<Bound<'py, PyAny>>) {
        if let Some(held) = &held {
            let wraps = held.hasattr("__wrapped__").unwrap_or(false) || held.hasattr("__func__").unwrap_or(false);
            if held.is_instance_of::<PyFunction>() || wraps {
                open.push(held.clone());
            }
        }
        self.entries.push(Entry::new(place, held));
    }

    /// Numbers of a module that the function names: `settings.rate`.
    fn add_numbers_of(&mut self, module: &Bound<'_, PyModule>, names: &[Bound<'_, PyString>]) -> PyResult<()> {
        let dict = module.dict();
        for name in names {
            if let Some(held) = dict.get_item(name)?
                && number_of(&held)?.is_some()
            {
                self.entries.push(Entry::new(Place::Name(dict.clone().unbind(), name.clone().unbind()), Some(held)));
            }
        }
        Ok(())
    }

    /// Calls `f` with every object held, for the garbage collector.
    pub fn for_each(&self, mut f: impl FnMut(*mut ffi::PyObject)) {
        for entry in &self.entries {
            match &entry.place {
                Place::Cell(cell) => f(cell.as_ptr()),
                Place::Name(names, _) => f(names.as_ptr()),
            }
            if let Some(held) = &entry.held {
                f(held.as_ptr());
            }
        }
    }
}

/// The names that a code object and those inside it may look up.
fn names_of<'py>(code: &Bound<'py, PyAny>, names: &mut Vec<Bound<'py, PyString>>, depth: usize) -> PyResult<()> {
    for name in code.getattr("co_names")?.try_iter()? {
        let name = name?.cast_into::<PyString>()?;
        if !names.iter().any(|known| known.is(&name)) {
            names.push(name);
        }
    }
    for inner in code.getattr("co_consts")?.try_iter()? {
        let inner = inner?;
        if depth < 16 && inner.hasattr("co_names")? {
            names_of(&inner, names, depth + 1)?;
        }
    }
    Ok(())
}
