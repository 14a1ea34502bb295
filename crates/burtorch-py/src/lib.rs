//! The extension module `burtorch._core`: conversion between Python and the core, nothing else.

mod errors;
mod guarded;

use pyo3::prelude::*;

#[pymodule]
mod _core {
    use super::*;

    #[pymodule_init]
    fn init(m: &Bound<'_, PyModule>) -> PyResult<()> {
        m.add("__version__", env!("CARGO_PKG_VERSION"))?;
        errors::register(m)
    }
}
