//! Pruning by Bloom filters: row groups that contain none of the keys that a predicate requires.
//!
//! A dataset that is clustered by hash states which partition each part has. A key is in the parts of its partition,
//! and in runs of spilled and stray records. Filters of these parts select the row groups that may contain it.

use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::{EpochManifest, PartFilters, PartId};
use crate::query::catalog::Catalog;
use crate::query::metrics::{Counters, add};
use crate::query::request::ResolvedQuery;
use crate::query::rows::pruning::GroupChoice;

/// Removes the row groups that certainly contain no key that the predicate allows. A corrupt filter removes nothing.
///
/// # Errors
/// I/O errors.
pub(in crate::query) fn retain(
    dataset: &Catalog,
    resolved: &ResolvedQuery,
    manifest: &Arc<EpochManifest>,
    choices: Vec<GroupChoice>,
    counters: &Counters,
) -> Result<Vec<GroupChoice>> {
    let Some(keys) = &resolved.keys else { return Ok(choices) };
    let groups = dataset.partition_groups(manifest);
    let mut filters: HashMap<PartId, Option<Arc<PartFilters>>> = HashMap::new();
    let mut kept = Vec::with_capacity(choices.len());
    for choice in choices {
        let entry = &manifest.row_groups[choice.entry];
        let mut hashes = keys.hashes.iter().filter(|hash| groups.may_contain(choice.entry, **hash)).peekable();
        if hashes.peek().is_none() {
            continue;
        }
        let of_part = match filters.entry(entry.part) {
            MapEntry::Occupied(known) => known.into_mut(),
            MapEntry::Vacant(place) => {
                // A part of another commit has other filters, which are not corrupt.
                dataset.part(manifest, entry.part)?.confirm()?;
                place.insert(match dataset.filters(manifest, entry.part) {
                    Ok(read) => Some(read),
                    Err(Error::Corruption { .. }) => {
                        add(&counters.corrupt_filters, 1);
                        None
                    }
                    Err(error) => return Err(error),
                })
            }
        };
        if of_part.as_ref().is_none_or(|filters| hashes.any(|hash| filters.may_contain(entry.row_group, *hash))) {
            kept.push(choice);
        }
    }
    Ok(kept)
}
