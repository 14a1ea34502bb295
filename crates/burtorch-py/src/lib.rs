//! The extension module `burtorch._core`: the core for Python. Its folders are layers; each names only earlier ones.
#![feature(f128)]

mod array;
mod compress;
mod convert;
mod data;
mod files;
mod graph;
mod nn;
mod node;
mod opt;
mod optim;
mod oracle;
mod params;
mod system;
mod text;
mod trace;
mod viz;

use pyo3::prelude::*;

// A free-threaded interpreter runs it without a GIL: what protects each object is in docs/threads.md.
#[pymodule(gil_used = false)]
mod _core {
    use super::*;

    #[pymodule_init]
    fn init(m: &Bound<'_, PyModule>) -> PyResult<()> {
        convert::entry::unwind_refusals(m.py())?;
        m.add("__version__", env!("CARGO_PKG_VERSION"))?;
        #[cfg(feature = "refuse-allocations")]
        convert::refused_allocations::register(m)?;
        convert::errors::register(m)?;
        convert::stop::register(m)?;
        graph::register(m)?;
        array::register(m)?;
        node::register(m)?;
        trace::register(m)?;
        params::register(m)?;
        nn::register(m)?;
        nn::gpt::register(m)?;
        nn::layer_call::register(m)?;
        oracle::register(m)?;
        nn::sample_loss::register(m)?;
        optim::register(m)?;
        compress::register(m)?;
        data::register(m)?;
        opt::register(m)?;
        text::register(m)?;
        files::register(m)?;
        viz::register(m)?;
        text::windows::register(m)?;
        graph::parallel::register(m)?;
        system::register(m)
    }
}
