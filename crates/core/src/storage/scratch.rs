//! An unnamed temporary file for data that exceeds the memory. The file is removed even if the process crashes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::file_size_limit;
use crate::error::{Error, Result};

/// A file to which data is appended and from which it is read back.
///
/// This file is not accessed through [`super::Storage`]. Crash tests do not apply, since the file never outlives the
/// process.
#[derive(Debug)]
pub(crate) struct ScratchFile {
    file: File,
    folder: PathBuf,
    bytes: u64,
}

impl ScratchFile {
    /// Creates an empty file in an existing folder.
    ///
    /// # Errors
    /// I/O errors.
    pub(crate) fn create(folder: &Path) -> Result<Self> {
        let path = folder.join(format!(".turbidite-{}.tmp", Uuid::new_v4().simple()));
        let open = || {
            let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
            std::fs::remove_file(&path)?;
            Ok(file)
        };
        let file = open().map_err(|source| failed("create a temporary file in", folder, source))?;
        Ok(Self { file, folder: folder.to_owned(), bytes: 0 })
    }

    /// Returns the number of bytes appended so far, which is the offset of the next append.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends `data`.
    ///
    /// # Errors
    /// I/O errors, such as a full disk.
    pub(crate) fn append(&mut self, data: &[u8]) -> Result<()> {
        let end = self.bytes.saturating_add(data.len() as u64);
        let written = file_size_limit::check_length(end).and_then(|()| self.file.write_all_at(data, self.bytes));
        written.map_err(|source| failed("write a temporary file in", &self.folder, source))?;
        self.bytes += data.len() as u64;
        Ok(())
    }

    /// Fills `buffer` from `offset`.
    ///
    /// # Errors
    /// I/O errors.
    pub(crate) fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let read = self.file.read_exact_at(buffer, offset);
        read.map_err(|source| failed("read a temporary file in", &self.folder, source))
    }
}

fn failed(operation: &'static str, folder: &Path, source: io::Error) -> Error {
    Error::Io { operation, path: folder.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_and_no_name_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let mut scratch = ScratchFile::create(folder.path()).unwrap();
        scratch.append(b"one").unwrap();
        scratch.append(b"two").unwrap();
        assert_eq!(scratch.bytes(), 6);
        let mut found = [0; 4];
        scratch.read_at(2, &mut found).unwrap();
        assert_eq!(&found, b"etwo");
        assert!(scratch.read_at(3, &mut found).is_err(), "beyond the end");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let missing = ScratchFile::create(&folder.path().join("nowhere")).unwrap_err().to_string();
        assert!(missing.contains("nowhere"), "{missing}");
    }
}
