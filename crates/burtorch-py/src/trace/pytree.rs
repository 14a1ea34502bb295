//! The shape of arguments and results: numbers, arrays, and lists, tuples and dicts of them.
//!
//! Promises: a flattened structure is rebuilt in the same shape. Nesting is bounded. Does not know programs.
#![allow(unsafe_code)]

use burtorch_core::NodeId;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyList, PyString, PyTuple};

use super::containers::{is_dict_of_collections, is_named_tuple};
use crate::array::arguments::is_sparse;
use crate::array::array::PyArray;
use crate::convert::arrays::{Array, Kind, filled};
use crate::convert::buffer::type_name;
use crate::convert::errors::{derived, if_any};
use crate::convert::gc::{HoldsObjects, Visitor};
use crate::convert::numbers::{as_numpy, has_dtype, number_of};
use crate::convert::refusals::{error_here, may_need_arrays};
use crate::convert::signals::{ask_at, quietly, text_of};
use crate::graph::PyGraph;
use crate::node::value::is_value;
use crate::node::vector::PyVector;
use crate::params::PyTensor;

/// Deeper nesting is refused.
const DEEPEST: usize = 16;

/// The shape of a structure of numbers.
#[derive(Debug)]
pub enum Tree {
    /// One number.
    Number,
    /// An array of this shape; results for it have this type, and are NumPy arrays if it was one.
    Array { shape: Vec<usize>, kind: Kind, is_numpy: bool },
    /// A tuple or a list.
    Sequence { is_tuple: bool, items: Vec<Tree> },
    /// A dict, in insertion order.
    Dict { keys: Vec<Py<PyAny>>, items: Vec<Tree> },
}

impl HoldsObjects for Tree {
    fn visit(&self, visit: &mut Visitor<'_>) {
        match self {
            Tree::Number | Tree::Array { .. } => {}
            Tree::Sequence { items, .. } => items.visit(visit),
            Tree::Dict { keys, items } => {
                keys.visit(visit);
                items.visit(visit);
            }
        }
    }
}

/// The numbers of arguments, or the fact that there are Values.
pub enum GivenArguments {
    /// Numbers only.
    Numbers(Tree),
    /// Something else in at least one place.
    Others(Others),
}

/// The kind of a call that does not consist of numbers only; the last matching kind applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Others {
    /// An array of several dimensions, or one of integers: the function is traced with arrays.
    Arrays,
    /// An Array, or a Tensor of Parameters.
    Traced,
    /// A Value or a Vector.
    Values,
}

/// Whether an object is a Value or a Vector.
pub fn is_of_graph(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: a living object under the GIL.
    let is_value = unsafe { is_value(object.as_ptr()) };
    is_value || object.is_instance_of::<PyVector>()
}

/// Why an argument cannot be flattened.
pub enum Wrong {
    /// The argument, or its part at this place, has a type that a function does not accept.
    Structure {
        /// As a Python expression after the argument: `['a'][1]`.
        place: String,
        /// The expected structure and the found one.
        message: String,
    },
    /// Reading it failed.
    Failed(PyErr),
}

impl From<PyErr> for Wrong {
    fn from(error: PyErr) -> Self {
        Wrong::Failed(error)
    }
}

impl Wrong {
    fn here(message: String) -> Self {
        Wrong::Structure { place: String::new(), message }
    }

    fn within(self, step: impl FnOnce() -> String) -> Self {
        match self {
            Wrong::Structure { place, message } => Wrong::Structure { place: step() + &place, message },
            failed => failed,
        }
    }

    /// As a Python error about `what`.
    pub fn into_python(self, py: Python<'_>, what: &str) -> PyErr {
        match self {
            Wrong::Structure { place, message } => derived(py, "TraceError", format!("{what}{place}: {message}")),
            Wrong::Failed(error) => error,
        }
    }
}

impl Tree {
    /// The number of numbers.
    pub fn len(&self) -> usize {
        match self {
            Tree::Number => 1,
            Tree::Array { shape, .. } => shape.iter().product(),
            Tree::Sequence { items, .. } | Tree::Dict { items, .. } => items.iter().map(Tree::len).sum(),
        }
    }

