//! Containers of arguments and results of array programs: lists, tuples and dicts, with their leaves.
//!
//! Promises: a flattened structure is rebuilt in the same way; nesting is bounded; None has no leaves. Does not know the types
//! of leaves.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

use super::probes::in_dict;
use crate::convert::buffer::type_name;
use crate::convert::errors::derived;
use crate::convert::gc::{HoldsObjects, Visitor};
use crate::convert::signals::{ask_at, quietly, repr_of};

/// Deeper nesting is refused.
const DEEPEST: usize = 16;

/// A structure of containers.
#[derive(Debug)]
pub enum Nest {
    /// Anything that is not a container.
    Leaf,
    /// None.
    None,
    /// A tuple or a list; a named tuple has its class.
    Sequence { is_tuple: bool, class: Option<Py<PyAny>>, items: Vec<Nest> },
    /// A dict, in insertion order.
    Dict { keys: Vec<Py<PyAny>>, items: Vec<Nest> },
}

impl HoldsObjects for Nest {
    fn visit(&self, visit: &mut Visitor<'_>) {
        match self {
            Nest::Leaf | Nest::None => {}
            Nest::Sequence { class, items, .. } => {
                class.iter().for_each(&mut *visit);
                items.visit(visit);
            }
            Nest::Dict { keys, items } => {
                keys.visit(visit);
                items.visit(visit);
            }
        }
    }
}

/// Whether it is a named tuple.
pub fn is_named_tuple(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let is_subclass = object.is_instance_of::<PyTuple>() && !object.is_exact_instance_of::<PyTuple>();
    Ok(is_subclass && object.hasattr(pyo3::intern!(object.py(), "_make"))?)
}

/// Whether it is an OrderedDict or a defaultdict, which count as dicts.
pub fn is_dict_of_collections(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    if !object.is_instance_of::<PyDict>() || object.is_exact_instance_of::<PyDict>() {
        return Ok(false);
    }
    let collections = object.py().import("collections")?;
    let is_one = |name| object.is_instance(&collections.getattr(name)?);
    Ok(is_one("OrderedDict")? || is_one("defaultdict")?)
}

