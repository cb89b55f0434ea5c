//! Types for open files, for their placement and for renamed and removed files.

use std::ffi::CString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use turbidite_source::Named;

use crate::growing::Growing;
use crate::notices::complain_of_place;
use crate::process::{self, Watched};
use crate::role;
use crate::spool::{Identity, Spooled, Turn};

/// A file that the program has open for writing.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) plan: usize,
    pub(super) named: Named,
    pub(super) path: PathBuf,
    pub(super) spool: Option<Spooled>,
    /// Whether the file was empty when it was opened.
    pub(super) anew: bool,
    /// The epochs known so far, if the file holds several.
    pub(super) growing: Option<Growing>,
    /// The file that was opened. `None` before that.
    pub(super) identity: Option<Identity>,
}

/// The path at which a file is opened, and its state once it is open.
#[derive(Debug, Default)]
pub(crate) struct Placement {
    /// The path to open instead of the program's.
    pub(crate) path: Option<CString>,
    pub(super) open: Option<Open>,
    pub(super) refused: Option<i32>,
    /// Held until the file is open.
    pub(super) turn: Option<Turn>,
}

impl Placement {
    /// Returns the placement of a file opened by a forked child. The child reads a spooled file in the spool; before
    /// the child writes to the file, the file is moved to its original path.
    pub(crate) fn of_child(path: &Path, writes: bool) -> Option<Self> {
        let path = std::path::absolute(path).ok()?;
        if writes {
            role::record(&path);
        }
        let Watched { spool, .. } = process::watched(&path)?;
        let copy = Spooled::find(spool.as_deref()?, &path)?;
        if !writes {
            return Some(Self { path: c_path(&copy.place()), ..Self::default() });
        }
        copy.put_in_place().err().map(|error| Self::refuse(&copy, &error))
    }

    /// Returns the placement that refuses to open a file, since its bytes are in the spool and cannot be moved to its
    /// original path.
    pub(super) fn refuse(copy: &Spooled, error: &std::io::Error) -> Self {
        complain_of_place(copy, error);
        Self { refused: Some(error.raw_os_error().unwrap_or(libc::EIO)), ..Self::default() }
    }

    /// Lets other processes open files in the spool, once this file is open there. The session must not be entered
    /// before: another thread may wait for its turn in there.
    pub(crate) fn end_turn(&mut self) {
        self.turn = None;
    }

    /// Returns whether the session follows the file, which the program writes.
    pub(crate) fn is_followed(&self) -> bool {
        self.open.is_some()
    }

    /// Returns the error number with which the call must fail, if any.
    pub(crate) fn refused(&self) -> Option<i32> {
        self.refused
    }

    /// Returns the place in the spool to which the program will write.
    pub(crate) fn written_in_spool(&self) -> Option<&Spooled> {
        self.open.as_ref()?.spool.as_ref()
    }

    /// Drops the path in the spool, so that the file is opened at its original path.
    pub(crate) fn withdraw(&mut self) {
        self.path = None;
        if let Some(spool) = self.open.as_mut().and_then(|open| open.spool.take()) {
            spool.remove_empty_folders();
        }
    }

    /// Drops the path in the spool if no file can be opened there, and none is created.
    pub(crate) fn withdraw_unless_possible(&mut self) {
        let opens = |spooled: &Spooled| {
            let (place, mut options) = (spooled.place(), std::fs::File::options());
            if place.exists() {
                return options.append(true).open(place).is_ok();
            }
            let is_possible = options.write(true).create_new(true).open(&place).is_ok();
            is_possible && std::fs::remove_file(place).is_ok()
        };
        if self.written_in_spool().is_some_and(|spooled| !opens(spooled)) {
            self.withdraw();
        }
    }

    /// Removes a file that was created in the spool but can be written neither there nor at its original path.
    pub(crate) fn discard(&self) {
        if let Some(spool) = self.written_in_spool()
            && spool.place().metadata().is_ok_and(|about| about.len() == 0)
        {
            // The file is empty. If the removal fails, the next run reports the file.
            let _ = spool.remove();
        }
    }
}

/// The step that remains when the program removes a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Removal {
    /// No step remains: the file existed only in the spool.
    Done,
    /// The file must be removed at its original path.
    OfName,
}

/// The state of a file that the program is about to rename.
#[derive(Debug)]
pub(crate) struct Moved {
    /// Whether the file was already closed.
    pub(super) is_closed: bool,
    pub(super) open: Vec<u64>,
}

/// Returns a path as a C string.
pub(super) fn c_path(path: &Path) -> Option<CString> {
    CString::new(path.as_os_str().to_owned().into_vec()).ok()
}
