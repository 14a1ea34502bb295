//! The extension module `burtorch._core`: conversion between Python and the core, nothing else.
#![feature(f128)]

mod collected;
mod entry;
mod errors;
mod guarded;

mod scalars;

mod cell;
mod counts;
mod handle;
mod locked;
mod reclaim;

mod graph;
mod parameters;
mod value;
mod vector;

mod blocks;
mod buffer;
mod dense_values;
mod files;
mod function;
mod gpt;
mod layer_call;
mod nn;
mod optim;
mod oracle;
mod params;
mod poll;
mod recorded;
mod sample_loss;
mod system;
mod text;
mod threads;
mod trainable;
mod trained;
mod viz;
mod windows;

use pyo3::prelude::*;

// A free-threaded interpreter turns its lock on for this module: operators of several threads on one graph need it.
#[pymodule(gil_used = true)]
mod _core {
    use super::*;

    #[pymodule_init]
    fn init(m: &Bound<'_, PyModule>) -> PyResult<()> {
        m.add("__version__", env!("CARGO_PKG_VERSION"))?;
        errors::register(m)?;
        graph::register(m)?;
        value::register(m)?;
        vector::register(m)?;
        vector::tokens::register(m)?;
        recorded::register(m)?;
        params::register(m)?;
        blocks::register(m)?;
        nn::register(m)?;
        gpt::register(m)?;
        layer_call::register(m)?;
        oracle::register(m)?;
        sample_loss::register(m)?;
        optim::register(m)?;
        text::register(m)?;
        files::register(m)?;
        viz::register(m)?;
        windows::register(m)?;
        threads::register(m)?;
        system::register(m)
    }
}
