//! Files as they are opened, and what is left to do about names that are given up.

use std::ffi::CString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use turbidite_source::Named;

use crate::growing::Growing;
use crate::notices::complain_of_place;
use crate::process::{self, Watched};
use crate::spool::Spooled;

/// A file the program has open for writing.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) plan: usize,
    pub(super) named: Named,
    pub(super) path: PathBuf,
    pub(super) spool: Option<Spooled>,
    /// Whether nothing is in it that was there before.
    pub(super) anew: bool,
    /// How much of it is known, where it holds several epochs.
    pub(super) growing: Option<Growing>,
}

/// Where a file is to be opened.
#[derive(Debug, Default)]
pub(crate) struct Placement {
    /// Another path than the program's.
    pub(crate) path: Option<CString>,
    pub(super) open: Option<Open>,
    pub(super) refused: Option<i32>,
}

impl Placement {
    /// Where a child of a fork is to open a file: one that its parent has in the spool it may read, and is moved before it
    /// writes to it.
    pub(crate) fn of_child(path: &Path, writes: bool) -> Option<Self> {
        let path = std::path::absolute(path).ok()?;
        let Watched { spool, .. } = process::watched(&path)?;
        let copy = Spooled::find(spool.as_deref()?, &path)?;
        if !writes {
            return Some(Self { path: c_path(&copy.place()), ..Self::default() });
        }
        copy.put_in_place().err().map(|error| Self::refuse(&copy, &error))
    }

    /// The file cannot be opened, since its bytes are in the spool and cannot be moved to where it is to be opened.
    pub(super) fn refuse(copy: &Spooled, error: &std::io::Error) -> Self {
        complain_of_place(copy, error);
        Self { refused: Some(error.raw_os_error().unwrap_or(libc::EIO)), ..Self::default() }
    }

    /// The error with which opening is to fail.
    pub(crate) fn refused(&self) -> Option<i32> {
        self.refused
    }

    /// The place in the spool that the program is to write to.
    pub(crate) fn written_in_spool(&self) -> Option<&Spooled> {
        self.open.as_ref()?.spool.as_ref()
    }

    /// The other path is of no use: the file is opened in its own place.
    pub(crate) fn withdraw(&mut self) {
        self.path = None;
        if let Some(spool) = self.open.as_mut().and_then(|open| open.spool.take()) {
            spool.remove_empty_folders();
        }
    }

    /// The file was created in the spool, and could not be written there or elsewhere.
    pub(crate) fn discard(&self) {
        if let Some(spool) = self.written_in_spool()
            && spool.place().metadata().is_ok_and(|about| about.len() == 0)
        {
            // It is empty; one that stays is found by the next run.
            let _ = spool.remove();
        }
    }
}

/// What is left to do about a name that the program removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Removal {
    /// Nothing: the file was in the spool alone.
    Done,
    /// The file has that name.
    OfName,
}

/// What had a name that the program gives up.
#[derive(Debug)]
pub(crate) struct Moved {
    /// Whether it was a file that is closed.
    pub(super) is_closed: bool,
    pub(super) open: Vec<u64>,
}

/// Returns a path as C has it.
pub(super) fn c_path(path: &Path) -> Option<CString> {
    CString::new(path.as_os_str().to_owned().into_vec()).ok()
}
