//! Queries of an engine's memory and state, for runtimes.

use super::{BatchMemory, Engine, Peers};
use crate::partition::TablePlanner;
use crate::shuffle::backpressure::Pressure;
use crate::shuffle::round::Round;

impl Engine {
    /// Returns the memory for the negotiation of partition tables, in bytes: the keys of this epoch and the last one,
    /// the replies of children, the table in force, and the planner on rank 0.
    pub fn negotiation_bytes(&self) -> usize {
        let round = self.session.negotiation.round.as_ref().map_or(0, Round::memory_bytes);
        let table = self.session.installed.as_ref().map_or(0, |installed| installed.table.memory_bytes());
        let planner = self.session.negotiation.planner.as_ref().map_or(0, TablePlanner::memory_bytes);
        let own = self.session.own_keys.memory_bytes() + self.session.unsent_keys.memory_bytes();
        let summaries: usize =
            self.session.quiescence.summaries.iter().map(|summary| summary.pivots.memory_bytes()).sum();
        self.sketch.memory_bytes() + round + table + planner + own + summaries + self.last_epoch_bytes()
    }

    /// Returns the memory of buffers whose size depends on traffic, in bytes: batches, held records, and batches
    /// buffered for a newer table.
    pub fn resident_bytes(&self) -> usize {
        let aside: usize = self.ahead.iter().map(Vec::capacity).sum();
        self.outbox.memory().resident_bytes + self.held.capacity() + aside + self.scratch.block.capacity()
    }

    /// Returns the memory of the outgoing batches, including forwarded records.
    pub fn batch_memory(&self) -> BatchMemory {
        self.outbox.memory()
    }

    /// Returns the numbers of ranks that this rank sent batches of records to and received them from, in the current or
    /// last epoch.
    pub fn peers(&self) -> Peers {
        self.session.traffic.peers()
    }

    /// Returns whether the buffers have room for an append.
    pub fn has_room(&self) -> bool {
        self.outbox.has_room() && (self.is_routing() || !self.hold_is_full())
    }

    /// Returns the reasons why this rank holds records back.
    pub fn pressure(&self) -> Pressure {
        let unresponsive = &self.session.unresponsive;
        Pressure {
            is_negotiating: self.is_negotiating(),
            has_table: self.is_routing(),
            is_unresponsive: !unresponsive.is_empty() && self.outbox.awaited().any(|rank| unresponsive.contains(&rank)),
        }
    }

    /// Returns whether control messages wait for the next [`Engine::exchange`].
    pub fn has_control(&self) -> bool {
        !self.control.is_empty()
    }

    /// Returns the version of the table that this rank negotiates. A round of loads may end without a table.
    pub fn round_version(&self) -> Option<u32> {
        self.session.negotiation.round.as_ref().filter(|round| round.with_pivots).map(|round| round.version)
    }

    /// Returns the bytes of the table in force, encoded as a message.
    pub fn table_bytes(&self) -> usize {
        self.session.installed.as_ref().map_or(0, |installed| installed.table.message_bytes())
    }

    /// Returns the number of ranks that a control message passes on its way to rank 0.
    pub fn tree_depth(&self) -> u32 {
        self.place.depth()
    }
}
