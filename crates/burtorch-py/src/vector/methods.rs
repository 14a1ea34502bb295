//! Named methods of `Vector`: reductions, softmax, and one method per unary op of the op table.

#![allow(unsafe_code)]
use burtorch_core::{Op, ops};
use pyo3::ffi;
use pyo3::prelude::*;

use super::{PyVector, functions, unary_function};
use crate::value::{c_str, method};

#[pymethods]
impl PyVector {
    /// The sum, as a Value.
    fn sum<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        functions::reduce(Op::ReduceSum, slf.as_any())
    }

    /// The mean, as a Value.
    fn mean<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        functions::reduce(Op::ReduceMean, slf.as_any())
    }

    /// The product, as a Value; its gradient is right where factors are 0.
    fn prod<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        functions::reduce(Op::ReduceMul, slf.as_any())
    }

    /// The largest element, as a Value; its gradient is shared by all that equal it.
    fn max<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        functions::reduce(Op::ReduceMax, slf.as_any())
    }

    /// The smallest element, as a Value; its gradient is shared by all that equal it.
    fn min<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        functions::reduce(Op::ReduceMin, slf.as_any())
    }

    /// The inner product with another Vector or a sequence of numbers.
    fn dot<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        functions::inner_product(slf.as_any(), other, None, true)
    }

    /// The Euclidean length, as a Value; at the origin its gradient is 0. Does not overflow before its value does.
    fn norm2<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        functions::reduce(Op::Norm2, slf.as_any())
    }

    /// log(sum of exp(x)), as a Value, shifted by the largest element.
    fn logsumexp<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        functions::reduce(Op::LogSumExp, slf.as_any())
    }

    /// exp(x) over its sum, as a Vector, shifted by the largest element.
    fn softmax<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        functions::softmax(Op::Softmax, slf.as_any())
    }

    /// log(softmax(x)), as a Vector, exact also where probabilities are near 0 or 1.
    fn log_softmax<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        functions::softmax(Op::LogSoftmax, slf.as_any())
    }
}

unsafe extern "C" fn unary_method<const OP: u8>(
    vector: *mut ffi::PyObject,
    _no_arguments: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter passes a living Vector under its lock.
    unsafe { unary_function(ops::OP_INFO[OP as usize].op, vector) }
}

macro_rules! define_methods {
    (
        nullary { $($nullary:tt)* }
        unary { $( #[doc = $doc:literal] $Op:ident $name:ident $paper:literal { $($body:tt)* } )* }
        $($rest:tt)*
    ) => {
        fn op_methods() -> Vec<ffi::PyMethodDef> {
            vec![ $( method(c_str!(stringify!($name)),
                c_str!(stringify!($name), "($self, /)\n--\n\nA new Vector, element by element: ", $doc, "."),
                ffi::METH_NOARGS, ffi::PyMethodDefPointer { PyCFunction: unary_method::<{ Op::$Op as u8 }> }), )* ]
        }
    };
}

burtorch_core::for_each_op!(define_methods);

/// Adds a method per unary op to the class.
pub fn register(py: Python<'_>) -> PyResult<()> {
    let class = py.get_type::<PyVector>();
    for definition in Vec::leak(op_methods()) {
        // SAFETY: the definition is never freed, as the interpreter keeps pointers to it; the class is a living type.
        let (name, descriptor) = unsafe {
            let name = std::ffi::CStr::from_ptr(definition.ml_name);
            let made = ffi::PyDescr_NewMethod(class.as_type_ptr(), definition);
            (name, Bound::from_owned_ptr_or_err(py, made)?)
        };
        class.setattr(name, descriptor)?;
    }
    Ok(())
}
