//! A value index that can answer a predicate, or several of them that answer its alternatives together.

use crate::error::Result;
use crate::expr::Predicate;
use crate::format::EpochManifest;
use crate::index::RecordPlace;
use crate::query::catalog::Catalog;
use crate::query::index::cost::FindingCost;
use crate::query::index::unreadable::readable;
use crate::query::index::value::ValueIndex;
use crate::query::metrics::Counters;

/// Maximum number of alternatives of a predicate, each of which is looked up by itself.
const MAX_BRANCHES: usize = 64;

/// Indexes that find all records that may match a predicate: one index, or one for each alternative of the predicate.
pub(super) struct Candidate<'p> {
    /// The names of the indexes.
    pub(super) name: String,
    pub(super) cost: FindingCost,
    /// The indexes, with the conditions whose records each finds.
    members: Vec<(&'p ValueIndex, Predicate)>,
}

/// The inputs of the search for candidates.
pub(super) struct Finder<'a> {
    pub(super) dataset: &'a Catalog,
    pub(super) predicate: &'a Predicate,
    pub(super) manifest: &'a EpochManifest,
    pub(super) counters: &'a Counters,
    /// Number of threads of the query.
    pub(super) threads: usize,
    /// The names of the indexes that are missing or corrupt.
    pub(super) unreadable: Vec<String>,
}

impl Finder<'_> {
    /// Returns the candidates among some paths, the most selective first.
    ///
    /// # Errors
    /// Errors other than those of missing or corrupt indexes.
    pub(super) fn candidates<'p>(&mut self, paths: &[&'p ValueIndex]) -> Result<Vec<Candidate<'p>>> {
        let mut candidates = Vec::new();
        for path in paths {
            let estimate = path.estimate(self.predicate, self.manifest);
            if let Some(cost) = self.readable(path.name(), estimate)? {
                let members = vec![(*path, self.predicate.clone())];
                candidates.push(Candidate { name: path.name().to_owned(), cost, members });
            }
        }
        if let Some(united) = self.united(paths)? {
            // An index may answer alternatives by itself, by the range from the least to the greatest of them.
            candidates.retain(|single| single.name != united.name || self.rows_of(single) < self.rows_of(&united));
            if candidates.iter().all(|single| single.name != united.name) {
                candidates.push(united);
            }
        }
        candidates.sort_by_key(|candidate| self.rows_of(candidate));
        Ok(candidates)
    }

    fn rows_of(&self, candidate: &Candidate<'_>) -> u64 {
        candidate.cost.as_rows(self.threads)
    }

    /// Returns the candidate of one index for each alternative of the predicate, if there is one for all of them.
    fn united<'p>(&mut self, paths: &[&'p ValueIndex]) -> Result<Option<Candidate<'p>>> {
        let branches = self.predicate.branches(MAX_BRANCHES);
        let (mut members, mut cost) = (Vec::with_capacity(branches.len()), FindingCost::default());
        for branch in branches {
            let mut best: Option<(FindingCost, &'p ValueIndex)> = None;
            for path in paths {
                let estimate = path.estimate(&branch, self.manifest);
                let estimate = self.readable(path.name(), estimate)?;
                best = estimate
                    .map(|cost| (cost, *path))
                    .into_iter()
                    .chain(best)
                    .min_by_key(|(cost, _)| cost.as_rows(self.threads));
            }
            let Some((of_branch, path)) = best else { return Ok(None) };
            cost = cost.and(of_branch);
            members.push((path, branch));
        }
        let mut names: Vec<&str> = members.iter().map(|(path, _)| path.name()).collect();
        names.sort_unstable();
        names.dedup();
        Ok((members.len() > 1).then(|| Candidate { name: names.join(" or "), cost, members }))
    }

    /// Returns the places that a candidate finds, sorted. `None` if an index has no answer, or there are more than
    /// `most` places.
    ///
    /// # Errors
    /// As for [`Finder::candidates`].
    pub(super) fn places(&mut self, candidate: &Candidate<'_>, most: u64) -> Result<Option<Vec<RecordPlace>>> {
        let mut found: Vec<RecordPlace> = Vec::new();
        for (path, condition) in &candidate.members {
            let left = most.saturating_sub(found.len() as u64);
            let read = path.places(condition, self.manifest, left, self.counters);
            let Some(places) = self.readable(path.name(), read)? else { return Ok(None) };
            found.extend(places);
        }
        found.sort_unstable();
        found.dedup();
        Ok(Some(found))
    }

    /// Returns the answer of an index as [`readable`] does.
    fn readable<T>(&mut self, index: &str, answer: Result<Option<T>>) -> Result<Option<T>> {
        if answer.is_err() {
            // It is asked for each alternative, and counts once.
            if self.unreadable.iter().any(|name| name == index) {
                return Ok(None);
            }
            self.unreadable.push(index.to_owned());
        }
        readable(self.dataset, self.counters, answer)
    }
}
