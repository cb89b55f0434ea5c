//! A partition table with few knots instead of many cut points: the partition number as a piecewise linear function
//! over (key, tie) space.
//!
//! With one cut point per partition, the memory of a table, its message and the time to decode it grow with the job. At
//! 131,072 partitions, every rank would hold megabytes of cut points, and as much again for lookups. Cut points come
//! from a piecewise linear distribution, so most of them lie on a line with their neighbours. [`Knots`] keeps only the
//! others. Between two knots, all partitions have the same width. All arithmetic is on integers, so all ranks route
//! identically. The function is monotone, so a partition is an interval.

use super::cut_point::CutPoint;

/// Maximum number of cut points in a table. A table with at most as many partitions keeps all of its cut points. Larger
/// tables keep more knots than this only if cut points are too close together to be omitted. A message is 64 KiB long.
pub(super) const MAX_KNOTS: usize = 4096;

/// Initial error bound in partitions. The bound is doubled until the number of knots is within the limit.
const FINEST_ERROR: f64 = 1.0 / 128.0;

/// Minimum number of positions (2^-32 of a key) per partition between two knots. With fewer positions, rounding errors
/// would dominate.
const MIN_PLACES: u128 = 256;

/// Number of leading bits of an offset from a knot that routing uses.
const PLACE_BITS: u32 = 40;

/// The kept cut points, with the number of partitions before each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Knots {
    pub(super) cuts: Vec<CutPoint>,
    /// Partition that begins at each knot, ascending.
    pub(super) reached: Vec<u32>,
}

/// The interval between two knots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Interval {
    /// Partition that begins at the first knot.
    reached: u32,
    /// Last partition of the interval, relative to `reached`.
    last: u32,
    /// Offsets are shifted right by this number of bits before the multiplication.
    shift: u32,
    /// Partitions per step, times 2^64.
    slope: u64,
}

/// Returns the position of a cut point in units of 2^-32 of a key.
fn place(cut: CutPoint) -> u128 {
    (u128::from(cut.ordinal) << 32) | u128::from(cut.tie)
}

impl Interval {
    /// Returns the interval after each knot. The interval after the last knot is the last partition.
    pub(super) fn all(knots: &Knots) -> Vec<Self> {
        let next = |index: usize| knots.cuts.get(index + 1).zip(knots.reached.get(index + 1));
        let interval = |(index, (&cut, &reached)): (usize, (&CutPoint, &u32))| match next(index) {
            Some((&end, &to)) => Self::new(cut, end, reached, to - reached),
            None => Self { reached, last: 0, shift: 0, slope: 0 },
        };
        knots.cuts.iter().zip(&knots.reached).enumerate().map(interval).collect()
    }

    fn new(from: CutPoint, to: CutPoint, reached: u32, partitions: u32) -> Self {
        let width = place(to) - place(from);
        let shift = (u128::BITS - width.leading_zeros()).saturating_sub(PLACE_BITS);
        let places = (width >> shift).max(1);
        let slope = (u128::from(partitions) << 64) / places;
        // No planner sends a table with a slope of one partition per step or more, but a forged message may have one.
        Self { reached, last: partitions.saturating_sub(1), shift, slope: u64::try_from(slope).unwrap_or(u64::MAX) }
    }

    /// Returns the partition of a position in this interval. `from` is the first knot.
    #[inline]
    pub(super) fn destination(&self, from: CutPoint, ordinal: u64, tie: u32) -> u32 {
        if self.last == 0 {
            return self.reached;
        }
        // The position is at or after the knot, so the difference is not negative.
        let offset = place(CutPoint { ordinal, tie }) - place(from);
        let steps = (offset >> self.shift) as u64;
        let passed = (u128::from(steps) * u128::from(self.slope)) >> 64;
        self.reached + (passed as u64).min(u64::from(self.last)) as u32
    }
}

impl Knots {
    /// Keeps all cut points if their number is less than [`MAX_KNOTS`]. Otherwise keeps the fewest that approximate all
    /// others within an error bound.
    pub(super) fn of(cuts: Vec<CutPoint>) -> Self {
        if cuts.len() < MAX_KNOTS {
            return Self::every(cuts);
        }
        let mut error = FINEST_ERROR;
        loop {
            let kept = kept(&cuts, error);
            if kept.len() <= MAX_KNOTS || error > cuts.len() as f64 {
                let reached = kept.iter().map(|&index| index as u32 + 1).collect();
                return Self { cuts: kept.iter().map(|&index| cuts[index]).collect(), reached };
            }
            error *= 2.0;
        }
    }

    /// Keeps all cut points, regardless of their number.
    pub(super) fn every(cuts: Vec<CutPoint>) -> Self {
        let reached = (1..=cuts.len() as u32).collect();
        Self { cuts, reached }
    }
}

/// Returns the indexes of the cut points to keep: the first, the last, and as few as possible between them.
///
/// The line between two consecutive kept cut points passes all others between them within `error` partitions. The
/// possible slopes of a line from a knot are a range, which every further cut point narrows.
fn kept(cuts: &[CutPoint], error: f64) -> Vec<usize> {
    let mut kept = Vec::new();
    let mut index = 0;
    while index < cuts.len() {
        kept.push(index);
        index = next_knot(cuts, index, error);
    }
    kept
}

