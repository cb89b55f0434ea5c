//! Negotiates partition tables.
//!
//! A request travels up the tree, and rank 0 replies with `Begin`. Every rank summarizes the keys it has seen since the
//! last round, merges its children's summaries into its own, and sends the result up. Rank 0 plans the table and sends
//! it down. At most one round is in progress. Meanwhile, records are routed by the old table.

use super::session::{EMPTY_RANGE, Installed, Phase};
use super::{Engine, Renegotiation, planner_options};
use crate::partition::{PartitionTable, Pivots, TablePlanner};
use crate::shuffle::message::Control;
use crate::shuffle::receiver::Receiver;
use crate::shuffle::round::{GROWTH, Loads, Round};
use crate::shuffle::wire::MessageError;

/// Minimum number of records since the last table before a rank requests another table by itself.
const MIN_INTERVAL_ROWS: u64 = 256;

fn widen(range: (u64, u64), other: (u64, u64)) -> (u64, u64) {
    (range.0.min(other.0), range.1.max(other.1))
}

impl Engine {
    /// Requests a new partition table now. Applications call this when they know that their data changed, for example
    /// after a mesh refinement.
    pub fn request_renegotiation(&mut self) {
        let version = self.table_version();
        self.receive_request(version);
    }

    /// Returns whether this rank waits for a new table: it has requested one, or takes part in a round.
    pub fn is_negotiating(&self) -> bool {
        self.session.negotiation.round.is_some()
            || self.session.negotiation.requested.is_some_and(|version| version >= self.table_version())
    }

    /// Requests a table if the negotiation rule ([`Renegotiation`]) applies.
    pub(in crate::shuffle) fn consider_renegotiation(&mut self) {
        let held_rows = self.held.len() / self.schema.row_bytes();
        let due = match &self.session.installed {
            None => held_rows >= self.options.out_of_bounds_rows || self.hold_is_full(),
            Some(_) if held_rows >= self.options.out_of_bounds_rows => true,
            Some(installed) => match self.options.renegotiation {
                Renegotiation::Every(rows) => self.session.negotiation.observed >= rows,
                Renegotiation::OnRequest => false,
                Renegotiation::Adaptive => self.session.negotiation.observed >= installed.interval_rows,
            },
        };
        if due {
            self.request_renegotiation();
        }
    }

    pub(in crate::shuffle) fn receive_request(&mut self, version: u32) {
        let ours = self.table_version();
        if version < ours
            || self.session.negotiation.requested.is_some_and(|requested| requested >= version)
            || self.session.negotiation.round.is_some()
        {
            return;
        }
        self.session.negotiation.requested = Some(version);
        match self.place.parent() {
            Some(parent) => self.control.push_back((parent, Control::Request { version })),
            None => self.start_round(ours + 1),
        }
    }

    fn start_round(&mut self, version: u32) {
        if self.session.phase.records_flow() && !self.session.quiescence.is_counting() {
            self.tell_children(&Control::Begin { version });
            self.open_round(version);
        }
    }

    pub(in crate::shuffle) fn join_round(&mut self, version: u32) -> Result<(), MessageError> {
        if self.session.negotiation.round.is_some() || version != self.table_version() + 1 {
            return Err(MessageError::Field { field: "table version" });
        }
        self.tell_children(&Control::Begin { version });
        self.open_round(version);
        Ok(())
    }

    /// Summarizes this rank's keys. The round of a rank without children is complete at once, and `exchange` sends it.
    fn open_round(&mut self, version: u32) {
        let phase = self.sampling_phase();
        let own = self.sketch.summarize(self.options.pivots as usize, phase);
        let mut loads = match self.place.parent() {
            Some(_) => Loads::Subtree(Vec::new()),
            None => Loads::All(vec![0; self.options.receivers as usize]),
        };
        loads.add(self.options.partition().map(|own| (own, self.session.statistics.received())).into_iter().collect());
        self.session.negotiation.round = Some(Round {
            version,
            missing_children: self.children_count(),
            contributors: u32::from(self.session.negotiation.observed > 0),
            range: self.session.negotiation.observed_range,
            backlog: self.outbox.rows(),
            loads,
            pivots: vec![own],
        });
        self.sketch.begin(self.expected_rows());
        self.session.negotiation.observed_range = EMPTY_RANGE;
        self.session.negotiation.observed = 0;
    }

