//! `Array`: a value of a trace, with a shape and a dtype but no numbers, or an array of a graph,
//! which has numbers.

use burtorch_core::array::{Element, Handle, Type, ValueId};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::methods::of;
use super::of_graph::numbers_of;
use super::trace::ArrayTrace;
use crate::convert::arrays::Kind;
use crate::convert::errors::numpy;
use crate::convert::gc::collected;
use crate::convert::refusals::error_here;

/// An array of a graph, or a value inside a traced function, which has a shape and a dtype but no numbers.
///
/// `bt.array` and `Graph.array` make arrays of a graph, whose operations are computed at once. A traced function that receives
/// arrays runs once on Arrays without numbers. Shapes, broadcasting and indexing follow NumPy.
#[pyclass(frozen, name = "Array", module = "burtorch", weakref)]
pub struct PyArray {
    trace: Py<ArrayTrace>,
    place: Place,
    ty: Type,
    outside: Option<Outside>,
}

/// What numbers are outside of the trace.
#[derive(Clone, Copy)]
struct Outside {
    kind: Kind,
    is_derivative: bool,
}

enum Place {
    Traced(ValueId),
    OfGraph(Handle),
}

collected!(PyArray: trace);

impl PyArray {
    /// The value of a trace.
    pub fn new<'py>(trace: &Bound<'py, ArrayTrace>, value: ValueId, ty: Type) -> PyResult<Bound<'py, Self>> {
        Self::with(trace, Place::Traced(value), ty, None)
    }

    /// An argument of a trace, and the type of its floats outside.
    pub(super) fn argument<'py>(
        trace: &Bound<'py, ArrayTrace>,
        value: ValueId,
        ty: Type,
        kind: Option<Kind>,
    ) -> PyResult<Bound<'py, Self>> {
        let outside = kind.map(|kind| Outside { kind, is_derivative: false });
        Self::with(trace, Place::Traced(value), ty, outside)
    }

    fn with<'py>(
        trace: &Bound<'py, ArrayTrace>,
        place: Place,
        ty: Type,
        outside: Option<Outside>,
    ) -> PyResult<Bound<'py, Self>> {
        Bound::new(trace.py(), PyArray { trace: trace.clone().unbind(), place, ty, outside })
    }

    /// The same value, as the derivative by an argument with floats of this type, which it has as a result.
    pub fn as_derivative<'py>(array: Bound<'py, Self>, by: Option<Kind>) -> PyResult<Bound<'py, Self>> {
        let this = array.get();
        match (by, &this.place) {
            (Some(kind), &Place::Traced(value)) => {
                let outside = Some(Outside { kind, is_derivative: true });
                Self::with(this.trace(array.py()), Place::Traced(value), this.ty, outside)
            }
            _ => Ok(array),
        }
    }

    /// The type of the floats of the argument that this is, or by which it is a derivative.
    pub fn kind(&self) -> Option<Kind> {
        self.outside.map(|outside| outside.kind)
    }

    /// The type of its floats as a result, if it is a derivative.
    pub fn kind_of_result(&self) -> Option<Kind> {
        self.outside.filter(|outside| outside.is_derivative).map(|outside| outside.kind)
    }

    /// An array of a graph.
    pub(super) fn of_graph<'py>(home: &Bound<'py, ArrayTrace>, handle: Handle) -> PyResult<Bound<'py, Self>> {
        let ty = handle.type_of();
        Self::with(home, Place::OfGraph(handle), ty, None)
    }

    /// Its trace.
    pub fn trace<'a, 'py>(&'a self, py: Python<'py>) -> &'a Bound<'py, ArrayTrace> {
        self.trace.bind(py)
    }

    /// The number of this value in the trace; a `TraceError` if it is an array of a graph.
    pub fn value(&self, py: Python<'_>) -> PyResult<ValueId> {
        match self.place {
            Place::Traced(value) => Ok(value),
            Place::OfGraph(_) => {
                Err(error_here(py, "this Array belongs to a graph; pass it to the function as an argument"))
            }
        }
    }

    /// The array of a graph behind it.
    pub(super) fn handle(&self) -> Option<&Handle> {
        if let Place::OfGraph(handle) = &self.place { Some(handle) } else { None }
    }

    /// Whether both are the same value of the same trace.
    pub fn is_same(&self, other: &Bound<'_, Self>) -> bool {
        match (&self.place, &other.get().place) {
            (Place::Traced(x), Place::Traced(y)) => x == y && self.trace.is(&other.get().trace),
            (Place::OfGraph(x), Place::OfGraph(y)) => x.is_same(y),
            _ => false,
        }
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
        if let (Some(eager), Some(handle)) = (trace.eager(), self.handle()) {
            return eager.check(py, handle);
        }
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

    /// Its NumPy dtype: float64, float32, int64 or bool.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        numpy(py)?.call_method1("dtype", (self.dtype_name(),))
    }

    /// x.at[index].set(y), add, subtract, multiply, divide, min, max: this array with other numbers at these places.
    #[getter]
    fn at<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("burtorch._array_shapes")?.getattr("At")?.call1((slf,))
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

    /// The array itself, because its numbers are real.
    #[getter]
    fn real<'py>(slf: &Bound<'py, Self>) -> Bound<'py, PyArray> {
        slf.clone()
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        if slf.get().handle().is_some() && slf.get().check(slf.py()).is_ok() {
            let numbers = numbers_of(slf)?.repr()?.to_string_lossy().into_owned();
            return Ok(format!("Array{}", numbers.strip_prefix("array").unwrap_or(&numbers)));
        }
        let array = slf.get();
        Ok(format!("Array(shape={}, dtype={})", array.ty.dims, array.dtype_name()))
    }
}
