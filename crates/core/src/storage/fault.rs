//! A wrapper that injects faults into any storage and counts its operations.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{DirEntry, FileKind, ReadableFile, Storage, WritableFile};

/// A fault to inject, and its time or place.
///
/// Operations are counted from 0. Every call of [`Storage`], [`WritableFile`] and [`ReadableFile::read_at`] is one
/// operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The operations `first .. first + count` fail without effect.
    Fail {
        /// First operation to fail.
        first: u64,
        /// Number of operations that fail.
        count: u64,
        /// Kind of their error.
        kind: io::ErrorKind,
    },
    /// The process dies before operation `at`: this operation and all later ones fail.
    Kill {
        /// First operation without effect.
        at: u64,
        /// Whether half of the bytes are written if this operation is a write.
        torn: bool,
    },
    /// The disk is full after this number of further bytes. A write that does not fit is cut short.
    Full {
        /// Number of bytes that still fit.
        bytes: u64,
    },
    /// Every read of a certain byte returns it with some bits flipped.
    Flip {
        /// Path of the file, or the end of the path.
        path: PathBuf,
        /// Offset of the byte.
        offset: u64,
        /// Bits to flip.
        mask: u8,
    },
    /// A file appears to be truncated.
    Cut {
        /// Path of the file, or the end of the path.
        path: PathBuf,
        /// Apparent length of the file in bytes.
        bytes: u64,
    },
    /// Every operation on a path, or on paths below it, fails.
    Refuse {
        /// Path of the file or folder, or the end of the path.
        path: PathBuf,
        /// Kind of the error.
        kind: io::ErrorKind,
    },
}

/// The operation counts of a [`FaultStorage`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StorageCounters {
    /// Number of calls of any kind, including failed ones.
    pub operations: u64,
    /// Number of `read_at` calls.
    pub reads: u64,
    /// Bytes returned by `read_at`.
    pub bytes_read: u64,
    /// Number of `write_at` calls.
    pub writes: u64,
    /// Bytes written by `write_at`.
    pub bytes_written: u64,
    /// Number of `sync` and `sync_dir` calls.
    pub syncs: u64,
    /// Number of `list` calls.
    pub lists: u64,
    /// Number of entries that `list` returned.
    pub listed: u64,
    /// Number of `open` calls.
    pub opens: u64,
}

/// A call that concerns a range of a file that is being read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadEvent {
    /// Path of the file.
    pub path: PathBuf,
    /// The range in the file.
    pub range: Range<u64>,
    /// Whether the range was only announced.
    pub is_announced: bool,
}

#[derive(Debug, Default)]
struct Shared {
    operations: AtomicU64,
    reads: AtomicU64,
    bytes_read: AtomicU64,
    writes: AtomicU64,
    bytes_written: AtomicU64,
    syncs: AtomicU64,
    lists: AtomicU64,
    listed: AtomicU64,
    opens: AtomicU64,
    faults: Mutex<Vec<Fault>>,
    /// Reads and announcements, if a test has asked for them. Nothing then appears to be in memory.
    events: Mutex<Option<Vec<ReadEvent>>>,
}

/// The effect of the faults on an operation.
enum Verdict {
    Go,
    Stop(io::Error),
    /// The error of a write, and the number of bytes that are written before the error.
    Torn(usize, io::Error),
}

fn killed() -> io::Error {
    io::Error::other("the process was killed here by a test")
}

impl Shared {
    fn faults(&self) -> MutexGuard<'_, Vec<Fault>> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn events(&self) -> MutexGuard<'_, Option<Vec<ReadEvent>>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, path: &Path, range: Range<u64>, is_announced: bool) {
        if let Some(events) = self.events().as_mut() {
            events.push(ReadEvent { path: path.to_owned(), range, is_announced });
        }
    }

    /// Counts an operation on `paths` that writes `bytes` bytes. Returns the effect of the faults on it.
    fn judge(&self, paths: &[&Path], bytes: usize) -> Verdict {
        let number = self.operations.fetch_add(1, Ordering::SeqCst);
        for fault in self.faults().iter_mut() {
            match fault {
                Fault::Kill { at, torn } if number >= *at => {
                    let half = if *torn && number == *at { bytes / 2 } else { 0 };
                    return Verdict::Torn(half, killed());
                }
                Fault::Fail { first, count, kind } if number >= *first && number - *first < *count => {
                    return Verdict::Stop((*kind).into());
                }
                Fault::Full { bytes: left } if bytes as u64 > *left => {
                    let fits = *left as usize;
                    *left = 0;
                    return Verdict::Torn(fits, io::ErrorKind::StorageFull.into());
                }
                Fault::Full { bytes: left } => *left -= bytes as u64,
                Fault::Refuse { path, kind } if paths.iter().any(|other| lies_below(other, path)) => {
                    return Verdict::Stop((*kind).into());
                }
                _ => {}
            }
        }
        Verdict::Go
    }

    fn pass(&self, paths: &[&Path]) -> io::Result<()> {
        match self.judge(paths, 0) {
            Verdict::Go => Ok(()),
            Verdict::Stop(error) | Verdict::Torn(_, error) => Err(error),
        }
    }
}

