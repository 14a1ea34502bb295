//! Features of the machine, and the op table.

use burtorch_core::ops::{OP_INFO, OpInfo};
use burtorch_core::simd;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The instruction level in use: "avx512", "avx2+fma", "neon" or "baseline".
#[pyfunction]
fn cpu_level() -> &'static str {
    simd::level().name()
}

/// The instruction levels that this CPU supports, best first.
#[pyfunction]
fn available_cpu_levels() -> Vec<&'static str> {
    simd::available_levels().iter().map(|level| level.name()).collect()
}

/// Use this instruction level from now on, in every thread: one of available_cpu_levels(), or None for the best. For
/// tests and measurements.
///
/// Levels with fused multiply-add give the same bits; "baseline" gives other bits within the bounds.
///
/// Raises:
///     ValueError: this CPU does not support the level; nothing has changed.
///
/// Example:
///     >>> import burtorch as bt
///     >>> bt.system.force_cpu_level(bt.system.available_cpu_levels()[-1])
///     >>> bt.system.cpu_level() == bt.system.available_cpu_levels()[-1]
///     True
///     >>> bt.system.force_cpu_level(None)
#[pyfunction]
#[pyo3(signature = (name, /))]
fn force_cpu_level(name: Option<&str>) -> PyResult<()> {
    let wanted = match name {
        None => None,
        Some(name) => {
            let found = simd::available_levels().iter().copied().find(|level| level.name() == name);
            let unknown = || {
                let levels = available_cpu_levels().join("\", \"");
                PyValueError::new_err(format!("the levels of this CPU are \"{levels}\", found {name:?}"))
            };
            Some(found.ok_or_else(unknown)?)
        }
    };
    simd::force_level(wanted);
    Ok(())
}

/// The op table: one dict per op, with its name, the paper's name, arity, formula, the interval sampled by tests, the bounds of
/// value and partials in units in the last place (0 if the bound of a sum applies), and whether the derivative reads the output.
///
/// Example:
///     >>> import burtorch as bt
///     >>> tanh = next(op for op in bt.system.ops() if op["name"] == "tanh")
///     >>> tanh["formula"], tanh["value_ulp"], tanh["reads_output"]
///     ('tanh(x); dx = 1 - tanh(x)^2', 3.0, True)
#[pyfunction]
fn ops(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let row = |info: &OpInfo| {
        let row = PyDict::new(py);
        row.set_item("name", info.name)?;
        row.set_item("paper_name", info.paper_name)?;
        row.set_item("arity", format!("{:?}", info.arity).to_lowercase())?;
        row.set_item("formula", info.doc)?;
        row.set_item("domain", info.domain)?;
        row.set_item("value_ulp", info.value_ulp)?;
        row.set_item("partial_ulp", info.partial_ulp)?;
        row.set_item("reads_output", info.reads_output)?;
        Ok(row)
    };
    // Primitives leave an op in a graph that cannot be called.
    OP_INFO.iter().filter(|info| info.op != burtorch_core::Op::Linearised).map(row).collect()
}

/// Adds the functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(cpu_level, m)?)?;
    m.add_function(wrap_pyfunction!(available_cpu_levels, m)?)?;
    m.add_function(wrap_pyfunction!(force_cpu_level, m)?)?;
    m.add_function(wrap_pyfunction!(ops, m)?)
}
