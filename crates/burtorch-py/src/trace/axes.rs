//! Axes as arguments of `vmap`: one for all, or a container of them in the structure of the arguments.
//!
//! Promises one axis, or none, for each leaf. Knows no shapes.

use crate::convert::buffer::type_name;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyInt, PyList, PyTuple};

use super::containers::Nest;

/// The axis of each leaf of `nests`. A list or tuple has one entry for each of them, unless there is only one.
pub fn axes_of(spec: &Bound<'_, PyAny>, nests: &[Nest], what: &str) -> PyResult<Vec<Option<isize>>> {
    let mut axes = Vec::new();
    match items_of(spec)? {
        Some(items) if what == "in_axes" => {
            if items.len() != nests.len() {
                let message = format!("{what} has {} entries for {} arguments", items.len(), nests.len());
                return Err(PyValueError::new_err(message));
            }
            for (item, nest) in items.iter().zip(nests) {
                spread(item, nest, what, &mut axes)?;
            }
        }
        _ => nests.iter().try_for_each(|nest| spread(spec, nest, what, &mut axes))?,
    }
    Ok(axes)
}

fn items_of<'py>(spec: &Bound<'py, PyAny>) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
    Ok(if let Ok(tuple) = spec.cast::<PyTuple>() {
        Some(tuple.iter().collect())
    } else if let Ok(list) = spec.cast::<PyList>() {
        Some(list.iter().collect())
    } else {
        None
    })
}

fn spread(spec: &Bound<'_, PyAny>, nest: &Nest, what: &str, axes: &mut Vec<Option<isize>>) -> PyResult<()> {
    if spec.is_none() {
        axes.extend(std::iter::repeat_n(None, nest.len()));
        return Ok(());
    }
    if spec.is_instance_of::<PyInt>() && !spec.is_instance_of::<PyBool>() {
        let axis: isize = spec.extract()?;
        axes.extend(std::iter::repeat_n(Some(axis), nest.len()));
        return Ok(());
    }
    let items = match spec.cast::<PyDict>() {
        Ok(dict) => match nest {
            Nest::Dict { keys, .. } => {
                let found = keys.iter().map(|key| dict.get_item(key)).collect::<PyResult<Option<Vec<_>>>>()?;
                found.filter(|_| dict.len() == keys.len())
            }
            _ => None,
        },
        Err(_) => items_of(spec)?,
    };
    match items {
        Some(items) if items.len() == nest.items().len() => {
            items.iter().zip(nest.items()).try_for_each(|(item, nest)| spread(item, nest, what, axes))
        }
        Some(items) => {
            let (found, expected) = (items.len(), nest.items().len());
            Err(PyValueError::new_err(format!("{what} has {found} entries for a container of {expected}")))
        }
        None => {
            let found = type_name(spec);
            Err(PyTypeError::new_err(format!("{what} must be an axis, None, or containers of them, found {found}")))
        }
    }
}
