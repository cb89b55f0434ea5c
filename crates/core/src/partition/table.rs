//! Partition tables: cut points in (key, tie) space, and routing.
//!
//! A table of P partitions has P-1 cut points in ascending order, some of which may be equal. The partition of a record
//! (ordinal, tie) is the number of cut points at or below it. Partitions have no gaps: keys outside the observed range
//! belong to the outermost partitions. A key whose mass exceeds one partition is divided: several cut points have its
//! ordinal, and differ in their ties. The ties of a [`TieSequence`] spread its records over these partitions.
//!
//! A table with thousands of partitions omits the cut points that a line through others approximates (`knots`), so its
//! size does not grow with the job. Copies of a table share their memory.

use std::sync::{Arc, Mutex, PoisonError};

use super::cut_point::CutPoint;
use super::knots::{Interval, Knots};
use crate::schema::even_share;

/// The error for bytes that are neither a valid table nor valid pivots.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} in a message of the partitioner")]
pub struct DecodeError {
    /// The invalid element.
    pub what: &'static str,
}

/// A generator of ties: a Weyl sequence, which spreads any consecutive records evenly over all ties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TieSequence {
    next: u32,
}

impl TieSequence {
    /// Step of the sequence: 2^32 divided by the golden ratio, rounded to an odd number. This step spreads the ties
    /// most evenly.
    const STEP: u32 = 0x9E37_79B9;

    /// Creates a sequence. Different seeds, such as rank numbers, have different starting points.
    pub fn new(seed: u32) -> Self {
        // All sequences are shifts of one sequence. The multiplier keeps the shift between any two seeds large.
        Self { next: seed.wrapping_mul(0x85EB_CA6B) }
    }

    /// Returns the tie of the next record.
    #[inline]
    pub fn next_tie(&mut self) -> u32 {
        let tie = self.next;
        self.next = tie.wrapping_add(Self::STEP);
        tie
    }
}

/// A partition table, which maps every key to a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionTable {
    version: u32,
    partitions: u32,
    /// `None` if the partitions divide all ordinals evenly.
    cut_points: Option<Arc<CutPoints>>,
}

#[derive(Debug, PartialEq, Eq)]
struct CutPoints {
    /// The kept cut points, ascending.
    cuts: Vec<CutPoint>,
    /// The interval after each cut point. Empty if all cut points are kept.
    intervals: Vec<Interval>,
    /// The partition that begins at each cut point. Empty if all cut points are kept.
    reached: Vec<u32>,
    cells: Cells,
}

/// A cache of decoded partition tables. The ranks of a process share the cache, so each message is decoded once.
#[derive(Debug, Default)]
pub struct TableCache {
    /// The most recent messages and their tables.
    tables: Mutex<Vec<(Vec<u8>, PartitionTable)>>,
}

/// Number of tables in the cache. Some ranks still route with one table while others already receive the next.
const MAX_SHELVED: usize = 2;

impl TableCache {
    /// Decodes a table like [`PartitionTable::decode`]. Tables from equal messages share their memory.
    pub fn decode(&self, bytes: &[u8]) -> Result<PartitionTable, DecodeError> {
        // If another thread panics, the cache still contains complete entries.
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, table)) = tables.iter().find(|(message, _)| message == bytes) {
            return Ok(table.clone());
        }
        let table = PartitionTable::decode(bytes)?;
        if tables.len() == MAX_SHELVED {
            tables.remove(0);
        }
        tables.push((bytes.to_vec(), table.clone()));
        Ok(table)
    }
}

/// A lookup structure: equal cells over the ordinals from the first to the last cut point.
///
/// Most cells lie between two cut points, so the cell of a key determines the number of cut points below the key. The
/// cost of routing does not grow with the number of partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Cells {
    /// Start of the first cell, which is one cell before the first cut point.
    begin: u64,
    /// Binary logarithm of a cell's width.
    shift: u32,
    /// Number of cut points below the start of each cell.
    below: Vec<u32>,
}