    /// Whether both have the same shape.
    pub fn same(&self, py: Python<'_>, other: &Tree) -> bool {
        match (self, other) {
            (Tree::Number, Tree::Number) => true,
            (Tree::Array { shape: a, kind: k, is_numpy: n }, Tree::Array { shape: b, kind: l, is_numpy: m }) => {
                a == b && k == l && n == m
            }
            (Tree::Sequence { is_tuple: a, items: x }, Tree::Sequence { is_tuple: b, items: y }) => {
                a == b && x.len() == y.len() && x.iter().zip(y).all(|(x, y)| x.same(py, y))
            }
            (Tree::Dict { keys: a, items: x }, Tree::Dict { keys: b, items: y }) => {
                x.len() == y.len()
                    && a.iter().zip(b).all(|(a, b)| quietly(py, || a.bind(py).eq(b)).unwrap_or(false))
                    && x.iter().zip(y).all(|(x, y)| x.same(py, y))
            }
            _ => false,
        }
    }

    /// The place where the structure differs, as a Python expression; arrays, lists and tuples of equal length count as
    /// equal.
    pub fn differs(&self, py: Python<'_>, other: &Tree) -> Option<String> {
        let is_row = |tree: &Tree| match tree {
            Tree::Array { .. } => true,
            Tree::Sequence { items, .. } => items.iter().all(|item| matches!(item, Tree::Number)),
            _ => false,
        };
        match (self, other) {
            (Tree::Number, Tree::Number) => None,
            // The number of numbers is checked elsewhere.
            (a, b) if is_row(a) && is_row(b) => None,
            (Tree::Sequence { items: x, .. }, Tree::Sequence { items: y, .. }) if x.len() == y.len() => {
                let places = (0..).map(|k: usize| format!("[{k}]"));
                let mut found = places.zip(x.iter().zip(y)).map(|(place, (x, y))| Some(place + &x.differs(py, y)?));
                found.find_map(|place| place)
            }
            (Tree::Dict { keys: a, items: x }, Tree::Dict { keys: b, items: y })
                if x.len() == y.len()
                    && a.iter().zip(b).all(|(a, b)| quietly(py, || a.bind(py).eq(b)).unwrap_or(false)) =>
            {
                let places = a.iter().map(|key| shown(key.bind(py)));
                let mut found =
                    places.zip(x.iter().zip(y)).map(|(key, (x, y))| Some(format!("[{key}]{}", x.differs(py, y)?)));
                found.find_map(|place| place)
            }
            _ => Some(String::new()),
        }
    }

    /// A copy.
    pub fn copy(&self, py: Python<'_>) -> Tree {
        let all = |items: &[Tree]| items.iter().map(|x| x.copy(py)).collect();
        match self {
            Tree::Number => Tree::Number,
            Tree::Array { shape, kind, is_numpy } => {
                Tree::Array { shape: shape.clone(), kind: *kind, is_numpy: *is_numpy }
            }
            Tree::Sequence { is_tuple, items } => Tree::Sequence { is_tuple: *is_tuple, items: all(items) },
            Tree::Dict { keys, items } => {
                Tree::Dict { keys: keys.iter().map(|key| key.clone_ref(py)).collect(), items: all(items) }
            }
        }
    }

    /// As text.
    pub fn text(&self, py: Python<'_>) -> String {
        let all = |items: &[Tree]| items.iter().map(|x| x.text(py)).collect::<Vec<_>>().join(", ");
        match self {
            Tree::Number => "number".into(),
            Tree::Array { shape, .. } => format!("array{shape:?}"),
            Tree::Sequence { is_tuple: true, items } => format!("({})", all(items)),
            Tree::Sequence { items, .. } => format!("[{}]", all(items)),
            Tree::Dict { keys, items } => {
                let pairs = keys.iter().zip(items).map(|(k, x)| format!("{}: {}", text_of(k.bind(py)), x.text(py)));
                format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
            }
        }
    }

