//! Begins an epoch with the distribution of the last committed one.
//!
//! At the end of an epoch, every rank summarizes its keys. The summaries are merged on their way to rank 0, which keeps
//! the result. The table planned from it comes with the next epoch's `Go`. Each rank keeps its own distribution, since
//! a rank of a decomposed domain does not resemble the whole, and compares its first keys with it. Until they agree, it
//! holds its records back; if they do not, it requests a table.
//!
//! An aborted epoch and one without keys (none, or only NaN) change nothing here. The last epoch affects the balance
//! and the layout, and no result of a query.

use super::Engine;
use super::session::{Comparison, EMPTY_RANGE, Installed, Resemblance};
use crate::partition::{
    KeyDistance, KeyProfile, PartitionTable, Pivots, PointSample, SMOOTH_SLOTS, even_table, history_slots,
};
use crate::shuffle::last_epoch::{LastEpoch, Whole};
use crate::shuffle::message::{FirstTable, Summary};
use crate::shuffle::options::Prior;
use crate::shuffle::rebalancing::{Planned, interval_rows};
use crate::shuffle::receiver::Receiver;
use crate::shuffle::wire::MessageError;

/// The distance between the first keys and those of the last epoch up to which they agree, beyond chance.
const AGREEMENT: f64 = 0.1;

/// The same for the keys of all ranks together. A table from keys at a greater distance would be worse than one from
/// the new keys alone.
const AGREEMENT_OF_ALL: f64 = 0.05;

/// The denominator of the share of the last epoch's number of keys from which on keys of all ranks are compared,
/// whatever the ranks' own keys show.
const MANY_KEYS: u64 = 64;

/// The distance from which on more keys need not be awaited, beyond chance.
const DISAGREEMENT: f64 = 0.3;

/// The distance by chance, times the square root of the number of keys.
const CHANCE: f64 = 1.5;

/// The distance up to which keys may agree although they resemble their neighbours.
const DRIFTING_AGREEMENT: f64 = 0.5;

/// The denominator of the share of a rank's keys of the last epoch from which on keys of one place tell whether they
/// are a part of these.
const MANY_OWN_KEYS: u64 = 4;

/// The size of the summary of a rank's own keys in an epoch over that of a message, if ordinals are rough. The keys of
/// every round are merged into it.
const OWN_FACTOR: usize = 2;

/// The size of the summaries that a rank receives at the end of an epoch, in numbers, if it has as many children as its
/// parent: 512 KiB.
const CHILDREN_SLOTS: usize = 1 << 16;

impl Engine {
    /// Makes the next epoch follow one with `rows` records, of whose keys nothing is known, or none. It then begins
    /// without a table, and with as many receivers as this number of records needs. Called on rank 0, when a dataset is
    /// opened and when epochs were removed. The other ranks forget the last epoch when the next one begins.
    pub fn resume_after(&mut self, rows: Option<u64>) {
        self.last = None;
        self.rows_before = rows.filter(|rows| *rows > 0 && self.options.prior == Prior::Last);
        self.set_frame(None);
    }

    /// Returns the memory for the last epoch's distribution, in bytes.
    pub(super) fn last_epoch_bytes(&self) -> usize {
        self.last.as_ref().map_or(0, LastEpoch::memory_bytes)
    }

    /// Returns the number of keys that this rank appended in the last epoch.
    pub(super) fn own_keys_before(&self) -> u64 {
        self.last.as_ref().map_or(0, |last| last.own_keys)
    }

    /// Returns the distribution of the last epoch on all ranks, which only rank 0 has.
    pub(super) fn last_whole(&self) -> Option<&Whole> {
        self.last.as_ref()?.whole.as_ref()
    }

    /// Returns whether the summarised keys of all ranks differ from the last epoch, as far as they suffice to tell.
    pub(super) fn differs_as_a_whole(&self, pivots: &[Pivots]) -> bool {
        let Some(whole) = self.last_whole() else { return false };
        let mass = pivots.iter().map(Pivots::mass).fold(0, u64::saturating_add);
        let tolerance = AGREEMENT_OF_ALL + CHANCE / (mass.max(1) as f64).sqrt();
        mass >= whole.rows / MANY_KEYS && KeyProfile::new(&whole.keys).distance(pivots) > tolerance
    }