/// Minimum number of cells.
const MIN_CELLS: usize = 1024;
/// Number of cells per cut point, if there are many.
const CELLS_PER_CUT: usize = 4;

impl Cells {
    fn new(cuts: &[CutPoint]) -> Self {
        let (first, last) = match (cuts.first(), cuts.last()) {
            (Some(first), Some(last)) => (first.ordinal, last.ordinal),
            _ => (0, 0),
        };
        let wanted = MIN_CELLS.max(cuts.len().saturating_mul(CELLS_PER_CUT)).next_power_of_two();
        let span_bits = u64::BITS - (last - first).leading_zeros();
        let shift = span_bits.saturating_sub(wanted.trailing_zeros());
        let begin = first.saturating_sub(1 << shift);
        // Three more: the cell of the last cut point, a cell for all larger keys, and the end of that cell.
        let count = ((last - begin) >> shift) as usize + 3;
        let mut below = Vec::with_capacity(count);
        let mut passed = 0;
        for cell in 0..count as u64 {
            // The start of a cell after the last cut point may exceed all ordinals.
            let start = u128::from(begin) + (u128::from(cell) << shift);
            passed += cuts[passed..].iter().take_while(|cut| u128::from(cut.ordinal) < start).count();
            below.push(passed as u32);
        }
        Self { begin, shift, below }
    }

    /// Returns bounds of the number of cut points below a key.
    #[inline]
    fn range(&self, ordinal: u64) -> (u32, u32) {
        let cell = (ordinal.saturating_sub(self.begin) >> self.shift) as usize;
        // `below` has at least three elements.
        let cell = cell.min(self.below.len() - 2);
        (self.below[cell], self.below[cell + 1])
    }
}

/// Size of a cut point in a message, in bytes: key, tie, and the partition that begins there.
const CUT_BYTES: usize = 16;

/// Size of a message before the cut points, in bytes: version, number of partitions, and number of cut points.
const HEADER_BYTES: usize = 12;

impl PartitionTable {
    /// Creates a table from cut points in ascending order.
    ///
    /// # Errors
    /// If the cut points are not in order, or if there are more than partition numbers.
    pub fn new(version: u32, cuts: Vec<CutPoint>) -> Result<Self, DecodeError> {
        if !cuts.is_sorted() {
            return Err(DecodeError { what: "cut points out of order" });
        }
        if u32::try_from(cuts.len()).is_err() {
            return Err(DecodeError { what: "more cut points than partitions can be numbered" });
        }
        Ok(Self::sorted(version, cuts))
    }

    /// Creates a table from cut points in any order.
    pub(crate) fn sorted(version: u32, mut cuts: Vec<CutPoint>) -> Self {
        cuts.sort_unstable();
        let partitions = (cuts.len() as u32).saturating_add(1);
        Self::of_knots(version, partitions, Knots::of(cuts))
    }

    /// Creates a table that keeps all cut points, regardless of their number. Used as a reference for other tables.
    pub fn with_every_cut(version: u32, mut cuts: Vec<CutPoint>) -> Self {
        cuts.sort_unstable();
        let partitions = (cuts.len() as u32).saturating_add(1);
        Self::of_knots(version, partitions, Knots::every(cuts))
    }

    /// Creates a table that divides all ordinals evenly, without cut points. Such a table is not sent.
    pub(super) fn even(version: u32, partitions: u32) -> Self {
        Self { version, partitions: partitions.max(1), cut_points: None }
    }

    pub(super) fn of_knots(version: u32, partitions: u32, knots: Knots) -> Self {
        let cells = Cells::new(&knots.cuts);
        let all = knots.cuts.len() + 1 == partitions as usize;
        let intervals = if all { Vec::new() } else { Interval::all(&knots) };
        let reached = if all { Vec::new() } else { knots.reached };
        let cut_points = CutPoints { cuts: knots.cuts, intervals, reached, cells };
        Self { version, partitions, cut_points: Some(Arc::new(cut_points)) }
    }

