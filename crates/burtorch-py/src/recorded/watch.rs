//! What a recording took for constant: closed-over names and globals, looked at again before every replay.
//!
//! Promises: a closure cell or global that holds another number or object than when the function was recorded is
//! noticed, also of the Python functions it calls; so is what lists, dicts, sets and arrays held there contain, at any
//! depth, numbers in modules that are named, and attributes of objects. A look costs a nanosecond or two per closure cell,
//! item of a list and dictionary that was read, and nothing per name in it while it stays as it is (CPython up to 3.11;
//! later a look-up each).
#![allow(unsafe_code)]

use std::collections::HashSet;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyFloat, PyFunction, PyInt, PyList, PyModule, PyString, PyTuple};

use super::arrays::Array;
use super::attributes::{self, Found};
use super::parameter::PyParameter;
use crate::vector::number_of;

/// More functions than this are not followed.
const MOST_FUNCTIONS: usize = 256;
/// Nor are more objects.
const MOST_OBJECTS: usize = 1024;
/// Nor is what more lists, tuples, dicts, sets and arrays hold.
const MOST_CONTAINERS: usize = 1 << 16;

/// Where a constant was found.
enum Place {
    Cell(Py<PyAny>),
    Name(Py<PyDict>, Py<PyString>),
    /// An object, and a slot that its class has.
    Slot(Py<PyAny>, Py<PyAny>),
    /// Inside this object.
    Inside(Py<PyAny>),
}

/// What something holds that can change in place.
enum Contents {
    /// Items of a list or set; keys and values of a dict.
    Items(Vec<Py<PyAny>>),
    /// Numbers of an array.
    Numbers(Vec<f64>),
}

/// One constant.
struct Entry {
    place: Place,
    /// What was there; `None` for a name that was not defined.
    held: Option<Py<PyAny>>,
    /// What is inside, where the place is an object.
    contents: Option<Contents>,
}

/// All constants of a recording.
#[derive(Default)]
pub struct Watch {
    entries: Vec<Entry>,
    /// Dictionaries and the versions they had.
    versions: Vec<(*mut ffi::PyObject, u64)>,
    /// How many entries, from the first, have to be looked at even if no dictionary has changed.
    always: usize,
    /// What may be read and cannot be watched, in words.
    pub unseen: Option<String>,
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

impl Contents {
    /// What is inside an object; `None` for what does not change, or is not watched inside.
    fn of(object: &Bound<'_, PyAny>) -> Option<Contents> {
        if object.is_instance_of::<PyTuple>() || object.is_instance_of::<PyBytes>() {
            return None;
        }
        if let Some(items) = attributes::all_items(object) {
            return Some(Contents::Items(items.into_iter().map(Bound::unbind).collect()));
        }
        let mut all = Vec::new();
        Array::of(object)?.read_into(&mut all);
        Some(Contents::Numbers(all))
    }

    /// Whether an object holds this: the same objects, or equal numbers of the same types.
    fn is_in(&self, object: &Bound<'_, PyAny>) -> bool {
        match self {
            Contents::Items(items) => match object.cast::<PyList>() {
                Ok(list) => holds(list, items),
                Err(_) => attributes::all_items(object).is_some_and(|now| {
                    now.len() == items.len() && now.iter().zip(items).all(|(now, before)| is_same(now, before))
                }),
            },
            Contents::Numbers(before) => {
                let mut now = Vec::with_capacity(before.len());
                let array = Array::of(object);
                array.is_some_and(|array| {
                    array.read_into(&mut now);
                    same_bits(before, &now)
                })
            }
        }
    }
}

/// Whether a list holds these items.
fn holds(list: &Bound<'_, PyList>, items: &[Py<PyAny>]) -> bool {
    let n = list.len();
    // SAFETY: a living list of `n` items under the interpreter lock: comparing addresses runs no code that could change it.
    let differs =
        |k: &usize| unsafe { ffi::PyList_GET_ITEM(list.as_ptr(), *k as ffi::Py_ssize_t) } != items[*k].as_ptr();
    n == items.len() && (0..n).filter(differs).all(|k| list.get_item(k).is_ok_and(|now| is_same(&now, &items[k])))
}

/// Whether an object is the one that was there, or the same number.
fn is_same(now: &Bound<'_, PyAny>, before: &Py<PyAny>) -> bool {
    now.is(before) || {
        let before = before.bind(now.py());
        let (Some(a), Some(b)) = (plain_number(now), plain_number(before)) else { return false };
        a.to_bits() == b.to_bits() && now.get_type().is(before.get_type())
    }
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
        Entry { place, held: held.map(Bound::unbind), contents: None }
    }

