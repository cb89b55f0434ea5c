//! Bounds the number of descriptors of files that are open for reading.
//!
//! A dataset may have a part for each of a hundred thousand epochs, and a process often has 1,024 descriptors. The
//! least recently read files lose their descriptors. A later read opens them again by their paths, and checks that they
//! are the same files: committed files never change, but an epoch may be replaced by another one with the same names.

use std::collections::VecDeque;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// Maximum number of descriptors, whatever the limit of the process.
const MAX: usize = 512;

/// The part of the process's descriptors that a storage uses: one in so many.
const SHARE: usize = 4;

/// Minimum number of descriptors.
const MIN: usize = 8;

/// The descriptors of a storage.
#[derive(Debug)]
pub(super) struct Descriptors {
    most: usize,
    /// The working folder at the beginning, which the program may change.
    folder: PathBuf,
    /// Number of open descriptors.
    open: AtomicUsize,
    /// Files with descriptors, in the order in which they were opened or last seen in use. Some may have been closed.
    files: Mutex<VecDeque<Weak<PooledFile>>>,
}

impl Default for Descriptors {
    fn default() -> Self {
        let limit = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |limit| limit as usize);
        Self::new((limit / SHARE).clamp(MIN, MAX))
    }
}

impl Descriptors {
    fn new(most: usize) -> Self {
        // Absolute paths do not need it.
        let folder = std::env::current_dir().unwrap_or_default();
        Self { most, folder, open: AtomicUsize::new(0), files: Mutex::default() }
    }

    /// Opens a file for reading.
    pub(super) fn open(self: &Arc<Self>, path: &Path) -> io::Result<Arc<PooledFile>> {
        let file = self.open_file(path)?;
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        self.open.fetch_add(1, Ordering::Relaxed);
        let pooled = Arc::new(PooledFile {
            path: path.to_owned(),
            identity: Identity::of(&metadata),
            file: RwLock::new(Some(file)),
            is_used: AtomicBool::new(false),
            descriptors: Arc::clone(self),
        });
        self.lock().push_back(Arc::downgrade(&pooled));
        Ok(pooled)
    }

