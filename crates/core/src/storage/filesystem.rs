//! The file system of the operating system.
//!
//! Each file is written through one descriptor. Its `O_DIRECT` flag is set for aligned ranges and cleared for others.
//! If a file system refuses the flag or a direct write, the rest of that file is written through the page cache, with
//! the same content. Buffered bytes are flushed before a direct write to the same pages. Otherwise a later write-back
//! of the page cache would overwrite the direct write.
//!
//! Files that are open for reading share a bounded number of descriptors (`descriptors`).
//!
//! The kernel kills a process with SIGXFSZ if it writes beyond its limit on the size of files (`ulimit -f`). The limit
//! is therefore checked before each write (`file_size_limit`). A library must not handle signals of its program.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Advice, CWD, OFlags, RenameFlags};
use rustix::io::{Errno, ReadWriteFlags};

use super::descriptors::{Descriptors, PooledFile};
use super::file_size_limit;
use super::{ALIGNMENT, DirEntry, FileKind, ReadableFile, Storage, WritableFile};

/// Maximum number of buffers in one vectored read (Linux limit).
const MAX_BUFFERS: usize = 1024;

/// A storage on disk. Direct I/O, and Linux' exclusive and exchanging renames are used if the file system supports
/// them.
#[derive(Debug, Clone)]
pub struct FileSystem {
    direct: bool,
    rename_flags: bool,
    /// Descriptors of files that are open for reading.
    descriptors: Arc<Descriptors>,
}

impl Default for FileSystem {
    fn default() -> Self {
        Self { direct: true, rename_flags: true, descriptors: Arc::default() }
    }
}

impl FileSystem {
    /// Creates a storage with all features.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a storage without direct I/O and without the flags of `renameat2`, as on network file systems.
    pub fn plain() -> Self {
        Self { direct: false, rename_flags: false, ..Self::default() }
    }
}

/// Returns whether the error means that the file system does not support the operation.
fn unsupported(error: Errno) -> bool {
    matches!(error, Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)
}

/// Converts the errors of a rename to an existing name to `AlreadyExists`, as the contract requires.
fn as_already_exists(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory => {
            io::Error::new(io::ErrorKind::AlreadyExists, error)
        }
        _ => error,
    }
}

