//! A file that receives its name when it is complete.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};

use crate::failure::{Failure, FileContext};

/// A file without a name, in the folder of its final path. An interrupted command leaves nothing behind.
///
/// Where the file system has no files without names, it has a temporary one, and is removed on drop unless
/// [`PendingFile::complete`] was called.
#[derive(Debug)]
pub(crate) struct PendingFile {
    file: File,
    temporary: PathBuf,
    path: PathBuf,
    has_temporary: bool,
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
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let nameless = rustix::fs::open(folder, OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC, Mode::from(0o666));
        let (file, has_temporary) = match nameless {
            Ok(file) => (File::from(file), false),
            Err(_) => (File::create(&temporary).on_file("create", path)?, true),
        };
        Ok(Self { file, temporary, path: path.to_owned(), has_temporary })
    }

    /// Syncs the content and gives the file its name. Replaces a file of that name.
    pub(crate) fn complete(mut self) -> Result<(), Failure> {
        self.file.flush().on_file("write", &self.path)?;
        self.file.sync_all().on_file("sync", &self.path)?;
        if !self.has_temporary {
            // A link cannot replace a file, but a rename can.
            let nameless = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            rustix::fs::linkat(CWD, nameless, CWD, &self.temporary, AtFlags::SYMLINK_FOLLOW)
                .map_err(io::Error::from)
                .on_file("create", &self.path)?;
            self.has_temporary = true;
        }
        std::fs::rename(&self.temporary, &self.path).on_file("rename", &self.path)?;
        self.has_temporary = false;
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
        if self.has_temporary {
            let _ = std::fs::remove_file(&self.temporary);
        }
    }
}