    /// Opens a file, when others have made room for its descriptor.
    fn open_file(&self, path: &Path) -> io::Result<File> {
        self.close_all_but(self.most.saturating_sub(1));
        match File::open(path) {
            // The program itself has most of the descriptors.
            Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::MFILE | Errno::NFILE)) => {
                self.close_all_but(0);
                File::open(path)
            }
            other => other,
        }
    }

    /// Closes descriptors until at most `most` are open, or all others are being read. Those that were read since they
    /// were last seen here stay open in the first round.
    fn close_all_but(&self, most: usize) {
        if self.open.load(Ordering::Relaxed) <= most {
            return;
        }
        let mut files = self.lock();
        for _ in 0..2 * files.len() {
            if self.open.load(Ordering::Relaxed) <= most {
                return;
            }
            let Some(next) = files.pop_front() else { return };
            let Some(file) = next.upgrade() else { continue };
            if file.is_used.swap(false, Ordering::Relaxed) || !file.close() {
                files.push_back(next);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Weak<PooledFile>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Distinguishes a file from others that had its path, before or after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    modified: (i64, i64),
    bytes: u64,
}

impl Identity {
    fn of(metadata: &Metadata) -> Self {
        let modified = (metadata.mtime(), metadata.mtime_nsec());
        Self { device: metadata.dev(), inode: metadata.ino(), modified, bytes: metadata.len() }
    }
}

/// A file that is open for reading, whose descriptor may be closed between two reads.
#[derive(Debug)]
pub(super) struct PooledFile {
    path: PathBuf,
    identity: Identity,
    file: RwLock<Option<File>>,
    /// Whether the file was read since the descriptors were last looked through.
    is_used: AtomicBool,
    descriptors: Arc<Descriptors>,
}

impl PooledFile {
    /// Returns the length that the file had when it was opened, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.identity.bytes
    }

    /// Returns the result of `read`, which is called with the file. Opens it again if its descriptor was closed.
    ///
    /// # Errors
    /// Those of `read`; an error if the path has no file or another one by now.
    pub(super) fn with<T>(self: &Arc<Self>, read: impl FnOnce(&File) -> io::Result<T>) -> io::Result<T> {
        loop {
            if let Some(file) = &*self.file.read().unwrap_or_else(PoisonError::into_inner) {
                self.is_used.store(true, Ordering::Relaxed);
                return read(file);
            }
            self.reopen()?;
        }
    }

    fn reopen(self: &Arc<Self>) -> io::Result<()> {
        let file = match self.descriptors.open_file(&self.descriptors.folder.join(&self.path)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(replaced()),
            other => other?,
        };
        if Identity::of(&file.metadata()?) != self.identity {
            return Err(replaced());
        }
        let mut place = self.file.write().unwrap_or_else(PoisonError::into_inner);
        if place.is_none() {
            *place = Some(file);
            self.descriptors.open.fetch_add(1, Ordering::Relaxed);
            drop(place);
            self.descriptors.lock().push_back(Arc::downgrade(self));
        }
        Ok(())
    }

    /// Closes the descriptor. Returns false if the file is being read.
    fn close(&self) -> bool {
        let Ok(mut file) = self.file.try_write() else { return false };
        if file.take().is_some() {
            self.descriptors.open.fetch_sub(1, Ordering::Relaxed);
        }
        true
    }
}

impl Drop for PooledFile {
    fn drop(&mut self) {
        if self.file.get_mut().unwrap_or_else(PoisonError::into_inner).is_some() {
            self.descriptors.open.fetch_sub(1, Ordering::Relaxed);
        }
        // The place of this file stays in the list, which is at most twice as long as it has to be.
        let most = 2 * self.descriptors.most;
        if let Ok(mut files) = self.descriptors.files.try_lock()
            && files.len() > most
        {
            files.retain(|file| file.strong_count() > 0);
        }
    }
}

fn replaced() -> io::Error {
    let what = "it was replaced or removed while it was read; repeat the query to read the new version";
    io::Error::new(io::ErrorKind::NotFound, what)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    fn files(folder: &Path, count: usize) -> Vec<PathBuf> {
        let path = |number: usize| folder.join(number.to_string());
        (0..count).for_each(|number| std::fs::write(path(number), [number as u8]).unwrap());
        (0..count).map(path).collect()
    }

    fn byte_of(file: &Arc<PooledFile>) -> io::Result<u8> {
        file.with(|file| {
            let mut byte = [0];
            file.read_exact_at(&mut byte, 0).map(|()| byte[0])
        })
    }

    #[test]
    fn any_number_of_files_is_read_with_few_descriptors() {
        let folder = tempfile::tempdir().unwrap();
        let descriptors = Arc::new(Descriptors::new(3));
        let paths = files(folder.path(), 20);
        let open: Vec<_> = paths.iter().map(|path| descriptors.open(path).unwrap()).collect();
        for _ in 0..3 {
            for (number, file) in open.iter().enumerate() {
                assert_eq!(byte_of(file).unwrap(), number as u8);
                assert!(descriptors.open.load(Ordering::Relaxed) <= 3);
            }
        }
        drop(open);
        assert_eq!(descriptors.open.load(Ordering::Relaxed), 0);
        (0..1000).for_each(|number| drop(descriptors.open(&paths[number % 20]).unwrap()));
        assert!(descriptors.lock().len() <= 7, "the list of closed files is bounded");
    }

    #[test]
    fn a_file_that_took_the_place_of_another_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let descriptors = Arc::new(Descriptors::new(2));
        let paths = files(folder.path(), 4);
        let open: Vec<_> = paths.iter().map(|path| descriptors.open(path).unwrap()).collect();
        let is_open = |file: &Arc<PooledFile>| file.file.read().unwrap().is_some();
        let (kept, closed): (Vec<_>, Vec<_>) = open.iter().partition(|file| is_open(file));
        assert_eq!((kept.len(), closed.len()), (2, 2));
        for path in &paths {
            std::fs::remove_file(path).unwrap();
        }
        std::fs::write(&closed[0].path, [77]).unwrap();
        assert!(kept.iter().all(|file| byte_of(file).is_ok()), "what is open is read to its end");
        for file in closed {
            assert_eq!(byte_of(file).unwrap_err().kind(), io::ErrorKind::NotFound);
        }
    }

    #[test]
    fn files_are_read_by_many_threads() {
        let folder = tempfile::tempdir().unwrap();
        let descriptors = Arc::new(Descriptors::new(2));
        let open: Vec<_> = files(folder.path(), 8).iter().map(|path| descriptors.open(path).unwrap()).collect();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..200 {
                        assert_eq!(byte_of(&open[round % 8]).unwrap(), (round % 8) as u8);
                    }
                });
            }
        });
    }
}