    /// Returns the expected number of records of the epoch, if the application tells it, or else the last epoch, and
    /// fewer have been appended, namely `seen`.
    pub(super) fn expected_total(&self, seen: u64) -> Option<u64> {
        let of_last = self.last_whole().map(|whole| whole.rows);
        [self.session.expected_rows, of_last].into_iter().flatten().find(|rows| seen < *rows)
    }

    /// Installs the table that the epoch begins with, if any, and returns it for the other ranks. Called on rank 0.
    pub(super) fn begin_with_table(&mut self) -> Option<FirstTable> {
        if self.has_fixed_table || self.lacks_frame() {
            return None;
        }
        let receivers = self.session.placement.partitions();
        let (table, interval_rows, range) = if receivers == 1 {
            // One receiver negotiates nothing until it has too much.
            (even_table(1, 1, &[]), self.rows_until_outgrown(0, self.options.ranks), (0, u64::MAX))
        } else {
            let whole = self.last_whole()?;
            // Records must double before a small imbalance pays for another table (`rebalancing`): here, until three
            // quarters of the epoch. The last quarter suffices to even the loads out, and adds little chance.
            let expected = self.expected_total(0);
            let planned = Planned { seen: expected.unwrap_or(whole.rows) / 8 * 3, keys: whole.rows };
            let interval_rows = interval_rows(0, whole.contributors, expected);
            let first = (even_table(1, receivers, std::slice::from_ref(&whole.keys)), interval_rows, whole.range);
            self.session.negotiation.planned = planned;
            first
        };
        let mut encoded = Vec::new();
        table.encode(&mut encoded);
        self.install_first(table, interval_rows, range);
        Some(FirstTable { interval_rows, range, table: encoded })
    }

    /// Installs the table that rank 0 begins the epoch with.
    pub(super) fn receive_first_table(&mut self, first: &FirstTable) -> Result<(), MessageError> {
        let invalid = MessageError::Field { field: "table" };
        if self.has_fixed_table || self.lacks_frame() {
            return Err(invalid);
        }
        let table = self.cache.decode(&first.table).map_err(|_| invalid)?;
        if table.version() != 1 || table.partitions() != self.session.placement.partitions() {
            return Err(invalid);
        }
        self.install_first(table, first.interval_rows, first.range);
        Ok(())
    }

    /// Installs the table of an epoch whose ranks do not negotiate. Every rank computes the same.
    pub(super) fn install_fixed(&mut self) {
        let partitions = self.session.placement.partitions();
        if let Some(table) = self.partitioner.fixed_table(1, partitions) {
            self.install_first(table, u64::MAX, (0, u64::MAX));
        }
    }

    /// Installs the epoch's first table. The receiver learns of it in [`Engine::announce_first_table`].
    fn install_first(&mut self, table: PartitionTable, interval_rows: u64, range: (u64, u64)) {
        if table.partitions() > 1 && !self.has_fixed_table {
            self.session.comparison = Comparison::Running { compared_bytes: 0 };
            self.session.metrics.tables += 1;
        }
        let own_bounds = self.partition().map(|partition| table.closed_bounds(partition));
        self.session.installed = Some(Installed { table, range, interval_rows, own_bounds });
        self.session.is_first_unannounced = true;
    }

    /// Passes the table that the epoch began with to the receiver.
    pub(super) fn announce_first_table(&mut self, receiver: &mut dyn Receiver) -> Result<(), MessageError> {
        if std::mem::take(&mut self.session.is_first_unannounced) {
            receiver.set_partition(self.table_version(), self.bounds());
            self.deliver_ahead(receiver)?;
        }
        Ok(())
    }

    /// Returns whether records are routed, and not held back for a table.
    pub(in crate::shuffle) fn is_routing(&self) -> bool {
        self.session.installed.is_some() && matches!(self.session.comparison, Comparison::None | Comparison::Agrees)
    }

