//! Between Python and Rust: errors, arguments, numbers, buffers, signals and exclusive access. Does not know graphs.

pub mod arguments;
pub mod arrays;
pub mod buffer;
pub mod critical_section;
pub mod entry;
pub mod errors;
pub mod exclusive;
pub mod gc;
pub mod kinds;
pub mod numbers;
pub mod raw_bytes;
pub mod refusals;
#[cfg(feature = "refuse-allocations")]
pub mod refused_allocations;
pub mod sets;
pub mod signals;
pub mod stop;
pub mod threads;
