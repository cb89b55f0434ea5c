//! The manifest of one epoch: its runs, the parts they lie in, and the epoch's statistics.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::format::manifest::entries::PartEntry;
use crate::format::manifest::range_counts::{KeyRangeCounts, RangeCount};
use crate::format::manifest::row_group_entries::RowGroupEntries;
use crate::schema::{KeyOrder, Schema};

/// Statistics of writing an epoch, summed over all ranks. Times are seconds of all threads, including waiting for a
/// processor, so their sum can exceed the wall time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EpochStatistics {
    /// Ranks that appended.
    pub ranks: u32,
    /// Ranks that received.
    pub receivers: u32,
    /// Records stored.
    pub rows: u64,
    /// Records each receiver stored from the shuffle (spills are not counted: they stayed with their sender).
    pub rows_per_receiver: Vec<u64>,
    /// Records in stray runs.
    pub strays: u64,
    /// Records in unordered runs.
    pub spills: u64,
    /// Records with a NaN key.
    pub nan_keys: u64,
    /// Partition tables negotiated, the first included.
    pub renegotiations: u32,
    /// Messages sent between ranks, data and control.
    pub messages: u64,
    /// Nodes that took part.
    pub nodes: u32,
    /// Maximum number of other ranks that a rank sent records to, directly or for forwarding.
    pub most_recipients: u32,
    /// Maximum number of other ranks that a rank received records from.
    pub most_senders: u32,
    /// Number of forwarding hops over all records.
    pub forwarded: u64,
    /// Peak memory of outgoing batches on any rank.
    pub most_batch_bytes: u64,
    /// Bytes written, with all metadata of the epoch.
    pub bytes_written: u64,
    /// Wall time from first append to commit, in seconds.
    pub wall_s: f64,
    /// Routing and packing.
    pub route_s: f64,
    /// Sorting memtables.
    pub sort_s: f64,
    /// Gathering columns into pages, with checksums.
    pub encode_s: f64,
    /// Writing to files.
    pub write_s: f64,
    /// Making files durable.
    pub sync_s: f64,
}

impl EpochStatistics {
    /// Returns the load imbalance: standard deviation of the receivers' rows over their mean. 0 for an epoch without
    /// rows.
    pub fn load_imbalance(&self) -> f64 {
        let loads = &self.rows_per_receiver;
        let mean = loads.iter().map(|&rows| rows as f64).sum::<f64>() / loads.len().max(1) as f64;
        if mean == 0.0 {
            return 0.0;
        }
        let variance = loads.iter().map(|&rows| (rows as f64 - mean).powi(2)).sum::<f64>() / loads.len() as f64;
        variance.sqrt() / mean
    }
}

/// The manifest of one committed epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct EpochManifest {
    /// The epoch's label.
    pub epoch: u64,
    /// Identity of this commit; every part's footer carries it.
    pub commit: Uuid,
    /// The part files, by rank and roll.
    pub parts: Vec<PartEntry>,
    /// The runs' row groups, in the order of parts and offsets.
    pub row_groups: RowGroupEntries,
    /// The distribution of the keys, finer than the row groups' statistics; empty where unknown.
    pub keys: KeyRangeCounts,
    /// Statistics of writing it.
    pub statistics: EpochStatistics,
}

impl EpochManifest {
    /// Returns the number of records in the epoch.
    pub fn rows(&self) -> u64 {
        self.row_groups.places().map(|run| run.rows).sum()
    }

    /// Returns the bytes of the epoch's pages.
    pub fn page_bytes(&self) -> u64 {
        self.row_groups.places().map(|run| run.bytes).sum()
    }
}

impl EpochManifest {
    /// Returns the distribution of a numeric column's values: for the key as fine as the manifest holds it, otherwise
    /// one range count per row group that has values.
    pub(crate) fn range_counts(&self, column: usize, schema: &Schema) -> Vec<RangeCount> {
        let Some(order) = KeyOrder::new(schema.columns()[column].data_type) else { return Vec::new() };
        let of_row_groups = || {
            let range_counts =
                self.row_groups.iter().map(|run| RangeCount::of(run.columns.get(column), run.rows, order));
            range_counts.filter(|range_count| range_count.rows > 0)
        };
        if column == schema.key_index() && !self.keys.get().is_empty() {
            let rows = |range_counts: &mut dyn Iterator<Item = u64>| range_counts.fold(0, u64::saturating_add);
            let stated = self.keys.get();
            let is_whole = rows(&mut stated.iter().map(|range_count| range_count.rows))
                == rows(&mut of_row_groups().map(|range_count| range_count.rows));
            // A NaN bound would bound nothing.
            let is_sound = stated.iter().all(|range_count| !order.is_nan(range_count.most));
            if is_whole && is_sound {
                return stated.to_vec();
            }
        }
        of_row_groups().collect()
    }
}