/// Renames without replacing on file systems that do not support `renameat2`.
///
/// A file is moved with a hard link, which fails if the new name exists. For a folder, the existence of the new name is
/// checked first. A rename never replaces a folder that is not empty.
fn rename_without_flags(from: &Path, to: &Path) -> io::Result<()> {
    if from.symlink_metadata()?.is_file() {
        match std::fs::hard_link(from, to) {
            Ok(()) => return std::fs::remove_file(from),
            Err(error) if matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied) => {}
            Err(error) => return Err(error),
        }
    }
    match to.symlink_metadata() {
        Ok(_) => return Err(io::ErrorKind::AlreadyExists.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    std::fs::rename(from, to).map_err(as_already_exists)
}

impl Storage for FileSystem {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        Ok(Box::new(WriteHandle::new(file, self.direct)))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadableFile>> {
        Ok(Arc::new(ReadHandle { file: self.descriptors.open(path)? }))
    }

    fn kind(&self, path: &Path) -> io::Result<Option<FileKind>> {
        match path.metadata() {
            Ok(metadata) if metadata.is_dir() => Ok(Some(FileKind::Directory)),
            Ok(_) => Ok(Some(FileKind::File)),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(path)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let mut kind = entry.file_type()?;
            if kind.is_symlink() {
                let Ok(target) = entry.path().metadata() else { continue };
                kind = target.file_type();
            }
            let kind = if kind.is_dir() { FileKind::Directory } else { FileKind::File };
            names.push(DirEntry { name, kind });
        }
        names.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(names)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        std::fs::create_dir_all(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        if !self.rename_flags {
            return rename_without_flags(from, to);
        }
        match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(()),
            Err(error) if unsupported(error) => rename_without_flags(from, to),
            Err(error) => Err(error.into()),
        }
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        if !self.rename_flags {
            return Err(io::ErrorKind::Unsupported.into());
        }
        match rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE) {
            Ok(()) => Ok(()),
            Err(error) if unsupported(error) => Err(io::ErrorKind::Unsupported.into()),
            Err(error) => Err(error.into()),
        }
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_dir_all(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let folder = OpenOptions::new().read(true).open(path)?;
        if !folder.metadata()?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        match rustix::fs::fsync(&folder) {
            Ok(()) => Ok(()),
            // Some network and user-space file systems do not support this call. No other call makes their names
            // durable.
            Err(error) if unsupported(error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// A file that is being written.
#[derive(Debug)]
struct WriteHandle {
    file: File,
    /// Alignment required for offsets, lengths and memory of direct writes.
    alignment: usize,
    /// Whether direct writes are allowed. False after the file system has refused one for this file.
    direct_allowed: bool,
    /// Whether `O_DIRECT` is currently set.
    direct_now: bool,
    /// A range that covers all bytes written through the page cache since the last flush.
    buffered: Range<u64>,
}

impl WriteHandle {
    fn new(file: File, direct_allowed: bool) -> Self {
        Self { file, alignment: ALIGNMENT, direct_allowed, direct_now: false, buffered: 0..0 }
    }

    /// Sets or clears `O_DIRECT`. Returns false if the file system refuses the flag.
    fn switch(&mut self, direct: bool) -> io::Result<bool> {
        if self.direct_now == direct {
            return Ok(true);
        }
        let mut flags = rustix::fs::fcntl_getfl(&self.file)?;
        flags.set(OFlags::DIRECT, direct);
        match rustix::fs::fcntl_setfl(&self.file, flags) {
            Ok(()) => {
                self.direct_now = direct;
                Ok(true)
            }
            Err(error) if direct && unsupported(error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Chooses direct or buffered mode for the next write, and prepares the descriptor.
    fn prepare(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        let aligned = offset.is_multiple_of(self.alignment as u64)
            && data.len().is_multiple_of(self.alignment)
            && data.as_ptr().addr().is_multiple_of(self.alignment);
        if !(aligned && self.direct_allowed) {
            self.switch(false)?;
            return Ok(());
        }
        let end = offset.saturating_add(data.len() as u64);
        if self.buffered.start < end && offset < self.buffered.end.next_multiple_of(ALIGNMENT as u64) {
            rustix::fs::fdatasync(&self.file)?;
            self.buffered = 0..0;
        }
        self.direct_allowed = self.switch(true)?;
        Ok(())
    }

    fn note_buffered(&mut self, offset: u64, bytes: u64) {
        let start = offset - offset % ALIGNMENT as u64;
        let end = offset.saturating_add(bytes);
        self.buffered = match self.buffered.is_empty() {
            true => start..end,
            false => self.buffered.start.min(start)..self.buffered.end.max(end),
        };
    }
}

impl WritableFile for WriteHandle {
    fn write_at(&mut self, mut offset: u64, mut data: &[u8]) -> io::Result<()> {
        while !data.is_empty() {
            let allowed = &data[..file_size_limit::allowed_bytes(offset, data.len())?];
            self.prepare(offset, allowed)?;
            match rustix::io::pwrite(&self.file, allowed, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    if !self.direct_now {
                        self.note_buffered(offset, written as u64);
                    }
                    // After a short direct write, the rest is unaligned. The next iteration writes it through the page
                    // cache.
                    offset += written as u64;
                    data = &data[written..];
                }
                Err(Errno::INTR) => {}
                Err(error) if self.direct_now && unsupported(error) => {
                    self.direct_allowed = false;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn truncate(&mut self, bytes: u64) -> io::Result<()> {
        // Only a file that grows is subject to the limit.
        if bytes > self.file.metadata()?.len() {
            file_size_limit::check_length(bytes)?;
        }
        self.file.set_len(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        // fdatasync omits timestamps, but makes the length durable.
        self.file.sync_data()?;
        self.buffered = 0..0;
        Ok(())
    }
}

/// A file that is being read.
#[derive(Debug)]
struct ReadHandle {
    file: Arc<PooledFile>,
}

impl ReadableFile for ReadHandle {
    fn bytes(&self) -> u64 {
        self.file.bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.with(|file| file.read_exact_at(buffer, offset))
    }

    fn announce(&self, ranges: &[(u64, u64)]) {
        // If the first range is in the page cache, the others probably are too. Announcing a cached range takes longer
        // than reading it. Errors are ignored here, since the following reads report them.
        if ranges.first().is_some_and(|(first, _)| !self.is_cached(*first)) {
            let _ = self.file.with(|file| {
                for (offset, bytes) in ranges {
                    let _ = rustix::fs::fadvise(file, *offset, NonZeroU64::new(*bytes), Advice::WillNeed);
                }
                Ok(())
            });
        }
    }

    fn read_cached_at(&self, offset: u64, buffers: &mut [IoSliceMut<'_>]) -> io::Result<bool> {
        let bytes: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        if buffers.len() > MAX_BUFFERS {
            return Ok(false);
        }
        match self.file.with(|file| Ok(rustix::io::preadv2(file, buffers, offset, ReadWriteFlags::NOWAIT)))? {
            Ok(read) => Ok(read == bytes),
            Err(Errno::AGAIN) => Ok(false),
            // The file system does not support the flag.
            Err(_) => self.read_vectored_at(offset, buffers).map(|()| true),
        }
    }

    fn is_cached(&self, offset: u64) -> bool {
        let mut byte = [0];
        let probe = &mut [IoSliceMut::new(&mut byte)];
        let read = self.file.with(|file| Ok(rustix::io::preadv2(file, probe, offset, ReadWriteFlags::NOWAIT)));
        !matches!(read, Ok(Err(Errno::AGAIN)))
    }

    fn read_vectored_at(&self, offset: u64, buffers: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        if let [buffer] = buffers {
            return self.read_at(offset, buffer);
        }
        self.file.with(|file| read_vectored(file, offset, buffers))
    }
}

/// Fills consecutive buffers from an offset of a file.
fn read_vectored(file: &File, offset: u64, buffers: &mut [IoSliceMut<'_>]) -> io::Result<()> {
    let (mut offset, mut rest) = (offset, buffers);
    // Leading empty buffers would look like the end of the file, so they are skipped.
    IoSliceMut::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        let count = rest.len().min(MAX_BUFFERS);
        match rustix::io::preadv(file, &mut rest[..count], offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                offset = offset.saturating_add(read as u64);
                IoSliceMut::advance_slices(&mut rest, read);
            }
            Err(Errno::INTR) => {}
            Err(refused) => return Err(refused.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Allocates and fills memory for direct writes. Returns the memory and the offset of its aligned part.
    fn aligned(bytes: usize, fill: impl Fn(usize) -> u8) -> (Vec<u8>, usize) {
        let mut memory = vec![0; bytes + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        for index in 0..bytes {
            memory[start + index] = fill(index);
        }
        (memory, start)
    }

    #[test]
    fn mixed_aligned_and_unaligned_writes_give_the_bytes_in_order() {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        for (name, storage) in [("direct", FileSystem::new()), ("plain", FileSystem::plain())] {
            let path = folder.path().join(name);
            let mut file = storage.create(&path).unwrap();
            let mut model = vec![0u8; 10 * ALIGNMENT];
            let writes: [(usize, usize); 8] = [
                (0, 2 * ALIGNMENT),
                (ALIGNMENT + 100, 50),
                (2 * ALIGNMENT, ALIGNMENT),
                (ALIGNMENT, ALIGNMENT),
                (3 * ALIGNMENT - 7, 20),
                (2 * ALIGNMENT, 2 * ALIGNMENT),
                (4 * ALIGNMENT + 1, 3 * ALIGNMENT),
                (4 * ALIGNMENT, 6 * ALIGNMENT),
            ];
            for (round, (offset, bytes)) in writes.into_iter().enumerate() {
                let (memory, start) = aligned(bytes, |index| (index * 7 + round * 31 + 1) as u8);
                let data = &memory[start..start + bytes];
                file.write_at(offset as u64, data).unwrap();
                model[offset..offset + bytes].copy_from_slice(data);
            }
            file.truncate(9 * ALIGNMENT as u64 + 17).unwrap();
            model.truncate(9 * ALIGNMENT + 17);
            file.sync().unwrap();
            assert!(std::fs::read(&path).unwrap() == model, "{name}");
        }
    }

    #[test]
    fn a_device_that_refuses_direct_writes_gets_buffered_ones() {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = folder.path().join("file");
        let file = OpenOptions::new().write(true).create_new(true).open(&path).unwrap();
        // With an alignment of 1, the handle attempts all writes as direct writes. The kernel then refuses them like a
        // device with larger blocks.
        let mut handle = WriteHandle { alignment: 1, ..WriteHandle::new(file, true) };
        let (memory, start) = aligned(3 * ALIGNMENT, |index| index as u8);
        handle.write_at(0, &memory[start..start + 3 * ALIGNMENT]).unwrap();
        handle.write_at(3, &memory[start + 3..start + 100]).unwrap();
        assert!(!handle.direct_allowed);
        assert!(!handle.direct_now);
        assert!(std::fs::read(&path).unwrap() == memory[start..start + 3 * ALIGNMENT]);
    }
}
