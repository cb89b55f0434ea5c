//! Negotiates partition tables.
//!
//! A request travels up the tree, and rank 0 replies with `Begin`. In a round of loads, every rank reports the records
//! it has received, and rank 0 decides whether another table pays (`rebalancing`). If not, the table is kept.
//! Otherwise, or if the request is urgent, a round with pivots follows: every rank summarizes the keys it has seen
//! since the last summary, merges its children's summaries into its own, and sends the result up. Rank 0 plans the
//! table and sends it down. At most one round is in progress. Meanwhile, records are routed by the old table.

use super::session::{Comparison, EMPTY_RANGE, Installed, Phase, Requested, Resemblance};
use super::{Engine, Renegotiation, planner_options};
use crate::partition::{PartitionTable, Pivots, PointSample, TablePlanner};
use crate::shuffle::message::{Control, Report};
use crate::shuffle::rebalancing::{EpochProgress, Planned, interval_rows, keys_move, suit_an_order, was_short};
use crate::shuffle::receiver::Receiver;
use crate::shuffle::round::{Compared, Loads, Round};
use crate::shuffle::wire::MessageError;

/// Number of pivots per partition that a rank sends, within the limit of the options. The errors of the ranks' pivots
/// have random phases, so they nearly cancel.
const PIVOTS_PER_PARTITION: usize = 16;

/// Minimum number of pivots, within the limit of the options.
const MIN_PIVOTS: usize = 64;

/// The size of a message whose ordinals are rough, over that of others.
const ROUGH_FACTOR: usize = 4;

/// The epoch differs from the last one if more than one in so many keys is outside the last one's range.
const OUTSIDE_SHARE: u64 = 8;

fn widen(range: (u64, u64), other: (u64, u64)) -> (u64, u64) {
    (range.0.min(other.0), range.1.max(other.1))
}

impl Engine {
    /// Requests a new partition table now. Applications call this when they know that their data changed, for example
    /// after a mesh refinement.
    pub fn request_renegotiation(&mut self) {
        if self.lacks_frame() && self.held.is_empty() {
            // A frame follows from records, and the first table comes with them.
            return;
        }
        let version = self.table_version();
        self.receive_request(version, true);
    }

    /// Returns whether this rank waits for a new table: it has requested one, or takes part in a round that asks for
    /// pivots.
    pub fn is_negotiating(&self) -> bool {
        let negotiation = &self.session.negotiation;
        negotiation.round.as_ref().is_some_and(|round| round.with_pivots)
            || negotiation.requested.is_some_and(|last| last.urgent && last.version >= self.table_version())
    }

    /// Requests a table if the negotiation rule ([`Renegotiation`]) applies.
    pub(in crate::shuffle) fn consider_renegotiation(&mut self) {
        let held_rows = self.held.len() / self.schema.row_bytes();
        let negotiation = &self.session.negotiation;
        let outside = negotiation.outside - negotiation.outside_reported;
        let urgent = match (&self.session.installed, self.options.renegotiation) {
            // A frame of the first records of one rank would suit hardly any other rank.
            (None, _) if self.lacks_frame() && self.held.len() < self.options.hold_bytes / 2 => return,
            (None, _) if held_rows >= self.options.out_of_bounds_rows || self.hold_is_full() => true,
            (Some(_), _) if self.session.comparison == Comparison::Differs => true,
            (Some(_), Renegotiation::Every(rows)) if negotiation.observed >= rows => true,
            (Some(_), _) if outside >= self.options.out_of_bounds_rows as u64 => false,
            (Some(installed), Renegotiation::Adaptive)
                if negotiation.observed_since_round >= self.rows_until_round(installed) =>
            {
                false
            }
            _ => return,
        };
        self.receive_request(self.table_version(), urgent);
    }

    /// Returns the number of records of this rank from the last round to the next one. Intervals are those of the ranks
    /// that had records at the last round. A rank that had none may be one of many that begin to append, and all of
    /// them together must not exceed what the receivers store.
    fn rows_until_round(&self, installed: &Installed) -> u64 {
        if self.session.negotiation.is_counted {
            return installed.interval_rows;
        }
        installed.interval_rows.min(self.rows_until_outgrown(0, self.options.ranks))
    }

