//! What runtimes may ask of an engine: the memory it holds, and where it stands.

use super::{BatchMemory, Engine, Peers};
use crate::partition::Planner;
use crate::shuffle::backpressure::Pressure;
use crate::shuffle::round::Round;

impl Engine {
    /// Bytes held to agree on partition tables: the keys seen, what children have answered, the table in force; on rank 0
    /// what it plans with.
    pub fn negotiation_bytes(&self) -> usize {
        let round = self.session.negotiation.round.as_ref().map_or(0, Round::memory_bytes);
        let table = self.session.installed.as_ref().map_or(0, |installed| installed.table.memory_bytes());
        let planner = self.session.negotiation.planner.as_ref().map_or(0, Planner::memory_bytes);
        self.sketch.memory_bytes() + round + table + planner
    }

    /// Bytes held in buffers whose size depends on traffic: batches, held and put-aside records.
    pub fn resident_bytes(&self) -> usize {
        let aside: usize = self.ahead.iter().map(Vec::capacity).sum();
        self.outbox.memory().resident_bytes + self.held.capacity() + aside + self.scratch.block.capacity()
    }

    /// Memory of the batches on their way out, others' records included.
    pub fn batch_memory(&self) -> BatchMemory {
        self.outbox.memory()
    }

    /// The other ranks that batches of records went to or came from in the epoch that is running or was last run.
    pub fn peers(&self) -> Peers {
        self.session.traffic.peers()
    }

    /// Whether an append would be taken now, as far as buffers go.
    pub fn has_room(&self) -> bool {
        self.outbox.has_room() && (self.session.installed.is_some() || !self.hold_is_full())
    }

    /// Returns what holds records of this rank back.
    pub fn pressure(&self) -> Pressure {
        let unresponsive = &self.session.unresponsive;
        Pressure {
            is_negotiating: self.is_negotiating(),
            has_table: self.session.installed.is_some(),
            is_unresponsive: !unresponsive.is_empty() && self.outbox.awaited().any(|rank| unresponsive.contains(&rank)),
        }
    }

    /// Whether control messages wait to be sent by the next [`Engine::exchange`].
    pub fn has_control(&self) -> bool {
        !self.control.is_empty()
    }

    /// The version of the table that is being negotiated here.
    pub fn round_version(&self) -> Option<u32> {
        self.session.negotiation.round.as_ref().map(|round| round.version)
    }

    /// Bytes of the table in force as a message.
    pub fn table_bytes(&self) -> usize {
        self.session.installed.as_ref().map_or(0, |installed| installed.table.message_bytes())
    }

    /// How many ranks a control message passes on its way to rank 0.
    pub fn tree_depth(&self) -> u32 {
        self.place.depth()
    }
}
