//! The numbers named by an argument of an optimiser, a clip or a freeze.
//!
//! `Parameters` mean all of their numbers; a Tensor its own; a model or a layer those of the Tensors found by
//! `named_parameters`; a list, a tuple, a dict, a generator those of its items. Promises that only the given numbers are named,
//! and that combinations which one call cannot handle (two Parameters, Tensors together with Values) are refused.

use burtorch_core::Slice;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};

use crate::array::array::PyArray;
use crate::convert::buffer::type_name;
use crate::node::vector::PyVector;
use crate::optim::trained::is_value;
use crate::params::{PyParameters, PyTensor};

/// Numbers that can be updated together.
pub enum Trainable {
    /// All numbers of Parameters, including those of later tensors.
    Parameters(Py<PyParameters>),
    /// Parts of Parameters.
    Slices(Py<PyParameters>, Vec<Slice>),
    /// Values of graphs.
    Values(Vec<Py<PyAny>>),
}

const EXPECTED: &str = "expected Parameters, a model, a layer, a Tensor, a Value, or a list of them";

impl Trainable {
    /// Reads an argument.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(params) = object.cast::<PyParameters>() {
            return Ok(Trainable::Parameters(params.clone().unbind()));
        }
        let mut found = Gathered::default();
        // Depth first without recursion: lists may hold lists.
        let mut todo = vec![Todo::Item(object.clone())];
        while let Some(next) = todo.pop() {
            let item = match next {
                Todo::Item(item) => item,
                Todo::Rest(items) => {
                    let mut items = items;
                    let Some(item) = items.next() else { continue };
                    todo.push(Todo::Rest(items));
                    item?
                }
            };
            if todo.len() > MAX_DEPTH {
                return Err(PyTypeError::new_err(format!("lists in lists, deeper than {MAX_DEPTH}; {EXPECTED}")));
            }
            if !found.take(&item)? {
                todo.push(Todo::Rest(items_of(&item)?));
            }
        }
        found.into_trainable()
    }

    /// The slices of Parameters named by the argument.
    pub fn slices_of(object: &Bound<'_, PyAny>) -> PyResult<Vec<Slice>> {
        match Self::of(object)? {
            Trainable::Slices(_, slices) => Ok(slices),
            Trainable::Parameters(owner) => Ok(vec![owner.get().all(object.py())?]),
            Trainable::Values(_) => Err(PyTypeError::new_err("found Values, which are not numbers of Parameters")),
        }
    }
}

/// At this depth a list is assumed to contain itself.
const MAX_DEPTH: usize = 64;

enum Todo<'py> {
    Item(Bound<'py, PyAny>),
    Rest(Items<'py>),
}

type Items<'py> = Box<dyn Iterator<Item = PyResult<Bound<'py, PyAny>>> + 'py>;

/// The numbers found so far.
#[derive(Default)]
struct Gathered {
    owner: Option<Py<PyParameters>>,
    /// Whether all numbers of the owner are included.
    is_whole: bool,
    slices: Vec<Slice>,
    values: Vec<Py<PyAny>>,
}

impl Gathered {
    /// Adds an object that denotes numbers; returns false for a container.
    fn take(&mut self, item: &Bound<'_, PyAny>) -> PyResult<bool> {
        if let Ok(tensor) = item.cast::<PyTensor>() {
            self.own(tensor.get().owner().bind(item.py()))?;
            self.slices.push(tensor.get().slice());
        } else if let Ok(params) = item.cast::<PyParameters>() {
            self.own(params)?;
            self.is_whole = true;
        } else if is_value(item) {
            self.values.push(item.clone().unbind());
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn own(&mut self, params: &Bound<'_, PyParameters>) -> PyResult<()> {
        match &self.owner {
            Some(owner) if !owner.is(params) => Err(PyValueError::new_err(
                "found Tensors of two Parameters, expected those of one; make one call for each",
            )),
            Some(_) => Ok(()),
            None => {
                self.owner = Some(params.clone().unbind());
                Ok(())
            }
        }
    }

    fn into_trainable(self) -> PyResult<Trainable> {
        match (self.owner, self.values.is_empty()) {
            (None, true) => Err(PyValueError::new_err("found no numbers, expected at least one Tensor or Value")),
            (None, false) => Ok(Trainable::Values(self.values)),
            (Some(params), true) if self.is_whole => Ok(Trainable::Parameters(params)),
            (Some(params), true) => Ok(Trainable::Slices(params, self.slices)),
            (Some(_), false) => {
                Err(PyTypeError::new_err("found Tensors beside Values, expected one kind; make one call for each"))
            }
        }
    }
}

/// The items of a list, the Tensors of a model, the Values of a Vector.
fn items_of<'py>(object: &Bound<'py, PyAny>) -> PyResult<Items<'py>> {
    let py = object.py();
    let all = |object: &Bound<'py, PyAny>| -> PyResult<Items<'py>> { Ok(Box::new(object.try_iter()?)) };
    let refused = || PyTypeError::new_err(format!("{EXPECTED}; found {}", type_name(object)));
    if object.is_instance_of::<PyArray>() {
        return Err(PyTypeError::new_err(format!(
            "{EXPECTED}; found an Array, which is immutable: train a Tensor, params.tensor(shape), in its place"
        )));
    }
    if object.is_instance_of::<PyString>() || object.is_instance_of::<PyBytes>() {
        return Err(refused());
    }
    if let Ok(dict) = object.cast::<PyDict>() {
        return all(dict.values().as_any());
    }
    if object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>() || object.is_instance_of::<PyVector>() {
        return all(object);
    }
    let tensors = py.import("burtorch._module")?.call_method1("tensors_of", (object,))?;
    if tensors.is_truthy()? {
        return all(&tensors);
    }
    // A plain model of Values, such as micrograd's, lists its own parameters.
    if let Some(parameters) = object.getattr_opt("parameters")?.filter(|found| found.is_callable()) {
        return all(&parameters.call0()?);
    }
    if let Some(params) = object.getattr_opt("params")?.filter(|found| found.is_instance_of::<PyParameters>()) {
        return Ok(Box::new(std::iter::once(Ok(params))));
    }
    all(object).map_err(|error| if error.is_instance_of::<PyTypeError>(py) { refused() } else { error })
}