    /// Checks a child's request. A child cannot have a newer table than this rank.
    pub(in crate::shuffle) fn check_request(&self, version: u32) -> Result<(), MessageError> {
        if version > self.table_version() { Err(MessageError::Field { field: "table version" }) } else { Ok(()) }
    }

    pub(in crate::shuffle) fn receive_request(&mut self, version: u32, urgent: bool) {
        let ours = self.table_version();
        if version < ours || !self.negotiates() {
            return;
        }
        let negotiation = &mut self.session.negotiation;
        if let Some(round) = &mut negotiation.round {
            // Rank 0 takes the request from this rank's report. The table of a round with pivots satisfies it.
            round.urgent |= urgent;
            return;
        }
        if negotiation.requested.is_some_and(|last| last.version >= version && (last.urgent || !urgent)) {
            return;
        }
        negotiation.requested = Some(Requested { version, urgent });
        match self.place.parent() {
            Some(parent) => self.control.push_back((parent, Control::Request { version, urgent })),
            None => self.start_round(ours + 1, urgent),
        }
    }

    pub(super) fn start_round(&mut self, version: u32, with_pivots: bool) {
        if self.session.phase.records_flow() && !self.session.quiescence.is_counting() {
            self.tell_children(&Control::Begin { version, with_pivots });
            self.open_round(version, with_pivots);
        }
    }

    pub(in crate::shuffle) fn join_round(&mut self, version: u32, with_pivots: bool) -> Result<(), MessageError> {
        if self.session.negotiation.round.is_some() || version != self.table_version() + 1 {
            return Err(MessageError::Field { field: "table version" });
        }
        self.tell_children(&Control::Begin { version, with_pivots });
        self.open_round(version, with_pivots);
        Ok(())
    }

    /// Begins this rank's report. The round of a rank without children is complete at once, and `exchange` sends it.
    fn open_round(&mut self, version: u32, with_pivots: bool) {
        let mut loads = match self.place.parent() {
            Some(_) => Loads::Subtree(Vec::new()),
            None => Loads::All(vec![0; self.session.placement.partitions() as usize]),
        };
        let metrics = self.session.metrics;
        loads.add(self.partition().map(|own| (own, metrics.received())).into_iter().collect());
        let pivots = if with_pivots { vec![self.unsent_keys()] } else { Vec::new() };
        if with_pivots {
            self.conclude_comparison();
        }
        let compared = self.own_comparison();
        let wants_points = with_pivots && self.lacks_frame();
        let points = if wants_points { vec![self.session.points.clone()] } else { Vec::new() };
        let negotiation = &mut self.session.negotiation;
        // A request for an earlier table is out of date.
        let was_urgent = negotiation.requested.is_some_and(|last| last.urgent && last.version == version - 1);
        negotiation.round = Some(Round {
            version,
            missing_children: self.place.children().len() as u32,
            with_pivots,
            urgent: was_urgent,
            compared,
            contributors: u32::from(metrics.originated > 0),
            // Records that the rank has kept reach no partition. They may include forwarded ones.
            seen: metrics.originated.saturating_sub(metrics.spills),
            outside: negotiation.outside,
            range: if with_pivots { negotiation.observed_range } else { EMPTY_RANGE },
            backlog: if with_pivots { self.outbox.rows() } else { 0 },
            loads,
            pivots,
            points,
        });
        if with_pivots {
            negotiation.observed_range = EMPTY_RANGE;
            negotiation.observed = 0;
        }
        negotiation.observed_since_round = 0;
        negotiation.is_counted = metrics.originated > 0;
        negotiation.outside_reported = negotiation.outside;
        // Requests that the round makes unnecessary are not sent any more. A rank whose request leads to a table waits
        // for it.
        negotiation.requested = Some(Requested { version: version - 1, urgent: was_urgent || with_pivots });
    }

    /// Returns the keys since the last summary as pivots, and begins the next summary.
    pub(super) fn summarize(&mut self) -> Pivots {
        let phase = self.sampling_phase();
        let own = self.sketch.summarize(self.pivot_slots(), phase);
        // A table may be needed after a few hundred keys, which a sampling rate for many would miss. Halving the sketch
        // a few times costs little.
        self.sketch.begin(if let Renegotiation::Every(rows) = self.options.renegotiation { rows } else { 0 });
        own
    }

