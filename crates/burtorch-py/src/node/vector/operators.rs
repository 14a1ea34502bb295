//! The operators of everything that stands for many scalars: one list, for `Vector` and `Tensor`.
//!
//! Promises: elementwise with broadcasting of single scalars, `@` as the inner product, in one Python call each.

use burtorch_core::Op;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::elementwise::{self, Symbol};
use super::{PyVector, functions, numpy};
use crate::params::PyTensor;

type Any<'py> = Bound<'py, PyAny>;

macro_rules! operators {
    ($class:ident) => {
        #[pymethods]
        impl $class {
            fn __add__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
                elementwise::operator(Symbol::Plus, slf.as_any(), other)
            }

            fn __radd__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
                elementwise::operator(Symbol::Plus, other, slf.as_any())
            }

            fn __sub__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
                elementwise::operator(Symbol::Minus, slf.as_any(), other)
            }

            fn __rsub__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
                elementwise::operator(Symbol::Minus, other, slf.as_any())
            }

            fn __mul__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
                elementwise::operator(Symbol::Times, slf.as_any(), other)
            }

            fn __rmul__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
                elementwise::operator(Symbol::Times, other, slf.as_any())
            }

            fn __truediv__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
                elementwise::operator(Symbol::Over, slf.as_any(), other)
            }

            fn __rtruediv__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
                elementwise::operator(Symbol::Over, other, slf.as_any())
            }

            fn __pow__<'py>(
                slf: &Bound<'py, Self>,
                other: &Any<'py>,
                _modulus: Option<&Any<'py>>,
            ) -> PyResult<Any<'py>> {
                elementwise::operator(Symbol::Power, slf.as_any(), other)
            }

            fn __rpow__<'py>(
                slf: &Bound<'py, Self>,
                other: &Any<'py>,
                _modulus: Option<&Any<'py>>,
            ) -> PyResult<Any<'py>> {
                elementwise::operator(Symbol::Power, other, slf.as_any())
            }

            fn __floordiv__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
                elementwise::operator(Symbol::FloorOver, slf.as_any(), other)
            }

            fn __rfloordiv__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
                elementwise::operator(Symbol::FloorOver, other, slf.as_any())
            }

            fn __mod__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
                elementwise::operator(Symbol::Modulo, slf.as_any(), other)
            }

            fn __rmod__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
                elementwise::operator(Symbol::Modulo, other, slf.as_any())
            }

            fn __matmul__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
                functions::product(slf.as_any(), other)
            }

            fn __rmatmul__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
                functions::product(other, slf.as_any())
            }

            fn __neg__<'py>(slf: &Bound<'py, Self>) -> PyResult<Any<'py>> {
                elementwise::unary(Op::NEGATIVE, slf.as_any())
            }

            fn __abs__<'py>(slf: &Bound<'py, Self>) -> PyResult<Any<'py>> {
                elementwise::unary(Op::MAGNITUDE, slf.as_any())
            }

            #[pyo3(signature = (*inputs, **keywords))]
            fn __array_ufunc__<'py>(
                slf: &Bound<'py, Self>,
                inputs: &Bound<'py, PyTuple>,
                keywords: Option<&Bound<'py, PyDict>>,
            ) -> PyResult<Any<'py>> {
                numpy::ufunc(slf.py(), inputs, keywords)
            }
        }
    };
}

operators!(PyVector);
operators!(PyTensor);

#[pymethods]
impl PyVector {
    fn __pos__<'py>(slf: &Bound<'py, Self>) -> Bound<'py, Self> {
        slf.clone()
    }
}
