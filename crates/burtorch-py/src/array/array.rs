//! `Array`: a value of a program that is being traced, which knows its shape and dtype and no numbers.

use burtorch_core::array::{Element, Type, ValueId};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::methods::of;
use super::trace::ArrayTrace;
use crate::convert::gc::collected;

/// An array inside a traced function: shape and dtype without numbers.
///
/// A function that is called with arrays runs once on these; NumPy's rules hold for shapes, broadcasting and indexing.
#[pyclass(frozen, name = "Array", module = "burtorch", weakref)]
pub struct PyArray {
    trace: Py<ArrayTrace>,
    value: ValueId,
    ty: Type,
}
collected!(PyArray: trace);

impl PyArray {
    /// The value of a trace.
    pub fn new<'py>(trace: &Bound<'py, ArrayTrace>, value: ValueId, ty: Type) -> PyResult<Bound<'py, Self>> {
        Bound::new(trace.py(), PyArray { trace: trace.clone().unbind(), value, ty })
    }

    /// Its trace.
    pub fn trace<'a, 'py>(&'a self, py: Python<'py>) -> &'a Bound<'py, ArrayTrace> {
        self.trace.bind(py)
    }

    /// Which value of the trace it is.
    pub fn value(&self) -> ValueId {
        self.value
    }

    /// Whether both are the same value of the same trace.
    pub fn is_same(&self, other: &Bound<'_, Self>) -> bool {
        self.value == other.get().value && self.trace.is(&other.get().trace)
    }

    /// Shape and element.
    pub fn type_of(&self) -> Type {
        self.ty
    }

    fn dtype_name(&self) -> &'static str {
        match self.ty.element {
            Element::Float | Element::Sparse => self.trace.get().dtype().name(),
            Element::Int => "int64",
            Element::Mask => "bool",
        }
    }

    /// Refuses an Array whose trace has ended.
    pub fn check(&self, py: Python<'_>) -> PyResult<()> {
        let trace = self.trace.bind(py).get();
        let is_over = trace.lock().is_none();
        if is_over { Err(trace.ended(py)) } else { Ok(()) }
    }
}

#[pymethods]
impl PyArray {
    /// The extents along the axes.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.ty.dims[..])
    }

    /// The number of axes.
    #[getter]
    fn ndim(&self) -> usize {
        self.ty.dims.rank()
    }

    /// The number of elements.
    #[getter]
    fn size(&self) -> usize {
        self.ty.dims.size()
    }

    /// NumPy's dtype of it: float64, float32, int64 or bool.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.import("numpy")?.call_method1("dtype", (self.dtype_name(),))
    }

    /// The array with its axes in reverse order.
    #[getter]
    #[allow(non_snake_case)]
    fn T<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyArray>> {
        of(slf.as_any(), |b, x| {
            let rank = b.type_of(x).dims.rank();
            b.transpose(x, &(0..rank).rev().collect::<Vec<_>>())
        })
    }

    /// The array with its last two axes exchanged.
    #[getter]
    #[allow(non_snake_case)]
    fn mT<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyArray>> {
        let rank = slf.get().ty.dims.rank();
        if rank < 2 {
            return Err(PyValueError::new_err("matrix transpose with ndim < 2 is undefined"));
        }
        of(slf.as_any(), |b, x| {
            let mut order: Vec<_> = (0..rank).collect();
            order.swap(rank - 2, rank - 1);
            b.transpose(x, &order)
        })
    }

    /// The array itself, as its numbers are real.
    #[getter]
    fn real<'py>(slf: &Bound<'py, Self>) -> Bound<'py, PyArray> {
        slf.clone()
    }

    fn __repr__(&self) -> String {
        format!("Array(shape={}, dtype={})", self.ty.dims, self.dtype_name())
    }
}
