//! Arguments of array programs: numbers, arrays of any strides and types, tensors of Parameters.
//!
//! Promises: integers stay integers and masks masks; numbers are read without a copy if their type is that of the program, and
//! are copied otherwise. Knows no containers.

use burtorch_core::array::{Dims, Element, Type};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use super::array::PyArray;
use super::operands::{is_bool, is_integer, is_mask};
use crate::convert::arrays::{Array, Kind};
use crate::convert::buffer::{refuse_masked, type_name};
use crate::convert::errors::{IntoPython, if_any, numpy};
use crate::convert::numbers::{as_numpy, has_dtype, number_of};
use crate::params::{PyParameters, PyTensor};

/// One argument.
pub enum Given<'py> {
    /// A float.
    Number(f64),
    /// A NumPy integer.
    Integer(i64),
    /// A NumPy bool.
    Mask(bool),
    /// An array of numbers.
    Numbers(Array, Type),
    /// Sparse rows: numbers, columns, starts.
    Sparse([Array; 3], Type),
    /// Part of Parameters, by reference.
    Tensor(Py<PyParameters>, usize, Type),
    /// An Array of a trace in progress.
    Traced(Bound<'py, PyArray>),
}

impl<'py> Given<'py> {
    /// The argument of an object; `None` if it is not one.
    pub fn of(object: &Bound<'py, PyAny>) -> PyResult<Option<Self>> {
        let py = object.py();
        if let Ok(array) = object.cast::<PyArray>() {
            return Ok(Some(Given::Traced(array.clone())));
        }
        if let Some(x) = number_of(object)? {
            let is_pythons =
                object.is_instance_of::<pyo3::types::PyFloat>() || object.is_instance_of::<pyo3::types::PyInt>();
            return Ok(Some(match is_pythons {
                false if is_integer(object)? => Given::Integer(object.extract()?),
                false if is_bool(object)? => Given::Mask(x != 0.0),
                _ => Given::Number(x),
            }));
        }
        if let Ok(tensor) = object.cast::<PyTensor>() {
            let tensor = tensor.get();
            let extents: Vec<usize> = tensor.tensor().shape().dims().iter().map(|&n| n as usize).collect();
            let ty = Type::float(Dims::new(&extents).or_raise(py)?);
            return Ok(Some(Given::Tensor(tensor.owner().clone_ref(py), tensor.slice().range().start, ty)));
        }
        let has_dtype = has_dtype(object)?;
        let object = &if has_dtype { as_numpy(object)? } else { object.clone() };
        let array = match Array::of(object) {
            Some(array) => array,
            None if has_dtype => {
                if let Some(rows) = sparse_rows(object)? {
                    return Ok(Some(rows));
                }
                refuse_masked(object)?;
                if if_any(py, object.getattr(pyo3::intern!(py, "tocsr")))?.is_some() {
                    let found = type_name(object);
                    let message = format!("a sparse matrix is read in the CSR format, found {found}; pass x.tocsr()");
                    return Err(PyTypeError::new_err(message));
                }
                // That of Parameters is a name.
                let Some(kind) = if_any(py, object.getattr("dtype")?.getattr("kind"))? else { return Ok(None) };
                let kind: String = kind.extract()?;
                match kind.as_str() {
                    // Another byte order or size.
                    "f" => Array::converted(object)?,
                    "i" | "u" => {
                        let native = if kind == "i" { "int64" } else { "uint64" };
                        let copy = numpy(object.py())?.call_method1("array", (object, native))?;
                        let Some(array) = Array::of(&copy) else { return Ok(None) };
                        array
                    }
                    _ => return Ok(None),
                }
            }
            None => return Ok(None),
        };
        if object.is_instance_of::<pyo3::types::PyBytes>() || array.shape().is_empty() {
            return Ok(None);
        }
        let element = match array.kind {
            Kind::Unsigned(1) if has_dtype && is_mask(object)? => Element::Mask,
            Kind::Signed(_) | Kind::Unsigned(_) => Element::Int,
            _ => Element::Float,
        };
        let dims = Dims::new(array.shape()).or_raise(py)?;
        Ok(Some(Given::Numbers(array, Type { dims, element })))
    }

    /// Shape and element.
    pub fn type_of(&self) -> Type {
        match self {
            Given::Number(_) => Type::float(Dims::SCALAR),
            Given::Integer(_) => Type { dims: Dims::SCALAR, element: Element::Int },
            Given::Mask(_) => Type { dims: Dims::SCALAR, element: Element::Mask },
            Given::Numbers(_, ty) | Given::Sparse(_, ty) | Given::Tensor(_, _, ty) => *ty,
            Given::Traced(array) => array.get().type_of(),
        }
    }

    /// The type of the numbers of an array of floats.
    pub fn float_kind(&self) -> Option<Kind> {
        match self {
            Given::Numbers(array, Type { element: Element::Float, .. }) => Some(array.kind),
            Given::Sparse([numbers, ..], _) => Some(numbers.kind.of_results()),
            Given::Traced(array) => array.get().kind(),
            _ => None,
        }
    }
}

/// Whether an object, which has a dtype but no buffer, holds sparse rows: whether it has the attributes of SciPy's.
pub fn is_sparse(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = object.py();
    match if_any(py, object.getattr(pyo3::intern!(py, "format")))? {
        Some(format) => Ok(format.eq("csr")? && object.hasattr(pyo3::intern!(py, "indptr"))?),
        None => Ok(false),
    }
}

/// Sparse rows, if an object holds some.
fn sparse_rows<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Given<'py>>> {
    let py = object.py();
    if !is_sparse(object)? {
        return Ok(None);
    }
    let part = |object: Bound<'py, PyAny>, what: &str| {
        let array = Array::of(&object).filter(|array| array.shape().len() == 1);
        let message = || PyTypeError::new_err(format!("{what} of sparse rows must be an array of one dimension"));
        array.ok_or_else(message)
    };
    let numbers = part(object.getattr("data")?, "data")?;
    let columns = part(object.getattr("indices")?, "indices")?;
    let starts = part(object.getattr("indptr")?, "indptr")?;
    if ![&columns, &starts].iter().all(|array| matches!(array.kind, Kind::Signed(_))) {
        return Err(PyTypeError::new_err("indices and indptr of sparse rows must be arrays of integers"));
    }
    let extents: (usize, usize) = object.getattr("shape")?.extract()?;
    let dims = Dims::new(&[extents.0, extents.1]).or_raise(py)?;
    Ok(Some(Given::Sparse([numbers, columns, starts], Type { dims, element: Element::Sparse })))
}
