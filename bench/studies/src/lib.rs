//! CARP's published method, for comparison: renegotiation with per-rank histograms.
//!
//! Each rank counts keys in one bin per partition of the table in force, and buffers keys outside the table. At a
//! renegotiation, each rank computes k pivots of equal mass, including the buffered keys. It interpolates key *values*
//! linearly between the bin boundaries. Pivots are merged in a shallow tree: each inner node sums the piecewise linear
//! distributions and resamples the sum to k pivots. The root resamples the sum to partitions of equal mass. Counts are
//! reset after every renegotiation. No part of this implementation is weaker than the published method, and sums are
//! exact.

use turbidite::partition::cumulative_mass::{CumulativeMass, CumulativeMassBuilder};
use turbidite::partition::{CutPoint, PartitionTable};
use turbidite::{DataType, KeyOrder, Value};

/// Number of keys that a rank buffers before it requests a renegotiation.
pub const OUT_OF_BOUNDS_CAPACITY: usize = 512;

/// A partition table that is bounded at both ends, as in CARP.
#[derive(Debug, Clone)]
pub struct BoundedTable {
    /// Boundaries of the bins, as values. There is one more boundary than partitions.
    boundaries: Vec<f64>,
    extremes: (u64, u64),
    table: PartitionTable,
}

impl BoundedTable {
    /// Returns the partition of a key. Returns `None` if the key lies outside the table.
    #[inline]
    pub fn destination(&self, ordinal: u64) -> Option<u32> {
        (self.extremes.0 <= ordinal && ordinal <= self.extremes.1).then(|| self.table.destination(ordinal, 0))
    }

    /// Returns the table without its bounds. At the end of an epoch it routes buffered keys.
    pub fn unbounded(&self) -> &PartitionTable {
        &self.table
    }
}

/// The histogram of a rank since the last renegotiation.
#[derive(Debug, Clone, Default)]
pub struct Histogram {
    counts: Vec<u64>,
    outside: Vec<u64>,
}

impl Histogram {
    /// Counts a key and returns its partition. Buffers the key and returns `None` if it lies outside the table.
    #[inline]
    pub fn observe(&mut self, ordinal: u64, table: Option<&BoundedTable>) -> Option<u32> {
        let destination = table.and_then(|table| table.destination(ordinal));
        match destination {
            Some(partition) => {
                let bin = partition as usize;
                if bin >= self.counts.len() {
                    self.counts.resize(bin + 1, 0);
                }
                self.counts[bin] += 1;
            }
            None => self.outside.push(ordinal),
        }
        destination
    }

    /// Returns whether the buffer is full. The rank then requests a renegotiation.
    pub fn is_full(&self) -> bool {
        self.outside.len() >= OUT_OF_BOUNDS_CAPACITY
    }

    /// Returns the rank's contribution to a renegotiation: `count` pivots, including both ends.
    pub fn pivots(&self, count: usize, table: Option<&BoundedTable>, order: KeyOrder) -> HistogramPivots {
        let mut outside: Vec<f64> = self.outside.iter().map(|ordinal| value_of(order, *ordinal)).collect();
        outside.sort_unstable_by(f64::total_cmp);
        let mut curve = Curve::default();
        match table {
            None => curve.keys(&outside, None),
            Some(table) => {
                let (Some(&low), Some(&high)) = (table.boundaries.first(), table.boundaries.last()) else {
                    return HistogramPivots::default();
                };
                let (under, over) = outside.split_at(outside.partition_point(|value| *value < low));
                let counted = self.counts.iter().any(|count| *count > 0);
                curve.keys(under, counted.then_some(low));
                if counted {
                    for (bin, &mass) in self.counts.iter().enumerate() {
                        curve.piece(table.boundaries[bin], table.boundaries[bin + 1], mass as f64);
                    }
                    if let Some(&first) = over.first() {
                        curve.piece(high, first, 0.0);
                    }
                }
                curve.keys(over, None);
            }
        }
        curve.pivots(count)
    }

    /// Resets the counts. Removes and returns the buffered keys, which the new table routes.
    pub fn reset(&mut self) -> Vec<u64> {
        self.counts.clear();
        std::mem::take(&mut self.outside)
    }
}

/// Points that divide a distribution into pieces of equal mass, including both ends.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HistogramPivots {
    mass: f64,
    points: Vec<f64>,
}

impl HistogramPivots {
    /// Returns the number of summarised records.
    pub fn mass(&self) -> f64 {
        self.mass
    }

