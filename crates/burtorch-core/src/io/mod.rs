//! Save and load: the checked container and its sections, files written completely or not at all, and the raw form.
//!
//! Promises: loading validates, then allocates, then commits, so a failure changes nothing, in memory or on disk; it
//! creates, grows and writes no file. Invalid data is an [`Error::Format`](crate::Error::Format) with a reason and an
//! offset, a failed system call an [`Error::System`](crate::Error::System) with the system's number. No loaded data is executed.
//!
//! To store something new, add a [`Kind`], write its parts as sections, and read them back in the same order:
//!
//! ```
//! use burtorch_core::io::{Header, Kind, Reader, Writer};
//! let mut writer = Writer::new(Header::new(Kind::PROGRAM))?;
//! writer.section(*b"OPND", &[3u32, 1, 4])?;
//! writer.text(*b"NAME", "f")?;
//! let bytes = writer.finish()?;
//!
//! let mut reader = Reader::open(&bytes, Kind::PROGRAM)?;
//! let operands = reader.section::<u32>(*b"OPND")?;
//! let name = reader.text(*b"NAME")?;
//! reader.finish()?;
//! assert_eq!((operands.to_vec()?, name), (vec![3, 1, 4], "f"));
//! # Ok::<(), burtorch_core::Error>(())
//! ```

mod format;
mod numbers;
mod sections;

mod file;
mod map;
mod raw;

mod graph;
mod parameters;
mod state;
mod structure;
mod tensors;

pub use file::{Durability, read, read_exactly, save, write_over};
pub use format::{Contents, HEADER_BYTES, Header, Kind, MAGIC, VERSION};
pub use graph::Loaded;
pub use numbers::Stored;
pub use state::{OptimiserState, bundle, unbundle};
pub use tensors::{TensorFile, tensors_to_bytes};

pub use raw::{Nodes, Overwrite};
pub use sections::{Reader, Section, Tag, Writer};
pub(crate) use state::{Fingerprint, data_from_bytes, data_to_bytes};
