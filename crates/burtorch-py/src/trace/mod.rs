//! Traced functions: `@bt.function`, what it records, and how it replays.
//!
//! `object` is the raw type whose calls cost little, `state` what it remembers, `tree` the shape of arguments, `record` a
//! trace, `watch` what a trace took for constant, `search` and `observe` how that is found, `unwatched` what cannot be watched,
//! `audit` the check of that, `keywords` what may be given by name; `calls`, `gradients`, `derivatives` and `map` are its methods;
//! `batches` is for oracles.

mod arguments;
mod array_calls;
mod array_file;
mod array_gradients;
pub mod array_path;
mod array_primitive;
mod attributes;
mod audit;
mod axes;
pub mod batches;
mod bound_call;
mod calls;
mod code;
mod columns;
mod control;
mod derivative_programs;
mod derivatives;
mod docs;
mod file;
mod gradients;
mod inline;
mod invalidate;
mod keywords;
mod loops;
mod map;
mod nest;
mod object;
mod object_type;
mod observe;
mod out;
mod primitive;
mod program;
mod pytree;
mod record;
mod search;
mod state;
mod transform;
mod transform_rules;
mod transforms;
mod unwatched;

use pyo3::prelude::*;

/// Adds the classes and functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    audit::register(m)?;
    primitive::register(m)?;
    program::register(m)?;
    file::register(m)?;
    object_type::register(m)?;
    transforms::register(m)?;
    loops::register(m)
}
