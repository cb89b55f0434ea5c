//! Which files are spooled, and putting them in their places.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use super::folder::{self, OwnFolder};
use super::room::{self, note_full};
use super::{Spooled, moving};

/// Where a file is to be opened for writing.
#[derive(Debug)]
pub(crate) enum Choice {
    /// In the spool.
    Spool(Spooled),
    /// In its own place, as without us.
    Own,
}

impl Spooled {
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

    /// Moves the copy to where the program believes the file to be. It must not be open in this process; another process
    /// that has it open goes on there.
    ///
    /// # Errors
    /// When the own place does not take it: the copy stays in the spool then.
    pub(crate) fn put_in_place(&self) -> io::Result<()> {
        moving::move_closed(self)?;
        self.remove_empty_folders();
        Ok(())
    }
}
