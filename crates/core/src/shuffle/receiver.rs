//! The receiver of records that arrive on a rank.

use crate::format::RunKind;
use crate::schema::Value;

/// A consumer of the records that arrive on a rank, in the order of the tables they are judged by.
pub trait Receiver {
    /// Returns whether the receiver takes records now. While it does not, arriving records stay with the transport.
    fn accepts(&mut self) -> bool {
        true
    }

    /// Installs a partition table: the records that follow are judged by `bounds`, the closed key range of this rank's
    /// partition, or `None` on a rank without one.
    fn set_partition(&mut self, version: u32, bounds: Option<(Value, Value)>) {
        let _ = (version, bounds);
    }

    /// Takes stored rows of one kind. Called only while the receiver takes records, except for spilled records of this
    /// rank and for a batch that waited for its table.
    fn deliver(&mut self, kind: RunKind, rows: &[u8]);
}

/// A receiver that takes all records at once and ignores tables.
impl<F: FnMut(RunKind, &[u8])> Receiver for F {
    fn deliver(&mut self, kind: RunKind, rows: &[u8]) {
        self(kind, rows);
    }
}
