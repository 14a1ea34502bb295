//! Arrays of programs and of graphs (`eager`) as objects of Python: what is traced (`trace`), what an operation may take (`operands`), how one is
//! appended (`append`), the class `Array` itself (`array`; its operators, methods and indices, and NumPy beside it, have files of
//! their own), and functions of several Arrays.

pub mod append;
pub mod arguments;
#[allow(clippy::module_inception)]
pub mod array;
pub mod eager;
pub mod functions;
pub mod guard;
pub mod index;
mod methods;
mod numpy;
mod of_graph;
pub mod operands;
pub mod operators;
pub mod run;
pub mod trace;

use pyo3::prelude::*;

/// Adds the class to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<array::PyArray>()?;
    of_graph::register(m)?;
    functions::register(m)
}
