//! The state of one rank of the simulated job, and the receiver of its records.

use super::options::Time;
use super::report::RankBytes;
use super::storage_model::Store;
use turbidite::shuffle::{Backpressure, Engine, Receiver, Timeouts};
use turbidite::{RunKind, Schema, Value};

/// The state of a virtual rank.
#[derive(Debug)]
pub(super) struct VirtualRank {
    pub(super) engine: Engine,
    pub(super) appended: u64,
    pub(super) ended: bool,
    pub(super) over: bool,
    /// Time of the rank's next action. An action scheduled for another time is void.
    pub(super) next: Time,
    pub(super) busy_until: Time,
    /// State that determines how long the rank's program waits.
    pub(super) backpressure: Backpressure,
    pub(super) awaits: Option<Awaited>,
    /// Whether all records of the rank have arrived, and its parts are being completed.
    pub(super) seals: bool,
    /// Time at which the rank's parts are stored, if they are complete.
    pub(super) sealed_at: Option<Time>,
    pub(super) steps: u32,
    pub(super) bytes: RankBytes,
}

impl VirtualRank {
    pub(super) fn new(engine: Engine, timeouts: Timeouts) -> Self {
        Self {
            engine,
            appended: 0,
            ended: false,
            over: false,
            next: Time::MAX,
            busy_until: 0,
            backpressure: Backpressure::new(timeouts),
            awaits: None,
            seals: false,
            sealed_at: None,
            steps: 0,
            bytes: RankBytes::default(),
        }
    }

    /// Begins an epoch.
    pub(super) fn begin(&mut self) {
        self.engine.begin(Vec::new());
        (self.appended, self.steps) = (0, 0);
        (self.ended, self.over) = (false, false);
        self.backpressure.begin();
        (self.awaits, self.seals, self.sealed_at) = (None, false, None);
        self.bytes = RankBytes::default();
    }
}

/// The event a rank's program waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Awaited {
    Table,
    Credit,
}

/// The receiver of a rank's records, which passes them to the storage model.
pub(super) struct Arrivals<'a> {
    pub(super) rank: u32,
    pub(super) schema: &'a Schema,
    pub(super) store: &'a mut Store,
    pub(super) deliver: &'a mut dyn FnMut(u32, RunKind, &[u8]),
    /// Version of the newest table installed.
    pub(super) installed: Option<u32>,
}

impl Receiver for Arrivals<'_> {
    fn accepts(&mut self) -> bool {
        self.store.accepts(self.rank)
    }

    fn set_partition(&mut self, version: u32, bounds: Option<(Value, Value)>) {
        self.installed = Some(version);
        if let Some((low, high)) = bounds {
            let order = self.schema.key_order();
            self.store.set_bounds(self.rank, (order.ordinal_of(low), order.ordinal_of(high)));
        }
    }

    fn deliver(&mut self, kind: RunKind, rows: &[u8]) {
        let key = rows.get(self.schema.offset(self.schema.key_index())..);
        let key = key.map_or(0, |bytes| self.schema.key_order().ordinal(bytes));
        self.store.push(self.rank, kind, (rows.len() / self.schema.row_bytes()) as u64, key);
        (self.deliver)(self.rank, kind, rows);
    }
}