impl Nest {
    /// Flattens an object; its leaves are appended to `leaves`, in order.
    pub fn of<'py>(object: &Bound<'py, PyAny>, leaves: &mut Vec<Bound<'py, PyAny>>) -> PyResult<Nest> {
        Self::within(object, leaves, 0)
    }

    fn within<'py>(object: &Bound<'py, PyAny>, leaves: &mut Vec<Bound<'py, PyAny>>, depth: usize) -> PyResult<Nest> {
        let py = object.py();
        if object.is_none() {
            return Ok(Nest::None);
        }
        let mut parts = |items: &mut dyn Iterator<Item = Bound<'py, PyAny>>| {
            if depth > DEEPEST {
                return Err(PyValueError::new_err(format!(
                    "lists, tuples and dicts are nested more than {DEEPEST} deep"
                )));
            }
            let mut parts = Vec::new();
            for (k, item) in items.enumerate() {
                ask_at(py, k)?;
                parts.push(Self::within(&item, leaves, depth + 1)?);
            }
            Ok(parts)
        };
        if let Ok(tuple) = object.cast::<PyTuple>() {
            let class = is_named_tuple(object)?.then(|| object.get_type());
            let class = class.map(|class| class.into_any().unbind());
            return Ok(Nest::Sequence { is_tuple: true, class, items: parts(&mut tuple.iter())? });
        }
        if let Ok(list) = object.cast::<PyList>() {
            return Ok(Nest::Sequence { is_tuple: false, class: None, items: parts(&mut list.iter())? });
        }
        let plain = match is_dict_of_collections(object)? {
            true => py.get_type::<PyDict>().call1((object,))?,
            false => object.clone(),
        };
        if let Ok(dict) = plain.cast_exact::<PyDict>() {
            // Keys are compared at every call, and a comparison must run no user code.
            if let Some(key) = dict.keys().iter().find(|key| !key.is_exact_instance_of::<PyString>()) {
                let found = type_name(&key);
                let message = format!("expected a dict whose keys are strings, found a key of type {found}");
                return Err(derived(py, "TraceError", message));
            }
            let items = parts(&mut dict.values().iter())?;
            return Ok(Nest::Dict { keys: dict.keys().iter().map(Bound::unbind).collect(), items });
        }
        leaves.push(object.clone());
        Ok(Nest::Leaf)
    }

    /// The number of leaves.
    pub fn len(&self) -> usize {
        match self {
            Nest::Leaf => 1,
            Nest::None => 0,
            Nest::Sequence { items, .. } | Nest::Dict { items, .. } => items.iter().map(Nest::len).sum(),
        }
    }

    /// The parts of a sequence, or of a dict in insertion order.
    pub fn items(&self) -> &[Nest] {
        match self {
            Nest::Leaf | Nest::None => &[],
            Nest::Sequence { items, .. } | Nest::Dict { items, .. } => items,
        }
    }

    /// Whether both have the same structure.
    pub fn same(&self, py: Python<'_>, other: &Nest) -> bool {
        let all = |x: &[Nest], y: &[Nest]| x.len() == y.len() && x.iter().zip(y).all(|(x, y)| x.same(py, y));
        match (self, other) {
            (Nest::Leaf, Nest::Leaf) | (Nest::None, Nest::None) => true,
            (
                Nest::Sequence { is_tuple: a, class: of_a, items: x },
                Nest::Sequence { is_tuple: b, class: of_b, items: y },
            ) => {
                let classes = [of_a, of_b].map(|class| class.as_ref().map(Py::as_ptr));
                a == b && classes[0] == classes[1] && all(x, y)
            }
            (Nest::Dict { keys: a, items: x }, Nest::Dict { keys: b, items: y }) => {
                let is_same = |(a, b): (&Py<PyAny>, &Py<PyAny>)| a.bind(py).eq(b.bind(py)).unwrap_or(false);
                all(x, y) && a.iter().zip(b).all(is_same)
            }
            _ => false,
        }
    }

    /// The object with its dicts in the order of these, if they have the same keys; other objects as they are.
    pub fn ordered<'py>(&self, object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = object.py();
        match self {
            Nest::Dict { keys, items } => {
                let Ok(dict) = object.cast_exact::<PyDict>() else { return Ok(object.clone()) };
                let found: Vec<_> = keys.iter().map(|key| in_dict(dict, key.bind(py))).collect();
                if dict.len() != keys.len() || found.iter().any(Option::is_none) {
                    return Ok(object.clone());
                }
                let ordered = PyDict::new(py);
                for ((key, item), value) in keys.iter().zip(items).zip(found.into_iter().flatten()) {
                    ordered.set_item(key, item.ordered(&value)?)?;
                }
                Ok(ordered.into_any())
            }
            Nest::Sequence { is_tuple, class, items } if items.iter().any(Nest::has_dicts) => {
                let parts: Vec<_> = match (object.cast::<PyTuple>(), object.cast::<PyList>()) {
                    (Ok(tuple), _) if *is_tuple && tuple.len() == items.len() => tuple.iter().collect(),
                    (_, Ok(list)) if !is_tuple && list.len() == items.len() => list.iter().collect(),
                    _ => return Ok(object.clone()),
                };
                let is_class = class.as_ref().is_none_or(|class| object.get_type().is(class.bind(py)));
                let is_plain = class.is_some() || !*is_tuple || object.is_exact_instance_of::<PyTuple>();
                if !is_class || !is_plain {
                    return Ok(object.clone());
                }
                let parts = parts.iter().zip(items).map(|(part, item)| item.ordered(part)).collect::<PyResult<_>>()?;
                sequence(py, *is_tuple, class.as_ref(), parts)
            }
            _ => Ok(object.clone()),
        }
    }

    fn has_dicts(&self) -> bool {
        matches!(self, Nest::Dict { .. }) || self.items().iter().any(Nest::has_dicts)
    }

    /// A copy.
    pub fn copy(&self, py: Python<'_>) -> Nest {
        let all = |items: &[Nest]| items.iter().map(|x| x.copy(py)).collect();
        match self {
            Nest::Leaf => Nest::Leaf,
            Nest::None => Nest::None,
            Nest::Sequence { is_tuple, class, items } => {
                let class = class.as_ref().map(|class| class.clone_ref(py));
                Nest::Sequence { is_tuple: *is_tuple, class, items: all(items) }
            }
            Nest::Dict { keys, items } => {
                Nest::Dict { keys: keys.iter().map(|key| key.clone_ref(py)).collect(), items: all(items) }
            }
        }
    }

    /// The place of leaf `k`, as a Python expression after the whole.
    pub fn place(&self, py: Python<'_>, mut k: usize) -> String {
        for (at, item) in self.items().iter().enumerate() {
            if k < item.len() {
                let step = match self {
                    Nest::Dict { keys, .. } => quietly(py, || repr_of(keys[at].bind(py))).unwrap_or_else(|| "?".into()),
                    _ => at.to_string(),
                };
                return format!("[{step}]{}", item.place(py, k));
            }
            k -= item.len();
        }
        String::new()
    }

    /// Rebuilds the structure from leaves.
    pub fn build<'py>(
        &self,
        py: Python<'py>,
        leaves: &mut impl Iterator<Item = Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // Called through a reference; otherwise each level would be a type of its own.
        self.build_from(py, leaves)
    }

    fn build_from<'py>(
        &self,
        py: Python<'py>,
        leaves: &mut dyn Iterator<Item = Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut parts =
            |items: &[Nest]| items.iter().map(|item| item.build_from(py, leaves)).collect::<PyResult<Vec<_>>>();
        Ok(match self {
            Nest::None => py.None().into_bound(py),
            Nest::Leaf => leaves.next().unwrap_or_else(|| py.None().into_bound(py)),
            Nest::Sequence { is_tuple, class, items } => sequence(py, *is_tuple, class.as_ref(), parts(items)?)?,
            Nest::Dict { keys, items } => {
                let dict = PyDict::new(py);
                for (key, item) in keys.iter().zip(parts(items)?) {
                    dict.set_item(key, item)?;
                }
                dict.into_any()
            }
        })
    }
}

/// A tuple, a named tuple of a class, or a list.
fn sequence<'py>(
    py: Python<'py>,
    is_tuple: bool,
    class: Option<&Py<PyAny>>,
    parts: Vec<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    match class {
        Some(class) => class.bind(py).call_method1(pyo3::intern!(py, "_make"), (PyTuple::new(py, parts)?,)),
        None if is_tuple => Ok(PyTuple::new(py, parts)?.into_any()),
        None => Ok(PyList::new(py, parts)?.into_any()),
    }
}
