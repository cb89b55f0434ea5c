//! A storage whose files are wrapped, and files that count the bytes that are read of records.

use std::fmt;
use std::io::Result;
use std::path::Path;
use std::sync::{Arc, Mutex};

use turbidite::storage::{DirEntry, FileKind, MemoryStorage, ReadableFile, Storage, WritableFile};

/// Returns the file to read instead of one that was opened.
type Opened = dyn Fn(&Path, Arc<dyn ReadableFile>) -> Arc<dyn ReadableFile> + Send + Sync;

/// Returns the file to write instead of one that was created.
type Created = dyn Fn(&Path, Box<dyn WritableFile>) -> Box<dyn WritableFile> + Send + Sync;

/// Is called after a rename, with both paths.
type Renamed = dyn Fn(&Path, &Path) + Send + Sync;

/// A storage in memory whose files are wrapped.
pub(crate) struct WrappedStorage {
    inner: Arc<MemoryStorage>,
    opened: Box<Opened>,
    created: Box<Created>,
    renamed: Box<Renamed>,
}

impl fmt::Debug for WrappedStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WrappedStorage").finish_non_exhaustive()
    }
}

impl WrappedStorage {
    /// Wraps the files that are created.
    pub(crate) fn of_created(
        inner: Arc<MemoryStorage>,
        created: impl Fn(&Path, Box<dyn WritableFile>) -> Box<dyn WritableFile> + Send + Sync + 'static,
    ) -> Self {
        Self { created: Box::new(created), ..Self::plain(inner) }
    }

    /// Calls a function after each rename, such as one that does what another process does then.
    pub(crate) fn of_renamed(
        inner: Arc<MemoryStorage>,
        renamed: impl Fn(&Path, &Path) + Send + Sync + 'static,
    ) -> Self {
        Self { renamed: Box::new(renamed), ..Self::plain(inner) }
    }

    fn plain(inner: Arc<MemoryStorage>) -> Self {
        Self {
            inner,
            opened: Box::new(|_, file| file),
            created: Box::new(|_, file| file),
            renamed: Box::new(|_, _| ()),
        }
    }

    /// Counts the bytes that are read of records.
    pub(crate) fn counting(inner: Arc<MemoryStorage>, bytes: Arc<Mutex<u64>>) -> Self {
        let opened = move |path: &Path, inner: Arc<dyn ReadableFile>| -> Arc<dyn ReadableFile> {
            if !path.starts_with("/ds/data") {
                return inner;
            }
            Arc::new(CountedFile { inner, bytes: bytes.clone() })
        };
        Self { opened: Box::new(opened), ..Self::plain(inner) }
    }
}

#[derive(Debug)]
struct CountedFile {
    inner: Arc<dyn ReadableFile>,
    bytes: Arc<Mutex<u64>>,
}

impl ReadableFile for CountedFile {
    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        *self.bytes.lock().unwrap() += buffer.len() as u64;
        self.inner.read_at(offset, buffer)
    }
}

impl Storage for WrappedStorage {
    fn create(&self, path: &Path) -> Result<Box<dyn WritableFile>> {
        Ok((self.created)(path, self.inner.create(path)?))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn ReadableFile>> {
        Ok((self.opened)(path, self.inner.open(path)?))
    }

    fn kind(&self, path: &Path) -> Result<Option<FileKind>> {
        self.inner.kind(path)
    }

    fn list(&self, path: &Path) -> Result<Vec<DirEntry>> {
        self.inner.list(path)
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.inner.create_dir_all(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.inner.rename(from, to)?;
        (self.renamed)(from, to);
        Ok(())
    }

    fn exchange(&self, one: &Path, other: &Path) -> Result<()> {
        self.inner.exchange(one, other)
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        self.inner.remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> Result<()> {
        self.inner.remove_dir_all(path)
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.inner.sync_dir(path)
    }
}