    /// Returns the size of a message in bytes: eight for the mass and for each point.
    pub fn message_bytes(&self) -> usize {
        8 * (1 + self.points.len())
    }

    /// Sums the distributions and resamples the sum to `count` pivots. This is CARP's lossy reduction.
    pub fn union(many: &[Self], count: usize) -> Self {
        match Sum::of(many) {
            None => Self::default(),
            Some(sum) => {
                let points = sum.quantiles(count.max(2));
                Self { mass: sum.mass, points }
            }
        }
    }

    /// Returns a table of `partitions` partitions with equal mass. The root of the tree calls this function. Returns
    /// `None` if there are no keys.
    pub fn table(many: &[Self], version: u32, partitions: u32, order: KeyOrder) -> Option<BoundedTable> {
        let sum = Sum::of(many)?;
        let boundaries = sum.quantiles(partitions as usize + 1);
        let extremes = (nearest(order, sum.low), nearest(order, sum.high));
        let cuts = boundaries[1..boundaries.len() - 1]
            .iter()
            .map(|value| CutPoint { ordinal: at_least(order, *value, extremes), tie: 0 })
            .collect();
        Some(BoundedTable { boundaries, extremes, table: PartitionTable::with_every_cut(version, cuts) })
    }
}

/// The piecewise linear cumulative distribution of a rank's key values.
#[derive(Debug, Default)]
struct Curve {
    places: Vec<f64>,
    below: Vec<f64>,
}

impl Curve {
    fn mass(&self) -> f64 {
        self.below.last().copied().unwrap_or(0.0)
    }

    /// Adds mass that is spread evenly over an interval. If both ends are equal, the distribution has a step.
    fn piece(&mut self, from: f64, to: f64, mass: f64) {
        let below = self.mass();
        if self.places.last() != Some(&from) {
            self.places.push(from);
            self.below.push(below);
        }
        self.places.push(to);
        self.below.push(below + mass);
    }

    /// Adds sorted keys of mass one. `end` is the start of the next piece, if there is one.
    fn keys(&mut self, keys: &[f64], end: Option<f64>) {
        let Some(&last) = keys.last() else { return };
        let intervals = keys.len() - 1 + usize::from(end.is_some());
        if intervals == 0 {
            self.piece(last, last, 1.0);
            return;
        }
        let mass = keys.len() as f64 / intervals as f64;
        for pair in keys.windows(2) {
            self.piece(pair[0], pair[1], mass);
        }
        if let Some(end) = end {
            self.piece(last, end, mass);
        }
    }

    fn pivots(&self, count: usize) -> HistogramPivots {
        let mass = self.mass();
        if mass <= 0.0 {
            return HistogramPivots::default();
        }
        // Skips empty pieces at the start, which contain no key.
        let first = self.below.partition_point(|below| *below <= 0.0).max(1) - 1;
        let mut next = first + 1;
        let points = (0..count.max(2)).map(|point| {
            let target = mass * point as f64 / (count.max(2) - 1) as f64;
            while next + 1 < self.places.len() && self.below[next] < target {
                next += 1;
            }
            let (from, to) = (self.places[next - 1], self.places[next]);
            let (below, above) = (self.below[next - 1], self.below[next]);
            let fraction = if above > below { ((target - below) / (above - below)).clamp(0.0, 1.0) } else { 1.0 };
            from + (to - from) * fraction
        });
        HistogramPivots { mass, points: points.collect() }
    }
}

/// The exact sum of many distributions, on a grid of 2^62 steps between the extremes.
struct Sum {
    model: CumulativeMass,
    low: f64,
    high: f64,
    mass: f64,
}

/// Number of steps of the grid.
const GRID: f64 = (1u64 << 62) as f64;

/// Total mass in the integer units of the sum.
const SUM_MASS: f64 = (1u64 << 44) as f64;

impl Sum {
    fn of(many: &[HistogramPivots]) -> Option<Self> {
        let known: Vec<&HistogramPivots> = many.iter().filter(|pivots| pivots.mass > 0.0).collect();
        let low = known.iter().filter_map(|pivots| pivots.points.first()).copied().reduce(f64::min)?;
        let high = known.iter().filter_map(|pivots| pivots.points.last()).copied().reduce(f64::max)?;
        // Values are halved, since the difference of two extremes may not be finite.
        let scale = if high > low { GRID / (high / 2.0 - low / 2.0) } else { 0.0 };
        let place = |value: f64| ((value / 2.0 - low / 2.0) * scale) as u64;
        let mass: f64 = known.iter().map(|pivots| pivots.mass).sum();
        let mut builder = CumulativeMassBuilder::default();
        for pivots in &known {
            let step_mass = (pivots.mass / mass / (pivots.points.len() - 1) as f64 * SUM_MASS) as u64;
            for pair in pivots.points.windows(2) {
                builder.add_interval(place(pair[0]), place(pair[1]), step_mass);
            }
        }
        Some(Self { model: builder.build(), low, high, mass })
    }

