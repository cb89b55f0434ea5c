//! The file operations of the store, as traits.

use std::io::{self, IoSliceMut};
use std::path::Path;
use std::sync::Arc;

/// Alignment of offsets, lengths and memory that allows direct I/O, in bytes.
pub const ALIGNMENT: usize = 4096;

/// The kind of a path: file or folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A folder.
    Directory,
}

/// An entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// Name of the entry, without the path of the folder. Names that are not UTF-8 are omitted, since the store creates
    /// no such names.
    pub name: String,
    /// Kind of the entry.
    pub kind: FileKind,
}

/// A file system, reduced to the operations of the store.
pub trait Storage: Send + Sync + std::fmt::Debug {
    /// Creates a new file for writing. Fails with `AlreadyExists` if the file exists.
    fn create(&self, path: &Path) -> io::Result<Box<dyn WritableFile>>;
    /// Opens a file for reading.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadableFile>>;
    /// Returns the kind of a path, or `None` if it does not exist.
    fn kind(&self, path: &Path) -> io::Result<Option<FileKind>>;
    /// Returns the entries of a folder, in byte order of their names.
    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>>;
    /// Creates a folder and its missing ancestors. Existing folders are not an error.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Moves a file or folder to a new name. Fails with `AlreadyExists` if the name exists.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Exchanges two folders atomically. Fails with `Unsupported` if the file system does not support exchange.
    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes a folder and its contents.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in a folder durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
}

/// A file that one owner writes.
pub trait WritableFile: Send + std::fmt::Debug {
    /// Writes all of `data` at `offset`.
    fn write_at(&mut self, offset: u64, data: &[u8]) -> io::Result<()>;
    /// Truncates the file to `bytes`.
    fn truncate(&mut self, bytes: u64) -> io::Result<()>;
    /// Makes the content and length of the file durable.
    fn sync(&mut self) -> io::Result<()>;
}

/// A file that any number of threads read.
pub trait ReadableFile: Send + Sync + std::fmt::Debug {
    /// Returns the length that the file had when it was opened, in bytes.
    fn bytes(&self) -> u64;
    /// Fills `buffer` from `offset`. Fails with `UnexpectedEof` if the file ends before.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
    /// Announces that these ranges (offset and length) will be read, so a device with high latency can fetch them
    /// concurrently. This does not affect the bytes read.
    fn announce(&self, ranges: &[(u64, u64)]) {
        let _ = ranges;
    }
    /// Returns whether the byte at `offset` is in memory, so that reading near it takes no device's latency.
    fn is_cached(&self, offset: u64) -> bool {
        let _ = offset;
        true
    }
    /// Fills consecutive buffers from `offset` if their bytes are in memory. Otherwise returns false: the contents of
    /// the buffers are then unspecified, and the positions of the slices unchanged.
    fn read_cached_at(&self, offset: u64, buffers: &mut [IoSliceMut<'_>]) -> io::Result<bool> {
        let mut offset = offset;
        for buffer in buffers {
            self.read_at(offset, buffer)?;
            offset = offset.saturating_add(buffer.len() as u64);
        }
        Ok(true)
    }
    /// Fills consecutive buffers from `offset`, in as few system calls as possible. The positions of the slices are
    /// unspecified afterwards.
    fn read_vectored_at(&self, offset: u64, buffers: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let mut offset = offset;
        for buffer in buffers {
            self.read_at(offset, buffer)?;
            offset = offset.saturating_add(buffer.len() as u64);
        }
        Ok(())
    }
}

/// Reads a whole file. Fails if the file is larger than `limit_bytes`.
pub(crate) fn read_all(storage: &dyn Storage, path: &Path, limit_bytes: u64) -> io::Result<Vec<u8>> {
    let file = storage.open(path)?;
    if file.bytes() > limit_bytes {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("its size of {} bytes exceeds the maximum", file.bytes()),
        ));
    }
    read_whole(&*file)
}

/// Reads all bytes of an open file.
pub(crate) fn read_whole(file: &dyn ReadableFile) -> io::Result<Vec<u8>> {
    let mut content = vec![0; file.bytes() as usize];
    file.read_at(0, &mut content)?;
    Ok(content)
}
