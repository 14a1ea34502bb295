//! The operators of containers of many scalars: one list, for `Vector` and `Tensor`.
//!
//! Promises: elementwise with broadcasting of single scalars, `@` as the inner product, in one Python call each.

use burtorch_core::Op;
use pyo3::basic::CompareOp;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::elementwise::{self, Symbol};
use super::{PyVector, functions, numpy};
use crate::params::{PyParameters, PyTensor};

type Any<'py> = Bound<'py, PyAny>;

/// Operators on two operands: Python's methods for the left and the right one, and their meaning.
macro_rules! on_both_sides {
    ($class:ident: $($name:ident $reflected:ident $symbol:ident)*) => {
        #[allow(unsafe_op_in_unsafe_fn, reason = "what the attribute makes of names that are written here")]
        const _: () = {
            #[pymethods]
            impl $class { $(
                fn $name<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
                    elementwise::operator(Symbol::$symbol, slf.as_any(), other)
                }

                fn $reflected<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
                    elementwise::operator(Symbol::$symbol, other, slf.as_any())
                }
            )* }
        };
    };
}

macro_rules! operators {
    ($class:ident) => {
        on_both_sides! { $class:
            __add__ __radd__ Plus
            __sub__ __rsub__ Minus
            __mul__ __rmul__ Times
            __truediv__ __rtruediv__ Over
            __floordiv__ __rfloordiv__ FloorOver
            __mod__ __rmod__ Modulo
        }

        #[pymethods]
        impl $class {
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

            fn __matmul__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
                functions::product(slf.as_any(), other)
            }

            fn __rmatmul__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<Any<'py>> {
                functions::product(other, slf.as_any())
            }

            fn __richcmp__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>, how: CompareOp) -> PyResult<Any<'py>> {
                numpy::compared_with(slf.as_any(), other, how)
            }

            fn __hash__(slf: &Bound<'_, Self>) -> usize {
                slf.as_ptr() as usize >> 4
            }

            fn __divmod__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<(Any<'py>, Any<'py>)> {
                Ok((slf.floor_div(other)?, slf.rem(other)?))
            }

            fn __rdivmod__<'py>(slf: &Bound<'py, Self>, other: &Any<'py>) -> PyResult<(Any<'py>, Any<'py>)> {
                Ok((other.floor_div(slf)?, other.rem(slf)?))
            }

            fn __pos__<'py>(slf: &Bound<'py, Self>) -> Bound<'py, Self> {
                slf.clone()
            }

            /// The nearest integers, halves to even, as floats; or the nearest numbers with some decimals.
            #[pyo3(signature = (ndigits=None, /))]
            fn __round__<'py>(slf: &Bound<'py, Self>, ndigits: Option<&Any<'py>>) -> PyResult<Any<'py>> {
                match ndigits {
                    None => slf.call_method0("round"),
                    Some(n) => slf.call_method1("round", (n,)),
                }
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

/// A function of NumPy by the table of a type.
fn by_table<'py>(
    py: Python<'py>,
    name: &str,
    call: (&Any<'py>, &Any<'py>, &Any<'py>, &Any<'py>),
) -> PyResult<Any<'py>> {
    py.import("burtorch._numpy")?.getattr(name)?.call1(call)
}

#[pymethods]
impl PyTensor {
    /// The function of Arrays for a function of NumPy, on the tensor as an Array of the current graph.
    fn __array_function__<'py>(
        slf: &Bound<'py, Self>,
        function: &Any<'py>,
        types: &Any<'py>,
        arguments: &Any<'py>,
        keywords: &Any<'py>,
    ) -> PyResult<Any<'py>> {
        by_table(slf.py(), "function_of_parameters", (function, types, arguments, keywords))
    }
}

#[pymethods]
impl PyParameters {
    /// The same for all numbers of the Parameters, as an Array of one axis.
    fn __array_function__<'py>(
        slf: &Bound<'py, Self>,
        function: &Any<'py>,
        types: &Any<'py>,
        arguments: &Any<'py>,
        keywords: &Any<'py>,
    ) -> PyResult<Any<'py>> {
        by_table(slf.py(), "function_of_parameters", (function, types, arguments, keywords))
    }

    #[pyo3(signature = (*operands, **keywords))]
    fn __array_ufunc__<'py>(
        slf: &Bound<'py, Self>,
        operands: &Bound<'py, PyTuple>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Any<'py>> {
        slf.py().import("burtorch._numpy")?.getattr("ufunc_of_parameters")?.call(operands, keywords)
    }
}

#[pymethods]
impl PyVector {
    /// The function of burtorch for a function of NumPy; others raise a TypeError that names them.
    fn __array_function__<'py>(
        slf: &Bound<'py, Self>,
        function: &Any<'py>,
        types: &Any<'py>,
        arguments: &Any<'py>,
        keywords: &Any<'py>,
    ) -> PyResult<Any<'py>> {
        by_table(slf.py(), "function_of_vectors", (function, types, arguments, keywords))
    }
}
