//! Compressors of vectors: messages in place of gradients, with the constants of the theory.
//!
//! Promises: a message depends on the vector, the draws and the client alone; a message encoded as bytes decodes to
//! the same message; no heap call after warm-up. Does not know the meaning of the vectors, nor who sends them.

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
