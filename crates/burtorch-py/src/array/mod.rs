//! Arrays of programs as objects of Python: what is traced (`trace`), what an operation may take (`operands`), how one is
//! appended (`append`), and the class `Array` itself.

pub mod append;
pub mod arguments;
pub mod array;
pub mod guard;
pub mod operands;
pub mod run;
pub mod trace;

use pyo3::prelude::*;

/// Adds the class to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<array::PyArray>()
}
