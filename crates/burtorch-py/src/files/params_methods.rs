//! File and pickle methods of `Parameters`.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::params as files;
use crate::params::PyParameters;

#[pymethods]
impl PyParameters {
    /// Save in the checkpoint format: values, names, shapes, frozen numbers, the seed's state, and optionally gradients.
    ///
    /// Args:
    ///     path: the file. It has the old content or the new at any moment, also after a kill; its permissions are kept.
    ///     what: "values" or "both".
    ///     durable: wait for the disk, so that the file survives a power failure.
    ///
    /// Raises OSError if the system refuses; the old file remains.
    #[pyo3(signature = (path, what="values", *, durable=true))]
    fn save(&self, py: Python<'_>, path: &Bound<'_, PyAny>, what: &str, durable: bool) -> PyResult<()> {
        super::save(py, path, &files::checkpoint_bytes(py, self, what)?, durable)
    }

    /// The bytes that save would write.
    #[pyo3(signature = (what="values"))]
    fn to_bytes<'py>(&self, py: Python<'py>, what: &str) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &files::checkpoint_bytes(py, self, what)?))
    }

    /// Overwrite values, and gradients if there are any, with the output of save of Parameters with as many numbers and the
    /// same named tensors. Frozen numbers stay frozen. bt.load_parameters makes new ones instead.
    ///
    /// Args:
    ///     source: a path, or bytes.
    ///
    /// Raises FormatError for a damaged file or other tensors, with `offset` and `reason`; OSError if the system
    /// refuses. Then nothing has changed.
    fn load(&self, py: Python<'_>, source: &Bound<'_, PyAny>) -> PyResult<()> {
        files::load(py, self, source)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        files::pickled(py, self)
    }
}
