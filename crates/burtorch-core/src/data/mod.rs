//! Data of finite sums: files of the LIBSVM format, synthetic problems, and how samples are divided among clients.
//!
//! Promises: a file is read in pieces, and memory is needed only for its data; the same seed gives the same data. Does not know
//! the objective.

mod csr;
mod divide;
mod libsvm;
mod synthetic;

pub use csr::Csr;
pub use divide::{Division, divide};
pub use libsvm::{Dataset, LibsvmOptions, read_libsvm};
pub use synthetic::{SyntheticOptions, Target, synthetic};
