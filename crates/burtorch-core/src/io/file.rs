//! Files that are written completely or not at all, and files that are read only as far as they are valid.
//!
//! Promises of [`save`]: a reader of the path finds the old content or the new, also after a kill at any moment; with
//! [`Durability::Durable`] also after a loss of power. A failure, or an interrupt, leaves the old file, and no other. Long files
//! are written, read and waited for in pieces, with a check between them whether to end early. Written by hand because
//! errors must keep the system's number, which wrappers for temporary files lose.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::format::{HEADER_BYTES, Header, malformed};
use crate::error::{Error, Result};
use crate::interrupt::{self, BYTES, is_over, pieces_of};
use crate::sync::unique_id;

/// The failures that a finished [`save`] survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// Survives a kill at any moment and a loss of power: waits for the disk.
    #[default]
    Durable,
    /// Survives a kill at any moment. After a loss of power the new content may be missing.
    Cached,
}

/// The largest number of links followed, as on Linux.
const MOST_LINKS: usize = 40;

/// The error of a failed system call on `path`.
pub(super) fn refused(doing: &'static str, path: &Path, error: &io::Error) -> Error {
    // The second number is the Windows equivalent.
    const EIO: i32 = if cfg!(windows) { 1117 } else { 5 };
    const EINVAL: i32 = if cfg!(windows) { 87 } else { 22 };
    if error.kind() == io::ErrorKind::OutOfMemory {
        return Error::OutOfMemory { bytes: 0, what: "a file" };
    }
    let code = error.raw_os_error().unwrap_or(match error.kind() {
        io::ErrorKind::InvalidInput => EINVAL,
        _ => EIO,
    });
    Error::System { code, doing, path: path.to_path_buf() }
}