/// Returns whether `path` is `fault` or lies below it. `fault` is an absolute path or the end of a path.
fn lies_below(path: &Path, fault: &Path) -> bool {
    path.ancestors().any(|above| above.ends_with(fault))
}

/// A storage with injected faults. Clones share faults and counters.
#[derive(Debug, Clone)]
pub struct FaultStorage {
    inner: Arc<dyn Storage>,
    shared: Arc<Shared>,
}

impl FaultStorage {
    /// Wraps a storage without faults.
    pub fn new(inner: Arc<dyn Storage>) -> Self {
        Self { inner, shared: Arc::default() }
    }

    /// Wraps a storage and adds a fault.
    pub fn with_fault(inner: Arc<dyn Storage>, fault: Fault) -> Self {
        let storage = Self::new(inner);
        storage.add_fault(fault);
        storage
    }

    /// Adds a fault. All added faults are active at the same time.
    pub fn add_fault(&self, fault: Fault) {
        self.shared.faults().push(fault);
    }

    /// Removes all faults. Counters are not reset.
    pub fn heal(&self) {
        self.shared.faults().clear();
    }

    /// Returns the reads and announcements since the last call. Nothing appears to be in memory from the first call on.
    pub fn take_events(&self) -> Vec<ReadEvent> {
        self.shared.events().replace(Vec::new()).unwrap_or_default()
    }

    /// Returns the counts so far.
    pub fn counters(&self) -> StorageCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        StorageCounters {
            operations: read(&self.shared.operations),
            reads: read(&self.shared.reads),
            bytes_read: read(&self.shared.bytes_read),
            writes: read(&self.shared.writes),
            bytes_written: read(&self.shared.bytes_written),
            syncs: read(&self.shared.syncs),
            lists: read(&self.shared.lists),
            listed: read(&self.shared.listed),
            opens: read(&self.shared.opens),
        }
    }
}

