//! Compressors of vectors: what is sent in place of a gradient, with the constants that theory asks for.
//!
//! Promises: what is sent depends on the vector, the draws and the client alone; a message that was encoded as bytes decodes to
//! the same message; no heap call after warm-up. Does not know what the vectors are, nor who sends them.

mod compressor;
mod message;
mod number;
mod quantiser;
mod running;
mod sparsifier;
mod top;
mod wire;

pub use compressor::{Client, Compressor};
pub use message::{Message, Support, Values};
pub use number::Number;
pub use quantiser::Quantiser;
pub use running::Largest;
pub use sparsifier::{Count, Sparsifier};