    /// Returns the number of the renegotiation that created the table.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Returns the kept cut points: one fewer than partitions, unless there are thousands of partitions. None of a
    /// table that divides all ordinals evenly.
    pub fn cuts(&self) -> &[CutPoint] {
        self.cut_points.as_ref().map_or(&[], |cut_points| &cut_points.cuts)
    }

    /// Returns the number of partitions, which is at least one.
    pub fn partitions(&self) -> u32 {
        self.partitions
    }

    /// Returns the size of the table in memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let Some(cut_points) = &self.cut_points else { return 0 };
        let CutPoints { cuts, intervals, reached, cells } = &**cut_points;
        size_of_val(&cuts[..]) + size_of_val(&intervals[..]) + size_of_val(&reached[..]) + size_of_val(&cells.below[..])
    }

    /// Returns the length of the encoded table in bytes.
    pub fn message_bytes(&self) -> usize {
        HEADER_BYTES + self.cuts().len() * CUT_BYTES
    }

    /// Returns the partition of one record.
    #[inline]
    pub fn destination(&self, ordinal: u64, tie: u32) -> u32 {
        match &self.cut_points {
            Some(cut_points) => cut_points.destination(ordinal, tie),
            None => even_share(ordinal, self.partitions),
        }
    }

    /// Appends the partitions of many records to `out`. Every record uses one tie from `ties`.
    pub fn destinations(&self, ordinals: &[u64], ties: &mut TieSequence, out: &mut Vec<u32>) {
        match &self.cut_points {
            Some(cut_points) => {
                out.extend(ordinals.iter().map(|&ordinal| cut_points.destination(ordinal, ties.next_tie())));
            }
            None => out.extend(ordinals.iter().map(|&ordinal| even_share(ordinal, self.partitions))),
        }
    }

    /// Returns the smallest and largest key of a partition, both inclusive.
    ///
    /// Ties are not sent, so all partitions of a divided key include this key. The outermost partitions extend to the
    /// extremes. The bounds of an empty partition contain one key.
    pub fn closed_bounds(&self, partition: u32) -> (u64, u64) {
        let Some(cut_points) = &self.cut_points else { return even_bounds(partition, self.partitions) };
        if !cut_points.intervals.is_empty() {
            return self.searched_bounds(partition);
        }
        let (partition, cuts) = (partition as usize, &cut_points.cuts);
        let low = match partition.checked_sub(1) {
            Some(before) => cuts.get(before).map_or(u64::MAX, |cut| cut.ordinal),
            None => 0,
        };
        let high = match cuts.get(partition) {
            Some(cut) if cut.tie == 0 => cut.ordinal.saturating_sub(1),
            Some(cut) => cut.ordinal,
            None => u64::MAX,
        };
        (low, high.max(low))
    }

    /// Returns the closed bounds of a partition in a table that does not keep all cut points. Searches for them by
    /// routing keys.
    ///
    /// The lower bound is the first key with a record that may be routed to this or a later partition. The upper bound
    /// is the last key with a record that may be routed to this or an earlier partition.
    fn searched_bounds(&self, partition: u32) -> (u64, u64) {
        let low = first_ordinal(|ordinal| self.destination(ordinal, u32::MAX) >= partition).unwrap_or(u64::MAX);
        let beyond = first_ordinal(|ordinal| self.destination(ordinal, 0) > partition);
        let high = beyond.map_or(u64::MAX, |ordinal| ordinal.saturating_sub(1));
        (low, high.max(low))
    }

    /// Appends the encoded table to a message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (cuts, reached) =
            self.cut_points.as_ref().map_or((&[][..], &[][..]), |cut_points| (&cut_points.cuts, &cut_points.reached));
        out.reserve(self.message_bytes());
        for field in [self.version, self.partitions, cuts.len() as u32] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        for (index, cut) in cuts.iter().enumerate() {
            out.extend_from_slice(&cut.ordinal.to_le_bytes());
            out.extend_from_slice(&cut.tie.to_le_bytes());
            let partition = reached.get(index).copied().unwrap_or(index as u32 + 1);
            out.extend_from_slice(&partition.to_le_bytes());
        }
    }

    /// Decodes the output of [`PartitionTable::encode`]. Other input leads to an error or to another valid table.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let refuse = |what| Err(DecodeError { what });
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return refuse("a truncated table");
        };
        let field = |raw: &[u8]| raw.first_chunk::<4>().map_or(0, |raw| u32::from_le_bytes(*raw));
        let (version, partitions, count) = (field(&header[..4]), field(&header[4..8]), field(&header[8..]));
        let (entries, tail) = rest.as_chunks::<CUT_BYTES>();
        if !tail.is_empty() || entries.len() != count as usize {
            return refuse("a table of an invalid length");
        }
        let cut = |raw: &[u8; CUT_BYTES]| CutPoint {
            ordinal: raw.first_chunk::<8>().map_or(0, |raw| u64::from_le_bytes(*raw)),
            tie: field(&raw[8..12]),
        };
        let cuts: Vec<CutPoint> = entries.iter().map(cut).collect();
        let reached: Vec<u32> = entries.iter().map(|raw| field(&raw[12..])).collect();
        if !cuts.is_sorted() {
            return refuse("cut points out of order");
        }
        // The first cut point must begin partition 1, and the last cut point must begin the last partition.
        let whole = match (reached.first(), reached.last()) {
            (Some(&first), Some(&last)) => first == 1 && partitions.checked_sub(1) == Some(last),
            _ => partitions == 1,
        };
        if !whole || !reached.is_sorted_by(|one, next| one < next) {
            return refuse("partitions out of order");
        }
        Ok(Self::of_knots(version, partitions, Knots { cuts, reached }))
    }
}

