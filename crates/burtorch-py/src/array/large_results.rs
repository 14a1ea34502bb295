//! Large results of programs: arrays of NumPy in the memory that a plan computed them in.
//!
//! Promises: an array keeps its numbers, whatever the program does afterwards; once nothing refers to it, its memory serves a
//! later result of the same program, and one piece for each result is kept at most. Does not know plans.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use burtorch_core::Float;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::convert::errors::numpy;

/// Memory that results have left.
type Left<E> = Mutex<Vec<Vec<E>>>;

/// The memory of results that are in use no more, of one program.
pub struct Spares<E> {
    left: Arc<Left<E>>,
    /// How many results there are.
    most: usize,
}

/// Numbers that an array of NumPy shows.
struct Handed<E: Send + Sync> {
    numbers: Vec<E>,
    to: Weak<Left<E>>,
    most: usize,
}

trait Memory: Send + Sync {
    fn start(&self) -> usize;
}

impl<E: Send + Sync> Memory for Handed<E> {
    fn start(&self) -> usize {
        self.numbers.as_ptr().addr()
    }
}

impl<E: Send + Sync> Drop for Handed<E> {
    fn drop(&mut self) {
        let Some(left) = self.to.upgrade() else { return };
        let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
        if left.len() < self.most {
            left.push(std::mem::take(&mut self.numbers));
        }
    }
}

/// The owner of the numbers of an array.
#[pyclass(frozen, module = "burtorch", name = "ResultMemory")]
struct PyHanded {
    memory: Box<dyn Memory>,
    dims: Vec<usize>,
    kind: &'static str,
}

#[pymethods]
impl PyHanded {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let about = PyDict::new(py);
        about.set_item("version", 3)?;
        about.set_item("shape", PyTuple::new(py, &self.dims)?)?;
        about.set_item("typestr", self.kind)?;
        about.set_item("data", (self.memory.start(), false))?;
        Ok(about)
    }
}

impl<E: Float + Send + Sync> Spares<E> {
    /// For a program of so many results.
    pub fn new(most: usize) -> Self {
        Spares { left: Arc::default(), most }
    }

    /// Memory of this many numbers.
    pub fn find(&self, n: usize) -> Option<Vec<E>> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let at = left.iter().position(|numbers| numbers.len() == n)?;
        Some(left.swap_remove(at))
    }

    /// Bytes of all of it.
    pub fn bytes(&self) -> usize {
        let left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.iter().map(|numbers| numbers.len() * size_of::<E>()).sum()
    }

    /// An array of these numbers, in their own memory.
    pub fn array<'py>(&self, py: Python<'py>, dims: &[usize], numbers: Vec<E>) -> PyResult<Bound<'py, PyAny>> {
        let kind = match (size_of::<E>(), cfg!(target_endian = "big")) {
            (4, false) => "<f4",
            (4, true) => ">f4",
            (_, false) => "<f8",
            (_, true) => ">f8",
        };
        let memory = Box::new(Handed { numbers, to: Arc::downgrade(&self.left), most: self.most });
        let owner = PyHanded { memory, dims: dims.to_vec(), kind };
        numpy(py)?.call_method1("asarray", (Bound::new(py, owner)?,))
    }
}
