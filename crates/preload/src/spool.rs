//! The spool: where files lie until their epoch is indexed, when the index is to replace them.
//!
//! Invariants
//! - A file is spooled only where the program could create it itself, so that a mistake of the program shows as it would
//!   without us. A file that is there already is written in its place.
//! - Everything below `<spool>/turbidite-<user>` is ours; folders there go when they become empty.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A file's place in the spool.
#[derive(Debug, Clone)]
pub(crate) struct Spooled {
    /// The folder of the configuration, which is not ours to remove.
    root: PathBuf,
    place: PathBuf,
}

impl Spooled {
    fn of(root: &Path, path: &Path) -> Self {
        let relative = path.strip_prefix("/").unwrap_or(path);
        Self { root: root.to_owned(), place: user_folder(root).join(relative) }
    }

    /// A place for a file that the program opens for writing; `None` when it is to be written in its own.
    pub(crate) fn choose(root: &Path, path: &Path) -> Option<Self> {
        if path.symlink_metadata().is_ok() {
            return None;
        }
        let spooled = Self::of(root, path);
        let folder = spooled.place.parent()?;
        if !is_writable(path.parent()?) || !has_room(root) {
            return None;
        }
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        if made.is_err() || !is_own(&user_folder(root)) {
            spooled.remove_empty_folders();
            return None;
        }
        Some(spooled)
    }

    /// The place of a file that the program reads, if it is in the spool: whichever process of this host wrote it.
    pub(crate) fn find(root: &Path, path: &Path) -> Option<Self> {
        let spooled = Self::of(root, path);
        (path.symlink_metadata().is_err() && spooled.place.is_file() && is_own(&user_folder(root))).then_some(spooled)
    }

    pub(crate) fn place(&self) -> &Path {
        &self.place
    }

    /// Removes the file, which is indexed.
    pub(crate) fn remove(&self) -> io::Result<()> {
        std::fs::remove_file(&self.place)?;
        self.remove_empty_folders();
        Ok(())
    }

    /// Moves the file to where the program believes it to be.
    pub(crate) fn put_in_place(&self, path: &Path) -> io::Result<()> {
        std::fs::rename(&self.place, path).or_else(|_| {
            // Another file system: a copy, durable before the spool's is removed.
            std::fs::copy(&self.place, path)?;
            std::fs::File::open(path)?.sync_all()?;
            std::fs::remove_file(&self.place)
        })?;
        self.remove_empty_folders();
        Ok(())
    }

    /// Another rank may be about to open a file in a folder that goes here: that one is opened in its own place then.
    pub(crate) fn remove_empty_folders(&self) {
        let ours = self.place.ancestors().skip(1).take_while(|&folder| folder != self.root);
        for folder in ours {
            if std::fs::remove_dir(folder).is_err() {
                return;
            }
        }
    }
}

fn user() -> u32 {
    // SAFETY: asks for a number.
    unsafe { libc::geteuid() }
}

fn user_folder(root: &Path) -> PathBuf {
    root.join(format!("turbidite-{}", user()))
}

/// Spools are shared: a folder of our name may be another user's.
fn is_own(folder: &Path) -> bool {
    folder.symlink_metadata().is_ok_and(|data| data.is_dir() && data.uid() == user())
}

fn is_writable(folder: &Path) -> bool {
    let Ok(folder) = std::ffi::CString::new(folder.as_os_str().as_bytes()) else { return false };
    // SAFETY: a C string.
    unsafe { libc::access(folder.as_ptr(), libc::W_OK | libc::X_OK) == 0 }
}

/// Whether at least an eighth of the spool is free. A program that fills it would meet an error that is not its own, and how
/// large its files become is not known when they are opened.
fn has_room(root: &Path) -> bool {
    let Ok(root) = std::ffi::CString::new(root.as_os_str().as_bytes()) else { return false };
    // SAFETY: the struct is plain numbers, and the call fills it in.
    let (result, about) = unsafe {
        let mut about: libc::statvfs = std::mem::zeroed();
        (libc::statvfs(root.as_ptr(), &raw mut about), about)
    };
    // An eighth of the blocks: dividing cannot overflow.
    result == 0 && about.f_bavail >= about.f_blocks / 8
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In memory where that can be: a disk that is nearly full is not used as a spool.
    fn roomy() -> tempfile::TempDir {
        tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
    }

    #[test]
    fn folders_go_with_the_last_file() {
        let root = roomy();
        let home = tempfile::tempdir().unwrap();
        let spooled = |name: &str| Spooled::choose(root.path(), &home.path().join(name)).unwrap();
        let (one, other) = (spooled("one"), spooled("other"));
        for file in [&one, &other] {
            std::fs::write(file.place(), "content").unwrap();
        }
        one.remove().unwrap();
        assert!(other.place().exists());
        other.put_in_place(&home.path().join("other")).unwrap();
        assert_eq!(std::fs::read(home.path().join("other")).unwrap(), b"content");
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_the_program_could_not_create_is_not_spooled() {
        let root = roomy();
        let home = tempfile::tempdir().unwrap();
        let existing = home.path().join("existing");
        std::fs::write(&existing, "").unwrap();
        assert!(Spooled::choose(root.path(), &existing).is_none());
        assert!(Spooled::choose(root.path(), &home.path().join("missing/file")).is_none());
        assert!(Spooled::choose(&root.path().join("missing"), &home.path().join("file")).is_none());
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
    }
}
