//! The epochs that this run has indexed.
//!
//! A program may write an epoch's files again, for example with two dumps of one step and a collective call in between.
//!
//! The new version of the epoch consists of the rewritten files and of the epoch's other, unchanged files. It replaces
//! the version that this run has stored, whatever the configuration says about epochs of earlier runs.
//!
//! Invariant: indexing an epoch again loses no record. If an unchanged file can no longer be read, because it was
//! removed after indexing, the epoch fails and the stored version stays. The same holds if a file that was not
//! rewritten on this rank has changed.

use std::collections::VecDeque;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::pending::{EpochFiles, Finished};
use crate::spool::Spooled;

/// Number of epochs that are remembered. All ranks forget the same epochs.
const EPOCHS: usize = 256;

/// The identity of a file, which distinguishes it from an earlier file at the same path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    bytes: u64,
    modified: SystemTime,
}

impl Stamp {
    /// Returns the stamp of a file, or `None` if it does not exist.
    fn of(path: &Path) -> Option<Self> {
        let about = path.metadata().ok()?;
        Some(Self { inode: about.ino(), bytes: about.len(), modified: about.modified().ok()? })
    }
}

/// An epoch that was indexed or that failed.
#[derive(Debug)]
struct Entry {
    epoch: u64,
    committed: bool,
    files: Vec<Indexed>,
}

/// A file of this rank when it was indexed.
#[derive(Debug)]
struct Indexed {
    path: PathBuf,
    spool: Option<Spooled>,
    /// `None` if the file had been removed already.
    stamp: Option<Stamp>,
}

impl Indexed {
    fn of(file: &Finished) -> Self {
        let Finished { path, spool, .. } = file;
        let (path, spool, stamp) = (path.clone(), spool.clone(), Stamp::of(&file.place()));
        Self { path, spool, stamp }
    }

    /// Returns the file as it is now.
    fn file(&self) -> Finished {
        let spool = self.spool.clone().filter(Spooled::exists);
        Finished::whole(self.path.clone(), spool)
    }

    /// Returns why the file, which was written again, cannot be indexed.
    fn why_not_again(&self, file: &Finished) -> Option<&'static str> {
        let same = || Stamp::of(&file.place()).map(|stamp| stamp.inode) == self.stamp.map(|stamp| stamp.inode);
        // The index has removed a spooled file, unless it was empty or the program went on writing to it.
        let was_empty = self.stamp.is_some_and(|stamp| stamp.bytes == 0);
        let is_left = self.stamp.is_some() && (self.spool.is_none() || same());
        let is_whole = file.anew || was_empty || is_left;
        (!is_whole).then_some(
            "was removed after it was indexed, and the file at its path now was not rewritten from its start",
        )
    }

    /// Returns why the file, which was not written again, cannot be indexed with the others.
    fn why_not_still(&self, shares: bool) -> Option<&'static str> {
        let now = Stamp::of(&self.file().place());
        match self.stamp {
            Some(_) if now == self.stamp || (shares && now.is_some()) => None,
            Some(_) if now.is_some() => Some("has changed since it was indexed, but not on this rank"),
            _ => Some("was removed after it was indexed, and was not rewritten with the others of its epoch"),
        }
    }
}

/// The most recent epochs of one dataset, in the order in which they were indexed.
#[derive(Debug, Default)]
pub(crate) struct IndexedEpochs {
    entries: VecDeque<Entry>,
}

impl IndexedEpochs {
    /// Records an epoch and its files. `committed` says whether the epoch was stored.
    pub(crate) fn remember(&mut self, epoch: u64, files: &[Finished], committed: bool) {
        let mut entry = Entry { epoch, committed, files: Vec::new() };
        entry.files.extend(files.iter().map(Indexed::of));
        let before = self.entries.iter().position(|entry| entry.epoch == epoch);
        if let Some(before) = before.and_then(|index| self.entries.remove(index)) {
            // The stored version survives a failed second attempt. The files that the second attempt lacks stay part of
            // the epoch.
            entry.committed |= before.committed;
            let left = before.files.into_iter().filter(|known| files.iter().all(|file| file.path != known.path));
            entry.files.extend(left);
        }
        self.entries.push_back(entry);
        if self.entries.len() > EPOCHS {
            self.entries.pop_front();
        }
    }

