//! Decides on rank 0 how many ranks receive an epoch.
//!
//! The number follows from the epoch's forecast size: the application's, or that of the last epoch, or, in a job's
//! first epoch, that of the dataset's greatest one. A receiver's share is then at least
//! [`EngineOptions::part_bytes`](super::EngineOptions::part_bytes). If the epoch outgrows the forecast, every partition
//! is divided, and more ranks receive.

use super::{Engine, Renegotiation};
use crate::shuffle::placement::Placement;

impl Engine {
    /// Sets the number of records of the next epoch, if it is known better than by the last one. Called on rank 0. The
    /// number of receivers follows from it ([`EngineOptions::part_bytes`](super::EngineOptions::part_bytes)).
    pub fn expect_rows(&mut self, rows: u64) {
        self.hint_rows = Some(rows);
    }

    /// Returns the partition of the current or last epoch that this rank stores, if any.
    pub fn partition(&self) -> Option<u32> {
        self.session.placement.partition(&self.options, self.options.rank)
    }

    /// Returns the number of partitions of the current or last epoch.
    pub fn partitions(&self) -> u32 {
        self.session.placement.partitions()
    }

    /// Returns the number of records that the current or last epoch was expected to have, if it was known when it
    /// began. Only rank 0 knows it.
    pub fn expected_rows(&self) -> Option<u64> {
        self.session.expected_rows
    }

    /// Decides which ranks receive the epoch that begins. Applications that decide on the tables themselves have as
    /// many receivers as they want. With a fixed table, an epoch cannot get more receivers once it has begun, so the
    /// last epoch's volume does not limit them.
    pub(super) fn place_partitions(&mut self) {
        let last = self.last_whole().map(|whole| whole.rows).or(self.rows_before).filter(|_| !self.has_fixed_table);
        let rows = self.hint_rows.take().or(last);
        let rows = rows.filter(|_| self.options.renegotiation == Renegotiation::Adaptive);
        self.session.expected_rows = rows;
        let bytes = rows.map(|rows| self.stored_bytes(rows));
        self.session.placement = Placement::by_volume(&self.options, bytes, self.session.number);
    }

    /// Returns whether the epoch, of which `seen` records have been appended, needs more receivers.
    pub(super) fn needs_receivers(&self, seen: u64) -> bool {
        self.session.placement.outgrown(&self.options, self.stored_bytes(seen)).is_some()
    }

    /// Returns the number of records that a rank appends until the epoch has outgrown its receivers.
    pub(super) fn rows_until_outgrown(&self, seen: u64, contributors: u32) -> u64 {
        let limit = self.session.placement.outgrown_from(&self.options);
        let rows = limit.map(|bytes| (bytes / self.schema.row_bytes() as u64).saturating_sub(seen));
        rows.map_or(u64::MAX, |rows| (rows / u64::from(contributors.max(1))).max(1))
    }

    /// Divides the partitions of an epoch that needs more receivers. Returns the number of partitions into which each
    /// is divided.
    pub(super) fn divide_partitions(&mut self, seen: u64) -> u32 {
        let bytes = self.stored_bytes(seen);
        let Some((placement, factor)) = self.session.placement.outgrown(&self.options, bytes) else { return 1 };
        self.session.placement = placement;
        if let Some(planner) = &mut self.session.negotiation.planner {
            planner.divide(factor);
        }
        factor
    }

    fn stored_bytes(&self, rows: u64) -> u64 {
        rows.saturating_mul(self.schema.row_bytes() as u64)
    }
}