    /// Flattens an argument; its numbers are appended to `numbers`.
    pub fn of(object: &Bound<'_, PyAny>, numbers: &mut Vec<f64>, depth: usize) -> Result<GivenArguments, Wrong> {
        if is_of_graph(object) {
            return Ok(GivenArguments::Others(Others::Values));
        }
        if object.is_instance_of::<PyArray>() || object.is_instance_of::<PyTensor>() {
            return Ok(GivenArguments::Others(Others::Traced));
        }
        if let Some(x) = number_of(object)? {
            numbers.push(x);
            return Ok(GivenArguments::Numbers(Tree::Number));
        }
        let is_for_arrays = is_for_arrays(object)?;
        let mut others = is_for_arrays.then_some(Others::Arrays);
        let items: Vec<Bound<'_, PyAny>> = if depth > DEEPEST {
            return Err(Wrong::here(format!("arguments are nested more than {DEEPEST} deep")));
        } else if object.is_none() {
            Vec::new()
        } else if is_for_arrays {
            let parts =
                if object.is_instance_of::<PyTuple>() { object.clone() } else { object.call_method0("values")? };
            parts.try_iter()?.collect::<PyResult<_>>()?
        } else if let Ok(list) = object.cast_exact::<PyList>() {
            list.iter().collect()
        } else if let Ok(tuple) = object.cast_exact::<PyTuple>() {
            tuple.iter().collect()
        } else if let Ok(dict) = object.cast_exact::<PyDict>() {
            if let Some(key) = dict.keys().iter().find(|key| !key.is_exact_instance_of::<PyString>()) {
                let found = type_name(&key);
                return Err(Wrong::here(format!(
                    "expected a dict whose keys are strings, found a key of type {found}"
                )));
            }
            dict.values().iter().collect()
        } else {
            return Self::of_array(object, numbers);
        };
        let mut parts = Vec::with_capacity(items.len());
        for (k, item) in items.iter().enumerate() {
            ask_at(object.py(), k)?;
            // The most frequent types, including NumPy's float64, skip all other checks.
            if let Ok(x) = item.cast::<PyFloat>() {
                numbers.push(x.value());
                parts.push(Tree::Number);
                continue;
            }
            let step = || match object.cast_exact::<PyDict>() {
                Ok(dict) => dict.keys().get_item(k).map_or_else(|_| "[?]".into(), |key| format!("[{}]", shown(&key))),
                Err(_) => format!("[{k}]"),
            };
            match Tree::of(item, numbers, depth + 1).map_err(|wrong| wrong.within(step))? {
                GivenArguments::Numbers(tree) => parts.push(tree),
                GivenArguments::Others(found) => others = others.max(Some(found)),
            }
        }
        if let Some(others) = others {
            return Ok(GivenArguments::Others(others));
        }
        Ok(GivenArguments::Numbers(match object.cast_exact::<PyDict>() {
            Ok(dict) => Tree::Dict { keys: dict.keys().iter().map(Bound::unbind).collect(), items: parts },
            Err(_) => Tree::Sequence { is_tuple: object.is_instance_of::<PyTuple>(), items: parts },
        }))
    }

    fn of_array(object: &Bound<'_, PyAny>, numbers: &mut Vec<f64>) -> Result<GivenArguments, Wrong> {
        let has_dtype = has_dtype(object)?;
        let object = &if has_dtype { as_numpy(object)? } else { object.clone() };
        let array = match Array::of(object) {
            None if has_dtype && (is_sparse(object)? || object.hasattr(pyo3::intern!(object.py(), "tocsr"))?) => {
                return Ok(GivenArguments::Others(Others::Arrays));
            }
            Some(array) => array,
            None if has_dtype => match object.getattr("dtype")?.getattr("kind")?.extract::<String>()?.as_str() {
                "O" if holds_values(object)? => return Ok(GivenArguments::Others(Others::Values)),
                // Of another byte order or size.
                "f" | "i" | "u" | "b" => match if_any(object.py(), Array::converted(object))? {
                    Some(array) => array,
                    None => return Err(unknown(object)),
                },
                _ => return Err(unknown(object)),
            },
            None => return Err(unknown(object)),
        };
        let is_text = object.is_instance_of::<pyo3::types::PyBytes>();
        if is_text || array.shape().is_empty() {
            return Err(unknown(object));
        }
        let is_whole = matches!(array.kind, Kind::Signed(_) | Kind::Unsigned(_));
        if has_dtype && (array.shape().len() > 1 || is_whole && !is_bool(object)?) {
            return Ok(GivenArguments::Others(Others::Arrays));
        }
        array.read_into(numbers);
        let tree = Tree::Array { shape: array.shape().to_vec(), kind: array.kind.of_results(), is_numpy: has_dtype };
        Ok(GivenArguments::Numbers(tree))
    }

    /// Whether it contains NumPy arrays.
    pub fn has_numpy(&self) -> bool {
        match self {
            Tree::Number => false,
            Tree::Array { is_numpy, .. } => *is_numpy,
            Tree::Sequence { items, .. } | Tree::Dict { items, .. } => items.iter().any(Tree::has_numpy),
        }
    }

    /// Rebuilds this shape from numbers.
    pub fn build<'py>(&self, py: Python<'py>, numbers: &mut &[f64]) -> PyResult<Bound<'py, PyAny>> {
        let parts = |items: &[Tree], numbers: &mut &[f64]| {
            items.iter().map(|item| item.build(py, numbers)).collect::<PyResult<Vec<_>>>()
        };
        Ok(match self {
            Tree::Number => take(numbers, 1)[0].into_pyobject(py)?.into_any(),
            Tree::Array { shape, kind, is_numpy: true } => filled(py, shape, *kind, take(numbers, self.len()))?,
            Tree::Array { .. } => {
                let bytes: Vec<u8> = take(numbers, self.len()).iter().flat_map(|x| x.to_ne_bytes()).collect();
                py.import("array")?.getattr("array")?.call1(("d", pyo3::types::PyBytes::new(py, &bytes)))?
            }
            Tree::Sequence { is_tuple: true, items } => PyTuple::new(py, parts(items, numbers)?)?.into_any(),
            Tree::Sequence { items, .. } => PyList::new(py, parts(items, numbers)?)?.into_any(),
            Tree::Dict { keys, items } => {
                let dict = PyDict::new(py);
                for (key, item) in keys.iter().zip(parts(items, numbers)?) {
                    dict.set_item(key, item)?;
                }
                dict.into_any()
            }
        })
    }

    /// Leaves of `owner` in this shape: Values, Vectors for rows of arrays. Appends their nodes to `nodes`.
    pub fn leaves<'py>(
        &self,
        owner: &Bound<'py, PyGraph>,
        numbers: &mut &[f64],
        nodes: &mut Vec<NodeId>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = owner.py();
        let mut parts = |items: &[Tree], numbers: &mut &[f64]| {
            items.iter().map(|item| item.leaves(owner, numbers, nodes)).collect::<PyResult<Vec<_>>>()
        };
        Ok(match self {
            Tree::Number => {
                let value = crate::node::of_graph::leaf(owner, take(numbers, 1)[0])?;
                nodes.push(value.0);
                value.1
            }
            Tree::Array { shape, .. } => rows(owner, shape, numbers, nodes)?,
            Tree::Sequence { is_tuple: true, items } => PyTuple::new(py, parts(items, numbers)?)?.into_any(),
            Tree::Sequence { items, .. } => PyList::new(py, parts(items, numbers)?)?.into_any(),
            Tree::Dict { keys, items } => {
                let dict = PyDict::new(py);
                for (key, item) in keys.iter().zip(parts(items, numbers)?) {
                    dict.set_item(key, item)?;
                }
                dict.into_any()
            }
        })
    }

    /// The shape of a function's result, and its nodes; numbers become constants of `owner`.
    pub fn of_result(
        owner: &Bound<'_, PyGraph>,
        result: &Bound<'_, PyAny>,
        nodes: &mut Vec<NodeId>,
        as_numpy: bool,
        depth: usize,
    ) -> PyResult<Tree> {
        let py = owner.py();
        if let Some(node) = crate::node::of_graph::node_or_constant(owner, result)? {
            nodes.push(node);
            return Ok(Tree::Number);
        }
        if let Ok(vector) = result.cast::<PyVector>() {
            if !vector.get().owner(py).is(owner) {
                return Err(error_here(py, "the function returned a Vector of another graph"));
            }
            let before = nodes.len();
            nodes.extend(vector.get().ranges(py)?.into_iter().flat_map(|range| range.nodes()));
            let n = nodes.len() - before;
            return Ok(if as_numpy {
                Tree::Array { shape: vec![n], kind: Kind::F64, is_numpy: true }
            } else {
                Tree::Sequence { is_tuple: false, items: (0..n).map(|_| Tree::Number).collect() }
            });
        }
        let is_array = !result.is_instance_of::<PyTuple>() && result.hasattr("dtype")? && result.hasattr("flat")?;
        if is_array {
            for item in result.getattr("flat")?.try_iter()? {
                // An element that is no number is an array of its own where NumPy has scalars of its type.
                let node = crate::node::of_graph::node_or_constant(owner, &item?)?;
                nodes.push(node.ok_or_else(|| not_values(result))?);
            }
            let shape: Vec<usize> = result.getattr("shape")?.extract()?;
            if shape.is_empty() {
                return Ok(Tree::Number);
            }
            return Ok(Tree::Array { shape, kind: Kind::F64, is_numpy: true });
        }
        if is_for_arrays(result)? {
            may_need_arrays();
            return Err(not_values(result));
        }
        let items: Vec<Bound<'_, PyAny>> = if depth > DEEPEST {
            return Err(PyValueError::new_err("results of a traced function are nested too deeply"));
        } else if let Ok(dict) = result.cast_exact::<PyDict>() {
            dict.values().iter().collect()
        } else if result.is_instance_of::<PyList>() || result.is_instance_of::<PyTuple>() {
            result.try_iter()?.collect::<PyResult<_>>()?
        } else {
            return Err(not_values(result));
        };
        let parts = items.iter().map(|item| Tree::of_result(owner, item, nodes, as_numpy, depth + 1));
        let items = parts.collect::<PyResult<Vec<_>>>()?;
        Ok(match result.cast_exact::<PyDict>() {
            Ok(dict) => Tree::Dict { keys: dict.keys().iter().map(Bound::unbind).collect(), items },
            Err(_) => Tree::Sequence { is_tuple: result.is_instance_of::<PyTuple>(), items },
        })
    }
}