impl CutPoints {
    #[inline]
    fn destination(&self, ordinal: u64, tie: u32) -> u32 {
        let (least, most) = self.cells.range(ordinal);
        let below = if least == most {
            least as usize
        } else {
            let cuts = &self.cuts[least as usize..most as usize];
            least as usize + cuts.partition_point(|cut| cut.ordinal < ordinal)
        };
        let passed = self.settle(below, ordinal, tie);
        match passed.checked_sub(1) {
            Some(knot) if !self.intervals.is_empty() => {
                self.intervals[knot as usize].destination(self.cuts[knot as usize], ordinal, tie)
            }
            _ => passed,
        }
    }

    /// Returns the number of cut points at or below a record. `below` is the number of cut points with smaller keys.
    #[inline]
    fn settle(&self, below: usize, ordinal: u64, tie: u32) -> u32 {
        // The result is a number of cut points, which `new` has limited to u32.
        if below < self.cuts.len() && self.cuts[below].ordinal == ordinal {
            let record = CutPoint { ordinal, tie };
            return (below + self.cuts[below..].partition_point(|cut| *cut <= record)) as u32;
        }
        below as u32
    }
}

/// Returns the smallest and largest ordinal of a partition, if all ordinals are divided evenly ([`even_share`]).
fn even_bounds(partition: u32, partitions: u32) -> (u64, u64) {
    let begin = |partition: u128| (partition << u64::BITS).div_ceil(u128::from(partitions));
    let (low, end) = (begin(u128::from(partition)), begin(u128::from(partition) + 1));
    (low.min(u128::from(u64::MAX)) as u64, (end - 1).min(u128::from(u64::MAX)) as u64)
}

/// Returns the smallest ordinal with a property. All larger ordinals must have the property too.
fn first_ordinal(has: impl Fn(u64) -> bool) -> Option<u64> {
    if !has(u64::MAX) {
        return None;
    }
    let (mut low, mut high) = (0, u64::MAX);
    while low < high {
        let middle = low + (high - low) / 2;
        if has(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Some(low)
}