/// Replaces the content of `path` by `bytes`, or creates the file. Keeps its permissions and follows links. Special
/// files (a pipe, a device) are written to directly.
pub fn save(path: &Path, bytes: &[u8], durability: Durability) -> Result<()> {
    let target = followed(path)?;
    // A write-protected file must not be replaced, so this first checks that it can be opened for writing.
    let permissions = match OpenOptions::new().write(true).open(&target) {
        Ok(mut old) => {
            let about = old.metadata().map_err(|error| refused("inspect", path, &error))?;
            if !about.is_file() {
                write_all(&mut old, bytes, Durability::Cached).map_err(|error| refused("write", path, &error))?;
                return interrupt::check();
            }
            Some(about.permissions())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(refused("open", path, &error)),
    };
    let folder = match target.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut partial = Partial::create(folder, permissions.as_ref()).map_err(|error| refused("open", path, &error))?;
    partial.fill(bytes, permissions, durability).map_err(|error| refused("write", path, &error))?;
    interrupt::check()?;
    partial.rename(&target).map_err(|error| refused("replace", path, &error))?;
    if durability == Durability::Durable {
        sync_folder(folder).map_err(|error| refused("finish", path, &error))?;
    }
    Ok(())
}

/// The path with all links followed, whether the file exists or not.
fn followed(path: &Path) -> Result<PathBuf> {
    let mut target = path.to_path_buf();
    for _ in 0..MOST_LINKS {
        // A path that is not a link, or does not exist, is its own target; opening it reports any other error.
        let Ok(next) = fs::read_link(&target) else { return Ok(target) };
        target = target.parent().map_or(next.clone(), |folder| folder.join(next));
    }
    // A cycle of links: opening it returns the system's error.
    File::open(path).map_err(|error| refused("follow", path, &error))?;
    Ok(target)
}

/// A new file beside the one that it will replace; removed on drop unless it has replaced it.
struct Partial {
    path: PathBuf,
    file: File,
    renamed: bool,
}

impl Partial {
    fn create(folder: &Path, permissions: Option<&Permissions>) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        if let Some(permissions) = permissions {
            use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
            options.mode(permissions.mode() & 0o777);
        }
        #[cfg(not(unix))]
        let _ = permissions;
        loop {
            // An earlier process with the same id may have been killed here: then the next number is tried.
            let path = folder.join(format!(".burtorch-{}-{}.partial", std::process::id(), unique_id()));
            match options.open(&path) {
                Ok(file) => return Ok(Partial { path, file, renamed: false }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn fill(&mut self, bytes: &[u8], permissions: Option<Permissions>, durability: Durability) -> io::Result<()> {
        write_all(&mut self.file, bytes, durability)?;
        if let Some(permissions) = permissions {
            self.file.set_permissions(permissions)?;
        }
        // The caller checks for the interrupt too, and drops the file.
        if interrupt::check().is_err() {
            return Ok(());
        }
        if durability == Durability::Durable { self.file.sync_all() } else { Ok(()) }
    }

    fn rename(mut self, target: &Path) -> io::Result<()> {
        fs::rename(&self.path, target)?;
        self.renamed = true;
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.renamed {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Bytes per wait for the disk, which is not interruptible.
const BYTES_AWAITED: usize = 16 * BYTES;

/// Writes all bytes, unless the work is interrupted.
fn write_all(file: &mut File, bytes: &[u8], durability: Durability) -> io::Result<()> {
    for piece in pieces_of(bytes.len(), BYTES) {
        let end = piece.end;
        file.write_all(&bytes[piece])?;
        if durability == Durability::Durable && end < bytes.len() && end.is_multiple_of(BYTES_AWAITED) {
            file.sync_data()?;
        }
    }
    Ok(())
}

/// Waits until the names in a folder are on the disk, on systems that support it.
fn sync_folder(folder: &Path) -> io::Result<()> {
    if !cfg!(unix) {
        return Ok(());
    }
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        Err(error) if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput) => Ok(()),
        done => done,
    }
}

/// Overwrites the content of `path` in place, or creates the file: fast, but a kill, or an interrupt of a long write,
/// leaves a mixture of old and new.
///
/// The file is truncated after writing and only if it was longer: emptying it first costs a disk its old blocks and new
/// ones, some 100 us on ext4 instead of 3.
pub fn write_over(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    let mut file = options.open(path).map_err(|error| refused("open", path, &error))?;
    write_all(&mut file, bytes, Durability::Cached).map_err(|error| refused("write", path, &error))?;
    interrupt::check()?;
    let about = file.metadata().map_err(|error| refused("inspect", path, &error))?;
    if about.is_file() && about.len() > bytes.len() as u64 {
        file.set_len(bytes.len() as u64).map_err(|error| refused("shorten", path, &error))?;
    }
    Ok(())
}

/// Reads a file of the checkpoint format, to be opened by [`Reader::open`](super::Reader::open). Memory is taken only for a
/// file that is as long as its header says.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    let failed = |error: io::Error| refused("read", path, &error);
    let mut file = open(path)?;
    let mut bytes = read_up_to(&mut file, Vec::new(), HEADER_BYTES).map_err(failed)?;
    let (_, length, _) = Header::decode(&bytes)?;
    let whole = usize::try_from(length).ok().and_then(|n| n.checked_add(HEADER_BYTES + 1)).unwrap_or(usize::MAX);
    let about = file.metadata().map_err(failed)?;
    if about.is_file() && about.len() != (whole - 1) as u64 {
        let reason = format!("the file has {} bytes, expected {}", about.len(), whole - 1);
        return Err(malformed(about.len().min(whole as u64 - 1) as usize, reason));
    }
    if about.is_file() {
        bytes
            .try_reserve_exact(whole - HEADER_BYTES)
            .map_err(|_| Error::OutOfMemory { bytes: whole, what: "a file in memory" })?;
    }
    let bytes = read_up_to(&mut file, bytes, whole).map_err(failed)?;
    interrupt::check()?;
    Ok(bytes)
}

/// Reads a file that must have exactly `n` bytes.
pub fn read_exactly(path: &Path, n: usize) -> Result<Vec<u8>> {
    let mut file = open(path)?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(n + 1).map_err(|_| Error::OutOfMemory { bytes: n, what: "a file in memory" })?;
    // Reading one extra byte detects a longer file without a query for its length.
    let bytes = read_up_to(&mut file, bytes, n + 1).map_err(|error| refused("read", path, &error))?;
    interrupt::check()?;
    if bytes.len() == n { Ok(bytes) } else { Err(wrong_length(n, bytes.len())) }
}

/// The error for a file of `found` bytes (or more) instead of `n`.
pub(super) fn wrong_length(n: usize, found: usize) -> Error {
    let how = if found < n { format!("{found} bytes") } else { "more bytes".to_string() };
    malformed(found.min(n), format!("{how}, expected exactly {n}"))
}

pub(super) fn open(path: &Path) -> Result<File> {
    File::open(path).map_err(|error| refused("open", path, &error))
}

/// Reads until there are `n` bytes in all, or the file ends, or the work is interrupted.
fn read_up_to(file: &mut File, mut bytes: Vec<u8>, n: usize) -> io::Result<Vec<u8>> {
    if bytes.capacity() < n {
        // Pipes and headers: the buffer grows as bytes arrive.
        Read::take(file, (n - bytes.len()) as u64).read_to_end(&mut bytes)?;
        return Ok(bytes);
    }
    let mut at = bytes.len();
    let mut asked = at;
    while at < n {
        bytes.resize(n.min(at + BYTES), 0);
        match file.read(&mut bytes[at..]) {
            Ok(0) => break,
            Ok(more) => at += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if at - asked >= BYTES {
            asked = at;
            if is_over() {
                break;
            }
        }
    }
    bytes.truncate(at);
    Ok(bytes)
}
