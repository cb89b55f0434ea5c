//! Plans an epoch, and announces to storage what a small query will read of it.
//!
//! A query of a few pages in each of many row groups spends its time waiting for a cold device: for the manifest, for
//! the key's pages of one row group, for its other columns, and so on. The pages that may match are known once the
//! parts are open, so all of them are announced before the first is read, and the device fetches them side by side.
//! From an open dataset, at most two rounds of reads depend on each other before the pages: the manifest, of which a
//! large one takes two, or the manifest and page indexes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::error::Result;
use crate::format::PartId;
use crate::query::catalog::Catalog;
use crate::query::metrics::Counters;
use crate::query::planning::coalescing::{Extent, joined};
use crate::query::planning::group::Group;
use crate::query::planning::plan::RowGroupPlan;
use crate::query::planning::scan::{EpochScan, plan_epoch_then};
use crate::query::request::ResolvedQuery;

/// Maximum number of row groups whose pages are announced. With more of them, the reads of several threads suffice.
const ANNOUNCED_GROUPS: usize = 64;

/// Maximum size of announced ranges in bytes. Larger reads wait for the device's bandwidth, not for its latency.
const ANNOUNCED_BYTES: u64 = 8 << 20;

/// Plans an epoch ([`plan_epoch_then`]), by at most `most_entries` of an index that the query requires. If the query
/// reads few pages and they are not in memory, announces all of them.
///
/// # Errors
/// The errors of [`plan_epoch_then`].
pub(in crate::query) fn plan_ahead(
    dataset: &Catalog,
    resolved: &ResolvedQuery,
    epoch: u64,
    counters: &Counters,
    most_entries: u64,
) -> Result<EpochScan> {
    plan_epoch_then(dataset, resolved, epoch, (counters, most_entries), |scan| {
        // Bitmaps would be read twice.
        if scan.choices.len() <= ANNOUNCED_GROUPS && resolved.limit == u64::MAX && !scan.bitmaps.is_used() {
            // The reads report errors.
            let _ = announce_pages(dataset, resolved, scan);
        }
    })
}

fn announce_pages(dataset: &Catalog, resolved: &ResolvedQuery, scan: &EpochScan) -> Result<()> {
    let mut parts: BTreeMap<PartId, (Vec<Extent>, Arc<Group>)> = BTreeMap::new();
    let mut bytes = 0;
    let choices = scan.choices.iter().filter(|choice| !choice.is_exact || !resolved.stored.is_empty());
    for (number, choice) in choices.enumerate() {
        let plan = RowGroupPlan::new(dataset, resolved, scan, *choice)?;
        let extents = plan.extents(resolved)?;
        let Some(first) = extents.first() else { continue };
        // If one page is in memory, the others probably are too.
        if number == 0 && plan.group.is_cached(first.offset) {
            return Ok(());
        }
        bytes += extents.iter().map(|extent| extent.bytes).sum::<u64>();
        if bytes > ANNOUNCED_BYTES {
            return Ok(());
        }
        let entry = parts.entry(plan.group.entry().part).or_insert_with(|| (Vec::new(), plan.group.clone()));
        entry.0.extend(extents);
    }
    let announced: Vec<_> = parts.into_values().map(|(extents, group)| (group, ranges_of(extents))).collect();
    let bytes: u64 = announced.iter().flat_map(|(_, ranges)| ranges).map(|(_, bytes)| bytes).sum();
    if bytes <= ANNOUNCED_BYTES {
        announced.iter().for_each(|(group, ranges)| group.announce(ranges));
    }
    Ok(())
}

/// Returns ranges (offset, length) of a file that contain these extents, and all gaps through which a fetch may read.
fn ranges_of(mut extents: Vec<Extent>) -> Vec<(u64, u64)> {
    extents.sort_unstable();
    let range = |read: Range<usize>| {
        let (first, last) = (extents.get(read.start)?, extents.get(read.end.checked_sub(1)?)?);
        Some((first.offset, last.end() - first.offset))
    };
    joined(extents.iter().copied(), u64::MAX).into_iter().filter_map(range).collect()
}
