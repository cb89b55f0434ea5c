//! Pruning by Bloom filters: row groups that contain none of the keys that a predicate requires.
//!
//! A dataset that is clustered by hash states which partition each part has. A key is in the parts of its partition,
//! and in runs of spilled and stray records. Filters of these parts tell which row groups may contain it.

use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::{EpochManifest, PartFilters, PartId, RunKind};
use crate::query::catalog::Catalog;
use crate::query::metrics::{Counters, add};
use crate::query::planning::pruning::GroupChoice;
use crate::query::request::ResolvedQuery;
use crate::schema::{Clustering, KeyHash, partition_of_hash};

/// Maximum number of keys that are looked up in filters. More of them would be in nearly every row group.
const MAX_KEYS: usize = 4096;

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
    let schema = &resolved.schema;
    if schema.clustering() != Clustering::Hash {
        return Ok(choices);
    }
    let keys = resolved.predicate.as_ref().and_then(|predicate| predicate.keys_of(schema, MAX_KEYS));
    let Some(keys) = keys else { return Ok(choices) };
    let mut hashes = Vec::new();
    let stride = schema.key_columns().iter().map(|index| schema.columns()[*index].data_type.width()).sum();
    KeyHash::of_keys(schema).hashes(&keys, stride, &mut hashes);
    // Epochs that were compacted or salvaged state no partitions.
    let partition_of = |hash| manifest.partitions.map(|partitions| partition_of_hash(hash, partitions));
    let hashes: Vec<_> = hashes.into_iter().map(|hash| (hash, partition_of(hash))).collect();
    let partitions: HashMap<PartId, Option<u32>> =
        manifest.parts.iter().map(|part| (part.part, part.partition)).collect();
    let mut filters: HashMap<PartId, Option<Arc<PartFilters>>> = HashMap::new();
    let mut kept = Vec::with_capacity(choices.len());
    for choice in choices {
        let entry = &manifest.row_groups[choice.entry];
        let partition = partitions.get(&entry.part).copied().flatten().filter(|_| entry.kind == RunKind::Regular);
        let may_have = |of_key: Option<u32>| partition.zip(of_key).is_none_or(|(ours, theirs)| ours == theirs);
        let mut hashes = hashes.iter().filter(|(_, of_key)| may_have(*of_key)).peekable();
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
        if of_part.as_ref().is_none_or(|filters| hashes.any(|(hash, _)| filters.may_contain(entry.row_group, *hash))) {
            kept.push(choice);
        }
    }
    Ok(kept)
}
