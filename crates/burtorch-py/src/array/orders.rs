//! Methods of `Array` that read or write the elements in an order: `reshape`, `ravel`, `flatten`.
//!
//! Promises NumPy's orders: by rows (C), by columns (F); Arrays lie by rows, so A and K mean C.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::array::PyArray;
use super::methods::{flat, many, of};

/// Whether elements are taken by columns.
fn by_columns(order: &str) -> PyResult<bool> {
    match order {
        "C" | "c" | "A" | "a" | "K" | "k" => Ok(false),
        "F" | "f" => Ok(true),
        _ => Err(PyValueError::new_err(format!("order must be one of 'C', 'F', 'A', or 'K' (got '{order}')"))),
    }
}

/// All elements in one row.
fn in_one_row<'py>(x: &Bound<'py, PyArray>, order: &str) -> PyResult<Bound<'py, PyArray>> {
    let by_columns = by_columns(order)?;
    of(x.as_any(), |b, x| {
        let rank = b.type_of(x).dims.rank();
        let x = if by_columns { b.transpose(x, &(0..rank).rev().collect::<Vec<_>>())? } else { x };
        flat(b, x)
    })
}

#[pymethods]
impl PyArray {
    /// The same numbers with another shape; -1 is replaced by the extent that fits. With order='F' the first index changes
    /// fastest, in both shapes.
    #[pyo3(signature = (*shape, order="C"))]
    fn reshape<'py>(slf: &Bound<'py, Self>, shape: &Bound<'py, PyTuple>, order: &str) -> PyResult<Bound<'py, PyArray>> {
        let by_columns = by_columns(order)?;
        if matches!(order, "K" | "k") {
            return Err(PyValueError::new_err("order 'K' is not permitted for reshaping"));
        }
        let extents = many(shape)?;
        let size = slf.get().type_of().dims.size();
        let known: usize = extents.iter().filter(|&&n| n >= 0).map(|&n| n as usize).product();
        let n_unknown = extents.iter().filter(|&&n| n < 0).count();
        let wrong = || {
            let shape = extents.iter().map(isize::to_string).collect::<Vec<_>>().join(",");
            PyValueError::new_err(format!("cannot reshape array of size {size} into shape ({shape})"))
        };
        if n_unknown > 1 || extents.iter().any(|&n| n < -1) {
            return Err(PyValueError::new_err("can only specify one unknown dimension"));
        }
        let fits = if n_unknown == 1 { known > 0 && size.is_multiple_of(known) } else { known == size };
        if !fits {
            return Err(wrong());
        }
        let mut extents: Vec<_> = extents.iter().map(|&n| if n < 0 { size / known } else { n as usize }).collect();
        of(slf.as_any(), |b, x| {
            if !by_columns {
                return b.reshape(x, &extents);
            }
            let rank = b.type_of(x).dims.rank();
            let turned = b.transpose(x, &(0..rank).rev().collect::<Vec<_>>())?;
            extents.reverse();
            let turned = b.reshape(turned, &extents)?;
            b.transpose(turned, &(0..extents.len()).rev().collect::<Vec<_>>())
        })
    }

    /// All elements in one row: by rows, or by columns with order='F'.
    #[pyo3(signature = (order="C"))]
    fn ravel<'py>(slf: &Bound<'py, Self>, order: &str) -> PyResult<Bound<'py, PyArray>> {
        in_one_row(slf, order)
    }

    /// All elements in one row: by rows, or by columns with order='F'.
    #[pyo3(signature = (order="C"))]
    fn flatten<'py>(slf: &Bound<'py, Self>, order: &str) -> PyResult<Bound<'py, PyArray>> {
        in_one_row(slf, order)
    }
}
