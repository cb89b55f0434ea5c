//! Decides on rank 0 whether another partition table pays, from the loads of the partitions.
//!
//! A table costs a summary of all keys on every rank, and its cut points move, so runs overlap. It pays if the loads
//! would end farther apart under the table in force than chance explains, or if many keys are outside the range for
//! which that table was planned.

/// Properties of the table in force.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Planned {
    /// Number of records appended when the table was planned.
    pub(super) seen: u64,
    /// Number of keys from which the table was planned.
    pub(super) keys: u64,
}

/// The progress of an epoch, as a round reports it.
#[derive(Debug, Clone, Copy)]
pub(super) struct EpochProgress<'a> {
    pub(super) planned: Planned,
    /// Number of records that each partition has received.
    pub(super) loads: &'a [u64],
    /// The same when the table in force was planned. Empty if no partition had received any.
    pub(super) loads_before: &'a [f64],
    /// Number of records appended.
    pub(super) seen: u64,
    /// Number of records appended under the table in force that are outside its range.
    pub(super) outside: u64,
    /// Number of ranks that have appended records.
    pub(super) contributors: u32,
    /// Number of tables so far.
    pub(super) tables: u32,
    /// Expected number of records of the epoch, if known.
    pub(super) expected: Option<u64>,
    /// Maximum number of records in a batch.
    pub(super) batch_rows: u64,
    /// Whether records come in an order, so that the loads so far do not tell those at the end.
    pub(super) in_order: bool,
}

/// Tolerated load imbalance at the end of the epoch, beyond chance, once the records have doubled since the last table.
const TOLERANCE: f64 = 0.005;

/// Tolerated load imbalance right after a table: a later one evens it out.
const EARLY_TOLERANCE: f64 = 0.10;

/// Tolerated excess of the largest partition over the mean at the end of the epoch, beyond chance, at any time.
const TOLERATED_EXCESS: f64 = 0.08;

/// The same in an epoch whose keys move.
const TOLERATED_EXCESS_OF_MOVING_KEYS: f64 = 0.05;

/// The number of tables from which on the keys of an epoch are taken to move. Those of other epochs need fewer.
const MANY_TABLES: u32 = 8;

/// The distance between the loads of an epoch whose records come in an order and even ones (Kolmogorov-Smirnov), beyond
/// chance.
const LOCAL_DIFFERENCES: f64 = 0.05;

/// The same by chance if each partition is full or empty, times the square root of the number of partitions. One in
/// fifty such epochs exceeds it.
const CHANCE_OF_FULL_PARTITIONS: f64 = 1.5;

/// The distance from which on differences are not local.
const WIDE_DIFFERENCES: f64 = 0.25;

/// Tolerated share of keys outside the known range, beyond chance.
const OUTSIDE_TOLERANCE: f64 = 0.001;

/// The number of records from round to round, as a fraction of those so far, in an epoch of unknown size.
const GROWTH: u64 = 6;

/// The minimum number of records from a table to one that corrects its loads, as a fraction of those before. A round
/// that follows the last one sooner came early.
const MIN_GROWTH: u64 = 12;

/// The rounds of an epoch of known size, in 32nds of this size. An epoch that ends up far smaller has rounds too.
const ROUNDS: [u64; 8] = [1, 2, 4, 8, 16, 24, 28, 32];

/// The denominator of these fractions.
const ROUNDS_DENOMINATOR: u64 = 32;

/// Minimum number of records of a rank from round to round.
const MIN_INTERVAL_ROWS: u64 = 256;

/// Returns the number of records that a rank appends until the next round.
pub(super) fn interval_rows(seen: u64, contributors: u32, expected: Option<u64>) -> u64 {
    let interval = match expected.filter(|expected| seen < *expected) {
        Some(expected) => {
            // A round may begin slightly before its time, since ranks differ.
            let reached = seen.saturating_add(seen / 16);
            let mut rounds = ROUNDS.into_iter().map(|part| expected / ROUNDS_DENOMINATOR * part);
            rounds.find(|next| *next > reached).map_or(expected / ROUNDS_DENOMINATOR, |next| next - seen)
        }
        None => seen / GROWTH,
    };
    (interval / u64::from(contributors.max(1))).max(MIN_INTERVAL_ROWS)
}

