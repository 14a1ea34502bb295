//! Files for Python: sources and targets of bytes, graphs and parameters as files and pickles.
//!
//! Promises: bytes are complete before a file is touched and checked before a graph is; the GIL is released
//! while the system works, and long files regularly check for Ctrl-C. Formats are defined in the core.

pub mod graph;
mod graph_methods;
mod models;
pub mod params;
mod params_methods;
mod tensors;

use std::path::PathBuf;

use burtorch_core::io::{self, Durability};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::convert::buffer::copied_bytes;
use crate::convert::buffer::type_name;
use crate::convert::errors::IntoPython;
use crate::convert::signals::asked;

pub use params::contents_named;

/// A source of bytes.
pub enum Source {
    /// A file.
    Path(PathBuf),
    /// Memory, copied.
    Bytes(Vec<u8>),
}

impl Source {
    /// A str or path object names a file; an object with a buffer is memory.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if !object.is_instance_of::<PyString>()
            && let Some(bytes) = copied_bytes(object, "the source")?
        {
            return Ok(Source::Bytes(bytes));
        }
        path_of(object, "bytes").map(Source::Path)
    }

    /// The bytes of a checkpoint file.
    pub fn checked(self, py: Python<'_>) -> PyResult<Vec<u8>> {
        match self {
            Source::Bytes(bytes) => Ok(bytes),
            Source::Path(path) => py.detach(|| asked(|| io::read(&path))).or_raise(py),
        }
    }
}

/// The path named by the argument.
pub fn path_of(object: &Bound<'_, PyAny>, or: &str) -> PyResult<PathBuf> {
    object.extract::<PathBuf>().map_err(|error| {
        let name = type_name(object);
        match error.is_instance_of::<PyTypeError>(object.py()) {
            true => PyTypeError::new_err(format!("expected a path or {or}, found {name}")),
            false => error,
        }
    })
}

/// Saves bytes completely or not at all.
pub fn save(py: Python<'_>, path: &Bound<'_, PyAny>, bytes: &[u8], durable: bool) -> PyResult<()> {
    let path = path_of(path, "nothing else")?;
    let durability = if durable { Durability::Durable } else { Durability::Cached };
    py.detach(|| asked(|| io::save(&path, bytes, durability))).or_raise(py)
}

/// Adds the functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    graph::register(m)?;
    params::register(m)?;
    tensors::register(m)
}