    /// What is there now.
    fn now<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        match &self.place {
            // SAFETY: a living cell; the result is a reference of ours, or null for an empty one.
            Place::Cell(cell) => unsafe { Bound::from_owned_ptr_or_opt(py, ffi::PyCell_Get(cell.as_ptr())) },
            Place::Name(names, name) => names.bind(py).get_item(name).ok().flatten(),
            Place::Slot(object, slot) => attributes::in_slot(object.bind(py), slot.bind(py)),
            Place::Inside(object) => Some(object.bind(py).clone()),
        }
    }

    /// Whether a cell holds the very object it held: that is so nearly always.
    #[inline(always)]
    fn is_untouched(&self) -> bool {
        let (Place::Cell(cell), Some(held)) = (&self.place, &self.held) else { return false };
        // SAFETY: a living cell; what it holds is compared and not used.
        unsafe { (*cell.as_ptr().cast::<ffi::PyCellObject>()).ob_ref == held.as_ptr() }
    }

    fn is_as_it_was(&mut self, py: Python<'_>) -> bool {
        if self.is_untouched() {
            return true;
        }
        if let (Place::Inside(object), Some(contents)) = (&self.place, &self.contents) {
            return contents.is_in(object.bind(py));
        }
        match (self.now(py), &self.held) {
            (None, None) => true,
            (Some(now), Some(held)) if now.is(held) => true,
            // Another object, but perhaps the same number.
            (Some(now), Some(held)) if is_same(&now, held) => {
                // At once, by way of a bound reference: PyO3 puts off what is dropped where it has not taken the lock itself.
                drop(self.held.replace(now.unbind()).map(|before| before.into_bound(py)));
                true
            }
            _ => false,
        }
    }

    /// The dictionary whose version tells whether this may have changed.
    fn dict(&self, py: Python<'_>) -> Option<*mut ffi::PyObject> {
        match &self.place {
            Place::Name(names, _) => Some(names.as_ptr()),
            Place::Inside(object) if object.bind(py).cast_exact::<PyDict>().is_ok() => Some(object.as_ptr()),
            _ => None,
        }
    }
}

impl Watch {
    /// Whether everything is as it was when the function was recorded.
    #[inline(always)]
    pub fn is_as_it_was(&mut self, py: Python<'_>) -> bool {
        // Most functions name globals only: the versions of one or two dictionaries answer for all of them.
        (self.always == 0 && self.names_are_same()) || self.look(py)
    }

    /// Whether no dictionary has changed.
    #[inline(always)]
    fn names_are_same(&self) -> bool {
        // SAFETY: the dictionaries are held by entries.
        let same = |&(dict, before): &(*mut ffi::PyObject, u64)| unsafe { version(dict) } == Some(before);
        self.versions.iter().all(same)
    }

    #[inline(never)]
    fn look(&mut self, py: Python<'_>) -> bool {
        let names_are_same = self.names_are_same();
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

    /// After a recording: what the body itself has put into lists it only fills, a log say, is no change. Numbers are, as
    /// are items that are gone.
    pub fn settle(&mut self, py: Python<'_>) {
        for entry in &mut self.entries {
            let (Place::Inside(object), Some(Contents::Items(before))) = (&entry.place, &entry.contents) else {
                continue;
            };
            let Ok(list) = object.bind(py).cast::<PyList>() else { continue };
            let is_filled = |(k, now): (usize, Bound<'_, PyAny>)| match before.get(k) {
                Some(before) if now.is(before) => true,
                _ => plain_number(&now).is_none(),
            };
            if list.len() >= before.len() && list.iter().enumerate().all(is_filled) {
                entry.contents = Contents::of(list.as_any());
            }
        }
    }

    /// Looks through a function, and those it names, for what a recording takes for constant.
    pub fn of(body: &Bound<'_, PyAny>) -> PyResult<Watch> {
        let mut watch = Watch::default();
        let mut search = Search::new(body);
        // Functions name attributes, and attributes are functions: until neither leads to more.
        loop {
            if let Some(function) = search.functions.pop() {
                if search.seen.len() < MOST_FUNCTIONS && search.seen.insert(function.as_ptr() as usize) {
                    watch.add_function(&function, &mut search)?;
                }
            } else if let Some(object) = search.containers.pop() {
                watch.add_contents(&object, &mut search);
            } else if !watch.add_attributes(&mut search) {
                break;
            }
        }
        watch.unseen = search.unseen();
        // What no dictionary's version tells comes first.
        let py = body.py();
        watch.entries.sort_by_key(|entry| entry.dict(py).is_some());
        watch.always = watch.entries.iter().take_while(|entry| entry.dict(py).is_none()).count();
        let mut dicts: Vec<*mut ffi::PyObject> = watch.entries.iter().filter_map(|entry| entry.dict(py)).collect();
        dicts.sort_unstable();
        dicts.dedup();
        watch.versions = dicts.into_iter().map(|dict| (dict, 0)).collect();
        watch.note_versions();
        Ok(watch)
    }

    /// Watches what is inside an object, and looks at every item.
    fn add_contents<'py>(&mut self, object: &Bound<'py, PyAny>, search: &mut Search<'py>) {
        for item in attributes::all_items(object).unwrap_or_default() {
            search.reach(&item);
        }
        if let Some(contents) = Contents::of(object) {
            let place = Place::Inside(object.clone().unbind());
            self.entries.push(Entry { place, held: None, contents: Some(contents) });
        }
    }

