//! Where records go that arrive on a rank.

use crate::format::RunKind;
use crate::schema::Value;

/// Takes the records that arrive on a rank, in the order of the tables they are judged by.
pub trait Receiver {
    /// Returns whether more records are taken now. Those that arrive otherwise stay with the transport.
    fn accepts(&mut self) -> bool {
        true
    }

    /// Puts a partition table in force: records that follow are judged by `bounds`, the closed key range of this rank's
    /// partition, or `None` on a rank without one.
    fn set_partition(&mut self, version: u32, bounds: Option<(Value, Value)>) {
        let _ = (version, bounds);
    }

    /// Takes stored rows of one kind. Called only while records are taken, but for records of this rank that no other
    /// takes and for a batch that waited for its table.
    fn deliver(&mut self, kind: RunKind, rows: &[u8]);
}

/// Takes all records at once, and is told of no tables.
impl<F: FnMut(RunKind, &[u8])> Receiver for F {
    fn deliver(&mut self, kind: RunKind, rows: &[u8]) {
        self(kind, rows);
    }
}
