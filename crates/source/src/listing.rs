//! The files of a source whose names state epoch and rank: those of the epochs that are read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::epochs::EpochChoice;
use crate::error::SourceError;
use crate::inventory::{FilesByRank, Form, RecordFile, Source};
use crate::options::SourceOptions;
use crate::ranks::{Expected, RankCheck, by_neighbours};

/// The files of the epochs that are read.
#[derive(Debug)]
pub(crate) struct Listing<'a> {
    pub(crate) files: FilesByRank,
    /// Notes to print for the user.
    pub(crate) notes: Vec<String>,
    pub(crate) choice: EpochChoice<'a>,
    /// Whether the number of files of an epoch is known.
    pub(crate) is_counted: bool,
}

impl<'a> Listing<'a> {
    /// Chooses the epochs that are read, and checks that none of their files is missing. `stated` is the number of
    /// ranks that the source states, and `sibling` returns the path of another rank's file of an epoch.
    pub(crate) fn of(
        path: &Path,
        files: FilesByRank,
        names_ranks: bool,
        stated: Option<Expected>,
        sibling: &dyn Fn(&Path, u64, u32) -> PathBuf,
        options: &'a SourceOptions,
    ) -> Result<Self, SourceError> {
        let mut choice = EpochChoice::among(path, files.keys().copied(), options)?;
        let mut check = RankCheck::new(options);
        let stated = check.stated().or(stated);
        let is_counted = !names_ranks || stated.is_some() && !options.allow_missing_ranks;
        let mut whole = FilesByRank::new();
        for (&epoch, found) in files.iter().filter(|(epoch, _)| options.selects(**epoch)) {
            let expected = stated.clone().unwrap_or_else(|| by_neighbours(epoch, &files));
            // A group of files has at least one.
            let Some(example) = found.values().next() else { continue };
            let checked = check.check(epoch, found, &expected, |rank| sibling(example, epoch, rank));
            if choice.judge(epoch, checked)?.is_some() {
                whole.insert(epoch, found.clone());
            }
        }
        Ok(Self { notes: check.note().into_iter().collect(), files: whole, choice, is_counted })
    }

    /// Checks the files of each epoch by `check`. Returns those of the epochs that are read. `shows_its_end` says that
    /// the content of a file shows whether it is whole.
    pub(crate) fn checked(
        &mut self,
        shows_its_end: bool,
        mut check: impl FnMut(u32, PathBuf) -> Result<RecordFile, SourceError>,
    ) -> Result<BTreeMap<u64, Vec<RecordFile>>, SourceError> {
        let unstated = match shows_its_end {
            true => "nothing states the number of its files: --source-ranks does",
            false => "nothing states the number of its records: records and ranks in a layout do",
        };
        let stated = shows_its_end && self.is_counted;
        let mut epochs = BTreeMap::new();
        for (epoch, files) in std::mem::take(&mut self.files) {
            let files = files.into_iter().map(|(rank, path)| check(rank, path)).collect();
            if let Some(files) = self.choice.judge(epoch, files)?
                && self.choice.is_whole(epoch, stated, unstated)
            {
                epochs.insert(epoch, files);
            }
        }
        Ok(epochs)
    }

    /// Returns the source of checked files.
    pub(crate) fn source(self, epochs: BTreeMap<u64, Vec<RecordFile>>, form: Form, record_bytes: usize) -> Source {
        let EpochChoice { labels, left_out, .. } = self.choice;
        Source { epochs, form, record_bytes, notes: self.notes, labels, left_out }
    }
}
