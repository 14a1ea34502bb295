//! Pickles and copies of problems: their data again, or their function.

use burtorch_core::opt::Rows;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::problem::PyFiniteSum;
use crate::convert::arrays::{Kind, filled, of_integers};

type Reduced<'py> = (Bound<'py, PyAny>, Bound<'py, PyTuple>);

#[pymethods]
impl PyFiniteSum {
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Reduced<'py>> {
        let (py, this, cls) = (slf.py(), slf.get(), slf.get_type());
        let regulariser = this.sum().regulariser();
        let (l2, nonconvex) = (regulariser.l2, regulariser.nonconvex);
        if !this.children().is_empty() {
            return Ok((cls.getattr("_joined")?, (this.children(),).into_pyobject(py)?));
        }
        if let Some(function) = this.function(py) {
            let keywords = PyDict::new(py);
            keywords.set_item("l2", l2)?;
            keywords.set_item("nonconvex", nonconvex)?;
            let make = py.import("functools")?.getattr("partial")?.call((cls,), Some(&keywords))?;
            return Ok((make, (function, this.sum().n(), this.sum().d()).into_pyobject(py)?));
        }
        let features = this.sum().rows().map(|rows| features(py, rows)).transpose()?;
        let labels = this.sum().labels().unwrap_or_default();
        Ok(match this.classes() {
            Some(classes) => {
                let labels: Vec<i64> = labels.into_iter().map(|class| class as i64).collect();
                let labels = of_integers(py, &[labels.len()], &labels)?;
                (cls.getattr("_softmax")?, (features, labels, classes, l2, nonconvex).into_pyobject(py)?)
            }
            None => {
                let labels = filled(py, &[labels.len()], Kind::F64, &labels)?;
                (cls.getattr("_linear")?, (features, labels, this.kind(), l2, nonconvex).into_pyobject(py)?)
            }
        })
    }
}

/// The features as the constructors take them: a matrix, or starts, columns and values of sparse rows with their length.
fn features<'py>(py: Python<'py>, rows: &Rows) -> PyResult<Bound<'py, PyAny>> {
    if let Some(numbers) = rows.numbers() {
        return filled(py, &[rows.n(), rows.d()], Kind::F64, numbers);
    }
    let (starts, columns, values) = rows.parts().unwrap_or_default();
    let starts: Vec<i64> = starts.iter().map(|&start| start as i64).collect();
    let columns: Vec<i64> = columns.iter().map(|&column| column.into()).collect();
    let starts = of_integers(py, &[starts.len()], &starts)?;
    let columns = of_integers(py, &[columns.len()], &columns)?;
    let values = filled(py, &[values.len()], Kind::F64, values)?;
    Ok((starts, columns, values, rows.d()).into_pyobject(py)?.into_any())
}
