//! Partition tables: cut points in (key, tie) space, and routing by them.
//!
//! A table of P partitions has P-1 cut points in non-decreasing order. The record (ordinal, tie) belongs to the
//! partition whose number is the count of cut points at or below it. There are no gaps: keys outside of what was ever
//! seen go to the outermost partitions. A key with more mass than one partition takes is cut inside: several cut points
//! share its ordinal and differ in their tie, and its records are spread by the ties that [`TieSequence`] deals out.

/// A place in (key, tie) space; records at or above it belong to the partitions behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CutPoint {
    /// The key's ordinal.
    pub ordinal: u64,
    /// The place among the records that share the key, as a fraction of 2^32.
    pub tie: u32,
}

/// Bytes that are no table or no pivots.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} in a message of the partitioner")]
pub struct DecodeError {
    /// What did not fit.
    pub what: &'static str,
}

/// Deals out ties: a Weyl sequence, so that any stretch of consecutive records is spread evenly over all ties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TieSequence {
    next: u32,
}

impl TieSequence {
    /// 2^32 divided by the golden ratio, odd: the step of the most even sequence.
    const STEP: u32 = 0x9E37_79B9;

    /// A sequence that starts at a place of its own for each seed (a rank's number, say).
    pub fn new(seed: u32) -> Self {
        // All sequences are shifts of one; the multiplier keeps the shifts between any two seeds large.
        Self { next: seed.wrapping_mul(0x85EB_CA6B) }
    }

    /// The next record's tie.
    #[inline]
    pub fn next_tie(&mut self) -> u32 {
        let tie = self.next;
        self.next = tie.wrapping_add(Self::STEP);
        tie
    }
}

/// Where every key goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionTable {
    version: u32,
    cuts: Vec<CutPoint>,
    cells: Cells,
}

/// Equal cells over the ordinals from the first cut to the last: most lie between two cuts, so that a key's cell says how
/// many cuts are below it, and the cost of routing does not grow with the number of partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Cells {
    /// Where the first cell begins: one cell before the first cut.
    begin: u64,
    /// Binary logarithm of a cell's width.
    shift: u32,
    /// Cuts below each cell's beginning.
    below: Vec<u32>,
}

/// Fewest cells, and cells per partition where those are many.
const LEAST_CELLS: usize = 1024;
const CELLS_PER_CUT: usize = 4;

impl Cells {
    fn new(cuts: &[CutPoint]) -> Self {
        let (first, last) = match (cuts.first(), cuts.last()) {
            (Some(first), Some(last)) => (first.ordinal, last.ordinal),
            _ => (0, 0),
        };
        let wanted = LEAST_CELLS.max(cuts.len().saturating_mul(CELLS_PER_CUT)).next_power_of_two();
        let span_bits = u64::BITS - (last - first).leading_zeros();
        let shift = span_bits.saturating_sub(wanted.trailing_zeros());
        let begin = first.saturating_sub(1 << shift);
        // The last cell that holds a cut, one behind it for all keys beyond, and where that one would end.
        let count = ((last - begin) >> shift) as usize + 3;
        let mut below = Vec::with_capacity(count);
        let mut passed = 0;
        for cell in 0..count as u64 {
            // Behind the last cut it may lie beyond all ordinals.
            let start = u128::from(begin) + (u128::from(cell) << shift);
            passed += cuts[passed..].iter().take_while(|cut| u128::from(cut.ordinal) < start).count();
            below.push(passed as u32);
        }
        Self { begin, shift, below }
    }

    /// Between which numbers the count of cuts below a key lies.
    #[inline]
    fn range(&self, ordinal: u64) -> (u32, u32) {
        let cell = (ordinal.saturating_sub(self.begin) >> self.shift) as usize;
        // Never fewer than three: `new` counts three more than there are cells with a cut.
        let cell = cell.min(self.below.len() - 2);
        (self.below[cell], self.below[cell + 1])
    }
}

/// Bytes of one cut point in a message.
const CUT_BYTES: usize = 12;

/// Bytes before the cut points in a message.
const HEADER_BYTES: usize = 8;

