//! `w[k]` of a `Tensor`: a Value on the current graph, or a smaller Tensor.

use pyo3::exceptions::{PyAttributeError, PyIndexError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PySlice, PyTuple};

use super::vector::{self, PyVector};
use crate::array::array::PyArray;
use crate::array::eager::{current_graph, home_of};
use crate::array::functions::{any_array, array_of, array_of_tensor};
use crate::array::index::item;
use crate::convert::errors::if_any;
use crate::convert::refusals::{is_tracing, meet_axes, needs_arrays};
use crate::params::PyTensor;

/// Whether indices choose numbers that lie in sequence: integers, then one slice, then all of the other axes.
fn is_of_rows(places: &Bound<'_, PyTuple>) -> PyResult<bool> {
    let is_slice = |place: &Bound<'_, PyAny>| place.is_instance_of::<PySlice>();
    let is_number = |place: &Bound<'_, PyAny>| !is_slice(place) && !place.is_instance_of::<PyBool>();
    let mut after = places.iter().skip_while(|place| is_number(place) && place.extract::<isize>().is_ok());
    let all = PySlice::full(places.py());
    let (first, mut rest) = (after.next(), after);
    let is_all = |place: &Bound<'_, PyAny>| Ok::<_, PyErr>(is_slice(place) && place.eq(&all)?);
    Ok(first.is_none_or(|place| is_slice(&place))
        && rest.try_fold(true, |so_far, place| Ok::<_, PyErr>(so_far && is_all(&place)?))?)
}

/// A Tensor as an Array of the current graph, with its shape. A trace with Values is repeated with Arrays.
pub fn as_array<'py>(tensor: &Bound<'py, PyTensor>) -> PyResult<Bound<'py, PyAny>> {
    match is_tracing() {
        true => Err(needs_arrays(tensor.py(), "a Tensor of several dimensions")),
        false => Ok(array_of(tensor.clone().into_any(), &PyTuple::empty(tensor.py()))?.into_any()),
    }
}

/// The same of a Tensor of several dimensions; other objects unchanged.
pub fn shaped<'py>(x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    match x.cast::<PyTensor>() {
        Ok(tensor) if tensor.get().n_dims() > 1 => as_array(tensor),
        _ => Ok(x.clone()),
    }
}

/// Whether an elementwise operation on these is one of Arrays: because one is an Array, or a Tensor of several dimensions, whose
/// shape the result has. Branches, and graphs without Arrays, give a Vector of all numbers; a trace with Values is repeated with Arrays.
pub fn is_of_arrays(operands: &[Bound<'_, PyAny>]) -> PyResult<bool> {
    let mut with_axes = None;
    for x in operands.iter().filter(|x| !x.is_exact_instance_of::<PyVector>()) {
        if any_array(std::slice::from_ref(x)) {
            return Ok(true);
        }
        let tensor = x.cast::<PyTensor>().ok().filter(|tensor| tensor.get().n_dims() > 1);
        with_axes = with_axes.or(tensor);
    }
    let Some(tensor) = with_axes else { return Ok(false) };
    if is_tracing() {
        return Err(needs_arrays(tensor.py(), "a Tensor of several dimensions"));
    }
    let graph = current_graph(tensor.py())?;
    // The Arrays of a branch would not be joined.
    if graph.get().with_as_is(tensor.py(), |cell| Ok(cell.is_branch()))? {
        return Ok(false);
    }
    let has_arrays = home_of(&graph).is_ok();
    if !has_arrays {
        meet_axes();
    }
    Ok(has_arrays)
}

/// Attributes of Arrays that Tensors do not have: a Tensor has numbers and gradients of its own, and is not an array of NumPy.
const NOT_OF_TENSORS: &[&str] = &["data", "grad", "backward", "dtype", "item", "tolist", "astype"];

#[pymethods]
impl PyTensor {
    /// The number of axes.
    #[getter]
    fn ndim(&self) -> usize {
        self.n_dims()
    }

    /// The number of elements.
    #[getter]
    fn size(&self) -> usize {
        self.slice().len()
    }

    /// The methods of Arrays, such as w.T, w.sum(axis=0) and w.reshape(-1): of this tensor as an Array of the current graph or trace.
    fn __getattr__<'py>(slf: &Bound<'py, Self>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        if name == "data" || name == "grad" {
            let ours = if name == "data" { "values" } else { "grads" };
            return Err(PyAttributeError::new_err(format!("a Tensor has no .{name}; its numbers are .{ours}")));
        }
        let is_public = !name.starts_with('_') && !NOT_OF_TENSORS.contains(&name);
        if !is_public || !py.get_type::<PyArray>().hasattr(name)? {
            return Err(PyAttributeError::new_err(format!("'burtorch.Tensor' object has no attribute '{name}'")));
        }
        match any_array(&[slf.clone().into_any()]) {
            true => array_of_tensor(slf)?.getattr(name),
            false => as_array(slf)?.getattr(name),
        }
    }

    /// w[k] is a Value on the current graph for a vector, and the k-th row, as a Tensor, otherwise; w[i, j] indexes
    /// further; w[a:b] are rows. Nothing is copied. Other indices, such as w[:, k], w[::2] and masks, give an Array of the current graph. In a
    /// function traced with Arrays: an Array, by NumPy's rules.
    fn __getitem__<'py>(slf: &Bound<'py, Self>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if any_array(&[slf.clone().into_any()]) {
            return item(&array_of_tensor(slf)?, index);
        }
        let (py, this) = (slf.py(), slf.get());
        let n = this.tensor().shape().dims()[0] as usize;
        let part = |tensor| Ok(PyTensor::new(this.owner().clone_ref(py), tensor, None).into_pyobject(py)?.into_any());
        if let Ok(places) = index.cast::<PyTuple>() {
            return match is_of_rows(places)? && places.len() <= this.n_dims() {
                true => places.iter().try_fold(slf.clone().into_any(), |so_far, place| so_far.get_item(place)),
                false => as_array(slf)?.get_item(index),
            };
        }
        if let Ok(slice) = index.cast::<PySlice>() {
            let at = slice.indices(n as isize)?;
            let rows =
                (at.step == 1).then(|| this.tensor().rows(at.start as usize, at.start as usize + at.slicelength));
            return match rows.flatten() {
                Some(tensor) => part(tensor),
                None => as_array(slf)?.get_item(index),
            };
        }
        let whole = index.extract::<isize>().and_then(|k| match index.is_instance_of::<PyBool>() {
            true => Err(PyTypeError::new_err("a bool is no number of a row")),
            false => Ok(k),
        });
        let Some(k) = if_any(py, whole)? else { return as_array(slf)?.get_item(index) };
        let place = usize::try_from(if k < 0 { k + n as isize } else { k }).ok();
        let Some(tensor) = place.and_then(|k| this.tensor().index(k)) else {
            return Err(PyIndexError::new_err(format!("index {k} of a Tensor with {n} rows")));
        };
        if this.tensor().shape().dims().len() > 1 { part(tensor) } else { vector::parameter_value(slf, tensor.slice()) }
    }
}