    /// Compares the records held back with this rank's last epoch. With `is_end`, there will be no more.
    pub(super) fn compare_first_keys(&mut self, is_end: bool) {
        let Comparison::Running { compared_bytes } = self.session.comparison else { return };
        let must_decide = is_end || self.hold_is_full();
        let least = (self.options.out_of_bounds_rows * self.schema.row_bytes()).max(compared_bytes / 4 * 5);
        if !must_decide && self.held.len() < least {
            return;
        }
        let ordinals = self.held_keys();
        let found = self.resemblance(&ordinals, must_decide);
        let has_keys = !ordinals.is_empty();
        self.scratch.ordinals = ordinals;
        match found {
            Some(found) => {
                self.session.negotiation.resemblance = has_keys.then_some(found);
                self.end_comparison(found != Resemblance::Different);
            }
            None => self.session.comparison = Comparison::Running { compared_bytes: self.held.len() },
        }
    }

    /// Returns the keys held back that are not NaN, in scratch memory, which the caller returns.
    fn held_keys(&mut self) -> Vec<u64> {
        let mut ordinals = std::mem::take(&mut self.scratch.ordinals);
        ordinals.clear();
        self.key_ordinals(&self.held, &mut ordinals);
        ordinals.retain(|&ordinal| !self.partitioner.is_nan(ordinal));
        ordinals
    }

    /// Ends the comparison in a round with pivots, whose table routes the records held back. The round tells rank 0 the
    /// result, if the keys suffice for one.
    pub(super) fn conclude_comparison(&mut self) {
        if !matches!(self.session.comparison, Comparison::Running { .. }) {
            return;
        }
        let ordinals = self.held_keys();
        self.session.negotiation.resemblance = self.resemblance(&ordinals, false);
        self.scratch.ordinals = ordinals;
    }

    /// Compares `ordinals`, which are not NaN, with this rank's last epoch. Returns `None` if more keys are needed,
    /// unless it must decide.
    ///
    /// Ranks usually store the records of a cell beside each other, and append them in that order. The first ones then
    /// do not resemble all of them, but nowhere are more than the last epoch had there.
    fn resemblance(&self, ordinals: &[u64], must_decide: bool) -> Option<Resemblance> {
        if !must_decide && ordinals.len() < self.options.out_of_bounds_rows {
            return None;
        }
        let none = KeyProfile::default();
        let profile = self.last.as_ref().map_or(&none, |last| &last.profile);
        let KeyDistance { distance, drift } = profile.compare(ordinals);
        let chance = CHANCE / (ordinals.len().max(1) as f64).sqrt();
        // The halves of independent keys are hardly farther apart than by chance.
        let noise = if drift > 2.0 * chance { drift } else { chance };
        let before = self.own_keys_before();
        let is_many = ordinals.len() as u64 >= before / MANY_OWN_KEYS;
        let by_place = self.partitioner.divides_a_frame();
        if distance <= AGREEMENT + chance || (distance <= AGREEMENT + noise && distance <= DRIFTING_AGREEMENT) {
            // A rank with few records has compared many of them. Loads then tell which ranks are ahead.
            return Some(if by_place && is_many { Resemblance::InOrder } else { Resemblance::Alike });
        }
        if by_place {
            let is_part = profile.excess(ordinals, before) <= AGREEMENT + chance;
            // Keys that do not drift may all be of the first cell, or of a new distribution.
            match is_part {
                true if noise > chance || is_many => return Some(Resemblance::InOrder),
                true if !must_decide => return None,
                _ => {}
            }
        }
        (must_decide || distance >= DISAGREEMENT + noise).then_some(Resemblance::Different)
    }

    /// Routes the records held back if the keys agree with the last epoch, and otherwise requests a table.
    fn end_comparison(&mut self, agrees: bool) {
        if agrees {
            self.session.comparison = Comparison::Agrees;
            self.route_held();
        } else {
            self.session.comparison = Comparison::Differs;
            self.request_renegotiation();
        }
    }

    /// Returns the summary of this rank's keys in the epoch, which ends.
    pub(super) fn summarize_epoch(&mut self) -> Summary {
        let rows = self.session.metrics.originated;
        let (contributors, range) = (u32::from(rows > 0), self.session.negotiation.epoch_range);
        if self.options.prior == Prior::None || !self.negotiates() {
            return Summary { contributors, range, pivots: Pivots::default(), points: PointSample::default() };
        }
        self.session.unsent_keys = self.summarize_interval();
        let points = std::mem::take(&mut self.session.points);
        let (own, slots) = (&self.session.own_keys, self.pivot_slots());
        let pivots = if own.slots() <= slots {
            own.clone()
        } else {
            Pivots::merge(std::slice::from_ref(own), slots, self.random.fraction())
        };
        Summary { contributors, range, pivots, points }
    }