    /// Returns an estimate of the records that this rank appends until the next round.
    fn expected_rows(&self) -> u64 {
        match (&self.session.installed, self.options.renegotiation) {
            (None, _) | (_, Renegotiation::OnRequest) => 0,
            (_, Renegotiation::Every(rows)) => rows,
            (Some(installed), Renegotiation::Adaptive) => installed.interval_rows,
        }
    }

    pub(in crate::shuffle) fn receive_pivots(&mut self, answer: Round) -> Result<(), MessageError> {
        // All records have arrived, and this message's round was dropped: a child may report its deliveries before it
        // replies to the round.
        if matches!(self.session.phase, Phase::Sealing | Phase::Idle) {
            return Ok(());
        }
        let expected = |round: &&mut Round| round.version == answer.version && round.missing_children > 0;
        let Some(round) = self.session.negotiation.round.as_mut().filter(expected) else {
            return Err(MessageError::Field { field: "round" });
        };
        round.missing_children -= answer.missing_children;
        round.contributors = round.contributors.saturating_add(answer.contributors);
        round.range = widen(round.range, answer.range);
        round.backlog = round.backlog.saturating_add(answer.backlog);
        if let Loads::Subtree(loads) = answer.loads {
            round.loads.add(loads);
        }
        round.pivots.extend(answer.pivots);
        Ok(())
    }

    /// Sends a complete round up. On rank 0, plans the table.
    pub(in crate::shuffle) fn advance_round(&mut self, receiver: &mut dyn Receiver) -> Result<(), MessageError> {
        let complete = |round: &mut Round| round.missing_children == 0;
        let Some(round) = self.session.negotiation.round.take_if(complete) else { return Ok(()) };
        match (self.place.parent(), round.loads) {
            (Some(parent), Loads::Subtree(loads)) => {
                let phase = self.sampling_phase();
                let merged = Pivots::merge(&round.pivots, self.options.pivots as usize, phase);
                let mut encoded = Vec::new();
                merged.encode(&mut encoded);
                self.control.push_back((
                    parent,
                    Control::Pivots {
                        version: round.version,
                        contributors: round.contributors,
                        range: round.range,
                        backlog: round.backlog,
                        loads,
                        pivots: encoded,
                    },
                ));
            }
            (_, loads) => {
                self.session.negotiation.seen_range = widen(self.session.negotiation.seen_range, round.range);
                let mass = round.pivots.iter().map(Pivots::mass).fold(0, u64::saturating_add);
                self.session.negotiation.seen_contributors =
                    self.session.negotiation.seen_contributors.max(round.contributors).max(1);
                let interval_rows = self.adapt_interval(mass);
                // This table also routes the waiting records, like the expected keys.
                let factor = 1.0 + round.backlog as f64 / mass.max(1) as f64;
                let pivots: Vec<Pivots> = round.pivots.into_iter().map(|pivots| pivots.scaled(factor)).collect();
                let options = &self.options;
                let planner = self
                    .session
                    .negotiation
                    .planner
                    .get_or_insert_with(|| TablePlanner::new(options.receivers, 1, planner_options(options)));
                let table = planner.plan_with_loads(&pivots, loads.of_all());
                let mut encoded = Vec::new();
                table.encode(&mut encoded);
                let installed =
                    Control::Table { interval_rows, range: self.session.negotiation.seen_range, table: encoded };
                self.tell_children(&installed);
                return self.install(table, interval_rows, self.session.negotiation.seen_range, receiver);
            }
        }
        Ok(())
    }

    /// Returns the number of records that a rank appends before it requests the next table. `mass` is the number of
    /// keys that the ranks saw in the last interval. The keys seen grow by [`GROWTH`] from table to table.
    ///
    /// Ranks append in large blocks and out of step, so the first requester may have seen many keys while the others
    /// saw none. An interval that was too short is therefore doubled.
    fn adapt_interval(&mut self, mass: u64) -> u64 {
        let negotiation = &mut self.session.negotiation;
        let was_short = mass < negotiation.seen_mass / GROWTH / 2;
        negotiation.seen_mass = negotiation.seen_mass.saturating_add(mass);
        let share = negotiation.seen_mass / (GROWTH * u64::from(negotiation.seen_contributors));
        (share << u32::from(was_short)).max(MIN_INTERVAL_ROWS)
    }