/// Returns whether an epoch with `tables` so far is one whose keys move. Its rounds do not wait for the few fixed times
/// of an epoch of known size.
pub(super) fn keys_move(tables: u32) -> bool {
    tables >= MANY_TABLES
}

/// Returns whether so few records were appended since the last round that the next one should come later. Ranks append
/// large blocks out of step, so the first one to request a round may have seen many keys while the others saw none.
pub(super) fn was_short(seen_at_last_round: u64, seen: u64) -> bool {
    seen.saturating_sub(seen_at_last_round) < seen_at_last_round / MIN_GROWTH
}

/// Returns whether loads may be those of an epoch with `expected` records that come in an order, under a table that
/// divides all of them evenly: no partition has more than it should have at the end, and the differences are local.
pub(super) fn suit_an_order(loads: &[u64], expected: u64) -> bool {
    let received = loads.iter().map(|&load| load as f64).sum::<f64>();
    let mean = received.max(expected as f64) / loads.len().max(1) as f64;
    let largest = loads.iter().copied().max().unwrap_or(0) as f64;
    let (mut below, mut distance) = (0.0, 0.0f64);
    for (partition, load) in loads.iter().enumerate() {
        below += *load as f64;
        let share = (partition + 1) as f64 / loads.len() as f64;
        distance = distance.max((below - share * received).abs());
    }
    let local = LOCAL_DIFFERENCES + CHANCE_OF_FULL_PARTITIONS / (loads.len().max(1) as f64).sqrt();
    largest <= mean * (1.0 + TOLERATED_EXCESS) + 4.0 * mean.sqrt() && distance <= local.min(WIDE_DIFFERENCES) * received
}