    fn add_function<'py>(&mut self, function: &Bound<'py, PyAny>, search: &mut Search<'py>) -> PyResult<()> {
        let py = function.py();
        if !function.is_instance_of::<PyFunction>() {
            // A recorded function is inlined: what it wraps counts. So does the function of a method, and its object.
            for name in ["__wrapped__", "__func__"] {
                search.functions.extend(function.getattr_opt(name)?);
            }
            match function.getattr_opt("__self__")? {
                Some(object) => search.reach(&object),
                None => search.reach(function),
            }
            return Ok(());
        }
        let globals = function.getattr("__globals__")?.cast_into::<PyDict>()?;
        let module: Option<String> = globals.get_item("__name__")?.and_then(|name| name.extract().ok());
        if module.as_deref().is_some_and(attributes::is_of_a_library) && !self.entries.is_empty() {
            return Ok(());
        }
        if let Ok(cells) = function.getattr("__closure__")?.cast_into::<PyTuple>() {
            for cell in cells.iter() {
                let held = cell.getattr_opt("cell_contents").unwrap_or(None);
                self.add(Place::Cell(cell.unbind()), held, search);
            }
        }
        let mut names = Vec::new();
        names_of(&function.getattr("__code__")?, &mut names, 0)?;
        let builtins = py.import("builtins")?;
        for name in &names {
            match globals.get_item(name)? {
                Some(held) => {
                    search.explain(name);
                    if let Ok(module) = held.cast::<PyModule>() {
                        search.modules.push(held.clone());
                        self.add_numbers_of(module, &names)?;
                    }
                    self.add(Place::Name(globals.clone().unbind(), name.clone().unbind()), Some(held), search);
                }
                None if builtins.hasattr(name)? => {
                    search.explain(name);
                    self.add(Place::Name(globals.clone().unbind(), name.clone().unbind()), None, search);
                }
                None => {}
            }
        }
        search.add_names(names);
        Ok(())
    }

    fn add<'py>(&mut self, place: Place, held: Option<Bound<'py, PyAny>>, search: &mut Search<'py>) {
        if let Some(held) = &held {
            search.reach(held);
        }
        self.entries.push(Entry::new(place, held));
    }

    /// Looks up names in the objects that were found, where that has not been done; whether there was anything to do.
    fn add_attributes<'py>(&mut self, search: &mut Search<'py>) -> bool {
        let mut any = false;
        let mut k = 0;
        while k < search.objects.len() {
            let (object, done) = (search.objects[k].0.clone(), search.objects[k].1);
            search.objects[k].1 = search.names.len();
            for at in done..search.names.len() {
                any = true;
                let name = search.names[at].clone();
                self.add_attribute(&object, &name, search);
            }
            k += 1;
        }
        any
    }

    fn add_attribute<'py>(
        &mut self,
        object: &Bound<'py, PyAny>,
        name: &Bound<'py, PyString>,
        search: &mut Search<'py>,
    ) {
        let found = attributes::find(object, name);
        if found.is_some() {
            search.explain(name);
        }
        match found {
            None => {}
            Some(Found::Code(code)) => search.reach(&code),
            Some(Found::Slot(slot, held)) => {
                self.add(Place::Slot(object.clone().unbind(), slot.unbind()), Some(held), search);
            }
            Some(Found::Name(dict, held)) => {
                let own = attributes::own(object);
                if let Some(own) = own.filter(|own| !own.is(&dict)) {
                    // What the class has may be hidden by an attribute of the object.
                    self.entries.push(Entry::new(Place::Name(own.unbind(), name.clone().unbind()), None));
                }
                self.add(Place::Name(dict.unbind(), name.clone().unbind()), Some(held), search);
            }
        }
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
                Place::Slot(object, slot) => {
                    f(object.as_ptr());
                    f(slot.as_ptr());
                }
                Place::Inside(object) => f(object.as_ptr()),
            }
            if let Some(Contents::Items(items)) = &entry.contents {
                items.iter().for_each(|item| f(item.as_ptr()));
            }
            if let Some(held) = &entry.held {
                f(held.as_ptr());
            }
        }
    }
}

