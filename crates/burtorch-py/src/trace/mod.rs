//! Traced functions: `@bt.function`, how it records a body, and how it replays.
//!
//! `object` is the raw type with cheap calls, `state` the stored traces, `pytree` the shape of arguments, `record` one trace,
//! `invalidate` checks the constants before a replay, and `probes` compares those of more than one word; `search` and `observe` find
//! constants, and `unwatched` names those that cannot be
//! watched, `audit` their check, `keywords` the keyword arguments; `calls`, `gradients`, `derivatives`, `sparse` and `map` are methods;
//! `batches` is for oracles.

mod arguments;
pub mod array_calls;
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
mod containers;
mod control;
mod derivative_programs;
mod derivatives;
mod docs;
mod file;
mod gradients;
mod inline;
mod into_arrays;
mod invalidate;
mod keywords;
mod long_arrays;
mod loops;
mod map;
mod modules_not_followed;
mod object;
mod object_type;
mod observe;
mod one_array_of_rows;
mod primitive;
mod probes;
mod program;
mod python_function;
mod pytree;
mod record;
mod recorded;
mod search;
mod sparse;
mod state;
mod states;
mod stored_forms;
mod transform;
mod transform_rules;
mod transforms;
mod unwatched;

use pyo3::prelude::*;

/// Adds the classes and functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    audit::register(m)?;
    python_function::register(m)?;
    primitive::register(m)?;
    program::register(m)?;
    file::register(m)?;
    object_type::register(m)?;
    transforms::register(m)?;
    loops::register(m)
}
