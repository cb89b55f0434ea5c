//! Announces to storage what a small query will read of an epoch.
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
use crate::format::{EpochManifest, PartId};
use crate::query::catalog::Catalog;
use crate::query::metrics::Counters;
use crate::query::request::ResolvedQuery;
use crate::query::rows::coalescing::{Extent, joined};
use crate::query::rows::group::Group;
use crate::query::scan::epoch_scan::{EpochRequest, EpochScan, SelectedGroups, choose};
use crate::query::scan::row_group_plan::RowGroupPlan;

/// Maximum number of row groups whose pages are announced. With more of them, the reads of several threads suffice.
const ANNOUNCED_GROUPS: usize = 64;

/// Maximum size of announced ranges in bytes. Larger reads wait for the device's bandwidth, not for its latency.
const ANNOUNCED_BYTES: u64 = 8 << 20;

/// Opens an epoch like [`plan_epoch`](crate::query::scan::epoch_scan::plan_epoch), and announces what a small query
/// reads of it.
///
/// # Errors
/// The errors of `plan_epoch`.
pub(in crate::query) fn plan_announced(
    dataset: &Catalog,
    resolved: &ResolvedQuery,
    epoch: u64,
    counters: &Counters,
) -> Result<EpochScan> {
    let request = EpochRequest { dataset, resolved, epoch, counters, columns: resolved.predicate_columns() };
    let select = |manifest: &Arc<EpochManifest>| {
        let chosen = choose(dataset, resolved, manifest);
        SelectedGroups::by_statistics(dataset, resolved, manifest, chosen, counters).map(|groups| (groups, ()))
    };
    request.open(select, |scan, ()| announce_few(dataset, resolved, scan)).map(|(scan, ())| scan)
}

/// Announces all pages that a query reads of an epoch, if they are few and not in memory. The reads report errors.
pub(in crate::query) fn announce_few(dataset: &Catalog, resolved: &ResolvedQuery, scan: &EpochScan) {
    if scan.choices.len() <= ANNOUNCED_GROUPS && resolved.limit == u64::MAX {
        let _ = announce_pages(dataset, resolved, scan);
    }
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
