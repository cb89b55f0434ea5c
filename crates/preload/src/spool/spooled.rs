//! A file's place in the spool, and finding it.

use std::io;
use std::path::{Path, PathBuf};

use super::folder::{self, FILES, OwnFolder, user_folder};

/// A file's place in the spool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spooled {
    /// The configured spool folder, which we never remove.
    pub(super) root: PathBuf,
    /// The folder of the process that created the file.
    pub(super) folder: PathBuf,
    /// The original path of the file.
    pub(super) path: PathBuf,
}

impl Spooled {
    /// Returns the place of a file in a process's folder.
    pub(super) fn of(root: &Path, folder: &Path, path: &Path) -> Self {
        Self { root: root.to_owned(), folder: folder.to_owned(), path: path.to_owned() }
    }

    /// Returns the copy of a file that a living process of this host created, or `None` if the file exists at its
    /// original path.
    pub(crate) fn find(root: &Path, path: &Path) -> Option<Self> {
        if path.symlink_metadata().is_ok() {
            return None;
        }
        if let Some(own) = OwnFolder::existing(root) {
            let copy = Self::of(root, own.path(), path);
            if copy.exists() {
                return Some(copy);
            }
        }
        let others = folder::list(&user_folder(root));
        others.into_iter().map(|folder| Self::of(root, &folder, path)).find(|copy| {
            // Checking whether the process is alive takes longer, so it comes second.
            copy.exists() && folder::is_alive(&copy.folder)
        })
    }

    /// Returns the copy created by this process, even if the file also exists at its original path.
    pub(crate) fn own_copy(root: &Path, path: &Path) -> Option<Self> {
        let own = OwnFolder::existing(root)?;
        Some(Self::of(root, own.path(), path)).filter(Self::exists)
    }

    /// Returns the path of the file in the spool.
    pub(crate) fn place(&self) -> PathBuf {
        self.folder.join(FILES).join(self.path.strip_prefix("/").unwrap_or(&self.path))
    }

    /// Returns the configured spool folder.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the original path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether the copy still exists. Another process may have moved it.
    pub(crate) fn exists(&self) -> bool {
        self.place().symlink_metadata().is_ok_and(|data| data.is_file())
    }

    /// Returns whether this process created the copy.
    pub(super) fn is_own(&self) -> bool {
        OwnFolder::existing(&self.root).is_some_and(|own| own.path() == self.folder)
    }

    /// Removes a copy that is indexed or obsolete.
    pub(crate) fn remove(&self) -> io::Result<()> {
        match std::fs::remove_file(self.place()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.remove_empty_folders();
        Ok(())
    }

    /// Removes empty folders. If another rank is about to open a file in one of them, that file is opened at its
    /// original path.
    pub(crate) fn remove_empty_folders(&self) {
        let files = self.folder.join(FILES);
        for folder in self.place().ancestors().skip(1).take_while(|folder| folder.starts_with(&files)) {
            if std::fs::remove_dir(folder).is_err() {
                return;
            }
        }
        folder::remove_if_empty(&self.root, &self.folder);
    }
}
