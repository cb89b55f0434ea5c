//! Checks that the files of an epoch are those of ranks 0, 1, 2, … without a gap, and that no last one is missing.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::PathBuf;

use crate::error::SourceError;
use crate::inventory::FilesByRank;
use crate::options::SourceOptions;

/// Number of missing files that an error names.
const NAMED_FILES: usize = 3;

/// Number of incomplete epochs that a note names.
const NAMED_EPOCHS: usize = 5;

/// The number of ranks that wrote an epoch.
#[derive(Debug, Clone)]
pub(crate) struct Expected {
    pub(crate) ranks: u64,
    /// The origin of the number, if it is not the epoch itself: `that --source-ranks states`.
    pub(crate) origin: String,
}

impl std::fmt::Display for Expected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { ranks, origin } = self;
        let what = if *ranks == 1 { "rank" } else { "ranks" };
        if origin.is_empty() { write!(f, "{ranks} {what}") } else { write!(f, "the {ranks} {what} {origin}") }
    }
}

/// An epoch whose files are incomplete.
#[derive(Debug)]
struct Incomplete {
    epoch: u64,
    files: u64,
    ranks: u64,
}

/// Checks the epochs of a source one after another.
#[derive(Debug)]
pub(crate) struct RankCheck<'a> {
    options: &'a SourceOptions,
    incomplete: Vec<Incomplete>,
}

impl<'a> RankCheck<'a> {
    pub(crate) fn new(options: &'a SourceOptions) -> Self {
        Self { options, incomplete: Vec::new() }
    }

    /// Returns the number of ranks that the options state.
    pub(crate) fn stated(&self) -> Option<Expected> {
        let ranks = self.options.source_ranks?;
        Some(Expected { ranks: u64::from(ranks), origin: "that --source-ranks states".to_owned() })
    }

    /// Checks the files of an epoch. `path` returns the path of a missing rank's file.
    ///
    /// # Errors
    /// Returns the missing files unless the options allow them, or an error if there are files of more ranks.
    pub(crate) fn check(
        &mut self,
        epoch: u64,
        files: &BTreeMap<u32, PathBuf>,
        expected: &Expected,
        path: impl Fn(u32) -> PathBuf,
    ) -> Result<(), SourceError> {
        let ranks = expected.ranks;
        if let Some((last, file)) = files.last_key_value().filter(|(last, _)| u64::from(**last) >= ranks) {
            let what = format!("rank {last} of epoch {epoch} is beyond {expected}");
            return Err(SourceError::Unfit { path: file.clone(), what });
        }
        let found = files.len() as u64;
        if found == ranks {
            return Ok(());
        }
        if self.options.allow_missing_ranks {
            self.incomplete.push(Incomplete { epoch, files: found, ranks });
            return Ok(());
        }
        // All files are of expected ranks, so that the search ends after as many ranks as there are files and names.
        let missing = (0..=u32::MAX).filter(|rank| !files.contains_key(rank)).take(NAMED_FILES);
        let missing = missing.take_while(|rank| u64::from(*rank) < ranks);
        Err(SourceError::MissingRanks {
            paths: missing.map(path).collect(),
            count: ranks - found,
            reason: format!("epoch {epoch} has {found} of {expected}"),
        })
    }

    /// Returns a note on the epochs whose files are incomplete, if there are any.
    pub(crate) fn note(self) -> Option<String> {
        let named = |one: &Incomplete| format!("{} ({} of {} files)", one.epoch, one.files, one.ranks);
        let mut names: Vec<String> = self.incomplete.iter().take(NAMED_EPOCHS).map(named).collect();
        let more = self.incomplete.len().saturating_sub(NAMED_EPOCHS);
        if more > 0 {
            names.push(format!("and {more} more"));
        }
        (!names.is_empty()).then(|| format!("epochs without the files of some ranks: {}", names.join(", ")))
    }
}

