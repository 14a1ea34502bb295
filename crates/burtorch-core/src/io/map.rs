//! A file as memory: mapped privately and only to be read, so that nothing written elsewhere goes back to it.
//!
//! Promises: the file is not copied before it is used, and never changed. A file that another process cuts short while it
//! is mapped ends this process, which is why mapping is asked for explicitly.
#![allow(unsafe_code)]

use std::path::Path;

use memmap2::{Mmap, MmapOptions};

use super::file::{open, refused, wrong_length};
use crate::error::Result;

/// Maps a file that must have exactly `n` bytes.
pub(super) fn map_exactly(path: &Path, n: usize) -> Result<Mmap> {
    let file = open(path)?;
    let found = file.metadata().map_err(|error| refused("inspect", path, &error))?.len();
    if found != n as u64 {
        return Err(wrong_length(n, usize::try_from(found).unwrap_or(usize::MAX)));
    }
    // SAFETY: the mapping is private and only read. That nobody shortens the file meanwhile is up to the caller, who asked
    // for a mapping; bytes that change under the reader are read as numbers, any of which is valid.
    unsafe { MmapOptions::new().len(n).map_copy_read_only(&file) }.map_err(|error| refused("map", path, &error))
}