/// Returns the next cut point to keep after `from`. Returns the number of cut points after the last one.
fn next_knot(cuts: &[CutPoint], from: usize, error: f64) -> usize {
    // Only the last of several equal cut points is needed. A line from the first one would misplace the partitions of
    // the others.
    let coinciding = cuts[from + 1..].iter().take_while(|cut| **cut == cuts[from]).count();
    let first = from + 1 + coinciding;
    if coinciding > 0 && (coinciding as f64 > error || first == cuts.len()) {
        return from + coinciding;
    }
    let (mut least, mut most) = (0.0f64, f64::INFINITY);
    let mut reachable = first;
    for next in first..cuts.len() {
        let (width, partitions) = (place(cuts[next]) - place(cuts[from]), (next - from) as f64);
        let slope = partitions / width as f64;
        if slope >= least && slope <= most && width >= MIN_PLACES * (next - from) as u128 {
            reachable = next;
        }
        (least, most) = (least.max((partitions - error) / width as f64), most.min((partitions + error) / width as f64));
        if least > most || width < MIN_PLACES * (next - from) as u128 {
            break;
        }
    }
    reachable
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::PartitionTable;
    use super::*;

    /// Generates the cut points of a job with thousands of partitions: regions of all densities, keys that several
    /// partitions share, and equal cut points.
    fn many_cuts() -> impl Strategy<Value = Vec<CutPoint>> {
        let interval = (0u64..1 << 40, 0u32..6, 1usize..700);
        prop::collection::vec(interval, 15..40).prop_map(|intervals| {
            let mut cuts = Vec::new();
            let mut ordinal = 1u64 << 50;
            for (width, kind, count) in intervals {
                for step in 0..count as u64 {
                    cuts.push(match kind {
                        0 => CutPoint { ordinal, tie: ((step << 32) / count as u64) as u32 },
                        1 => CutPoint { ordinal, tie: 7 },
                        2 => CutPoint { ordinal: ordinal + step * step, tie: 0 },
                        _ => CutPoint { ordinal: ordinal + width / count as u64 * step, tie: step as u32 },
                    });
                }
                ordinal += width + count as u64 * count as u64;
            }
            cuts.sort_unstable();
            cuts
        })
    }

    /// Returns positions near cut points, and random positions.
    fn places(cuts: &[CutPoint], seeds: &[u64]) -> Vec<CutPoint> {
        let near = |seed: &u64| {
            let cut = cuts[*seed as usize % cuts.len()];
            let ordinal = cut.ordinal.wrapping_add(seed >> 32 & 3).wrapping_sub(1);
            CutPoint { ordinal, tie: if seed & 1 << 40 == 0 { cut.tie } else { *seed as u32 } }
        };
        let mut places: Vec<CutPoint> = seeds.iter().map(near).collect();
        places.extend(seeds.iter().map(|&seed| CutPoint { ordinal: seed, tie: seed as u32 }));
        places.sort_unstable();
        places
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Compares the table with a count of the cut points at or below each position.
        #[test]
        fn knots_route_as_all_cuts_do_within_the_error(cuts in many_cuts(), seeds in prop::collection::vec(any::<u64>(), 300)) {
            for error in [1.0 / 64.0, 0.5, 8.0] {
                let kept = kept(&cuts, error);
                prop_assert_eq!((kept.first(), kept.last()), (Some(&0), Some(&(cuts.len() - 1))));
                let knots = Knots {
                    cuts: kept.iter().map(|&index| cuts[index]).collect(),
                    reached: kept.iter().map(|&index| index as u32 + 1).collect(),
                };
                let table = PartitionTable::of_knots(1, cuts.len() as u32 + 1, knots);
                let mut before = 0;
                for CutPoint { ordinal, tie } in places(&cuts, &seeds) {
                    let exact = cuts.partition_point(|cut| *cut <= CutPoint { ordinal, tie }) as u32;
                    let found = table.destination(ordinal, tie);
                    prop_assert!(found >= before, "a partition is an interval");
                    before = found;
                    // Positions next to a cut point may be assigned to its other side. The boundaries of a partition
                    // may be off by the error. No position lies between equal cut points.
                    let most = error.ceil() as u32 + 1;
                    let low = cuts.partition_point(|cut| place(*cut) < place(CutPoint { ordinal, tie }).saturating_sub(2));
                    prop_assert!(found + most >= low as u32 && found <= exact + most, "{} {} {} {:?}", found, low, exact, error);
                    let (low, high) = table.closed_bounds(found);
                    prop_assert!(low <= ordinal && ordinal <= high);
                }
            }
        }
    }

    #[test]
    fn a_job_of_131072_has_a_small_table() {
        // Keys are spread evenly over their logarithm, and one key has a tenth of the mass. Knots are needed where the
        // function is curved.
        let cuts: Vec<CutPoint> = (1..131_072u64)
            .map(|index| match index {
                0..13_107 => CutPoint { ordinal: 1 << 31, tie: (index << 18) as u32 },
                _ => CutPoint {
                    ordinal: (1 << 31) + 1 + (((index as f64 / 13_107.0).ln() * 1e8) as u64),
                    tie: index as u32,
                },
            })
            .collect();
        let table = PartitionTable::new(4, cuts.clone()).unwrap();
        let mut message = Vec::new();
        table.encode(&mut message);
        // A line over the L cut points after the p-th deviates from the logarithm by L*L/8p partitions. With the
        // initial error bound of 1/128, there are 8 * (131,072^0.5 - 13,107^0.5) = 1,980 lines between the 13,107th and
        // the last cut point.
        assert!((1980 * 16..2080 * 16).contains(&message.len()), "{} bytes", message.len());
        assert_eq!(table.partitions(), 131_072);
        assert_eq!(PartitionTable::decode(&message), Ok(table.clone()));
        assert!(table.memory_bytes() < 128 << 10, "{}", table.memory_bytes());
        for (index, cut) in cuts.iter().enumerate() {
            assert!(table.destination(cut.ordinal, cut.tie).abs_diff(index as u32 + 1) <= 1, "{index}");
        }
    }
}
