//! Properties of a graph for Python: memory, and non-finite numbers.
//!
//! Promises: Python objects are created when no reference into the graph exists.

use burtorch_core::erased::Found;
use burtorch_core::graph::Memory;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::PyGraph;
use super::branches::kept_for_branches;
use crate::convert::errors::IntoPython;
use crate::convert::numbers;

/// The result of find_nonfinite(): op, index, inputs.
type NonFinite<'py> = (&'static str, u32, Vec<Bound<'py, PyAny>>);

#[pymethods]
impl PyGraph {
    /// The first node whose data or gradient is infinite or NaN, as (op, index, inputs), or None.
    ///
    /// Linear in the number of nodes.
    ///
    /// Example:
    ///     >>> import burtorch as bt
    ///     >>> x = bt.Value(0.0, graph=bt.Graph())
    ///     >>> y = 1 / x
    ///     >>> x.graph.find_nonfinite()
    ///     ('div', 2, [1.0, 0.0])
    fn find_nonfinite<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<NonFinite<'py>>> {
        let py = slf.py();
        slf.get().not_traced(py, "find_nonfinite()")?;
        let found = slf.get().look(py, |cell| Ok(cell.graph.find_nonfinite()))?;
        let Some(Found { op, node, inputs }) = found else { return Ok(None) };
        let inputs = inputs.into_iter().map(|input| numbers::into_python(py, input));
        Ok(Some((op.name(), node.index(), inputs.collect::<PyResult<Vec<_>>>()?)))
    }

    /// Remove nodes that no Value, Vector or operand list can reach, now, however old. Returns how many.
    ///
    /// Linear in nodes and handles. It happens by itself, too, in constant time per node built; then nodes that have survived
    /// once are looked at again only when they have doubled in number.
    ///
    /// Raises BusyError while the graph is in use.
    fn collect(&self, py: Python<'_>) -> PyResult<usize> {
        self.not_traced(py, "collect()")?;
        self.with(py, |cell| cell.collect().or_raise(py))
    }

    /// The memory that the graph uses, as a dict.
    ///
    /// Bytes in use by column: `opcodes`, `operands`, `values`, `adjoints`, `operand_lists`, `leaves`, `temporaries`; and
    /// `reserved`, all that it has taken from the system. `bound` is the exact limit of `reserved`: the same number for a fixed
    /// graph, None for one that grows. Nodes: `nodes` live and `reclaimed` so far. `handles` are Values, and runs of Vectors,
    /// alive; `reclaims` tells whether nodes are reclaimed without being asked.
    ///
    /// Linear in the handles.
    ///
    /// Example:
    ///     >>> import burtorch as bt
    ///     >>> graph = bt.Graph(capacity=100, fixed=True)
    ///     >>> x = graph.vector([1.0, 2.0])
    ///     >>> memory = graph.memory()
    ///     >>> memory["nodes"], memory["values"], memory["bound"] == memory["reserved"]
    ///     (2, 16, True)
    fn memory<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (memory, bound, handles, reclaimed, reclaims) = self.look(py, |cell| {
            let (mut memory, fixed) = (cell.graph.memory(), cell.graph.is_fixed());
            memory.reserved += kept_for_branches(py, cell);
            let bound = fixed.then_some(memory.reserved);
            let generations = &cell.generations;
            Ok((memory, bound, cell.handles.len(), generations.n_reclaimed(), generations.by_itself()))
        })?;
        let table = PyDict::new(py);
        for (name, n) in columns(&memory) {
            table.set_item(name, n)?;
        }
        table.set_item("bound", bound)?;
        table.set_item("handles", handles)?;
        table.set_item("reclaimed", reclaimed)?;
        table.set_item("reclaims", reclaims)?;
        Ok(table)
    }
}

/// The counts of a graph's memory by name.
fn columns(memory: &Memory) -> [(&'static str, usize); 9] {
    [
        ("nodes", memory.nodes),
        ("opcodes", memory.opcodes),
        ("operands", memory.operands),
        ("values", memory.values),
        ("adjoints", memory.adjoints),
        ("operand_lists", memory.operand_lists),
        ("leaves", memory.leaves),
        ("temporaries", memory.temporaries),
        ("reserved", memory.reserved),
    ]
}