impl PartitionTable {
    /// A table from cut points; they must not decrease.
    pub fn new(version: u32, cuts: Vec<CutPoint>) -> Result<Self, DecodeError> {
        if !cuts.is_sorted() {
            return Err(DecodeError { what: "cut points out of order" });
        }
        if u32::try_from(cuts.len()).is_err() {
            return Err(DecodeError { what: "more cut points than partitions can be numbered" });
        }
        Ok(Self::sorted(version, cuts))
    }

    /// A table from cut points in any order.
    pub(crate) fn sorted(version: u32, mut cuts: Vec<CutPoint>) -> Self {
        cuts.sort_unstable();
        let cells = Cells::new(&cuts);
        Self { version, cuts, cells }
    }

    /// The number of the renegotiation that made the table.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The cut points, one fewer than partitions.
    pub fn cuts(&self) -> &[CutPoint] {
        &self.cuts
    }

    /// How many partitions there are; at least one.
    pub fn partitions(&self) -> u32 {
        // `new` refused lengths that do not fit, and one partition more still fits as `cuts.len()` was counted.
        (self.cuts.len() as u32).saturating_add(1)
    }

    /// The partition of one record.
    #[inline]
    pub fn destination(&self, ordinal: u64, tie: u32) -> u32 {
        let (least, most) = self.cells.range(ordinal);
        let below = if least == most {
            least as usize
        } else {
            let cuts = &self.cuts[least as usize..most as usize];
            least as usize + cuts.partition_point(|cut| cut.ordinal < ordinal)
        };
        self.settle(below, ordinal, tie)
    }

    /// Appends the partitions of many records to `out`; every record takes one tie from `ties`.
    pub fn destinations(&self, ordinals: &[u64], ties: &mut TieSequence, out: &mut Vec<u32>) {
        out.extend(ordinals.iter().map(|&ordinal| self.destination(ordinal, ties.next_tie())));
    }

    /// Given the count of cuts at smaller keys, adds those at the same key whose tie is not above.
    #[inline]
    fn settle(&self, below: usize, ordinal: u64, tie: u32) -> u32 {
        // A count of cuts, and `new` refused more than fit.
        if below < self.cuts.len() && self.cuts[below].ordinal == ordinal {
            let record = CutPoint { ordinal, tie };
            return (below + self.cuts[below..].partition_point(|cut| *cut <= record)) as u32;
        }
        below as u32
    }

    /// The smallest and largest key a partition takes, both included. Ties are not sent, so both sides of a key that is
    /// cut inside accept it. The outermost partitions reach to the extremes. The bounds of a partition that takes
    /// nothing hold one key.
    pub fn closed_bounds(&self, partition: u32) -> (u64, u64) {
        let partition = partition as usize;
        let low = match partition.checked_sub(1) {
            Some(before) => self.cuts.get(before).map_or(u64::MAX, |cut| cut.ordinal),
            None => 0,
        };
        let high = match self.cuts.get(partition) {
            Some(cut) if cut.tie == 0 => cut.ordinal.saturating_sub(1),
            Some(cut) => cut.ordinal,
            None => u64::MAX,
        };
        (low, high.max(low))
    }

    /// The table as bytes of a message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.reserve(HEADER_BYTES + self.cuts.len() * CUT_BYTES);
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&(self.cuts.len() as u32).to_le_bytes());
        for cut in &self.cuts {
            out.extend_from_slice(&cut.ordinal.to_le_bytes());
            out.extend_from_slice(&cut.tie.to_le_bytes());
        }
    }

    /// Reads what [`PartitionTable::encode`] wrote; any other bytes are refused or give some valid table.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let short = DecodeError { what: "a table cut short" };
        let (version, rest) = bytes.split_first_chunk::<4>().ok_or(short.clone())?;
        let (count, rest) = rest.split_first_chunk::<4>().ok_or(short.clone())?;
        let (cuts, tail) = rest.as_chunks::<CUT_BYTES>();
        if !tail.is_empty() || cuts.len() != u32::from_le_bytes(*count) as usize {
            return Err(DecodeError { what: "a table of the wrong length" });
        }
        let cuts = cuts
            .iter()
            .map(|raw| {
                let [a, b, c, d, e, f, g, h, i, j, k, l] = *raw;
                CutPoint {
                    ordinal: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
                    tie: u32::from_le_bytes([i, j, k, l]),
                }
            })
            .collect();
        Self::new(u32::from_le_bytes(*version), cuts)
    }
}
