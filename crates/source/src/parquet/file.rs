//! Reads a Parquet file at given offsets.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use crate::error::{SourceContext, SourceError};

/// Size of the read for a page's header. Another read returns the whole page.
const HEADER_READ_BYTES: usize = 1 << 10;

/// A file that can be closed, and that the next read reopens. Clones share one file.
///
/// The standard library's `File` cannot be closed while a decoder holds it. Its clones share one file offset, so that
/// two threads cannot read at the same time.
#[derive(Debug, Clone)]
pub(super) struct PagedFile {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    bytes: u64,
    open: Mutex<Option<Arc<File>>>,
}

impl PagedFile {
    /// Opens a file.
    pub(super) fn open(path: &Path) -> Result<Self, SourceError> {
        let file = File::open(path).of("open", path)?;
        let bytes = file.metadata().of("read", path)?.len();
        let inner = Inner { path: path.to_owned(), bytes, open: Mutex::new(Some(Arc::new(file))) };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Closes the file. The next read opens it again.
    pub(super) fn close(&self) {
        *self.inner.open.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn handle(&self) -> io::Result<Arc<File>> {
        let mut open = self.inner.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &*open {
            return Ok(file.clone());
        }
        let file = Arc::new(File::open(&self.inner.path)?);
        *open = Some(file.clone());
        Ok(file)
    }
}

impl Length for PagedFile {
    fn len(&self) -> u64 {
        self.inner.bytes
    }
}

impl ChunkReader for PagedFile {
    type T = BufReader<Positioned>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        let reader = Positioned { file: self.handle()?, at: start };
        Ok(BufReader::with_capacity(HEADER_READ_BYTES, reader))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        // The length comes from the file, so it is checked before memory is allocated.
        if start.checked_add(length as u64).is_none_or(|end| end > self.inner.bytes) {
            return Err(ParquetError::EOF(format!("{length} bytes at offset {start} are beyond the end of the file")));
        }
        let mut content = vec![0; length];
        self.handle()?.read_exact_at(&mut content, start)?;
        Ok(content.into())
    }
}

/// A sequential reader of a file from an offset on.
#[derive(Debug)]
pub(super) struct Positioned {
    file: Arc<File>,
    at: u64,
}

impl Read for Positioned {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
