//! The manifest of an epoch: its row groups, the part files that hold them, and metrics of writing it.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::format::manifest::attributes::EpochAttributes;
use crate::format::manifest::entries::PartEntry;
use crate::format::manifest::range_counts::{KeyRangeCounts, RangeCount};
use crate::format::manifest::row_group_entries::RowGroupEntries;
use crate::schema::{KeyOrder, OutOfRange, Schema};

/// Metrics of writing an epoch, over all ranks.
///
/// Times of stages are sums over all threads, in seconds. They include the time that threads wait for a CPU, so their
/// sum can exceed the wall time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EpochMetrics {
    /// Number of ranks that appended.
    pub ranks: u32,
    /// Number of ranks that received records.
    pub receivers: u32,
    /// Number of records that were expected when the epoch began, from which the number of receivers followed. 0 if it
    /// was not known.
    pub expected_rows: u64,
    /// Size of a receiver's share of the epoch, in bytes, for which the number of receivers was chosen. 0 if the number
    /// was given.
    pub part_bytes: u64,
    /// Number of records stored.
    pub rows: u64,
    /// Number of records that each receiver stored from the shuffle. Spills are not included, since their senders store
    /// them.
    pub rows_per_receiver: Vec<u64>,
    /// Number of records in stray runs.
    pub strays: u64,
    /// Number of records in unordered runs.
    pub spills: u64,
    /// Number of records with a NaN key.
    pub nan_keys: u64,
    /// Counts of values of derived columns that are out of the range of `f32`, for columns with such values.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub out_of_range: Vec<OutOfRange>,
    /// Number of partition tables negotiated, including the first.
    pub renegotiations: u32,
    /// Number of messages sent between ranks, data and control.
    pub messages: u64,
    /// Number of nodes that took part.
    pub nodes: u32,
    /// Maximum number of other ranks to which a rank sent records, directly or for forwarding.
    pub most_recipients: u32,
    /// Maximum number of other ranks from which a rank received records.
    pub most_senders: u32,
    /// Number of forwarding hops, summed over all records.
    pub forwarded: u64,
    /// Peak memory of a rank's outgoing batches, in bytes. Maximum over all ranks.
    pub most_batch_bytes: u64,
    /// Bytes written, including all metadata of the epoch.
    pub bytes_written: u64,
    /// Wall time from the first append to the commit, in seconds.
    pub wall_s: f64,
    /// Time of routing and packing records.
    pub route_s: f64,
    /// Time of sorting memtables.
    pub sort_s: f64,
    /// Time of gathering columns into pages, including checksums.
    pub encode_s: f64,
    /// Time of writing to files.
    pub write_s: f64,
    /// Time of syncing files.
    pub sync_s: f64,
}

impl EpochMetrics {
    /// Returns the metrics as JSON, for a manifest.
    pub(in crate::format) fn text(&self) -> String {
        // JSON can represent neither NaN nor infinities. Such metrics are omitted, and decoded as zero.
        let mut metrics = serde_json::json!(self);
        if let Some(fields) = metrics.as_object_mut() {
            fields.retain(|_, value| !value.is_null());
        }
        metrics.to_string()
    }

    /// Returns the load imbalance: the standard deviation of the receivers' rows divided by their mean. Returns 0 for
    /// an epoch without rows.
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

/// The manifest of a committed epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct EpochManifest {
    /// The epoch's label.
    pub epoch: u64,
    /// Identity of this commit. The footer of every part contains it.
    pub commit: Uuid,
    /// Part files, sorted by rank and roll.
    pub parts: Vec<PartEntry>,
    /// Number of partitions, if records are clustered by hash.
    pub partitions: Option<u32>,
    /// Commit of the records from which the entries were made, if this is an epoch of an index.
    pub indexed_commit: Option<Uuid>,
    /// Numbers that describe the epoch, such as its physical time.
    pub attributes: EpochAttributes,
    /// Row groups, in the order of parts and offsets.
    pub row_groups: RowGroupEntries,
    /// Distribution of the keys, finer than the row groups' statistics. Empty if unknown.
    pub keys: KeyRangeCounts,
    /// Metrics of writing the epoch.
    pub metrics: EpochMetrics,
}

impl EpochManifest {
    /// Creates the manifest of a commit without parts.
    pub(crate) fn new(epoch: u64, commit: Uuid) -> Self {
        Self {
            epoch,
            commit,
            parts: Vec::new(),
            partitions: None,
            indexed_commit: None,
            attributes: EpochAttributes::default(),
            row_groups: RowGroupEntries::default(),
            keys: KeyRangeCounts::default(),
            metrics: EpochMetrics::default(),
        }
    }

    /// Returns the number of records in the epoch.
    pub fn rows(&self) -> u64 {
        self.rows_above(0)
    }

    /// Returns the number of records of a level of detail and above.
    pub(crate) fn rows_above(&self, level: u8) -> u64 {
        self.row_groups.places().filter(|run| run.level >= level).map(|run| run.rows).sum()
    }

    /// Returns the total size of the epoch's pages in bytes.
    pub fn page_bytes(&self) -> u64 {
        self.row_groups.places().map(|run| run.bytes).sum()
    }
}

impl EpochManifest {
    /// Returns the distribution of a numeric column's values. For the key this is the manifest's distribution if there
    /// is one; otherwise the result has one range count per row group with values.
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
            // A NaN bound does not limit the values of a range.
            let is_sound = stated.iter().all(|range_count| !order.is_nan(range_count.most));
            if is_whole && is_sound {
                return stated.to_vec();
            }
        }
        of_row_groups().collect()
    }
}
