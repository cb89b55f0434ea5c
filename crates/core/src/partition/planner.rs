//! Computes the next partition table from the merged pivots. Runs at the root of a renegotiation.

use std::iter;

use super::cumulative_mass::CumulativeMass;
use super::cut_point::CutPoint;
use super::pivots::Pivots;
use super::table::PartitionTable;

/// Options that determine the influence of the past on the next table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TablePlannerOptions {
    /// Share of the current load imbalance that the next table corrects within the expected remainder. 0 disables the
    /// correction.
    pub offset: f64,
    /// Expected number of remaining records, as a multiple of the records so far. At least one interval is assumed.
    pub remainder: f64,
    /// Limit of the correction: a partition's share of the next interval lies between 1 / (1 + limit) and (1 + limit)
    /// times the mean.
    pub limit: f64,
    /// Weight of the keys of all earlier intervals, relative to the last interval, in the predicted distribution.
    pub memory: f64,
    /// Maximum size of the summary of earlier intervals, in numbers
    /// ([`Partitioner::most_slots`](super::Partitioner::most_slots)).
    pub most_slots: usize,
}

impl Default for TablePlannerOptions {
    fn default() -> Self {
        Self { offset: 0.5, remainder: 0.0, limit: 1.0, memory: 0.5, most_slots: SMOOTH_SLOTS }
    }
}

/// Minimum number of records that must be left of an epoch of known size, as a multiple of the records so far. An epoch
/// that is about to reach its expected size may exceed it.
const MIN_LEFT: f64 = 1.0 / 8.0;

/// Limit of the correction ([`TablePlannerOptions::limit`]) once partitions were divided.
const DIVIDED_LIMIT: f64 = 8.0;

/// Minimum size of the summary of earlier intervals at the root, in numbers.
const MIN_HISTORY_SLOTS: usize = 256;

/// Maximum size of a summary of many ranks' keys whose density changes little between neighbours, in numbers.
pub const SMOOTH_SLOTS: usize = 2048;

/// The same for ordinals whose density may change anywhere: 128 KiB.
pub const ROUGH_SLOTS: usize = 16_384;

/// Size of this summary in numbers per partition.
const HISTORY_SLOTS_PER_PARTITION: usize = 32;

/// A planner of partition tables. Each epoch has its own planner.
#[derive(Debug, Clone)]
pub struct TablePlanner {
    partitions: u32,
    options: TablePlannerOptions,
    loads: Vec<f64>,
    /// All cut points of the table in force. The table itself may keep fewer.
    cuts: Option<Vec<CutPoint>>,
    history: Pivots,
    /// Expected number of records of the epoch.
    expected: Option<f64>,
    next_version: u32,
}

impl TablePlanner {
    /// Creates a planner for an epoch with at least one partition. The first table has version `first_version`.
    pub fn new(partitions: u32, first_version: u32, options: TablePlannerOptions) -> Self {
        let partitions = partitions.max(1);
        Self {
            partitions,
            options,
            loads: vec![0.0; partitions as usize],
            cuts: None,
            history: Pivots::default(),
            expected: None,
            next_version: first_version,
        }
    }

