//! Few knots in the place of many cut points: the partition's number as a broken line over (key, tie) space.
//!
//! With a cut point for each partition, a table's memory, its message and the time to read it grow with the job: at
//! 131,072 partitions 1.6 MB of cuts, as much again to look them up, at every rank. But cuts come out of a piecewise
//! linear model, so most of them lie on a line with their neighbours. A [`Knots`] keeps those that do not; between two knots
//! the partitions are taken as equally wide. All arithmetic is on integers, so that every rank routes alike, and
//! monotone, so that a partition is an interval.

use super::cut_point::CutPoint;

/// Most partitions whose cuts are all kept, and most knots beyond that, unless cuts lie too close to be left out: 64 KiB
/// as a message.
pub(super) const MOST_KNOTS: usize = 4096;

/// Finest error allowed, in partitions; it is doubled until the knots are few enough.
const FINEST_ERROR: f64 = 1.0 / 128.0;

/// Between two knots, a partition has at least so many places (of 2^-32 of a key): fewer, and rounding would decide.
const LEAST_PLACES: u128 = 256;

/// Digits of a place that routing looks at, of all places between two knots.
const PLACE_BITS: u32 = 40;

/// The cuts that are kept, and how many partitions lie before each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Knots {
    pub(super) cuts: Vec<CutPoint>,
    /// By knot: the partition that begins there. Ascending.
    pub(super) reached: Vec<u32>,
}

/// The stretch from a knot to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stretch {
    /// The partition that begins at the knot.
    reached: u32,
    /// The last one before the next knot, less that.
    last: u32,
    /// Places are divided by this power of two first.
    shift: u32,
    /// Partitions a place, times 2^64.
    slope: u64,
}

/// A place in units of 2^-32 of a key.
fn place(cut: CutPoint) -> u128 {
    (u128::from(cut.ordinal) << 32) | u128::from(cut.tie)
}

impl Stretch {
    /// The stretches that begin at each knot; the one behind the last knot is the last partition.
    pub(super) fn all(knots: &Knots) -> Vec<Self> {
        let next = |index: usize| knots.cuts.get(index + 1).zip(knots.reached.get(index + 1));
        let stretch = |(index, (&cut, &reached)): (usize, (&CutPoint, &u32))| match next(index) {
            Some((&end, &to)) => Self::new(cut, end, reached, to - reached),
            None => Self { reached, last: 0, shift: 0, slope: 0 },
        };
        knots.cuts.iter().zip(&knots.reached).enumerate().map(stretch).collect()
    }

    fn new(from: CutPoint, to: CutPoint, reached: u32, partitions: u32) -> Self {
        let width = place(to) - place(from);
        let shift = (u128::BITS - width.leading_zeros()).saturating_sub(PLACE_BITS);
        let places = (width >> shift).max(1);
        let slope = (u128::from(partitions) << 64) / places;
        // A slope of one partition a place or more comes from a message that no planner sent.
        Self { reached, last: partitions.saturating_sub(1), shift, slope: u64::try_from(slope).unwrap_or(u64::MAX) }
    }

    /// The partition of a place at or behind this knot, `from`, and before the next.
    #[inline]
    pub(super) fn destination(&self, from: CutPoint, ordinal: u64, tie: u32) -> u32 {
        if self.last == 0 {
            return self.reached;
        }
        // It is not before the knot.
        let offset = place(CutPoint { ordinal, tie }) - place(from);
        let steps = (offset >> self.shift) as u64;
        let passed = (u128::from(steps) * u128::from(self.slope)) >> 64;
        self.reached + (passed as u64).min(u64::from(self.last)) as u32
    }
}

impl Knots {
    /// All cuts, or where there are more than [`MOST_KNOTS`] the fewest that bring all others to within an error.
    pub(super) fn of(cuts: Vec<CutPoint>) -> Self {
        if cuts.len() < MOST_KNOTS {
            return Self::every(cuts);
        }
        let mut error = FINEST_ERROR;
        loop {
            let kept = kept(&cuts, error);
            if kept.len() <= MOST_KNOTS || error > cuts.len() as f64 {
                let reached = kept.iter().map(|&index| index as u32 + 1).collect();
                return Self { cuts: kept.iter().map(|&index| cuts[index]).collect(), reached };
            }
            error *= 2.0;
        }
    }

    /// All cuts, whatever their number.
    pub(super) fn every(cuts: Vec<CutPoint>) -> Self {
        let reached = (1..=cuts.len() as u32).collect();
        Self { cuts, reached }
    }
}

/// The numbers of the cuts to keep: the first, the last, and between them as few as a line from each to the next needs to
/// pass within `error` partitions of all between. From a knot the line may take any slope of a cone, which every cut
/// passed narrows.
fn kept(cuts: &[CutPoint], error: f64) -> Vec<usize> {
    let mut kept = Vec::new();
    let mut index = 0;
    while index < cuts.len() {
        kept.push(index);
        index = next_knot(cuts, index, error);
    }
    kept
}

/// The next cut to keep after the one kept at `from`; the number of cuts at the end.
fn next_knot(cuts: &[CutPoint], from: usize, error: f64) -> usize {
    // Of cuts at one place the last says it all. A line from the first would take the others for partitions behind it.
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
        if slope >= least && slope <= most && width >= LEAST_PLACES * (next - from) as u128 {
            reachable = next;
        }
        (least, most) = (least.max((partitions - error) / width as f64), most.min((partitions + error) / width as f64));
        if least > most || width < LEAST_PLACES * (next - from) as u128 {
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

    /// Cuts as a job of thousands has them: stretches of all densities, keys that several partitions share, and cuts
    /// that coincide.
    fn many_cuts() -> impl Strategy<Value = Vec<CutPoint>> {
        let stretch = (0u64..1 << 40, 0u32..6, 1usize..700);
        prop::collection::vec(stretch, 15..40).prop_map(|stretches| {
            let mut cuts = Vec::new();
            let mut ordinal = 1u64 << 50;
            for (width, kind, count) in stretches {
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

        /// Against the plain table, which counts cuts.
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
                    // within the error. Between coinciding cuts nothing lies.
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
        // Keys spread evenly by logarithm and one key with a tenth of the mass: what costs knots is where lines bend.
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
        // Of a line through L cuts behind the p-th the logarithm strays by L*L/8p cuts. With the finest error, 1/128, from the
        // 13,107th to the last there are 8 * (131,072^0.5 - 13,107^0.5) = 1,980 lines.
        assert!((1980 * 16..2080 * 16).contains(&message.len()), "{} bytes", message.len());
        assert_eq!(table.partitions(), 131_072);
        assert_eq!(PartitionTable::decode(&message), Ok(table.clone()));
        assert!(table.memory_bytes() < 128 << 10, "{}", table.memory_bytes());
        for (index, cut) in cuts.iter().enumerate() {
            assert!(table.destination(cut.ordinal, cut.tie).abs_diff(index as u32 + 1) <= 1, "{index}");
        }
    }
}