    pub(in crate::shuffle) fn receive_table(
        &mut self,
        interval_rows: u64,
        range: (u64, u64),
        table: &[u8],
        receiver: &mut dyn Receiver,
    ) -> Result<(), MessageError> {
        let decoded = self.cache.decode(table).map_err(|_| MessageError::Field { field: "table" })?;
        if decoded.version() != self.table_version() + 1 || decoded.partitions() != self.options.receivers {
            return Err(MessageError::Field { field: "table" });
        }
        self.tell_children(&Control::Table { interval_rows, range, table: table.to_vec() });
        self.install(decoded, interval_rows, range, receiver)
    }

    /// Installs a table. The receiver installs it first, so that its bounds are those of the records' table.
    fn install(
        &mut self,
        table: PartitionTable,
        interval_rows: u64,
        range: (u64, u64),
        receiver: &mut dyn Receiver,
    ) -> Result<(), MessageError> {
        let own_bounds = self.options.partition().map(|partition| table.closed_bounds(partition));
        self.session.installed = Some(Installed { table, range, interval_rows, own_bounds });
        self.session.statistics.tables += 1;
        receiver.set_partition(self.table_version(), self.bounds());
        // Rows of waiting batches would otherwise arrive as strays.
        self.reroute_waiting();
        self.route_held();
        self.deliver_ahead(receiver)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Arc;

    use super::*;
    use crate::format::RunKind;
    use crate::schema::{Column, DataType, Schema};
    use crate::shuffle::{Channel, EngineOptions, Event, Sent, Transport};

    /// The messages sent to each of two ranks, and the number of the rank that polls.
    struct Post {
        queues: [VecDeque<Vec<u8>>; 2],
        rank: usize,
    }

    impl Transport for Post {
        fn send(&mut self, to: u32, channel: Channel, message: Vec<u8>) -> Sent {
            assert_eq!(channel, Channel::Control, "there are no records");
            self.queues[to as usize].push_back(message);
            Sent::Accepted
        }

        fn poll(&mut self, channel: Channel) -> Option<Vec<u8>> {
            if channel == Channel::Control { self.queues[self.rank].pop_front() } else { None }
        }
    }

    /// A rank that receives a round and the count of deliveries together replies to the count first, so its pivots
    /// arrive after the epoch is closed. Found by `mpiexec -n 8 turbidite ingest`.
    #[test]
    fn an_answer_that_the_end_has_overtaken_is_forgotten() {
        let schema = Arc::new(Schema::new(vec![Column::new("key", DataType::U32)], "key").unwrap());
        let mut engines = [0, 1].map(|rank| Engine::new(EngineOptions::new(rank, 2), Arc::clone(&schema)));
        let mut post = Post { queues: Default::default(), rank: 0 };
        let mut exchange = |engines: &mut [Engine; 2], rank: usize| {
            post.rank = rank;
            engines[rank].exchange(&mut post, &mut |_: RunKind, _: &[u8]| unreachable!("there are no records"))
        };
        engines.iter_mut().for_each(|engine| engine.begin(Vec::new()));
        for rank in [1, 0, 1] {
            exchange(&mut engines, rank).unwrap();
        }
        assert!(engines.iter().all(Engine::is_open));
        engines[1].end();
        for _ in 0..2 {
            exchange(&mut engines, 1).unwrap();
        }
        engines[0].request_renegotiation();
        engines[0].end();
        exchange(&mut engines, 0).unwrap();
        assert!(engines[0].is_negotiating(), "the round is on its way");
        exchange(&mut engines, 1).unwrap();
        exchange(&mut engines, 0).unwrap();
        let closed = std::iter::from_fn(|| engines[0].event()).any(|event| event == Event::Closed);
        assert!(closed, "the epoch is closed, and the round forgotten");
    }
}
