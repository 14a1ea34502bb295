//! Named methods of `Vector`: reductions, softmax, and one method per unary op of the op table, which `Array` has too.

#![allow(unsafe_code)]
use std::ffi::CString;

use burtorch_core::{Op, ops};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::{PyVector, functions, unary_function};
use crate::array::array::PyArray;
use crate::convert::entry::caught;
use crate::node::value::method;

#[pymethods]
impl PyVector {
    /// The inner product with another Vector or a sequence of numbers.
    fn dot<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        functions::inner_product(slf.as_any(), other, None, true)
    }

    /// exp(x) over its sum, as a Vector, shifted by the largest element.
    fn softmax<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        functions::softmax(Op::Softmax, slf.as_any())
    }

    /// log(softmax(x)), as a Vector, accurate even if probabilities are near 0 or 1.
    fn log_softmax<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        functions::softmax(Op::LogSoftmax, slf.as_any())
    }
}

unsafe extern "C" fn unary_method<const OP: u8>(
    vector: *mut ffi::PyObject,
    _no_arguments: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter passes a living Vector or Array under its lock.
    caught(|| unsafe { unary_function(ops::OP_INFO[OP as usize].op, vector) })
}

unsafe extern "C" fn reduction_method<const OP: u8>(
    vector: *mut ffi::PyObject,
    _no_arguments: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter passes a living Vector under its lock.
    caught(|| unsafe { functions::reduction_function(ops::OP_INFO[OP as usize].op, vector, true) })
}

/// A method without arguments.
fn defined(name: &str, result: &str, doc: &str, call: ffi::PyCFunction) -> ffi::PyMethodDef {
    let kept = |text: String| CString::new(text).map_or(c"", |text| &*Box::leak(text.into_boxed_c_str()));
    let doc = kept(format!("{name}($self, /)\n--\n\n{result}: {doc}."));
    method(kept(name.to_string()), doc, ffi::METH_NOARGS, ffi::PyMethodDefPointer { PyCFunction: call })
}

/// The methods of reductions whose rows name one.
fn reduction_methods(all: &[(Op, ffi::PyCFunction)]) -> Vec<ffi::PyMethodDef> {
    let named = all.iter().filter(|(op, _)| !op.info().method.is_empty());
    named.map(|&(op, call)| defined(op.info().method, "A Value", op.info().doc, call)).collect()
}

macro_rules! define_methods {
    (
        nullary { $($nullary:tt)* }
        unary { $( #[doc = $doc:literal] $Op:ident $name:ident $paper:literal { $($body:tt)* } )* }
        binary { $($binary:tt)* }
        with_constant { $($with_constant:tt)* }
        reduction { $( #[doc = $rdoc:literal] $R:ident $rname:ident $rpaper:literal { $($rbody:tt)* } )* }
        $($rest:tt)*
    ) => {
        fn reductions() -> Vec<ffi::PyMethodDef> {
            reduction_methods(&[ $( (Op::$R, reduction_method::<{ Op::$R as u8 }> as ffi::PyCFunction), )* ])
        }

        fn op_methods() -> Vec<(Op, ffi::PyCFunction)> {
            vec![ $( (Op::$Op, unary_method::<{ Op::$Op as u8 }> as ffi::PyCFunction), )* ]
        }
    };
}

burtorch_core::for_each_op!(define_methods);

/// Adds a method per unary op to Vectors and Arrays, and those of reductions to Vectors.
pub fn register(py: Python<'_>) -> PyResult<()> {
    let vectors = py.get_type::<PyVector>();
    for (op, call) in op_methods() {
        add(&vectors, defined(op.name(), "A new Vector, element by element", op.info().doc, call))?;
    }
    reductions().into_iter().try_for_each(|method| add(&vectors, method))?;
    let arrays = py.get_type::<PyArray>();
    for (op, call) in op_methods() {
        // `round` takes decimals, and `inv` of a matrix would be taken for its inverse.
        if op.name() != "inv" && !arrays.hasattr(op.name())? {
            add(&arrays, defined(op.name(), "A new Array, element by element", op.info().doc, call))?;
        }
    }
    Ok(())
}

fn add(class: &Bound<'_, PyType>, method: ffi::PyMethodDef) -> PyResult<()> {
    let definition = Box::leak(Box::new(method));
    // SAFETY: the definition is never freed, as the interpreter keeps pointers to it; the class is a living type.
    let (name, descriptor) = unsafe {
        let name = std::ffi::CStr::from_ptr(definition.ml_name);
        let made = ffi::PyDescr_NewMethod(class.as_type_ptr(), definition);
        (name, Bound::from_owned_ptr_or_err(class.py(), made)?)
    };
    class.setattr(name, descriptor)
}
