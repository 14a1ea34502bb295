//! Compressors for Python.

mod classes;
mod compressor;
mod draw;
mod message;

pub use compressor::PyCompressor;
pub use draw::PyDraw;
pub use message::{AnyLargest, Fill, PyMessage};

use pyo3::prelude::*;

/// Adds the classes to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyCompressor>()?;
    m.add_class::<draw::PyDraw>()?;
    m.add_class::<message::PyMessage>()?;
    classes::register(m)
}