    /// Returns the keys since the last summary as pivots, and adds them to those of the epoch.
    pub(super) fn summarize_interval(&mut self) -> Pivots {
        let recent = self.summarize();
        if self.options.prior == Prior::None {
            return recent;
        }
        let earlier = std::mem::take(&mut self.session.own_keys);
        self.session.own_keys = if earlier.mass() == 0 {
            recent.clone()
        } else {
            let phase = self.sampling_phase();
            let factor = if self.has_rough_keys() { OWN_FACTOR } else { 1 };
            Pivots::merge(&[earlier, recent.clone()], factor * self.pivot_slots(), phase)
        };
        recent
    }

    /// Returns the size of the summary of this rank's subtree, into which `summaries` are merged, in numbers. It is
    /// that of one rank's keys, unless the ordinals need more. All children's messages together are limited, too.
    pub(super) fn merged_slots(&self, summaries: &[Pivots]) -> usize {
        if !self.has_rough_keys() {
            return self.pivot_slots();
        }
        let sum = summaries.iter().map(Pivots::slots).sum::<usize>();
        let share = CHILDREN_SLOTS / (self.place.children().len() + 1);
        self.pivot_slots().max(sum.min(share).min(self.partitioner.most_slots()))
    }

    /// Returns whether the density of ordinals may change anywhere, so that summaries need more numbers.
    pub(super) fn has_rough_keys(&self) -> bool {
        self.partitioner.most_slots() > SMOOTH_SLOTS
    }

    /// Merges the summaries of this rank and its children. That of rank 0 has more numbers.
    pub(super) fn merged_summaries(&mut self) -> Summary {
        let summaries = std::mem::take(&mut self.session.quiescence.summaries);
        let fold = |sum: u32, summary: &Summary| sum.saturating_add(summary.contributors);
        let contributors = summaries.iter().fold(0, fold);
        let range = summaries
            .iter()
            .fold(EMPTY_RANGE, |range, Summary { range: (low, high), .. }| (range.0.min(*low), range.1.max(*high)));
        let points: Vec<PointSample> = summaries.iter().map(|summary| summary.points.clone()).collect();
        let points = PointSample::merge(&points, &mut self.random);
        let mut pivots: Vec<Pivots> = summaries.into_iter().map(|summary| summary.pivots).collect();
        pivots.retain(|pivots| pivots.mass() > 0);
        let pivots = if pivots.len() > 1 {
            let phase = self.sampling_phase();
            let slots = match self.place.parent() {
                Some(_) => self.merged_slots(&pivots),
                None => history_slots(self.options.receivers, self.partitioner.most_slots()),
            };
            Pivots::merge(&pivots, slots, phase)
        } else {
            pivots.pop().unwrap_or_default()
        };
        Summary { contributors, range, pivots, points }
    }

    /// Keeps the distribution of an epoch that was committed, if it has keys. All ranks decide alike, by the number of
    /// records in `Closed`.
    pub(super) fn remember_epoch(&mut self) {
        let rows = self.session.rows;
        if rows == 0 || self.options.prior == Prior::None || self.options.receivers == 1 {
            return;
        }
        let keys = std::mem::take(&mut self.session.own_keys);
        let whole = self.session.quiescence.summaries.pop();
        if whole.as_ref().is_some_and(|summary| !self.suits_frame(&summary.points)) {
            // The next epoch has another frame, so keys of this one say nothing.
            self.last = None;
            self.rows_before = Some(rows);
            return;
        }
        self.rows_before = None;
        self.last = Some(LastEpoch {
            profile: KeyProfile::new(&keys),
            own_keys: keys.mass(),
            whole: whole.filter(|summary| summary.pivots.mass() > 0 || self.has_fixed_table).map(|summary| Whole {
                rows,
                contributors: summary.contributors,
                range: summary.range,
                keys: summary.pivots,
            }),
        });
    }
}

#[cfg(test)]
mod tests;