    /// Returns the size of this rank's message of pivots, in numbers.
    pub(super) fn pivot_slots(&self) -> usize {
        let wanted = (self.options.receivers as usize).saturating_mul(PIVOTS_PER_PARTITION).max(MIN_PIVOTS);
        let slots = wanted.min(self.options.pivots as usize);
        if self.has_rough_keys() { slots.max((slots * ROUGH_FACTOR).min(self.partitioner.most_slots())) } else { slots }
    }

    /// Returns the keys since the last round with pivots. A rank that has settled has already summarized them.
    fn unsent_keys(&mut self) -> Pivots {
        let unsent = std::mem::take(&mut self.session.unsent_keys);
        if unsent.mass() > 0 { unsent } else { self.summarize_interval() }
    }

    pub(in crate::shuffle) fn receive_report(&mut self, report: Report) -> Result<(), MessageError> {
        // All records have arrived, and this message's round was dropped: a child may report its deliveries before it
        // replies to the round.
        if matches!(self.session.phase, Phase::Sealing | Phase::Idle) {
            return Ok(());
        }
        let expected = |round: &&mut Round| {
            (round.version, round.with_pivots) == (report.version, report.pivots.is_some())
                && round.missing_children > 0
        };
        let Some(round) = self.session.negotiation.round.as_mut().filter(expected) else {
            return Err(MessageError::Field { field: "round" });
        };
        if let Some(pivots) = &report.pivots {
            round.pivots.push(Pivots::decode(pivots).map_err(|_| MessageError::Field { field: "pivots" })?);
        }
        if !report.points.is_empty() {
            round.points.push(report.points);
        }
        round.missing_children -= 1;
        round.urgent |= report.urgent;
        round.compared.add(report.compared);
        round.contributors = round.contributors.saturating_add(report.contributors);
        round.seen = round.seen.saturating_add(report.seen);
        round.outside = round.outside.saturating_add(report.outside);
        round.range = widen(round.range, report.range);
        round.backlog = round.backlog.saturating_add(report.backlog);
        round.loads.add(report.loads);
        Ok(())
    }

    /// Sends a complete round up. On rank 0, decides on the table.
    pub(in crate::shuffle) fn advance_round(&mut self, receiver: &mut dyn Receiver) -> Result<(), MessageError> {
        let complete = |round: &mut Round| round.missing_children == 0;
        let Some(round) = self.session.negotiation.round.take_if(complete) else { return Ok(()) };
        match self.place.parent() {
            Some(parent) => {
                let report = self.report(round);
                self.control.push_back((parent, Control::Report(report)));
                Ok(())
            }
            None if round.with_pivots && self.lacks_frame() => self.make_frame(&round),
            None if round.with_pivots => self.plan_table(round, receiver),
            None => self.decide_on_table(&round),
        }
    }

    /// Merges a round's reports into that of this rank's subtree.
    fn report(&mut self, round: Round) -> Report {
        let pivots = round.with_pivots.then(|| {
            let phase = self.sampling_phase();
            let mut encoded = Vec::new();
            Pivots::merge(&round.pivots, self.merged_slots(&round.pivots), phase).encode(&mut encoded);
            encoded
        });
        Report {
            version: round.version,
            contributors: round.contributors,
            seen: round.seen,
            outside: round.outside,
            urgent: round.urgent,
            compared: round.compared,
            range: round.range,
            backlog: round.backlog,
            loads: round.loads.into_subtree(),
            pivots,
            points: PointSample::merge(&round.points, &mut self.random),
        }
    }

    /// Asks for pivots if another table pays, and otherwise keeps the table.
    fn decide_on_table(&mut self, round: &Round) -> Result<(), MessageError> {
        let negotiation = &self.session.negotiation;
        let progress = EpochProgress {
            planned: negotiation.planned,
            loads: round.loads.of_all(),
            loads_before: negotiation.planner.as_ref().map_or(&[], TablePlanner::loads),
            seen: round.seen,
            outside: round.outside,
            contributors: round.contributors,
            tables: self.table_version(),
            expected: self.expected_rows_of_all(round.seen),
            batch_rows: (self.options.batch_bytes / self.schema.row_bytes()) as u64,
            in_order: self.comes_in_order(round),
        };
        if round.urgent || progress.needs_table() || self.needs_receivers(round.seen) {
            self.start_round(round.version, true);
            return Ok(());
        }
        let interval_rows = self.next_interval_rows(round, progress.expected);
        self.keep_table(round.version - 1, interval_rows)
    }

