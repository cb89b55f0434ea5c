//! Chooses whether a file is spooled, and moves closed files to their original paths.

use std::fs::File;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use super::folder::{self, OwnFolder};
use super::free_space::{self, note_full};
use crate::guard::Guard;

use super::{Identity, Spooled, moving, retained};

/// A lock among this user's processes, held from the choice of a file's location until the file is open there: a path
/// has one copy at most.
#[derive(Debug)]
pub(crate) struct Turn {
    /// The locked folder, until the turn ends.
    folder: Option<File>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let _guard = Guard::enter();
        // A forked child may hold the folder open.
        let _ = self.folder.take().map(|folder| folder.unlock());
    }
}

impl Turn {
    /// Waits until no other process is opening a file in the spool. Returns `None` if the folder cannot be created or
    /// locked. No folder can be created for the file then, either.
    fn take(root: &Path) -> Option<Self> {
        let user = folder::user_folder(root);
        loop {
            let folder = File::open(&user).or_else(|_| {
                OwnFolder::get(root)?;
                File::open(&user)
            });
            let folder = folder.ok()?;
            folder.lock().ok()?;
            // The folder is removed with its last file, and may be created again.
            if user.metadata().is_ok_and(|now| Identity::of(&now) == Identity::of(&folder.metadata().unwrap_or(now))) {
                return Some(Self { folder: Some(folder) });
            }
        }
    }
}

/// The location at which a file is opened for writing.
#[derive(Debug)]
pub(crate) enum Choice {
    /// The spool.
    Spool(Spooled),
    /// The original path, as without this library.
    Own,
}

impl Spooled {
    /// Chooses the location of a file that this process opens for writing. A file with a copy in the spool stays there,
    /// or is moved to its original path if another process created the copy.
    ///
    /// # Errors
    /// Returns an error if another process's copy cannot be moved. Its bytes stay in the spool.
    pub(crate) fn choose(root: &Path, path: &Path) -> io::Result<(Choice, Option<Turn>)> {
        if !root.is_dir() || path.symlink_metadata().is_ok() || !path.parent().is_some_and(folder::is_writable) {
            return Ok((Self::choose_in_turn(root, path)?, None));
        }
        let turn = Turn::take(root);
        Ok((Self::choose_in_turn(root, path)?, turn))
    }

    fn choose_in_turn(root: &Path, path: &Path) -> io::Result<Choice> {
        if path.symlink_metadata().is_ok() {
            return Ok(Choice::Own);
        }
        match Self::find(root, path) {
            Some(copy) if copy.is_own() => {
                retained::release(&copy);
                return Ok(Choice::Spool(copy));
            }
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
        let has_room = || free_space::has_room(root, 0);
        if let Err(why) = has_room().or_else(|why| if retained::remove_all() { has_room() } else { Err(why) }) {
            note_full(root, &why);
            return Ok(Choice::Own);
        }
        match Self::make_room(root, path) {
            Ok(spooled) => {
                // An indexed file of this path has been removed by the program.
                retained::release(&spooled);
                Ok(Choice::Spool(spooled))
            }
            Err(error) => {
                note_full(root, &free_space::unusable(&error));
                Ok(Choice::Own)
            }
        }
    }

    /// Creates the folders for a new file in the spool.
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

    /// Moves the copy to its original path. The copy must not be open in this process. Another process that has the
    /// copy open continues at the original path.
    ///
    /// # Errors
    /// Returns an error if the move fails. The copy then stays in the spool.
    pub(crate) fn put_in_place(&self) -> io::Result<()> {
        moving::move_closed(self)?;
        self.remove_empty_folders();
        Ok(())
    }
}
