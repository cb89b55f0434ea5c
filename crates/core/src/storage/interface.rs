//! The file operations that the store uses, as traits.

use std::io::{self, IoSliceMut};
use std::path::Path;
use std::sync::Arc;

/// Alignment in bytes of offsets, lengths and memory that allows direct I/O.
pub const ALIGNMENT: usize = 4096;

/// The kind of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A folder.
    Directory,
}

/// A name in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// The name, without the folder's path. Names that are not UTF-8 are left out: none of ours is one.
    pub name: String,
    /// Its kind.
    pub kind: FileKind,
}

/// A file system, reduced to the operations in use.
pub trait Storage: Send + Sync + std::fmt::Debug {
    /// Creates a new file for writing; `AlreadyExists` when there is one.
    fn create(&self, path: &Path) -> io::Result<Box<dyn WritableFile>>;
    /// Opens a file for reading.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadableFile>>;
    /// Returns the kind of the path, `None` when it does not exist.
    fn kind(&self, path: &Path) -> io::Result<Option<FileKind>>;
    /// Returns the names in a folder, in byte order.
    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>>;
    /// Creates a folder and those above it; no error when it exists.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Moves a file or folder to a name that is free; `AlreadyExists` otherwise.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Swaps two folders atomically; `Unsupported` where the file system cannot.
    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes a folder and its contents.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in a folder durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
}

/// A file being written by one owner.
pub trait WritableFile: Send + std::fmt::Debug {
    /// Writes all of `data` at `offset`.
    fn write_at(&mut self, offset: u64, data: &[u8]) -> io::Result<()>;
    /// Truncates the file to `bytes`.
    fn truncate(&mut self, bytes: u64) -> io::Result<()>;
    /// Makes content and length durable.
    fn sync(&mut self) -> io::Result<()>;
}

/// A file being read by any number of threads.
pub trait ReadableFile: Send + Sync + std::fmt::Debug {
    /// Returns the length in bytes when it was opened.
    fn bytes(&self) -> u64;
    /// Fills `buffer` from `offset`; `UnexpectedEof` when the file ends before.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
    /// Announces that these ranges (offset and length) are about to be read, so that a device with high latency can
    /// fetch them concurrently. Does not affect the bytes read.
    fn announce(&self, ranges: &[(u64, u64)]) {
        let _ = ranges;
    }
    /// Fills buffers one after the other from `offset`, in as few system calls as possible. The slices' positions
    /// afterwards are unspecified.
    fn read_vectored_at(&self, offset: u64, buffers: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let mut offset = offset;
        for buffer in buffers {
            self.read_at(offset, buffer)?;
            offset = offset.saturating_add(buffer.len() as u64);
        }
        Ok(())
    }
}

/// Reads a whole file, and refuses one larger than `limit_bytes`.
pub(crate) fn read_all(storage: &dyn Storage, path: &Path, limit_bytes: u64) -> io::Result<Vec<u8>> {
    let file = storage.open(path)?;
    if file.bytes() > limit_bytes {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("its size of {} bytes exceeds the maximum", file.bytes()),
        ));
    }
    let mut content = vec![0; file.bytes() as usize];
    file.read_at(0, &mut content)?;
    Ok(content)
}