    /// Returns the number of records of a rank until the round after `round`. It at least doubles after a round that
    /// came early, up to twice as many records as have been appended: many early rounds do not prevent later ones.
    fn next_interval_rows(&mut self, round: &Round, expected: Option<u64>) -> u64 {
        // Ranks may append one after the other. All that will append count, not only those that have begun.
        let contributors = match expected {
            Some(_) => round.contributors.max(self.last_whole().map_or(self.options.ranks, |whole| whole.contributors)),
            None => round.contributors,
        };
        let expected = expected.filter(|_| !keys_move(self.table_version()));
        let next = interval_rows(round.seen, contributors, expected);
        let before = std::mem::replace(&mut self.session.negotiation.seen_at_last_round, round.seen);
        if self.session.placement.partitions() == 1 {
            return self.rows_until_outgrown(round.seen, round.contributors);
        }
        match &self.session.installed {
            Some(installed) if was_short(before, round.seen) => {
                let most = round.seen.saturating_mul(2) / u64::from(contributors.max(1));
                next.max(installed.interval_rows.saturating_mul(2).min(most))
            }
            _ => next,
        }
    }

    /// Ends a round without a table.
    pub(in crate::shuffle) fn keep_table(&mut self, version: u32, interval_rows: u64) -> Result<(), MessageError> {
        if version != self.table_version() || self.session.negotiation.round.is_some() {
            return Err(MessageError::Field { field: "table version" });
        }
        self.tell_children(&Control::Keep { version, interval_rows });
        self.session.negotiation.requested = None;
        if let Some(installed) = &mut self.session.installed {
            installed.interval_rows = interval_rows;
        }
        Ok(())
    }

    fn plan_table(&mut self, round: Round, receiver: &mut dyn Receiver) -> Result<(), MessageError> {
        let was_known = self.last_whole().is_some() && !self.session.negotiation.differs_from_last_epoch;
        let has_changed = was_known && self.is_early(round.loads.received()) && self.has_changed(&round);
        self.session.negotiation.differs_from_last_epoch |= has_changed;
        let in_order = self.comes_in_order(&round);
        let expected = self.expected_rows_of_all(round.seen);
        let factor = self.divide_partitions(round.seen);
        let interval_rows = self.next_interval_rows(&round, expected);
        let (options, partitions) = (&self.options, self.session.placement.partitions());
        let negotiation = &mut self.session.negotiation;
        let last =
            self.last.as_ref().and_then(|last| last.whole.as_ref()).filter(|_| !negotiation.differs_from_last_epoch);
        negotiation.seen_range = widen(negotiation.seen_range, round.range);
        let range = widen(negotiation.seen_range, last.map_or(EMPTY_RANGE, |last| last.range));
        let mass = round.pivots.iter().map(Pivots::mass).fold(0, u64::saturating_add);
        let keys = if has_changed { mass } else { negotiation.planned.keys.saturating_add(mass) };
        negotiation.planned = Planned { seen: round.seen, keys };
        // This table also routes the waiting records, like the expected keys.
        let weight = 1.0 + round.backlog as f64 / mass.max(1) as f64;
        let pivots: Vec<Pivots> = round.pivots.into_iter().map(|pivots| pivots.scaled(weight)).collect();
        let planner = negotiation.planner.get_or_insert_with(|| {
            let earlier = last.map_or_else(Pivots::default, |whole| whole.keys.clone());
            let options = planner_options(options, self.partitioner.most_slots());
            TablePlanner::new(partitions, round.version, options).after(earlier)
        });
        if has_changed {
            planner.forget();
        }
        let table = if in_order && factor == 1 {
            // The records that are still to come are those of the last epoch without these, and fill the partitions up.
            planner.expect(None);
            planner.plan_with_loads(&[], &vec![0; partitions as usize])
        } else {
            planner.expect(expected);
            planner.plan_with_loads(&pivots, &divided_loads(round.loads.of_all(), factor))
        };
        let mut encoded = Vec::new();
        table.encode(&mut encoded);
        self.tell_children(&Control::Table { interval_rows, range, table: encoded });
        self.install(table, interval_rows, range, receiver)
    }

