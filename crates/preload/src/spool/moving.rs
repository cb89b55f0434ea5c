//! Moves a file from the spool to its original path.
//!
//! The copy is written beside the original path under another name. Once complete, it is renamed, never over an
//! existing file. The file in the spool is removed last. At any time, one complete file holds the program's bytes.

use std::fs::{File, Permissions};
use std::io::{self, Read, Seek};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags};

use super::Spooled;
use super::folder::{OwnFolder, moves_of};
use super::system::{ByteLock, Identity, counterpart, replace};
use crate::progress;

/// Size of the pieces in which a file is copied.
const PIECE_BYTES: u64 = 16 << 20;

/// The permission bits of a file's mode.
const PERMISSIONS: u32 = 0o7777;

/// Moves a file that this process does not have open.
pub(super) fn move_closed(spooled: &Spooled) -> io::Result<()> {
    let file = match File::open(spooled.place()) {
        // Another process may already have moved the file.
        Err(error) if error.kind() == io::ErrorKind::NotFound && spooled.path().exists() => return Ok(()),
        file => file?,
    };
    let own = OwnFolder::existing(&spooled.root).filter(|own| own.path() == spooled.folder);
    let others = if own.is_none() { Some(moves_of(&spooled.folder)?) } else { None };
    let moves = own.as_ref().map(|own| own.moves()).or(others.as_ref()).ok_or(io::ErrorKind::NotFound)?;
    let _lock = ByteLock::take(moves, file.metadata()?.ino())?;
    if file.metadata()?.nlink() == 0 {
        return Ok(());
    }
    // Within one file system a rename suffices.
    if rustix::fs::renameat_with(CWD, spooled.place(), CWD, spooled.path(), RenameFlags::NOREPLACE).is_ok() {
        return Ok(());
    }
    let draft = Draft::of(spooled.path(), &file)?;
    draft.file.sync_all()?;
    draft.keep(spooled.path())?;
    std::fs::remove_file(spooled.place())
}

/// Moves a file that this process has open, and makes its `descriptors` refer to the moved file. Returns the identity
/// of the moved file. The caller holds the locks.
pub(super) fn move_open(spooled: &Spooled, handle: &File, descriptors: &[i32]) -> io::Result<Identity> {
    let draft = Draft::of(spooled.path(), handle)?;
    let identity = Identity::of(&draft.file.metadata()?);
    let new =
        descriptors.iter().map(|&descriptor| counterpart(descriptor, &draft.path)).collect::<io::Result<Vec<_>>>()?;
    draft.keep(spooled.path())?;
    for (&descriptor, new) in descriptors.iter().zip(new) {
        replace(descriptor, new.as_fd())?;
    }
    // The file in the spool is obsolete. If the removal fails, the next run reports the file.
    let _ = spooled.remove();
    Ok(identity)
}

/// Makes the descriptors of a moved file refer to the file at its new path. Returns the identity of that file.
pub(super) fn exchange(descriptors: &[i32], path: &Path) -> io::Result<Identity> {
    let identity = Identity::of(&path.metadata()?);
    let new = descriptors.iter().map(|&descriptor| counterpart(descriptor, path)).collect::<io::Result<Vec<_>>>()?;
    descriptors.iter().zip(new).try_for_each(|(&descriptor, new)| replace(descriptor, new.as_fd()))?;
    Ok(identity)
}

/// A copy under a temporary name, which is removed on drop unless it is kept.
struct Draft {
    file: File,
    path: PathBuf,
    permissions: Permissions,
    is_kept: bool,
}

impl Draft {
    /// Copies a file to a temporary name beside its original path.
    fn of(path: &Path, mut file: &File) -> io::Result<Self> {
        let (folder, name) = path.parent().zip(path.file_name()).ok_or(io::ErrorKind::InvalidInput)?;
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".turbidite-{}", std::process::id()));
        let draft = folder.join(hidden);
        let permissions = Permissions::from_mode(file.metadata()?.mode() & PERMISSIONS);
        // An earlier, failed attempt of this process may have left a file there.
        let _ = std::fs::remove_file(&draft);
        let new = File::options().read(true).write(true).create_new(true).mode(0o600).open(&draft)?;
        let draft = Self { file: new, path: draft, permissions, is_kept: false };
        file.rewind()?;
        copy(file, &draft.file)?;
        Ok(draft)
    }

    /// Renames the copy to its final name.
    fn keep(mut self, path: &Path) -> io::Result<()> {
        self.file.set_permissions(self.permissions.clone())?;
        match rustix::fs::renameat_with(CWD, &self.path, CWD, path, RenameFlags::NOREPLACE) {
            // The file system does not support this flag.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
                std::fs::hard_link(&self.path, path)?;
                std::fs::remove_file(&self.path)?;
            }
            renamed => renamed?,
        }
        self.is_kept = true;
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_kept {
            // The copy is not needed: the file in the spool is complete.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn copy(mut from: &File, mut to: &File) -> io::Result<()> {
    let expected = from.metadata()?.len();
    let mut copied = 0;
    while copied < expected {
        match io::copy(&mut from.by_ref().take(PIECE_BYTES), &mut to)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            bytes => copied += bytes,
        }
        progress::note();
    }
    Ok(())
}
