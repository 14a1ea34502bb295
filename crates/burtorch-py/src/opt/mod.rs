//! Optimisation for Python: problems, and running methods. The step sizes of theory are computed in Python.

mod callable;
mod exchange;
mod methods;
mod pickling;
mod problem;
mod read;
mod rules;
mod runner;

use pyo3::prelude::*;

pub use rules::drawn;

/// Adds the classes to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<problem::PyFiniteSum>()?;
    m.add_class::<runner::PyRunner>()?;
    rules::register(m)
}
