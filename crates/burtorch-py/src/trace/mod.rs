//! Recorded functions: `@bt.function`, what it records, and how it replays.
//!
//! `object` is the raw type whose calls cost little, `state` what it remembers, `tree` the shape of arguments, `record` a
//! trace, `watch` what a trace took for constant, `search` and `observe` how that is found, `unwatched` what cannot be watched,
//! `audit` the check of that; `calls`, `derivatives` and `map` are its methods.

mod arrays;
mod attributes;
mod audit;
mod bound_call;
mod calls;
mod code;
mod columns;
mod derivatives;
mod docs;
mod file;
mod inline;
mod invalidate;
mod map;
mod object;
mod object_type;
mod observe;
mod parameter;
mod primitive;
mod program;
mod pytree;
mod record;
mod search;
mod state;
mod trace;
mod unwatched;

pub use observe::{is_recording, refuse_reading};
pub use parameter::{PyParameter, value_of};
pub use trace::{
    Trace, compared, detached, no_grad_refused, not_in_a_trace, reading_refused, refusal, too_large, with_int,
};

use pyo3::prelude::*;

/// Adds the classes and functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    parameter::register(m)?;
    audit::register(m)?;
    primitive::register(m)?;
    program::register(m)?;
    file::register(m)?;
    object_type::register(m)
}