/// What is still to be looked through.
struct Search<'py> {
    functions: Vec<Bound<'py, PyAny>>,
    /// Functions and objects that were met, by address: what holds them lives as long as the search.
    seen: HashSet<usize>,
    /// Objects, each with how many of the names have been looked up in it.
    objects: Vec<(Bound<'py, PyAny>, usize)>,
    /// Whatever the functions name.
    names: Vec<Bound<'py, PyString>>,
    /// How many lists, tuples, dicts, sets and arrays were met.
    n_containers: usize,
    /// Those whose contents are still to be looked at.
    containers: Vec<Bound<'py, PyAny>>,
    /// Modules that are named.
    modules: Vec<Bound<'py, PyAny>>,
    /// Names of which it is known what they are, by address: names are interned.
    explained: HashSet<usize>,
}

impl<'py> Search<'py> {
    fn new(body: &Bound<'py, PyAny>) -> Self {
        let names = vec![PyString::intern(body.py(), "__call__")];
        let mut search = Search {
            functions: vec![body.clone()],
            seen: HashSet::new(),
            objects: Vec::new(),
            names,
            n_containers: 0,
            containers: Vec::new(),
            modules: Vec::new(),
            explained: HashSet::new(),
        };
        if !body.is_instance_of::<PyFunction>() {
            search.reach(body);
        }
        search
    }

    fn add_names(&mut self, names: Vec<Bound<'py, PyString>>) {
        for name in names {
            if !self.names.iter().any(|known| known.is(&name)) {
                self.names.push(name);
            }
        }
    }

    /// Notes a function to be followed, an object whose attributes may be read, or something with items.
    fn reach(&mut self, held: &Bound<'py, PyAny>) {
        if attributes::is_plain(held) || held.is_instance_of::<PyParameter>() {
            return;
        }
        if attributes::is_builtin_container(held) {
            return self.add_container(held);
        }
        let wraps = held.hasattr("__wrapped__").unwrap_or(false) || held.hasattr("__func__").unwrap_or(false);
        if held.is_instance_of::<PyFunction>() || wraps {
            self.functions.push(held.clone());
            return;
        }
        self.add_object(held);
        if attributes::has_items(held) || Array::of(held).is_some() {
            self.add_container(held);
        }
    }

    fn add_container(&mut self, held: &Bound<'py, PyAny>) {
        if attributes::is_fixed(held) || !self.seen.insert(held.as_ptr() as usize ^ 1) {
            return;
        }
        self.n_containers += 1;
        if self.n_containers <= MOST_CONTAINERS {
            self.containers.push(held.clone());
        }
    }

    fn explain(&mut self, name: &Bound<'py, PyString>) {
        self.explained.insert(name.as_ptr() as usize);
    }

    /// What is not watched, in words: containers beyond a bound, and attributes that some object may make up, which are
    /// names that are nothing else, where a class has `__getattr__`.
    fn unseen(&self) -> Option<String> {
        if self.n_containers > MOST_CONTAINERS {
            return Some(format!(
                "it reads {} lists, tuples, dicts and arrays, and a replay sees changes in {MOST_CONTAINERS} of them only; \
                 call forget() when others have changed",
                self.n_containers
            ));
        }
        let makes_up = self.objects.iter().find(|(object, _)| attributes::makes_up_attributes(object))?;
        let unexplained = |name: &&Bound<'py, PyString>| {
            let is_known = self.explained.contains(&(name.as_ptr() as usize))
                || self.modules.iter().any(|module| module.hasattr(*name).unwrap_or(false));
            !is_known && !attributes::is_of_a_known_type(name)
        };
        let name = self.names.iter().find(unexplained)?;
        let class = makes_up.0.get_type().name().map_or_else(|_| "an object".into(), |name| name.to_string());
        Some(format!(
            "{class} makes up attributes (__getattr__), of which {name} may be one: a replay does not see it change; pass it as \
             an argument, make it a bt.parameter, or call forget() when it has changed"
        ))
    }

    fn add_object(&mut self, object: &Bound<'py, PyAny>) {
        let is_new = self.objects.len() < MOST_OBJECTS && attributes::has_attributes(object);
        if is_new && !object.is_instance_of::<PyParameter>() && self.seen.insert(object.as_ptr() as usize) {
            self.objects.push((object.clone(), 0));
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
