//! A file as memory: mapped privately and read-only, so that nothing is written back.
//!
//! Promises: the file is not copied before it is used, and never changed. If another process truncates the file while it is
//! mapped, this process ends, which is why mapping must be requested explicitly.
#![allow(unsafe_code)]

use std::path::Path;

use memmap2::{Mmap, MmapOptions};

use super::file::{open, refused, wrong_length};
use crate::error::Result;

/// Maps a file of exactly `n` bytes.
pub(super) fn map_exactly(path: &Path, n: usize) -> Result<Mmap> {
    let file = open(path)?;
    let found = file.metadata().map_err(|error| refused("inspect", path, &error))?.len();
    if found != n as u64 {
        return Err(wrong_length(n, usize::try_from(found).unwrap_or(usize::MAX)));
    }
    // SAFETY: the mapping is private and read-only. The caller, who asked for a mapping, ensures that no process
    // shortens the file; bytes that change are still valid numbers.
    unsafe { MmapOptions::new().len(n).map_copy_read_only(&file) }.map_err(|error| refused("map", path, &error))
}
