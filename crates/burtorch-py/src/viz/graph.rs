//! Pictures of a graph, for Python; `viz` defines their content.

use burtorch_core::viz::Picture;
use pyo3::prelude::*;

use crate::graph::PyGraph;
use crate::viz;

#[pymethods]
impl PyGraph {
    /// The graph in Graphviz's language: label, op, data, gradient and index of each node, with distinct colours for roots,
    /// leaves and parameters.
    ///
    /// Args:
    ///     root: a Value, or several; their dependencies are drawn. By default the nodes that no other node reads.
    ///     max_nodes: the most boxes; the other nodes are one box with their count. Blocks and long runs are one box each.
    ///
    /// Example:
    ///     >>> import burtorch as bt
    ///     >>> a = bt.Value(3.0, label="a", graph=bt.Graph())
    ///     >>> '{ a | leaf | data 3 | grad 0 | node 0 }' in a.graph.to_dot(a * a)
    ///     True
    #[pyo3(signature = (root=None, max_nodes=150))]
    fn to_dot(slf: &Bound<'_, Self>, root: Option<&Bound<'_, PyAny>>, max_nodes: usize) -> PyResult<String> {
        slf.get().settle(slf.py())?;
        viz::written(slf.py(), &viz::picture(slf, root, max_nodes, false)?, Picture::to_dot)
    }

    /// The graph as an SVG image; no other program is needed. Arguments as for to_dot.
    #[pyo3(signature = (root=None, max_nodes=150))]
    fn to_svg(slf: &Bound<'_, Self>, root: Option<&Bound<'_, PyAny>>, max_nodes: usize) -> PyResult<String> {
        slf.get().settle(slf.py())?;
        viz::written(slf.py(), &viz::picture(slf, root, max_nodes, false)?, Picture::to_svg)
    }

    /// The graph as one self-contained HTML page: a click on a box shows value, gradient, formula and the measured
    /// time of one evaluation. Other arguments as for to_dot.
    #[pyo3(signature = (root=None, max_nodes=150, title="burtorch graph"))]
    fn to_html(
        slf: &Bound<'_, Self>,
        root: Option<&Bound<'_, PyAny>>,
        max_nodes: usize,
        title: &str,
    ) -> PyResult<String> {
        slf.get().settle(slf.py())?;
        viz::written(slf.py(), &viz::picture(slf, root, max_nodes, true)?, |picture| picture.to_html(title))
    }

    /// The picture for notebooks.
    fn _repr_svg_(slf: &Bound<'_, Self>) -> PyResult<String> {
        Self::to_svg(slf, None, 150)
    }

    /// The picture for notebooks, in a scrolling frame.
    fn _repr_html_(slf: &Bound<'_, Self>) -> PyResult<String> {
        Ok(format!("<div style=\"overflow:auto\">{}</div>", Self::to_svg(slf, None, 150)?))
    }
}
