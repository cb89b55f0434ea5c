//! The verdict on an epoch with indexes: all of its datasets are committed, or none of them.

/// Rank 0's verdict on the datasets of an epoch: those of its indexes, and that of its records.
#[derive(Debug)]
pub(super) struct Verdict {
    /// Number of records that wait for their commit, or the cause of a failure.
    outcome: Result<u64, String>,
}

impl Verdict {
    /// Creates the verdict on as many stored records, or on records that could not be stored.
    pub(super) fn on_records(gathered: Result<u64, String>) -> Self {
        Self { outcome: gathered }
    }

    /// Fails the epoch if an index has failed, or does not have one entry for each record.
    pub(super) fn add_index(&mut self, name: &str, gathered: Result<u64, String>) {
        let Ok(rows) = self.outcome else { return };
        let cause = match gathered {
            Ok(entries) if entries == rows => return,
            Ok(entries) => format!("{entries} entries for {rows} records; please report this error"),
            Err(cause) => cause,
        };
        self.outcome = Err(of_index(name, &cause));
    }

    /// Commits an index with `release`, or aborts it if the epoch has failed.
    pub(super) fn release_index(&mut self, name: &str, release: impl FnOnce(Result<(), String>) -> Result<(), String>) {
        let released = release(self.outcome.clone().map(drop));
        if let (Ok(_), Err(cause)) = (&self.outcome, released) {
            self.outcome = Err(of_index(name, &cause));
        }
    }

    /// Returns the verdict on the records, after all indexes.
    pub(super) fn into_outcome(self) -> Result<(), String> {
        self.outcome.map(drop)
    }
}

fn of_index(name: &str, cause: &str) -> String {
    format!("index '{name}': {cause}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the outcome of two indexes, and the outcomes with which they were released.
    fn judge(mut verdict: Verdict, indexes: [(Option<&str>, u64); 2]) -> (Result<(), String>, Vec<bool>) {
        for (number, (failure, entries)) in indexes.into_iter().enumerate() {
            verdict.add_index(&format!("i{number}"), failure.map_or(Ok(entries), |cause| Err(cause.to_owned())));
        }
        let mut released = Vec::new();
        for number in 0..indexes.len() {
            verdict.release_index(&format!("i{number}"), |outcome| {
                released.push(outcome.is_ok());
                outcome
            });
        }
        (verdict.into_outcome(), released)
    }

    #[test]
    fn datasets_of_an_epoch_are_committed_together() {
        let records = || Verdict::on_records(Ok(5));
        assert_eq!(judge(records(), [(None, 5), (None, 5)]), (Ok(()), vec![true, true]));
        let (outcome, released) = judge(records(), [(None, 5), (None, 4)]);
        assert!(outcome.unwrap_err().starts_with("index 'i1': 4 entries for 5 records"));
        assert_eq!(released, [false, false]);
        let (outcome, released) = judge(records(), [(Some("the disk is full"), 0), (None, 5)]);
        assert_eq!((outcome, released), (Err("index 'i0': the disk is full".to_owned()), vec![false, false]));
        let failed = Verdict::on_records(Err("the records are wrong".to_owned()));
        let (outcome, released) = judge(failed, [(None, 5), (Some("no"), 0)]);
        assert_eq!((outcome, released), (Err("the records are wrong".to_owned()), vec![false, false]));
    }

    #[test]
    fn an_index_whose_commit_fails_keeps_the_rest_from_being_committed() {
        let mut verdict = Verdict::on_records(Ok(5));
        verdict.release_index("a", |outcome| outcome.and(Err("the sync failed".to_owned())));
        verdict.release_index("b", |outcome| {
            assert_eq!(outcome, Err("index 'a': the sync failed".to_owned()));
            outcome
        });
        assert_eq!(verdict.into_outcome(), Err("index 'a': the sync failed".to_owned()));
    }
}