impl EpochProgress<'_> {
    /// Returns whether the epoch needs another table.
    pub(super) fn needs_table(&self) -> bool {
        self.loads.len() > 1 && (self.is_outgrown() || (!self.in_order && self.has_grown() && self.is_unbalanced()))
    }

    /// Returns whether the loads show the effect of the table in force. A table planned from fewer records corrects a
    /// deviation that the last one is about to correct, and the loads swing.
    fn has_grown(&self) -> bool {
        self.seen.saturating_sub(self.planned.seen) >= self.planned.seen / MIN_GROWTH
    }

    /// Returns whether more keys are outside the table's range than chance explains. Of the keys that follow `n` keys
    /// of the same distribution, about 2 / n are outside.
    fn is_outgrown(&self) -> bool {
        let since = self.seen.saturating_sub(self.planned.seen) as f64;
        let chance = 2.0 / self.planned.keys.max(1) as f64;
        self.outside as f64 > since * (OUTSIDE_TOLERANCE + 3.0 * chance) + 3.0
    }

    /// Returns whether the foreseen imbalance exceeds the tolerance beyond chance.
    fn is_unbalanced(&self) -> bool {
        let partitions = self.loads.len() as f64;
        let before = |partition: usize| self.loads_before.get(partition).copied().unwrap_or(0.0);
        let fresh = |(partition, &load): (usize, &u64)| (load as f64 - before(partition)).max(0.0);
        let received = self.loads.iter().map(|&load| load as f64).sum::<f64>();
        let sample = self.loads.iter().enumerate().map(fresh).sum::<f64>();
        if sample < 1.0 {
            return false;
        }
        // An epoch of unknown size is assumed to double.
        let seen = self.seen as f64;
        let end = self.expected.map_or(2.0 * seen, |expected| expected as f64).max(seen).max(received);
        let mean = end / partitions;
        let growth = (end - received) / sample;
        let deviation = |(partition, load): (usize, &u64)| *load as f64 + growth * fresh((partition, load)) - mean;
        let deviations = self.loads.iter().enumerate().map(deviation);
        let (squares, largest) = deviations.fold((0.0, 0.0f64), |(squares, largest), deviation| {
            (squares + deviation * deviation, largest.max(deviation))
        });
        let variance = squares / partitions;
        // Chance: which keys were among the sample, and which batches have not arrived yet.
        let of_keys = sample / partitions;
        let of_batches = (seen - received).max(0.0) * self.usual_batch_rows() / partitions;
        let noise = growth.powi(2) * (of_keys + of_batches) / mean.powi(2);
        let tolerance = self.tolerance();
        // Of thousands of partitions, hardly one exceeds four standard deviations. The variance of few partitions is
        // itself uncertain.
        largest / mean > self.tolerated_excess() + 4.0 * noise.sqrt()
            || variance / mean.powi(2) > tolerance.powi(2) + noise * (1.0 + 3.0 * (2.0 / partitions).sqrt())
    }

    fn tolerated_excess(&self) -> f64 {
        if keys_move(self.tables) { TOLERATED_EXCESS_OF_MOVING_KEYS } else { TOLERATED_EXCESS }
    }

    /// Returns the tolerated load imbalance, which decreases while the records double: slowly at first, since a table
    /// soon after another one pays only for much.
    fn tolerance(&self) -> f64 {
        let growth = self.seen as f64 / self.planned.seen.max(1) as f64;
        EARLY_TOLERANCE * (TOLERANCE / EARLY_TOLERANCE).powf((growth - 1.0).clamp(0.0, 1.0).powi(2))
    }

    /// Returns the usual size of a batch, which grows with the epoch.
    fn usual_batch_rows(&self) -> f64 {
        let buffers = u64::from(self.contributors.max(1)).saturating_mul(8 * self.loads.len() as u64);
        (self.seen / buffers).clamp(1, self.batch_rows.max(1)) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(loads: &[u64]) -> EpochProgress<'_> {
        EpochProgress {
            planned: Planned { seen: 0, keys: 1_000_000 },
            loads,
            loads_before: &[],
            seen: loads.iter().sum(),
            outside: 0,
            contributors: 4,
            tables: 1,
            expected: None,
            batch_rows: 500,
            in_order: false,
        }
    }

    #[test]
    fn chance_does_not_pay_and_skew_does() {
        // The deviations of 10,000 records are about 100.
        let even = [10_090, 9_930, 10_040, 9_890, 10_120, 9_970, 10_060, 9_900];
        let skewed = [10_900, 9_300, 10_040, 9_890, 10_120, 9_970, 10_060, 9_720];
        assert!(!progress(&even).needs_table());
        assert!(progress(&skewed).needs_table());
        assert!(!progress(&[80_000]).needs_table(), "one receiver needs no table");
        assert!(!progress(&[0; 8]).needs_table(), "nothing has arrived");
    }

    #[test]
    fn a_table_that_evens_the_loads_out_is_kept() {
        // The first half was skewed. The table in force gives the light partitions more.
        let (before, loads) = ([60_000.0, 40_000.0], [100_000, 100_000]);
        let planned = Planned { seen: 100_000, keys: 100_000 };
        let ended = EpochProgress { planned, loads_before: &before, expected: Some(200_000), ..progress(&loads) };
        assert!(!ended.needs_table());
        // If the epoch goes on, the same table overshoots.
        assert!(EpochProgress { expected: Some(400_000), ..ended }.needs_table());
    }

    #[test]
    fn moderate_skew_waits_until_the_records_have_grown() {
        let (before, loads) = ([50_000.0; 4], [76_000, 73_000, 76_500, 74_500]);
        let early = EpochProgress {
            planned: Planned { seen: 200_000, keys: 200_000 },
            loads_before: &before,
            ..progress(&loads)
        };
        assert!(!early.needs_table());
        assert!(EpochProgress { planned: Planned { seen: 150_000, ..early.planned }, ..early }.needs_table());
    }

    /// Past keys do not predict the future ones of such an epoch, so a smaller excess pays.
    #[test]
    fn many_tables_lower_the_tolerated_excess() {
        let skewed = [106_500, 99_000, 99_000, 99_000, 99_000, 99_000, 99_000, 99_500];
        let planned = Planned { seen: 700_000, keys: 700_000 };
        let steady = EpochProgress { planned, expected: Some(800_000), ..progress(&skewed) };
        assert!(!steady.needs_table());
        assert!(EpochProgress { tables: 8, ..steady }.needs_table());
    }

    #[test]
    fn keys_beyond_the_range_pay_unless_few_keys_are_known() {
        let even = [10_000; 8];
        let outside = |outside, keys| EpochProgress { planned: Planned { seen: 0, keys }, outside, ..progress(&even) };
        assert!(!outside(60, 1_000_000).needs_table());
        assert!(outside(120, 1_000_000).needs_table());
        assert!(!outside(120, 1_000).needs_table(), "of 80,000 keys after 1,000, some 160 are outside by chance");
    }

    #[test]
    fn a_table_is_given_time_to_take_effect() {
        let (before, loads) = ([60_000.0, 40_000.0], [60_000, 47_000]);
        let planned = Planned { seen: 100_000, keys: 100_000 };
        let ended = EpochProgress { planned, loads_before: &before, ..progress(&loads) };
        assert!(!ended.needs_table());
        assert!(EpochProgress { planned: Planned { seen: 90_000, ..planned }, ..ended }.needs_table());
        assert!(was_short(100_000, 108_000) && !was_short(100_000, 109_000) && !was_short(0, 256));
    }

    #[test]
    fn records_in_an_order_load_partitions_in_turn() {
        let in_turn: Vec<u64> = (0..64).map(|partition| [100_000, 0, 90_000, 10_000][partition % 4]).collect();
        let ordered = EpochProgress { expected: Some(6_400_000), in_order: true, ..progress(&in_turn) };
        assert!(!ordered.needs_table() && EpochProgress { in_order: false, ..ordered }.needs_table());
        assert!(EpochProgress { outside: 1_000_000, ..ordered }.needs_table());
        assert!(suit_an_order(&in_turn, 6_400_000) && suit_an_order(&[], 0));
        assert!(!suit_an_order(&in_turn, 5_000_000), "some have more than all of theirs");
        let swept: Vec<u64> = (0..64).map(|partition| if partition < 32 { 100_000 } else { 0 }).collect();
        assert!(!suit_an_order(&swept, 6_400_000), "the first half of the domain");
        let scattered: Vec<u64> =
            (0..64).map(|partition| 100_000 * (0x9D74_35C1_E826_B3A5_u64 >> partition & 1)).collect();
        assert!(suit_an_order(&scattered, 6_400_000), "by chance, some ranks are done and others have not begun");
    }

    /// Loads of a faulty rank may have any size.
    #[test]
    fn loads_beyond_all_numbers_are_summed() {
        let loads = [u64::MAX, u64::MAX, 0];
        let huge = EpochProgress { seen: u64::MAX, outside: u64::MAX, contributors: u32::MAX, ..progress(&[]) };
        assert!(EpochProgress { loads: &loads, ..huge }.needs_table());
        for seen in [0, u64::MAX - 1, u64::MAX] {
            assert!(interval_rows(seen, 0, Some(u64::MAX)) >= MIN_INTERVAL_ROWS);
        }
    }

    #[test]
    fn rounds_follow_the_expected_size_and_else_the_growth() {
        // Rounds are due at 1/32, 1/16, 1/8, every quarter, 7/8 and the end.
        let expected = Some(6_400_000);
        assert_eq!(interval_rows(0, 16, expected), 12_500);
        assert_eq!(interval_rows(190_000, 16, expected), 13_125);
        assert_eq!(interval_rows(800_000, 16, expected), 50_000);
        assert_eq!(interval_rows(1_600_000, 16, expected), 100_000);
        assert_eq!(interval_rows(4_800_000, 16, expected), 50_000);
        assert_eq!(interval_rows(9_600_000, 16, expected), 100_000);
        assert_eq!(interval_rows(100, 0, None), MIN_INTERVAL_ROWS);
    }
}
