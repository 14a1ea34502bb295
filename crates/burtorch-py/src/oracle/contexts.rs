//! Contexts of built-in models that are read where they are: arrays in the dtype of the parameters, stored by rows.
//!
//! Promises: the array is held only while it is read. Does not know models.

use burtorch_core::DType;
use burtorch_core::array::Floats;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::convert::arrays::Array;
use crate::params::PyParameters;

/// Whether an array's numbers can be read where they are.
pub fn is_in_place(array: &Array, params: &Py<PyParameters>) -> bool {
    match params.get().dtype_of() {
        DType::Float32 => array.in_place::<f32>().is_some(),
        _ => array.in_place::<f64>().is_some(),
    }
}

/// The numbers of such an array.
pub fn in_place(array: &Array) -> Floats<'_> {
    match (array.in_place(), array.in_place()) {
        (Some(x), _) => Floats::F64(x),
        (_, Some(x)) => Floats::F32(x),
        _ => Floats::F64(&[]),
    }
}

/// Contexts for the duration of a computation. Python code may have changed their shape since they were checked.
pub fn contexts_of(x: &Bound<'_, PyAny>, params: &Py<PyParameters>, n: usize) -> PyResult<Array> {
    let array = Array::of(x).filter(|array| is_in_place(array, params) && array.shape().first() == Some(&n));
    array.ok_or_else(|| PyValueError::new_err("contexts have changed their shape or dtype since they were given"))
}

/// Whether two lists share numbers.
pub fn shares_memory<E>(a: &[E], b: &[E]) -> bool {
    let (a, b) = (a.as_ptr_range(), b.as_ptr_range());
    a.start < b.end && b.start < a.end
}