impl Storage for FaultStorage {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        self.shared.pass(&[path])?;
        let file = self.inner.create(path)?;
        Ok(Box::new(FaultWriter { file, path: path.to_owned(), shared: self.shared.clone() }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadableFile>> {
        self.shared.pass(&[path])?;
        self.shared.opens.fetch_add(1, Ordering::SeqCst);
        let file = self.inner.open(path)?;
        Ok(Arc::new(FaultReader { file, path: path.to_owned(), shared: self.shared.clone() }))
    }

    fn kind(&self, path: &Path) -> io::Result<Option<FileKind>> {
        self.shared.pass(&[path])?;
        self.inner.kind(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.shared.pass(&[path])?;
        self.shared.lists.fetch_add(1, Ordering::SeqCst);
        let entries = self.inner.list(path)?;
        self.shared.listed.fetch_add(entries.len() as u64, Ordering::SeqCst);
        Ok(entries)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.shared.pass(&[path])?;
        self.inner.create_dir_all(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.shared.pass(&[from, to])?;
        self.inner.rename(from, to)
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        self.shared.pass(&[one, other])?;
        self.inner.exchange(one, other)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.shared.pass(&[path])?;
        self.inner.remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.shared.pass(&[path])?;
        self.inner.remove_dir_all(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.shared.syncs.fetch_add(1, Ordering::SeqCst);
        self.shared.pass(&[path])?;
        self.inner.sync_dir(path)
    }
}

#[derive(Debug)]
struct FaultWriter {
    file: Box<dyn WritableFile>,
    path: PathBuf,
    shared: Arc<Shared>,
}

impl WritableFile for FaultWriter {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.shared.writes.fetch_add(1, Ordering::SeqCst);
        let (bytes, error) = match self.shared.judge(&[&self.path], data.len()) {
            Verdict::Go => (data.len(), None),
            Verdict::Stop(error) => (0, Some(error)),
            Verdict::Torn(bytes, error) => (bytes, Some(error)),
        };
        if bytes > 0 {
            self.file.write_at(offset, &data[..bytes])?;
            self.shared.bytes_written.fetch_add(bytes as u64, Ordering::SeqCst);
        }
        error.map_or(Ok(()), Err)
    }

    fn truncate(&mut self, bytes: u64) -> io::Result<()> {
        self.shared.pass(&[&self.path])?;
        self.file.truncate(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.shared.syncs.fetch_add(1, Ordering::SeqCst);
        self.shared.pass(&[&self.path])?;
        self.file.sync()
    }
}

#[derive(Debug)]
struct FaultReader {
    file: Arc<dyn ReadableFile>,
    path: PathBuf,
    shared: Arc<Shared>,
}

impl ReadableFile for FaultReader {
    fn bytes(&self) -> u64 {
        let cut = |fault: &Fault| match fault {
            Fault::Cut { path, bytes } if self.path.ends_with(path) => Some(*bytes),
            _ => None,
        };
        self.shared.faults().iter().filter_map(cut).fold(self.file.bytes(), u64::min)
    }

    fn announce(&self, ranges: &[(u64, u64)]) {
        for (offset, bytes) in ranges {
            self.shared.record(&self.path, *offset..offset.saturating_add(*bytes), true);
        }
        self.file.announce(ranges);
    }

    fn is_cached(&self, offset: u64) -> bool {
        self.shared.events().is_none() && self.file.is_cached(offset)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.shared.reads.fetch_add(1, Ordering::SeqCst);
        self.shared.record(&self.path, offset..offset.saturating_add(buffer.len() as u64), false);
        self.shared.pass(&[&self.path])?;
        let end = offset.checked_add(buffer.len() as u64);
        if end.is_none_or(|end| end > self.bytes()) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.file.read_at(offset, buffer)?;
        self.shared.bytes_read.fetch_add(buffer.len() as u64, Ordering::SeqCst);
        for fault in self.shared.faults().iter() {
            if let Fault::Flip { path, offset: byte, mask } = fault
                && self.path.ends_with(path)
                && let Some(index) = byte.checked_sub(offset)
                && let Some(byte) = usize::try_from(index).ok().and_then(|index| buffer.get_mut(index))
            {
                *byte ^= mask;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{MemoryStorage, read_all};

    const PATH: &str = "/file";

    fn write(storage: &FaultStorage, content: &[u8]) -> io::Result<()> {
        let mut file = storage.create(Path::new(PATH))?;
        file.write_at(0, content)?;
        file.sync()
    }

    fn content(storage: &dyn Storage) -> Vec<u8> {
        read_all(storage, Path::new(PATH), 100).unwrap()
    }

    #[test]
    fn a_killed_process_does_nothing_more() {
        let memory = MemoryStorage::new();
        let storage = FaultStorage::with_fault(Arc::new(memory.clone()), Fault::Kill { at: 1, torn: true });
        write(&storage, b"abcdef").unwrap_err();
        assert_eq!(content(&memory), b"abc", "half of the torn write");
        storage.remove_file(Path::new(PATH)).unwrap_err();
        assert_eq!(content(&memory), b"abc");
        assert_eq!(storage.counters().operations, 3);
    }

    #[test]
    fn a_full_disk_cuts_the_write_that_does_not_fit() {
        let memory = MemoryStorage::new();
        let storage = FaultStorage::with_fault(Arc::new(memory.clone()), Fault::Full { bytes: 4 });
        assert_eq!(write(&storage, b"abcdef").unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(content(&memory), b"abcd");
        assert_eq!(storage.counters().bytes_written, 4);
    }

    #[test]
    fn short_lived_errors_pass() {
        let storage = FaultStorage::with_fault(
            Arc::new(MemoryStorage::new()),
            Fault::Fail { first: 0, count: 2, kind: io::ErrorKind::TimedOut },
        );
        for _ in 0..2 {
            assert_eq!(write(&storage, b"abc").unwrap_err().kind(), io::ErrorKind::TimedOut);
        }
        write(&storage, b"abc").unwrap();
        assert_eq!(content(&storage), b"abc");
    }

    #[test]
    fn reads_can_be_flipped_cut_and_refused() {
        let storage = FaultStorage::new(Arc::new(MemoryStorage::new()));
        write(&storage, b"abcdef").unwrap();
        let path = PathBuf::from("file");
        storage.add_fault(Fault::Flip { path: path.clone(), offset: 2, mask: 1 });
        assert_eq!(content(&storage), b"abbdef");
        let before = storage.counters();
        let mut tail = [0; 3];
        storage.open(Path::new(PATH)).unwrap().read_at(3, &mut tail).unwrap();
        assert_eq!(&tail, b"def");
        assert_eq!(storage.counters().bytes_read - before.bytes_read, 3);
        storage.add_fault(Fault::Cut { path: path.clone(), bytes: 5 });
        assert_eq!(content(&storage), b"abbde");
        storage.heal();
        storage.add_fault(Fault::Refuse { path, kind: io::ErrorKind::PermissionDenied });
        assert_eq!(storage.open(Path::new(PATH)).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
}
