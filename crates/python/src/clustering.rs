//! The row groups of an epoch, and the selectivity of its key.

use serde_json::{Value as Json, json};
use turbidite::Error;

use crate::values::number;

/// Returns the row groups of an epoch with the range of their keys, as JSON.
pub(crate) fn row_groups(dataset: &turbidite::Dataset, epoch: u64) -> Result<String, Error> {
    let manifest = dataset.manifest(epoch)?;
    let key = dataset.schema().key_index();
    let groups = manifest.row_groups.iter().map(|group| {
        let range = group.columns.get(key).and_then(|statistics| statistics.range);
        json!({
            "file": group.part.file_name(),
            "rank": group.part.rank,
            "level": group.level,
            "kind": group.kind,
            "rows": group.rows,
            "keys": range.map(|(least, most)| [number(least), number(most)]),
        })
    });
    Ok(Json::Array(groups.collect()).to_string())
}

/// Returns the key profile of an epoch at the given percentiles, as JSON.
pub(crate) fn key_profile(dataset: &turbidite::Dataset, epoch: u64, percentiles: &[f64]) -> Result<String, Error> {
    Ok(json!(dataset.key_profile_at(epoch, percentiles)?).to_string())
}