/// Whether only functions that are traced with Arrays take and return a container: None, a named tuple, or a dict of
/// `collections`.
fn is_for_arrays(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(object.is_none() || is_named_tuple(object)? || is_dict_of_collections(object)?)
}

/// Removes and returns the first `n` numbers.
fn take<'a>(numbers: &mut &'a [f64], n: usize) -> &'a [f64] {
    let (first, rest) = numbers.split_at(n.min(numbers.len()));
    *numbers = rest;
    first
}

/// A Vector for one dimension, lists of them for more.
fn rows<'py>(
    owner: &Bound<'py, PyGraph>,
    shape: &[usize],
    numbers: &mut &[f64],
    nodes: &mut Vec<NodeId>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = owner.py();
    match shape {
        [n] => {
            let vector = PyVector::leaves(owner, take(numbers, *n))?;
            nodes.extend(vector.get().ranges(py)?.into_iter().flat_map(|range| range.nodes()));
            Ok(vector.into_bound(py).into_any())
        }
        [n, rest @ ..] => {
            let all = (0..*n).map(|_| rows(owner, rest, numbers, nodes)).collect::<PyResult<Vec<_>>>()?;
            Ok(PyList::new(py, all)?.into_any())
        }
        [] => Err(PyTypeError::new_err("an array without dimensions is a number")),
    }
}

