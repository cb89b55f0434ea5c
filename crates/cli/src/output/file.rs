//! A file that receives its final name when it is complete.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::failure::{Failure, FileContext};

/// A file with a temporary name in the folder of its final path. The file is removed on drop unless
/// [`PendingFile::complete`] was called.
#[derive(Debug)]
pub(crate) struct PendingFile {
    file: File,
    temporary: PathBuf,
    path: PathBuf,
    is_complete: bool,
}

impl PendingFile {
    /// Creates a file with the final name `path`.
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        let name =
            path.file_name().ok_or_else(|| Failure::Usage(format!("'{}' is not a file name", path.display())))?;
        if path.is_dir() {
            return Err(Failure::Usage(format!("{} is a folder; give the name of a file", path.display())));
        }
        let temporary = path.with_file_name(format!(".{}.{}.tmp", name.to_string_lossy(), std::process::id()));
        let file =
            OpenOptions::new().write(true).create(true).truncate(true).open(&temporary).on_file("create", path)?;
        Ok(Self { file, temporary, path: path.to_owned(), is_complete: false })
    }

    /// Syncs the content and renames the file to its final name.
    pub(crate) fn complete(mut self) -> Result<(), Failure> {
        self.file.flush().on_file("write", &self.path)?;
        self.file.sync_all().on_file("sync", &self.path)?;
        std::fs::rename(&self.temporary, &self.path).on_file("rename", &self.path)?;
        self.is_complete = true;
        Ok(())
    }
}

impl Write for PendingFile {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.file.write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for PendingFile {
    fn drop(&mut self) {
        if !self.is_complete {
            let _ = std::fs::remove_file(&self.temporary);
        }
    }
}
