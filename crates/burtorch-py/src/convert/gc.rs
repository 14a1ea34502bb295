//! Python's garbage collector: the Python objects that a Rust object references.
//!
//! Promises: every field with Python objects is visited, once for each reference. An object whose references are fixed at its
//! creation has no `__clear__`, as a tuple has none: it references older objects only, so a cycle through it contains an object
//! that was changed later, and that one breaks the cycle. Nothing here runs Python code or counts references.
#![allow(unsafe_code)]

use pyo3::buffer::PyUntypedBuffer;
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};

/// Called with every reference.
pub type Visitor<'a> = dyn FnMut(&Py<PyAny>) + 'a;

/// A type with references to Python objects, or with none.
pub trait HoldsObjects {
    /// Calls `visit` with each reference.
    fn visit(&self, visit: &mut Visitor<'_>);
}

/// `__traverse__` of a class that contains this.
pub fn traverse(held: &dyn HoldsObjects, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
    let mut result = Ok(());
    held.visit(&mut |object| {
        if result.is_ok() {
            result = visit.call(object);
        }
    });
    result
}

impl<T> HoldsObjects for Py<T> {
    fn visit(&self, visit: &mut Visitor<'_>) {
        visit(self.as_any());
    }
}

impl<T: HoldsObjects> HoldsObjects for Option<T> {
    fn visit(&self, visit: &mut Visitor<'_>) {
        self.iter().for_each(|held| held.visit(visit));
    }
}

impl<T: HoldsObjects + ?Sized> HoldsObjects for Box<T> {
    fn visit(&self, visit: &mut Visitor<'_>) {
        (**self).visit(visit);
    }
}

impl<T: HoldsObjects> HoldsObjects for [T] {
    fn visit(&self, visit: &mut Visitor<'_>) {
        self.iter().for_each(|held| held.visit(visit));
    }
}

impl<T: HoldsObjects, const N: usize> HoldsObjects for [T; N] {
    fn visit(&self, visit: &mut Visitor<'_>) {
        self.as_slice().visit(visit);
    }
}

impl<T: HoldsObjects> HoldsObjects for Vec<T> {
    fn visit(&self, visit: &mut Visitor<'_>) {
        self.as_slice().visit(visit);
    }
}

impl HoldsObjects for PyUntypedBuffer {
    fn visit(&self, visit: &mut Visitor<'_>) {
        // SAFETY: the collector runs on an attached thread; the token is only used to read a pointer.
        let py = unsafe { Python::assume_attached() };
        if let Some(object) = self.obj(py) {
            visit(object.as_unbound());
        }
    }
}

/// Defines `__traverse__` over these fields, for a class whose references do not change.
macro_rules! collected {
    ($Class:ident: $($field:tt).+ $(, $($more:tt).+)*) => {
        #[pymethods]
        impl $Class {
            fn __traverse__(&self, visit: pyo3::PyVisit<'_>) -> Result<(), pyo3::PyTraverseError> {
                $crate::convert::gc::traverse(&self.$($field).+, visit)?;
                $( $crate::convert::gc::traverse(&self.$($more).+, visit)?; )*
                Ok(())
            }
        }
    };
}
pub(crate) use collected;
