//! The spool: where files lie until their epoch is indexed, when the index is to replace them.
//!
//! ```text
//! SPOOL/turbidite-UID/HOST-PID-START/.owner        who it belongs to; locked (flock) while that process lives
//! SPOOL/turbidite-UID/HOST-PID-START/.moves        locks, a byte a file, held while a file is written to or moved
//! SPOOL/turbidite-UID/HOST-PID-START/files/PATH    a file, under the absolute path that the program gave
//! ```
//!
//! Invariants
//! - A file is spooled only where the program could create it itself, so that a mistake of the program shows as it would
//!   without us. A file that exists in its own place is written there.
//! - A path has one copy at most among living processes: the process that created it may write to it; one that opens it for
//!   writing beside that moves it to its own place first, where both go on (`open_file`).
//! - What a process writes is reserved before ([`open_file`]), so that a full spool moves files instead of losing bytes.
//! - Folders go when they become empty, the process's own with the last of its files.
//!
//! Map: `folder` is a process's folder, `open_file` a file that the program has open, `table` finds it by descriptor, `moving`
//! copies to the own place, `room` says how much the spool may take, `leftovers` finds what dead processes left, `system` are
//! system calls.

mod folder;
mod leftovers;
mod moving;
mod open_file;
mod room;
mod system;
mod table;

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use folder::{OwnFolder, user_folder};

pub(crate) use folder::{DatasetNote, OwnerNote, describe_owner};
pub(crate) use leftovers::{Leftover, leftovers};
pub(crate) use open_file::OpenFile;
pub(crate) use room::{is_full_unsaid, note_full, take_full};
pub(crate) use table::{find_open, is_spooled, lookup, open, open_descriptors, pause_for_fork, take};

/// A file's place in the spool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spooled {
    /// The folder of the configuration, which is not ours to remove.
    root: PathBuf,
    /// The folder of the process that has created it.
    folder: PathBuf,
    /// Where the program believes the file to be.
    path: PathBuf,
}

/// Where a file is to be opened for writing.
#[derive(Debug)]
pub(crate) enum Choice {
    /// In the spool.
    Spool(Spooled),
    /// In its own place, as without us.
    Own,
}

impl Spooled {
    fn of(root: &Path, folder: &Path, path: &Path) -> Self {
        Self { root: root.to_owned(), folder: folder.to_owned(), path: path.to_owned() }
    }

    /// Chooses the place of a file that this process opens for writing. One that has a copy in the spool stays there, or is
    /// moved to its own place when another process has created it.
    ///
    /// # Errors
    /// When such a copy cannot be moved; its bytes stay in the spool.
    pub(crate) fn choose(root: &Path, path: &Path) -> io::Result<Choice> {
        if path.symlink_metadata().is_ok() {
            return Ok(Choice::Own);
        }
        match Self::find(root, path) {
            Some(copy) if copy.is_own() => return Ok(Choice::Spool(copy)),
            Some(copy) => {
                copy.put_in_place()?;
                return Ok(Choice::Own);
            }
            None => {}
        }
        let Some(parent) = path.parent() else { return Ok(Choice::Own) };
        if !folder::is_writable(parent) {
            return Ok(Choice::Own);
        }
        if let Err(why) = room::has_room(root, 0) {
            note_full(root, &why);
            return Ok(Choice::Own);
        }
        match Self::make_room(root, path) {
            Ok(spooled) => Ok(Choice::Spool(spooled)),
            Err(error) => {
                note_full(root, &room::unusable(&error));
                Ok(Choice::Own)
            }
        }
    }

    /// Makes the folders of a new file.
    fn make_room(root: &Path, path: &Path) -> io::Result<Self> {
        let own = OwnFolder::get(root)?;
        let spooled = Self::of(root, own.path(), path);
        let parent = spooled.place().parent().map(Path::to_owned).ok_or(io::ErrorKind::InvalidInput)?;
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(parent);
        if made.is_err() {
            spooled.remove_empty_folders();
        }
        made.map(|()| spooled)
    }

    /// Returns the copy of a file, whichever living process of this host has created it; `None` where the file itself exists.
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
            // Whether its process lives takes longer to find out.
            copy.exists() && folder::is_alive(&copy.folder)
        })
    }

    /// Returns the copy that this process has made, also where the file exists beside it.
    pub(crate) fn own_copy(root: &Path, path: &Path) -> Option<Self> {
        let own = OwnFolder::existing(root)?;
        Some(Self::of(root, own.path(), path)).filter(Self::exists)
    }

    /// The file in the spool.
    pub(crate) fn place(&self) -> PathBuf {
        self.folder.join(FILES).join(self.path.strip_prefix("/").unwrap_or(&self.path))
    }

    /// The folder of the configuration.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The file as the program knows it.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether there is still a copy: another process may have moved it.
    pub(crate) fn exists(&self) -> bool {
        self.place().symlink_metadata().is_ok_and(|data| data.is_file())
    }

    fn is_own(&self) -> bool {
        OwnFolder::existing(&self.root).is_some_and(|own| own.path() == self.folder)
    }

    /// Removes the copy, which is indexed or of no use any more.
    pub(crate) fn remove(&self) -> io::Result<()> {
        match std::fs::remove_file(self.place()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.remove_empty_folders();
        Ok(())
    }

    /// Moves the copy to where the program believes the file to be. It must not be open in this process; another process that
    /// has it open goes on there.
    ///
    /// # Errors
    /// When the own place does not take it: the copy stays in the spool then.
    pub(crate) fn put_in_place(&self) -> io::Result<()> {
        moving::move_closed(self)?;
        self.remove_empty_folders();
        Ok(())
    }

    /// Removes the folders that are empty. Another rank may be about to open a file in one of them: that file is opened in its
    /// own place then.
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

/// The folder below a process's that has the files.
const FILES: &str = "files";

#[cfg(test)]
mod tests;
