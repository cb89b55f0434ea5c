//! Chooses the epochs of a source that are read: those that the options select, and with
//! [`SourceOptions::complete_only`] only those that are whole.
//!
//! An epoch is whole if its checks succeed. Some sources do not state how much an epoch holds: raw records without a
//! count, and numbered files without the number of all. The last epoch of such a source may be incomplete although its
//! checks succeed, so that only a later epoch shows that it is whole.

use std::collections::BTreeSet;
use std::path::Path;

use crate::error::SourceError;
use crate::options::SourceOptions;

/// An epoch that is not read, because it is not whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// The epoch, or `None` if its files do not show it.
    pub epoch: Option<u64>,
    /// The reason.
    pub reason: String,
}

/// Number of epochs that an error names.
const NAMED: usize = 20;

/// Chooses epochs one after another.
#[derive(Debug)]
pub(crate) struct EpochChoice<'a> {
    options: &'a SourceOptions,
    /// All epochs that the source has.
    pub(crate) labels: BTreeSet<u64>,
    pub(crate) left_out: Vec<LeftOut>,
}

impl<'a> EpochChoice<'a> {
    /// Begins to choose among the epochs of the source at `path`.
    ///
    /// # Errors
    /// Returns an error if the options select none of them.
    pub(crate) fn among(
        path: &Path,
        labels: impl IntoIterator<Item = u64>,
        options: &'a SourceOptions,
    ) -> Result<Self, SourceError> {
        let labels: BTreeSet<u64> = labels.into_iter().collect();
        let existing: Vec<u64> = labels.iter().copied().collect();
        if let Some(chosen) = &options.epochs
            && !options.complete_only
            && chosen.among(&existing, path).unwrap_or_default().is_empty()
        {
            let known: Vec<String> = existing.iter().take(NAMED).map(u64::to_string).collect();
            let (path, known) = (path.display(), known.join(", "));
            let more = if existing.len() > NAMED { ", …" } else { "" };
            return Err(SourceError::Usage(format!("{path} has no epoch {chosen}; it has {known}{more}")));
        }
        Ok(Self { options, labels, left_out: Vec::new() })
    }

    /// Returns the result of an epoch's checks, or `None` if the epoch is left out.
    pub(crate) fn judge<T>(&mut self, epoch: u64, checked: Result<T, SourceError>) -> Result<Option<T>, SourceError> {
        match checked {
            Ok(found) => Ok(Some(found)),
            Err(error) if self.options.complete_only && !error.is_usage() => {
                self.leave_out(Some(epoch), error.to_string());
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Leaves out an epoch.
    pub(crate) fn leave_out(&mut self, epoch: Option<u64>, reason: String) {
        self.left_out.push(LeftOut { epoch, reason });
    }

    /// Returns whether an epoch is whole that `stated` does not show to be: if a later epoch exists. Otherwise the
    /// epoch is left out, and `unstated` says what the source does not state.
    pub(crate) fn is_whole(&mut self, epoch: u64, stated: bool, unstated: &str) -> bool {
        let is_last = self.labels.last().is_none_or(|last| *last <= epoch);
        let is_whole = !self.options.complete_only || stated || !is_last;
        if !is_whole {
            self.leave_out(Some(epoch), format!("{unstated}, so that only a later epoch shows that this one is whole"));
        }
        is_whole
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn broken() -> SourceError {
        SourceError::Unfit { path: PathBuf::from("f"), what: "is short".into() }
    }

    #[test]
    fn epochs_that_are_not_whole_are_errors_or_left_out() {
        let options = SourceOptions::default();
        let mut choice = EpochChoice::among(Path::new("run"), [1, 2], &options).unwrap();
        assert!(choice.judge::<()>(1, Err(broken())).is_err());
        assert!(choice.is_whole(2, false, "nothing states it"));
        let options = SourceOptions { complete_only: true, ..options };
        let mut choice = EpochChoice::among(Path::new("run"), [1, 2, 3], &options).unwrap();
        assert_eq!(choice.judge(1, Ok(7)).unwrap(), Some(7));
        assert_eq!(choice.judge::<()>(1, Err(broken())).unwrap(), None);
        assert!(choice.judge::<()>(1, Err(SourceError::Usage("--key".into()))).is_err());
        assert!(choice.is_whole(2, false, "nothing states it") && choice.is_whole(3, true, ""));
        assert!(!choice.is_whole(3, false, "nothing states it"));
        let reason = "nothing states it, so that only a later epoch shows that this one is whole".to_owned();
        let left_out = |epoch, reason: &str| LeftOut { epoch: Some(epoch), reason: reason.to_owned() };
        assert_eq!(choice.left_out, [left_out(1, "f: is short"), left_out(3, &reason)]);
    }

    #[test]
    fn a_range_without_epochs_is_refused_unless_they_may_appear() {
        let mut options = SourceOptions { epochs: Some("5..9".parse().unwrap()), ..Default::default() };
        options.done.insert(7, 1);
        assert!(!options.selects(4) && options.selects(6) && !options.selects(7));
        let said = EpochChoice::among(Path::new("run"), [1, 20], &options).unwrap_err().to_string();
        assert!(said.contains("run has no epoch 5..9; it has 1, 20"), "{said}");
        assert!(EpochChoice::among(Path::new("run"), [1, 5], &options).is_ok());
        options.complete_only = true;
        assert!(EpochChoice::among(Path::new("run"), [], &options).is_ok());
    }
}