    /// Returns `count` values with equal mass between them. The first and the last value are the extremes.
    fn quantiles(&self, count: usize) -> Vec<f64> {
        let step = self.model.mass() / (count - 1) as f64;
        let targets = (0..count).map(|point| point as f64 * step);
        let mut values: Vec<f64> = self
            .model
            .cuts(targets)
            .into_iter()
            .map(|cut| {
                let fraction = (cut.ordinal as f64 / GRID).min(1.0);
                self.low * (1.0 - fraction) + self.high * fraction
            })
            .collect();
        values[0] = self.low;
        values[count - 1] = self.high;
        values
    }
}

fn value_of(order: KeyOrder, ordinal: u64) -> f64 {
    match order.value(ordinal) {
        Value::Float(value) => value,
        Value::Int(value) => value as f64,
    }
}

/// Returns the ordinal of the key nearest to a value, within the precision of f64.
fn nearest(order: KeyOrder, value: f64) -> u64 {
    match order.data_type() {
        DataType::F32 => order.ordinal(&(value as f32).to_le_bytes()),
        DataType::F64 => order.ordinal(&value.to_le_bytes()),
        DataType::I8 | DataType::I16 | DataType::I32 | DataType::I64 => (value as i64 as u64) ^ (1 << 63),
        _ => value as u64,
    }
}

/// Returns the smallest ordinal between the extremes whose key is at least `value`.
fn at_least(order: KeyOrder, value: f64, (mut low, mut high): (u64, u64)) -> u64 {
    while low < high {
        let middle = low + (high - low) / 2;
        if value_of(order, middle) < value {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the largest load divided by the mean.
    fn largest(loads: &[u64]) -> f64 {
        let total: u64 = loads.iter().sum();
        loads.iter().copied().max().unwrap_or(0) as f64 * loads.len() as f64 / total as f64
    }

    #[test]
    fn carp_balances_what_it_can_and_no_point_mass() {
        let order = KeyOrder::new(DataType::F32).unwrap();
        let single = |value: f32| order.ordinal(&value.to_le_bytes());
        let run = |key: &dyn Fn(usize) -> f32| {
            let mut ranks = vec![Histogram::default(); 16];
            let mut loads = vec![0u64; 16];
            let mut table = None;
            for round in 0..3 {
                for (number, rank) in ranks.iter_mut().enumerate() {
                    for step in 0..512 {
                        if let Some(partition) =
                            rank.observe(single(key(number * 512 + step + round * 8192)), table.as_ref())
                        {
                            loads[partition as usize] += 1;
                        }
                    }
                }
                let pivots: Vec<HistogramPivots> =
                    ranks.iter().map(|rank| rank.pivots(256, table.as_ref(), order)).collect();
                assert!(round > 0 || ranks[0].is_full());
                assert!(pivots[0].message_bytes() <= 8 * 257);
                let inner: Vec<HistogramPivots> =
                    pivots.chunks(8).map(|group| HistogramPivots::union(group, 256)).collect();
                let next = HistogramPivots::table(&inner, round as u32, 16, order).expect("there are keys");
                assert_eq!(next.destination(single(f32::INFINITY)), None);
                assert_eq!(next.unbounded().destination(single(f32::INFINITY), 0), 15);
                for rank in &mut ranks {
                    for key in rank.reset() {
                        let partition = next.destination(key).expect("buffered keys lie within the new table");
                        loads[partition as usize] += 1;
                    }
                }
                table = Some(next);
            }
            assert_eq!(loads.iter().sum::<u64>(), 3 * 8192);
            largest(&loads)
        };
        let smooth = run(&|index| (index * 7919 % 8192) as f32 + 1.0);
        assert!(smooth < 1.02, "{smooth}");
        let zeros = run(&|index| if index % 10 == 0 { index as f32 } else { 0.0 });
        assert!(zeros > 10.0, "a tie-less table cannot split one key: {zeros}");
    }
}
