//! Chooses whether a file is spooled, and moves closed files to their original paths.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use super::folder::{self, OwnFolder};
use super::free_space::{self, note_full};
use super::{Spooled, moving};

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
        if let Err(why) = free_space::has_room(root, 0) {
            note_full(root, &why);
            return Ok(Choice::Own);
        }
        match Self::make_room(root, path) {
            Ok(spooled) => Ok(Choice::Spool(spooled)),
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
