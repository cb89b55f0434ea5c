//! A partition table of few knots instead of many cut points: the partition number as a piecewise linear function over
//! (key, tie) space.
//!
//! With a cut point per partition, a table's memory, its message and the time to decode it grow with the job: at
//! 131,072 partitions every rank would hold megabytes of cuts, and as much again to look them up. But cuts come from a
//! piecewise linear model, so most of them lie on a line with their neighbours. A [`Knots`] keeps those that do not;
//! between two knots the partitions are treated as equally wide. All arithmetic is on integers, so that all ranks route
//! identically, and monotone, so that a partition is an interval.

use super::cut_point::CutPoint;

/// Maximum number of partitions whose cuts are all kept, and of knots beyond that, unless cuts are too close together
/// to be left out: 64 KiB as a message.
pub(super) const MAX_KNOTS: usize = 4096;

/// Finest allowed error, in partitions; it is doubled until the knots are few enough.
const FINEST_ERROR: f64 = 1.0 / 128.0;

/// Minimum number of places (of 2^-32 of a key) per partition between two knots: with fewer, rounding would decide.
const MIN_PLACES: u128 = 256;

/// Leading digits of a place used by routing, of all places between two knots.
const PLACE_BITS: u32 = 40;

/// The cuts that are kept, and how many partitions lie before each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Knots {
    pub(super) cuts: Vec<CutPoint>,
    /// By knot: the partition that begins there. Ascending.
    pub(super) reached: Vec<u32>,
}

/// The interval from a knot to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Interval {
    /// The partition that begins at the knot.
    reached: u32,
    /// The last partition before the next knot, minus `reached`.
    last: u32,
    /// Places are divided by this power of two first.
    shift: u32,
    /// Partitions per place, times 2^64.
    slope: u64,
}

/// Returns a place in units of 2^-32 of a key.
fn place(cut: CutPoint) -> u128 {
    (u128::from(cut.ordinal) << 32) | u128::from(cut.tie)
}

impl Interval {
    /// Returns the intervals that begin at each knot; the one behind the last knot is the last partition.
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
        // A slope of one partition per place or more comes from a message that no planner sent.
        Self { reached, last: partitions.saturating_sub(1), shift, slope: u64::try_from(slope).unwrap_or(u64::MAX) }
    }

    /// Returns the partition of a place at or behind this knot, `from`, and before the next.
    #[inline]
    pub(super) fn destination(&self, from: CutPoint, ordinal: u64, tie: u32) -> u32 {
        if self.last == 0 {
            return self.reached;
        }
        // The place is not before the knot.
        let offset = place(CutPoint { ordinal, tie }) - place(from);
        let steps = (offset >> self.shift) as u64;
        let passed = (u128::from(steps) * u128::from(self.slope)) >> 64;
        self.reached + (passed as u64).min(u64::from(self.last)) as u32
    }
}

impl Knots {
    /// Keeps all cuts, or of more than [`MAX_KNOTS`] the fewest that approximate all others within an error.
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

    /// Keeps all cuts, whatever their number.
    pub(super) fn every(cuts: Vec<CutPoint>) -> Self {
        let reached = (1..=cuts.len() as u32).collect();
        Self { cuts, reached }
    }
}

/// Returns the numbers of the cuts to keep: the first, the last, and between them as few as possible such that the line
/// from each to the next passes within `error` partitions of all cuts between. From a knot the line may take any slope
/// within a cone, which every further cut narrows.
fn kept(cuts: &[CutPoint], error: f64) -> Vec<usize> {
    let mut kept = Vec::new();
    let mut index = 0;
    while index < cuts.len() {
        kept.push(index);
        index = next_knot(cuts, index, error);
    }
    kept
}

/// Returns the next cut to keep after the one kept at `from`, or the number of cuts at the end.
fn next_knot(cuts: &[CutPoint], from: usize, error: f64) -> usize {
    // Of cuts at one place only the last is needed. A line from the first would place the others' partitions behind it.
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

    /// Cuts as in a job of thousands: regions of all densities, keys that several partitions share, and cuts that
    /// coincide.
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

    /// Places around the cuts, and anywhere.
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

        /// Compared with the plain table, which counts cuts.
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
                    // A place just beside a cut may be counted to its other side, and partitions may be cut anywhere
                    // within the error. Between coinciding cuts there is no place.
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
        // Keys spread evenly by logarithm and one key with a tenth of the mass: knots are needed where lines bend.
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
        // Along a line through L cuts behind the p-th, the logarithm deviates by L*L/8p cuts. With the finest error,
        // 1/128, there are 8 * (131,072^0.5 - 13,107^0.5) = 1,980 lines from the 13,107th cut to the last.
        assert!((1980 * 16..2080 * 16).contains(&message.len()), "{} bytes", message.len());
        assert_eq!(table.partitions(), 131_072);
        assert_eq!(PartitionTable::decode(&message), Ok(table.clone()));
        assert!(table.memory_bytes() < 128 << 10, "{}", table.memory_bytes());
        for (index, cut) in cuts.iter().enumerate() {
            assert!(table.destination(cut.ordinal, cut.tie).abs_diff(index as u32 + 1) <= 1, "{index}");
        }
    }
}
