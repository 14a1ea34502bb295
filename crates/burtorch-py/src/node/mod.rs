//! Nodes as Python objects: `Value` (one), `Vector` (several), and their block ops.

pub mod blocks;
pub mod branch_reads;
pub mod critical_section;
pub mod dense;
pub mod graph_methods;
mod joining;
pub mod no_grad;
pub mod node_values;
pub mod numbers;
pub mod of_graph;
pub mod parameter;
pub mod tensor_items;
pub mod token_ids;
pub mod value;
pub mod vector;

use pyo3::prelude::*;

/// Adds the classes and functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    value::register(m)?;
    vector::register(m)?;
    vector::tokens::register(m)?;
    blocks::register(m)?;
    parameter::register(m)?;
    m.add_class::<node_values::NodeValues>()?;
    m.add_class::<token_ids::PyTokenIds>()?;
    m.add_class::<no_grad::PyNoGrad>()
}
