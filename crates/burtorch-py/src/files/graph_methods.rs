//! A graph as bytes and files, for Python: pickles, the raw format, the checkpoint format. `files::graph` defines their content.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use super::graph as files;
use crate::graph::PyGraph;

#[pymethods]
impl PyGraph {
    /// Pickles and copies are complete: structure, values, gradients, labels, and the Parameters that nodes read. Values stay
    /// with their graph; Graph.node(index) returns those of the copy.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        slf.get().settle(slf.py())?;
        files::pickled(slf)
    }

    /// Save only the numbers of nodes, little-endian, without header or checksum: seven doubles are 56 bytes.
    ///
    /// Args:
    ///     target: a path, or a writable buffer of exactly the length.
    ///     first, last: the nodes from `first` to `last`, the last one included, as in the paper; all by default. Or a
    ///         sequence of Values as `first`.
    ///     what: "values", "grads", or "both": all values, then all gradients.
    ///     atomic: write a temporary file that replaces the old one, so that a kill leaves one of the two. Otherwise a
    ///         file is overwritten in place, which is fastest.
    ///
    /// Raises OSError if the system refuses, ValueError for a range outside or a buffer of another length.
    ///
    /// Source: F.7 and Table 4 of the paper.
    ///
    /// Example:
    ///     >>> import burtorch as bt
    ///     >>> with bt.Graph() as graph:
    ///     ...     x = bt.Value(1.0), bt.Value(2.0)
    ///     >>> memory = bytearray(16)
    ///     >>> graph.save_raw(memory, 0, 1)
    ///     >>> x[1].data = 5.0
    ///     >>> graph.load_raw(memory, 0, 1)
    ///     >>> x[1].data
    ///     2.0
    #[pyo3(signature = (target, first=None, last=None, what="values", *, atomic=false))]
    fn save_raw<'py>(
        slf: &Bound<'py, Self>,
        target: &Bound<'py, PyAny>,
        first: Option<&Bound<'py, PyAny>>,
        last: Option<u32>,
        what: &str,
        atomic: bool,
    ) -> PyResult<()> {
        slf.get().settle(slf.py())?;
        files::save_raw(slf, Some(target), (first, last), what, atomic).map(|_| ())
    }

    /// The bytes that save_raw would write.
    #[pyo3(signature = (first=None, last=None, what="values"))]
    fn raw_bytes<'py>(
        slf: &Bound<'py, Self>,
        first: Option<&Bound<'py, PyAny>>,
        last: Option<u32>,
        what: &str,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        slf.get().settle(slf.py())?;
        files::save_raw(slf, None, (first, last), what, false)
    }

    /// Overwrite the numbers of nodes with the output of save_raw.
    ///
    /// Args:
    ///     source: a path, or any object with a buffer.
    ///     first, last, what: as for save_raw. The source must have exactly their length.
    ///     mmap: map the file privately instead of reading it. No other process may shorten it meanwhile.
    ///
    /// Nodes computed from these keep their data; Graph.recompute evaluates them again.
    ///
    /// Raises FormatError for another length, OSError if the system refuses. Then nothing has changed.
    #[pyo3(signature = (source, first=None, last=None, what="values", *, mmap=false))]
    fn load_raw(
        slf: &Bound<'_, Self>,
        source: &Bound<'_, PyAny>,
        first: Option<&Bound<'_, PyAny>>,
        last: Option<u32>,
        what: &str,
        mmap: bool,
    ) -> PyResult<()> {
        files::load_raw(slf, source, (first, last), what, mmap)
    }

    /// Save the graph in the checkpoint format: structure, values, labels, and optionally gradients.
    ///
    /// Args:
    ///     path: the file. It has the old content or the new at any moment, also after a kill; its permissions are kept.
    ///     first, last: save only the numbers of these nodes, the last one included, without structure.
    ///     what: "values" or "both"; for a range also "grads".
    ///     durable: wait for the disk, so that the file survives a power failure.
    ///
    /// Parameters that nodes read are not included; see Parameters.save.
    ///
    /// Raises OSError if the system refuses; the old file remains.
    ///
    /// Cost: linear in the number of nodes, with memory for the whole file.
    #[pyo3(signature = (path, first=None, last=None, what="values", *, durable=true))]
    fn save(
        slf: &Bound<'_, Self>,
        path: &Bound<'_, PyAny>,
        first: Option<u32>,
        last: Option<u32>,
        what: &str,
        durable: bool,
    ) -> PyResult<()> {
        slf.get().settle(slf.py())?;
        let bytes = files::checkpoint_bytes(slf, (first, last), what)?;
        crate::files::save(slf.py(), path, &bytes, durable)
    }

    /// The bytes that save would write.
    #[pyo3(signature = (first=None, last=None, what="values"))]
    fn to_bytes<'py>(
        slf: &Bound<'py, Self>,
        first: Option<u32>,
        last: Option<u32>,
        what: &str,
    ) -> PyResult<Bound<'py, PyBytes>> {
        slf.get().settle(slf.py())?;
        Ok(PyBytes::new(slf.py(), &files::checkpoint_bytes(slf, (first, last), what)?))
    }

    /// Overwrite numbers with the output of save: of a graph of equal structure, or of a range that this graph has.
    ///
    /// Handles stay valid. bt.load_graph makes a new graph instead.
    ///
    /// Args:
    ///     source: a path, or bytes.
    ///
    /// Raises FormatError for a damaged file or another structure, with `offset` and `reason`; OSError if the system
    /// refuses. Then nothing has changed.
    fn load(slf: &Bound<'_, Self>, source: &Bound<'_, PyAny>) -> PyResult<()> {
        files::load(slf, source)
    }
}