/// The text of a key.
fn shown(key: &Bound<'_, PyAny>) -> String {
    quietly(key.py(), || Ok(key.repr()?.to_string_lossy().into_owned())).unwrap_or_else(|| "?".into())
}

/// Whether an array of objects contains Values.
pub fn holds_values(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    if !has_dtype(object)? || !object.getattr("dtype")?.getattr("kind")?.eq("O")? {
        return Ok(false);
    }
    // SAFETY: living objects under the GIL.
    let is_one =
        |item: &PyResult<Bound<'_, PyAny>>| item.as_ref().map_or(true, |item| unsafe { is_value(item.as_ptr()) });
    object.getattr("flat")?.try_iter()?.find(is_one).transpose().map(|found| found.is_some())
}

/// Whether an array holds bools, which are numbers 0 and 1.
fn is_bool(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    object.getattr("dtype")?.getattr("kind")?.eq("b")
}

/// The name of a type, and of the elements if it is an array.
pub fn described(object: &Bound<'_, PyAny>) -> PyResult<String> {
    let dtype = if_any(object.py(), object.getattr("dtype"))?;
    Ok(type_name(object) + &dtype.map_or_else(String::new, |dtype| format!(" of {}", text_of(&dtype))))
}

/// The error for a result of a traced function.
fn not_values(result: &Bound<'_, PyAny>) -> PyErr {
    match described(result) {
        Ok(found) => {
            let message = "a traced function must return Values, or lists, tuples and dicts of them, found ";
            error_here(result.py(), &(message.to_owned() + &found))
        }
        Err(error) => error,
    }
}

fn unknown(object: &Bound<'_, PyAny>) -> Wrong {
    let found = match described(object) {
        Ok(found) => found,
        Err(error) => return Wrong::Failed(error),
    };
    Wrong::here(format!(
        "expected a real number, an array, or a list, tuple or dict of them, found {found}; pass other arguments by keyword"
    ))
}