/// Returns the number of ranks of an epoch whose source does not state it: the last rank of its own files, or that of
/// the epoch before or after it. The files of a job that was aborted may lack the last ranks.
pub(crate) fn by_neighbours(epoch: u64, files: &FilesByRank) -> Expected {
    let ranks = |(epoch, files): (&u64, &BTreeMap<u32, PathBuf>)| {
        (files.last_key_value().map_or(0, |(last, _)| u64::from(*last) + 1), *epoch)
    };
    let own = files.get(&epoch).map_or(0, |own| ranks((&epoch, own)).0);
    let before = files.range(..epoch).next_back().map(ranks);
    let after = files.range((Bound::Excluded(epoch), Bound::Unbounded)).next().map(ranks);
    match before.max(after) {
        Some((ranks, neighbour)) if ranks > own => Expected { ranks, origin: format!("of epoch {neighbour}") },
        _ => Expected { ranks: own, origin: String::new() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(ranks: &[u32]) -> BTreeMap<u32, PathBuf> {
        ranks.iter().map(|rank| (*rank, PathBuf::from(format!("f.{rank}")))).collect()
    }

    fn checked(options: &SourceOptions, epochs: &[(u64, &[u32])]) -> Result<Option<String>, String> {
        let all: FilesByRank = epochs.iter().map(|(epoch, ranks)| (*epoch, files(ranks))).collect();
        let mut check = RankCheck::new(options);
        for (&epoch, files) in all.iter().filter(|(epoch, _)| options.selects(**epoch)) {
            let expected = check.stated().unwrap_or_else(|| by_neighbours(epoch, &all));
            let path = |rank| PathBuf::from(format!("f.{rank}"));
            check.check(epoch, files, &expected, path).map_err(|error| error.to_string())?;
        }
        Ok(check.note())
    }

    #[test]
    fn an_epoch_with_fewer_ranks_than_a_neighbour_is_refused() {
        let options = SourceOptions::default();
        for (epochs, said) in [
            (&[(1, &[0, 1, 2][..]), (2, &[0, 1])][..], "f.2 is missing: epoch 2 has 2 of the 3 ranks of epoch 1"),
            (&[(1, &[0][..]), (2, &[0, 1, 2])], "f.1, f.2 are missing: epoch 1 has 1 of the 3 ranks of epoch 2"),
            (
                &[(7, &[1, 4_000_000_000])],
                "f.0, f.2, f.3 and 3999999996 more are missing: epoch 7 has 2 of 4000000001 ranks",
            ),
            (&[(0, &[0, 1][..]), (u64::MAX, &[0])], "f.1 is missing: epoch 18446744073709551615 has"),
        ] {
            let message = checked(&options, epochs).unwrap_err();
            assert!(message.contains(said), "{message}");
        }
        let steady = [(1, &[0, 1][..]), (2, &[0, 1]), (5, &[0, 1])];
        assert_eq!(checked(&options, &steady), Ok(None));
    }

    #[test]
    fn options_state_ranks_allow_gaps_and_leave_epochs_out() {
        let epochs = [(1, &[0, 1, 2][..]), (2, &[0, 2]), (3, &[0, 1, 2])];
        let allowed = SourceOptions { allow_missing_ranks: true, ..Default::default() };
        let note = "epochs without the files of some ranks: 2 (2 of 3 files)";
        assert_eq!(checked(&allowed, &epochs), Ok(Some(note.to_owned())));
        let selected = |epochs| SourceOptions { epochs: Some(epochs), ..Default::default() };
        assert_eq!(checked(&selected("3".parse().unwrap()), &epochs), Ok(None));
        assert!(checked(&selected("2..3".parse().unwrap()), &epochs).unwrap_err().contains("f.1 is missing"));
        let stated = |ranks| SourceOptions { source_ranks: Some(ranks), ..Default::default() };
        assert!(checked(&stated(4), &epochs[..1]).unwrap_err().contains("f.3 is missing"));
        let message = checked(&stated(2), &epochs[..1]).unwrap_err();
        assert!(
            message.contains("f.2: rank 2 of epoch 1 is beyond the 2 ranks that --source-ranks states"),
            "{message}"
        );
        let both = SourceOptions { source_ranks: Some(4), ..allowed };
        assert!(checked(&both, &epochs).unwrap().unwrap().contains("1 (3 of 4 files), 2 (2 of 4 files), 3 (3 of"));
    }
}