    /// Returns the memory of loads, cut points and the summary of earlier intervals, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let cuts = self.cuts.as_ref().map_or(0, |cuts| cuts.capacity() * size_of::<CutPoint>());
        self.loads.capacity() * size_of::<f64>() + cuts + self.history.memory_bytes()
    }

    /// Returns the planner with earlier keys, which count like those of earlier intervals.
    #[must_use]
    pub fn after(self, earlier: Pivots) -> Self {
        Self { history: earlier, ..self }
    }

    /// Divides every partition into `factor`. The first of them keeps the load, and hardly receives more until the
    /// others have as much.
    pub fn divide(&mut self, factor: u32) {
        let empty = factor.saturating_sub(1) as usize;
        let loads = std::mem::take(&mut self.loads).into_iter();
        self.loads = loads.flat_map(|load| iter::once(load).chain(iter::repeat_n(0.0, empty))).collect();
        self.partitions = self.loads.len() as u32;
        self.cuts = None;
        self.options.limit = self.options.limit.max(DIVIDED_LIMIT);
    }

    /// Forgets the keys of earlier intervals.
    pub fn forget(&mut self) {
        self.history = Pivots::default();
    }

    /// Sets the expected number of records of the epoch, if it is known. Tables then even the loads out exactly at the
    /// end of the epoch.
    pub fn expect(&mut self, records: Option<u64>) {
        self.expected = records.map(|records| records as f64);
    }

    /// Returns the load of each partition, estimated or exact.
    pub fn loads(&self) -> &[f64] {
        &self.loads
    }

    /// Returns all cut points of the last table. The table itself may keep fewer.
    pub fn cuts(&self) -> &[CutPoint] {
        self.cuts.as_deref().unwrap_or_default()
    }

    /// Returns the next table. `pivots` summarise the keys since the last table, each of which should be observed once.
    ///
    /// The planner routes these keys with the table in force to estimate the loads. Keys before the first table do not
    /// change the loads: the first table routes them, and divides them evenly.
    pub fn plan(&mut self, pivots: &[Pivots]) -> PartitionTable {
        let model = Pivots::model(pivots);
        if let Some(cuts) = &self.cuts {
            for (load, mass) in self.loads.iter_mut().zip(masses(&model, cuts)) {
                *load += mass;
            }
        }
        self.finish(pivots)
    }

    /// Returns the next table, like [`TablePlanner::plan`], from exact loads. `loads` is the number of records routed
    /// to each partition in this epoch.
    pub fn plan_with_loads(&mut self, pivots: &[Pivots], loads: &[u64]) -> PartitionTable {
        for (known, load) in self.loads.iter_mut().zip(loads) {
            *known = *load as f64;
        }
        self.finish(pivots)
    }

    fn finish(&mut self, pivots: &[Pivots]) -> PartitionTable {
        let interval = pivots.iter().map(|pivots| pivots.mass() as f64).sum();
        let mut all = pivots.to_vec();
        let history = std::mem::take(&mut self.history);
        let factor = self.retained(interval, history.mass());
        all.push(history.scaled(factor));
        let future = Pivots::model(&all);
        let cuts = if future.mass() > 0.0 {
            self.cuts_for(&future, interval)
        } else {
            // Without keys, any table is valid. The following keys lead to a better one.
            vec![CutPoint { ordinal: u64::MAX, tie: u32::MAX }; self.partitions as usize - 1]
        };
        if self.options.memory > 0.0 {
            self.history = Pivots::merge(&all, history_slots(self.partitions, self.options.most_slots), 0.5);
        }
        let version = self.next_version;
        self.next_version = version.wrapping_add(1);
        // The distribution returns ordered cut points. If rounding ever violates the order, sorting restores it.
        self.cuts = Some(cuts.clone());
        PartitionTable::sorted(version, cuts)
    }

    /// Returns the factor that discounts earlier keys.
    ///
    /// The factor is `memory` after an interval of the usual size, which is half of the remembered mass. It is close to
    /// 1 after a short interval. Otherwise, rounds in quick succession would discount nearly all earlier keys. Such
    /// rounds occur if a rank finds keys outside the known range.
    fn retained(&self, interval: f64, remembered: u64) -> f64 {
        let usual = remembered as f64 / 2.0;
        self.options.memory.powf((interval / usual.max(1.0)).min(1.0))
    }

    /// Returns cut points that give every partition the share of the next interval that balances the loads.
    fn cuts_for(&self, future: &CumulativeMass, interval: f64) -> Vec<CutPoint> {
        let shares = self.shares(interval);
        let scale = future.mass() / shares.iter().sum::<f64>();
        let mut sum = 0.0;
        let targets = shares[..shares.len() - 1].iter().map(|share| {
            sum += share;
            sum * scale
        });
        future.cuts(targets)
    }

    fn shares(&self, interval: f64) -> Vec<f64> {
        let reached: f64 = self.loads.iter().sum();
        let left = self.expected.map(|expected| expected - reached).filter(|left| *left > MIN_LEFT * reached);
        let (remainder, offset) = match left {
            Some(left) => (left.max(1.0), 1.0),
            None => ((self.options.remainder * reached).max(interval).max(1.0), self.options.offset),
        };
        let mean = remainder / f64::from(self.partitions);
        let even = reached / f64::from(self.partitions);
        let (least, most) = (mean / (1.0 + self.options.limit), mean * (1.0 + self.options.limit));
        self.loads.iter().map(|load| (mean + offset * (even - load)).clamp(least, most)).collect()
    }
}

/// Returns the size of the summary of many ranks' keys that rank 0 keeps, in numbers, of which it has at most
/// `most_slots`.
pub fn history_slots(partitions: u32, most_slots: usize) -> usize {
    let slots = (partitions as usize).saturating_mul(HISTORY_SLOTS_PER_PARTITION);
    slots.max(MIN_HISTORY_SLOTS).min(most_slots)
}

/// Returns a table whose partitions have equal shares of the summarised keys.
pub fn even_table(version: u32, partitions: u32, pivots: &[Pivots]) -> PartitionTable {
    TablePlanner::new(partitions, version, TablePlannerOptions::default()).plan(pivots)
}

/// Returns the mass of each partition in `model`.
fn masses(model: &CumulativeMass, cuts: &[CutPoint]) -> Vec<f64> {
    let mut before = 0.0;
    let mut masses: Vec<f64> = cuts
        .iter()
        .map(|cut| {
            let below = model.mass_below(*cut);
            let mass = (below - before).max(0.0);
            before = below;
            mass
        })
        .collect();
    masses.push((model.mass() - before).max(0.0));
    masses
}
