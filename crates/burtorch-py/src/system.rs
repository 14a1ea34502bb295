//! What the machine offers: instruction levels.

use burtorch_core::simd;
use pyo3::prelude::*;

/// The instruction level in use: "avx512", "avx2+fma", "neon" or "baseline".
#[pyfunction]
fn cpu_level() -> &'static str {
    simd::level().name()
}

/// The instruction levels this CPU can run, best first.
#[pyfunction]
fn available_cpu_levels() -> Vec<&'static str> {
    simd::available_levels().iter().map(|level| level.name()).collect()
}

/// Adds the functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(cpu_level, m)?)?;
    m.add_function(wrap_pyfunction!(available_cpu_levels, m)?)
}
