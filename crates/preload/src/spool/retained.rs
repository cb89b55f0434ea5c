//! Spooled files whose records are in the dataset, and which stay until the next epoch is indexed or space is needed.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Spooled;
use crate::notices::complain;

static RETAINED: Mutex<Vec<Spooled>> = Mutex::new(Vec::new());

fn all() -> MutexGuard<'static, Vec<Spooled>> {
    RETAINED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps indexed files.
pub(crate) fn retain(files: &[Spooled]) {
    let mut all = all();
    for file in files {
        if !all.contains(file) {
            all.push(file.clone());
        }
    }
}

/// Removes indexed files, except those that the program has begun to write again.
pub(crate) fn remove_retained(files: &[Spooled]) {
    let removed: Vec<Spooled> = {
        let mut all = all();
        let (removed, kept) = std::mem::take(&mut *all).into_iter().partition(|file| files.contains(file));
        *all = kept;
        removed
    };
    remove(removed);
}

/// Removes all indexed files of this process to gain space, but for empty ones, which other ranks may be about to
/// write. Returns whether there were any.
pub(super) fn remove_all() -> bool {
    let is_empty = |file: &Spooled| file.place().metadata().is_ok_and(|about| about.len() == 0);
    let removed: Vec<Spooled> = {
        let mut all = all();
        let (kept, removed) = std::mem::take(&mut *all).into_iter().partition(is_empty);
        *all = kept;
        removed
    };
    let found = !removed.is_empty();
    remove(removed);
    found
}

fn remove(files: Vec<Spooled>) {
    for file in files {
        if let Err(error) = file.remove() {
            complain(&format!("cannot remove {}: {error}; its records are indexed", file.place().display()));
        }
    }
}

/// Returns whether a file is indexed, and stays only for now.
pub(crate) fn is_retained(file: &Spooled) -> bool {
    all().contains(file)
}

/// Records that the program writes to a file again, so that it is not indexed any more.
pub(super) fn release(file: &Spooled) {
    all().retain(|kept| kept != file);
}
