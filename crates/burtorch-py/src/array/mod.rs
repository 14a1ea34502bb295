//! Arrays of programs and of graphs (`eager`) as Python objects: traces (`trace`), operands (`operands`), appending of operations
//! (`append`), the class `Array` (`array`; its operators, methods, indices and NumPy dispatch have their own files),
//! and functions of several Arrays.

pub mod append;
pub mod arguments;
#[allow(clippy::module_inception)]
pub mod array;
pub mod array_trial;
pub mod eager;
pub mod functions;
mod graph_values;
pub mod guard;
pub mod index;
mod large_results;
mod methods;
mod numpy;
pub mod of_graph;
pub mod operands;
pub mod operators;
mod orders;
pub mod parts;
pub mod run;
pub mod trace;

use pyo3::prelude::*;

/// Adds the class to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<array::PyArray>()?;
    of_graph::register(m)?;
    functions::register(m)
}
