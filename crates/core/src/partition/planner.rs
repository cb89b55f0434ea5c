//! The root's part of a renegotiation: from the merged pivots to the next table.

use super::cumulative_mass::CumulativeMass;
use super::cut_point::CutPoint;
use super::pivots::Pivots;
use super::table::PartitionTable;

/// The influence of the past on the next table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TablePlannerOptions {
    /// Share of the current load differences that the next table is to balance over the expected remainder; 0 ignores
    /// them.
    pub offset: f64,
    /// The expected remainder, as a multiple of the records so far (but at least one interval).
    pub remainder: f64,
    /// A partition's share of the next interval stays within 1 / (1 + limit) and (1 + limit) of the mean.
    pub limit: f64,
    /// Weight of the keys of all earlier intervals against those of the last, in the forecast of the distribution.
    pub memory: f64,
}

impl Default for TablePlannerOptions {
    fn default() -> Self {
        Self { offset: 0.5, remainder: 0.0, limit: 1.0, memory: 0.5 }
    }
}

/// Numbers of a message that the root keeps of earlier intervals.
const HISTORY_SLOTS: usize = 2048;

/// Plans tables; one planner per epoch.
#[derive(Debug, Clone)]
pub struct TablePlanner {
    partitions: u32,
    options: TablePlannerOptions,
    loads: Vec<f64>,
    /// The cuts of the table in force, which may keep fewer.
    cuts: Option<Vec<CutPoint>>,
    history: Pivots,
    next_version: u32,
}

impl TablePlanner {
    /// Creates a planner for an epoch with this many partitions (at least one); `first_version` numbers its first
    /// table.
    pub fn new(partitions: u32, first_version: u32, options: TablePlannerOptions) -> Self {
        let partitions = partitions.max(1);
        Self {
            partitions,
            options,
            loads: vec![0.0; partitions as usize],
            cuts: None,
            history: Pivots::default(),
            next_version: first_version,
        }
    }

    /// Returns the memory of loads, cuts and the keys of earlier intervals.
    pub fn memory_bytes(&self) -> usize {
        let cuts = self.cuts.as_ref().map_or(0, |cuts| cuts.capacity() * size_of::<CutPoint>());
        self.loads.capacity() * size_of::<f64>() + cuts + self.history.memory_bytes()
    }

    /// Returns the planner's estimate of the loads.
    pub fn loads(&self) -> &[f64] {
        &self.loads
    }

    /// Returns all cut points of the last table; the table may keep fewer.
    pub fn cuts(&self) -> &[CutPoint] {
        self.cuts.as_deref().unwrap_or_default()
    }

    /// Returns the next table, from the keys since the last one (all summaries that reach the root). Loads so far are
    /// estimated by routing these keys with the table in force. Every key should be observed once. (The keys of the
    /// first table are routed by it, hence evenly: they shift no load.)
    pub fn plan(&mut self, pivots: &[Pivots]) -> PartitionTable {
        let model = Pivots::model(pivots);
        if let Some(cuts) = &self.cuts {
            for (load, mass) in self.loads.iter_mut().zip(masses(&model, cuts)) {
                *load += mass;
            }
        }
        self.finish(pivots, model)
    }

    /// Returns the next table like [`TablePlanner::plan`], with exact loads (records routed to each partition in this
    /// epoch so far).
    pub fn plan_with_loads(&mut self, pivots: &[Pivots], loads: &[u64]) -> PartitionTable {
        for (known, load) in self.loads.iter_mut().zip(loads) {
            *known = *load as f64;
        }
        self.finish(pivots, Pivots::model(pivots))
    }

    fn finish(&mut self, pivots: &[Pivots], recent: CumulativeMass) -> PartitionTable {
        let interval = recent.mass();
        let mut all = pivots.to_vec();
        let history = std::mem::take(&mut self.history);
        let factor = self.retained(interval, history.mass());
        all.push(history.scaled(factor));
        let future = if self.options.memory > 0.0 { Pivots::model(&all) } else { recent };
        let cuts = if future.mass() > 0.0 {
            self.cuts_for(&future, interval)
        } else {
            // Without keys any table will do; the next keys lead to a better one.
            vec![CutPoint { ordinal: u64::MAX, tie: u32::MAX }; self.partitions as usize - 1]
        };
        if self.options.memory > 0.0 {
            self.history = Pivots::merge(&all, HISTORY_SLOTS, 0.5);
        }
        let version = self.next_version;
        self.next_version = version.wrapping_add(1);
        // The model returns cuts in order; if rounding ever breaks that, sorting restores it without loss.
        self.cuts = Some(cuts.clone());
        PartitionTable::sorted(version, cuts)
    }

    /// Returns the factor that discounts earlier keys from now on: `memory` after an interval of the usual size, half
    /// of the remembered mass, and close to 1 after a short one. Otherwise rounds in quick succession (when a rank
    /// finds keys outside the known range) would discount nearly all earlier keys.
    fn retained(&self, interval: f64, remembered: u64) -> f64 {
        let usual = remembered as f64 / 2.0;
        self.options.memory.powf((interval / usual.max(1.0)).min(1.0))
    }

    /// Returns cuts that give every partition the share it lacks.
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
        let remainder = (self.options.remainder * reached).max(interval).max(1.0);
        let mean = remainder / f64::from(self.partitions);
        let even = reached / f64::from(self.partitions);
        let (least, most) = (mean / (1.0 + self.options.limit), mean * (1.0 + self.options.limit));
        self.loads.iter().map(|load| (mean + self.options.offset * (even - load)).clamp(least, most)).collect()
    }
}

/// Returns the mass of each partition between `cuts` under `model`.
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
