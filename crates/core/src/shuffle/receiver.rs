//! The interface for records that arrive on a rank.

use crate::format::RunKind;
use crate::schema::Value;

/// A consumer of the records that arrive on a rank. Partition tables are installed in the same order.
pub trait Receiver {
    /// Returns whether the receiver accepts records now. If not, arriving records stay with the transport.
    fn accepts(&mut self) -> bool {
        true
    }

    /// Installs a partition table. `bounds` is the closed key range of this rank's partition, or `None` on a rank
    /// without a partition. Later records outside it are strays.
    fn set_partition(&mut self, version: u32, bounds: Option<(Value, Value)>) {
        let _ = (version, bounds);
    }

    /// Takes stored rows of one kind. Called only while the receiver accepts records, except for spilled records of
    /// this rank and for a batch that was buffered until its table arrived.
    fn deliver(&mut self, kind: RunKind, rows: &[u8]);
}

/// A receiver that accepts all records and ignores tables.
impl<F: FnMut(RunKind, &[u8])> Receiver for F {
    fn deliver(&mut self, kind: RunKind, rows: &[u8]) {
        self(kind, rows);
    }
}