    /// Returns whether this run has stored the epoch.
    pub(crate) fn has(&self, epoch: u64) -> bool {
        self.entries.iter().any(|entry| entry.epoch == epoch && entry.committed)
    }

    /// Adds the epoch's files that were not rewritten. If one of them can no longer be read, the epoch fails. `shares`
    /// says whether other ranks may have rewritten them.
    pub(crate) fn recall(&self, epoch: u64, shares: bool, files: &mut EpochFiles) {
        let Some(entry) = self.entries.iter().find(|entry| entry.epoch == epoch) else { return };
        for known in &entry.files {
            let written = files.finished.iter().find(|file| file.path == known.path);
            match written.map_or_else(|| known.why_not_still(shares), |file| known.why_not_again(file)) {
                Some(why) => {
                    files.failure.get_or_insert_with(|| format!("{}: {why}", known.path.display()));
                }
                None if written.is_none() => files.finished.push(known.file()),
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &Path, anew: bool) -> Finished {
        Finished { anew, ..Finished::whole(path.to_owned(), None) }
    }

    /// Returns the files of a rewritten epoch, or the reason why it fails.
    fn again(past: &IndexedEpochs, epoch: u64, written: Vec<Finished>) -> Result<Vec<PathBuf>, String> {
        let mut files = EpochFiles { finished: written, ..EpochFiles::default() };
        past.recall(epoch, false, &mut files);
        let paths = files.finished.into_iter().map(|file| file.path).collect();
        files.failure.map_or(Ok(paths), Err)
    }

    #[test]
    fn an_epoch_is_made_of_all_of_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| folder.path().join(name));
        std::fs::write(&one, "one").unwrap();
        std::fs::write(&other, "other").unwrap();
        let mut past = IndexedEpochs::default();
        past.remember(5, &[file(&one, true), file(&other, true)], true);
        assert!(past.has(5) && !past.has(6));
        assert_eq!(again(&past, 5, vec![file(&other, false)]), Ok(vec![other.clone(), one.clone()]));
        assert_eq!(again(&past, 6, vec![file(&other, false)]), Ok(vec![other.clone()]));
        std::fs::write(&one, "something else").unwrap();
        let said = again(&past, 5, vec![file(&other, true)]).unwrap_err();
        assert!(said.contains("one: has changed since it was indexed"), "{said}");
        assert_eq!(again(&past, 5, vec![file(&one, false)]), Ok(vec![one, other]));
    }

    #[test]
    fn files_that_were_removed_have_to_be_begun_anew() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| folder.path().join(name));
        let mut past = IndexedEpochs::default();
        past.remember(5, &[file(&one, true), file(&other, true)], true);
        assert_eq!(again(&past, 5, vec![file(&one, true), file(&other, true)]).unwrap().len(), 2);
        let said = again(&past, 5, vec![file(&one, true)]).unwrap_err();
        assert!(said.contains("other: was removed after it was indexed, and was not rewritten"), "{said}");
        let said = again(&past, 5, vec![file(&one, false), file(&other, true)]).unwrap_err();
        assert!(said.contains("one: was removed after it was indexed, and the file at its path now"), "{said}");
        // The second attempt, with one of the files, has failed. That file is at its original path, and the other is
        // still missing.
        std::fs::write(&one, "one").unwrap();
        past.remember(5, &[file(&one, true)], false);
        assert!(past.has(5) && again(&past, 5, vec![file(&one, true)]).is_err());
        assert_eq!(again(&past, 5, vec![file(&other, true)]), Ok(vec![other, one]));
    }

    #[test]
    fn a_second_attempt_that_fails_leaves_the_first() {
        let mut past = IndexedEpochs::default();
        past.remember(5, &[], true);
        past.remember(5, &[], false);
        assert!(past.has(5) && past.entries.len() == 1);
        past.remember(6, &[], false);
        assert!(!past.has(6));
        for epoch in 7..7 + EPOCHS as u64 {
            past.remember(epoch, &[], true);
        }
        assert!(!past.has(5) && past.has(7) && past.entries.len() == EPOCHS);
    }
}
