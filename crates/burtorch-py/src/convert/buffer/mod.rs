//! Arrays between Python and the core: numbers shared without a copy, exported token ids, numbers read from any buffer
//! or nested sequence, and the caller's memory.
//!
//! Promises: exported memory never moves while it is held; input is checked before it is used; NumPy is not imported.
//! Does not know models.

mod bytes;
mod caller;
mod claims;
mod dlpack;
mod flat;
mod masked;
mod read;
mod token_ids;
mod token_ids_quick;
mod view;

pub use bytes::{copied_bytes, overwrite, writable};
pub use caller::CallerMemory;
pub use claims::Shared;
pub use flat::FlatArray;
pub use masked::{buffer_of, is_masked, refuse_masked};
pub use read::{Dims, holds_bools, read_either, read_numbers, read_token_ids, token_id, type_name};
pub use token_ids::TokenIdArray;
