//! Requests that need levels of detail, of records that have none: the spatial index that is read instead.

use crate::error::{Error, Result, UsageError};
use crate::expr::has_side_without_name;
use crate::query::catalog::Catalog;
use crate::query::index::spatial::SpatialIndex;
use crate::query::index::unreadable::{named, readable};
use crate::query::metrics::Counters;
use crate::query::request::{Query, ResolvedQuery};
use crate::schema::Clustering;

/// Advice for a dataset without levels of detail.
pub(in crate::query) const ADD_A_COPY: &str = "make a copy with levels by 'turbidite index add DS space:X,Y,Z'";

/// A spatial index that a request could read.
pub(in crate::query) trait CopySource {
    /// Returns the query of the copy.
    fn resolved(&self) -> &ResolvedQuery;
}

/// Returns the source of the first of the copies whose coordinates the query limits most. `source_of` returns `None`
/// for a copy that does not have the records. A corrupt copy is counted and left out if another one can be read.
/// `option` is the request.
///
/// # Errors
/// Usage errors: a box without names that means other rows of another copy. The errors of `source_of`, if it has no
/// result for any copy.
pub(in crate::query) fn best_copy<'a, S: CopySource>(
    dataset: &Catalog,
    (query, option): (&Query, &'static str),
    candidates: impl Iterator<Item = &'a SpatialIndex>,
    counters: &Counters,
    source_of: impl Fn(&SpatialIndex) -> Result<Option<S>>,
) -> Result<Option<S>> {
    // An index that is added later must not change what such a box means.
    let is_unnamed =
        dataset.schema.clustering() != Clustering::Space && query.space.as_deref().is_some_and(has_side_without_name);
    let mut best: Option<(usize, S)> = None;
    let (mut unreadable, mut unfit) = (None, None);
    for copy in candidates {
        match source_of(copy) {
            Ok(Some(source)) => {
                let condition = |source: &S| source.resolved().predicate.as_ref().map(ToString::to_string);
                if is_unnamed && best.as_ref().is_some_and(|(_, best)| condition(best) != condition(&source)) {
                    let what = "several spatial indexes have as many coordinates as the box has sides: name the columns \
                                of the box, as in x=0:10, or the index by --use";
                    return Err(UsageError::Option { option, what: what.to_owned() }.into());
                }
                let is_limited = |column: &&usize| source.resolved().predicate_columns().contains(column);
                let limited = copy.coordinates().iter().filter(is_limited).count();
                if best.as_ref().is_none_or(|(most, _)| limited > *most) {
                    best = Some((limited, source));
                }
            }
            Ok(None) => {}
            Err(error @ (Error::Usage(_) | Error::Expression(_))) => drop(unfit.get_or_insert(error)),
            Err(error) => drop(unreadable.get_or_insert(error)),
        }
    }
    match (best, unreadable, unfit) {
        (Some((_, source)), Some(error), _) => {
            readable(dataset, counters, Err::<Option<()>, _>(error))?;
            Ok(Some(source))
        }
        (Some((_, source)), None, _) => Ok(Some(source)),
        (None, Some(error), _) => Err(named(dataset, error)),
        (None, None, Some(error)) => Err(error),
        (None, None, None) => Ok(None),
    }
}