    /// Returns the expected number of records of the epoch, unless it differs from the last one: rounds at a few fixed
    /// times would come too late for hostile keys. `seen` have been appended.
    fn expected_rows_of_all(&self, seen: u64) -> Option<u64> {
        self.expected_total(seen).filter(|_| !self.session.negotiation.differs_from_last_epoch)
    }

    /// Returns whether fewer than three eighths of the last epoch's records have been received. Those that ranks hold
    /// back to compare them may be more. A table in an epoch that resembles the last one is made later.
    fn is_early(&self, received: u64) -> bool {
        self.expected_total(received).is_some_and(|expected| received < expected / 8 * 3)
    }

    /// Returns whether the epoch does not resemble the last one: more than a few ranks' keys differ, or those of all
    /// ranks together, or many keys are outside the last epoch's range.
    fn has_changed(&self, round: &Round) -> bool {
        round.compared.differs()
            || self.differs_as_a_whole(&round.pivots)
            || (self.table_version() == 1 && round.outside > round.seen / OUTSIDE_SHARE)
    }

    /// Returns whether the epoch resembles the last one, but ranks append their records in an order. A partition is
    /// then judged by the load that it should have at the end.
    fn comes_in_order(&self, round: &Round) -> bool {
        let expected = self.expected_total(round.seen).unwrap_or(round.seen);
        // While most records wait in buffers, the loads are those of a few places.
        let few_arrived = round.loads.received() < round.seen / 2;
        round.compared.in_order()
            && self.last_whole().is_some()
            && !self.session.negotiation.differs_from_last_epoch
            && (few_arrived || suit_an_order(round.loads.of_all(), expected))
    }

    /// Returns the result of this rank's comparison with the last epoch. It counts as many records as the rank had
    /// then, or has now.
    fn own_comparison(&self) -> Compared {
        let now = self.session.own_keys.mass().saturating_add(self.sketch.mass());
        let rows = self.own_keys_before().max(now);
        let none = Compared::default();
        match self.session.negotiation.resemblance {
            Some(Resemblance::Alike) => Compared { agreeing: rows, ..none },
            Some(Resemblance::InOrder) => Compared { agreeing: rows, in_order: rows, ..none },
            Some(Resemblance::Different) => Compared { differing: rows, ..none },
            None => none,
        }
    }

    pub(in crate::shuffle) fn receive_table(
        &mut self,
        interval_rows: u64,
        range: (u64, u64),
        table: &[u8],
        receiver: &mut dyn Receiver,
    ) -> Result<(), MessageError> {
        let invalid = MessageError::Field { field: "table" };
        let decoded = self.cache.decode(table).map_err(|_| invalid)?;
        if self.lacks_frame() {
            // Its records would all go to one partition.
            return Err(invalid);
        }
        let factor = decoded.partitions() / self.session.placement.partitions().max(1);
        let placement = self.session.placement.divided(&self.options, factor).ok_or(invalid)?;
        if decoded.version() != self.table_version() + 1 || decoded.partitions() != placement.partitions() {
            return Err(invalid);
        }
        self.session.placement = placement;
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
        let own_bounds = self.partition().map(|partition| table.closed_bounds(partition));
        self.session.installed = Some(Installed { table, range, interval_rows, own_bounds });
        self.session.comparison = Comparison::None;
        self.session.negotiation.outside = 0;
        self.session.negotiation.outside_reported = 0;
        self.session.metrics.tables += 1;
        receiver.set_partition(self.table_version(), self.bounds());
        // Rows of waiting batches would otherwise arrive as strays.
        self.reroute_waiting();
        self.route_held();
        self.deliver_ahead(receiver)
    }
}

/// Returns the loads of partitions that are divided. The first of the `factor` partitions keeps the load.
fn divided_loads(loads: &[u64], factor: u32) -> Vec<u64> {
    let empty = factor.saturating_sub(1) as usize;
    loads.iter().flat_map(|&load| std::iter::once(load).chain(std::iter::repeat_n(0, empty))).collect()
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
