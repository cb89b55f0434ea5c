//! The division of an epoch's entries into parts. It follows from the epoch's contents alone, so any number of threads
//! and processes writes the same parts.

use std::io::IoSliceMut;
use std::ops::Range;

use super::entries::EntryReader;
use super::places::divide_places;
use super::sample::{IndexedRecords, SAMPLED_ROWS, sampled_rows};
use crate::error::{Error, Result};
use crate::format::RunKind;
use crate::partition::{CutPoint, PartitionTable, Partitioner, TieSequence, partitioner};
use crate::query::{EpochGroups, PageIndex};
use crate::schema::{Schema, Value};

/// Maximum number of parts of an epoch. A process has memtables for all parts that it writes.
const MAX_PARTS: u64 = 64;

/// Version of the only table of an epoch, as negotiated tables are counted.
const TABLE_VERSION: u32 = 1;

/// Bit of a destination that marks a value that is NaN.
const IS_NAN: u32 = 1 << 31;

/// The parts of an epoch's entries, and what belongs to each.
#[derive(Debug)]
pub(super) struct Division<'a> {
    schema: &'a Schema,
    partitioner: Box<dyn Partitioner>,
    table: PartitionTable,
}

/// Entries of one row group that belong to one part, as stored rows.
#[derive(Debug, Default)]
pub(super) struct Piece {
    pub(super) regular: Vec<u8>,
    /// Entries whose value is NaN.
    pub(super) nan: Vec<u8>,
}

impl<'a> Division<'a> {
    /// Divides the entries of an epoch into parts of about equal size, of about `part_bytes`. `schema` is that of the
    /// entries, or of a copy.
    ///
    /// # Errors
    /// Corruption of the records that are sampled, or a failure of storage.
    pub(super) fn of(records: &IndexedRecords<'_>, schema: &'a Schema, part_bytes: u64) -> Result<Self> {
        let parts = Self::count(records.groups.entries().map(|entry| entry.rows).sum(), schema, part_bytes);
        let mut partitioner = partitioner(schema);
        let table = match partitioner.fixed_table(TABLE_VERSION, parts) {
            Some(table) => table,
            None => {
                let by_place = partitioner.divides_a_frame();
                let sample = match parts {
                    1 => Vec::new(),
                    _ if by_place => divide_places(records, schema, &mut *partitioner, parts)?,
                    _ => sampled_values(records, &*partitioner, parts)?,
                };
                PartitionTable::sorted(TABLE_VERSION, cuts(sample, parts))
            }
        };
        Ok(Self { schema, partitioner, table })
    }

    /// Returns the number of parts into which that many entries are divided, unless they are all NaN.
    pub(super) fn count(rows: u64, schema: &Schema, part_bytes: u64) -> u32 {
        rows.saturating_mul(schema.row_bytes() as u64).div_ceil(part_bytes).clamp(1, MAX_PARTS) as u32
    }

    /// Returns the number of parts.
    pub(super) fn parts(&self) -> u32 {
        self.table.partitions()
    }

    /// Returns the version of the table and the values of a part, as its runs state them.
    pub(super) fn partition(&self, part: u32) -> (u32, Option<(Value, Value)>) {
        (self.table.version(), self.partitioner.bounds(self.table.closed_bounds(part)))
    }
}

/// Returns the quantiles of a sample that divide the entries into `parts`.
fn cuts(mut sample: Vec<CutPoint>, parts: u32) -> Vec<CutPoint> {
    sample.sort_unstable();
    let (count, parts) = (sample.len(), parts as usize);
    (1..parts).filter_map(|part| sample.get(count * part / parts).copied()).collect()
}

/// Returns a sample of the values, whose places follow from the numbers of rows.
fn sampled_values(records: &IndexedRecords<'_>, partitioner: &dyn Partitioner, parts: u32) -> Result<Vec<CutPoint>> {
    let mut sample = Vec::new();
    for (group, row) in sampled_rows(records.groups, parts) {
        sample_page(records, partitioner, group, row, &mut sample)?;
    }
    Ok(sample)
}

/// Adds values of the page of one row to a sample.
fn sample_page(
    records: &IndexedRecords<'_>,
    partitioner: &dyn Partitioner,
    group: usize,
    row: u64,
    sample: &mut Vec<CutPoint>,
) -> Result<()> {
    let (column, data_type) = (records.values.columns[0], records.values.types[0]);
    let mut ties = TieSequence::new(group as u32);
    let group = records.groups.group(group)?;
    let pages = group.pages(column)?;
    let number = pages.partition_point(|page| page.first_row <= row).saturating_sub(1);
    let Some(page) = pages.get(number) else { return Err(Error::internal("a row group without pages has rows")) };
    let mut raw = vec![0; page.bytes as usize];
    group.read(page.offset, &mut [IoSliceMut::new(&mut raw)])?;
    let mut values = Vec::new();
    group.decode(&raw, column, number, true, &mut values)?;
    let mut ordinals = Vec::new();
    partitioner.ordinals(&values, data_type.width(), &mut ordinals);
    for &ordinal in ordinals.iter().step_by(SAMPLED_ROWS) {
        if !partitioner.is_nan(ordinal) {
            sample.push(CutPoint { ordinal, tie: ties.next_tie() });
        }
    }
    Ok(())
}

/// Divides the entries of row groups among the parts of one process, in memory that it keeps.
pub(super) struct Divider<'a> {
    division: &'a Division<'a>,
    /// The parts of this process. Entries of others are left out.
    own: Range<u32>,
    reader: EntryReader<'a>,
    ordinals: Vec<u64>,
    destinations: Vec<u32>,
    rows: Vec<u8>,
}

impl<'a> Divider<'a> {
    /// Creates a divider of the entries of `records` that leaves out what belongs to none of the parts `own`.
    pub(super) fn new(division: &'a Division<'a>, own: Range<u32>, records: &IndexedRecords<'a>) -> Self {
        let reader = EntryReader::new(records.values);
        Self { division, own, reader, ordinals: Vec::new(), destinations: Vec::new(), rows: Vec::new() }
    }

    /// Reads row group `number`, whose first record is row `first_row` of its part. Returns the piece of each part.
    ///
    /// # Errors
    /// Corruption of the records, or a failure of storage.
    pub(super) fn divide(&mut self, groups: &EpochGroups, number: usize, first_row: u64) -> Result<Vec<Piece>> {
        self.reader.read(&groups.group(number)?, first_row)?;
        let by_place = self.division.partitioner.divides_a_frame();
        if by_place {
            // Places follow from several columns, and therefore from whole rows.
            self.pack()?;
        }
        self.route(number, by_place);
        let is_whole = self.own == (0..self.division.parts());
        if !is_whole {
            let own = |destination: &u32| self.own.contains(&(destination & !IS_NAN));
            self.reader.retain(self.destinations.iter().map(own));
            self.destinations.retain(own);
        }
        if !by_place || !is_whole {
            self.pack()?;
        }
        let mut counts = vec![[0usize; 2]; self.own.len()];
        for destination in &self.destinations {
            counts[((destination & !IS_NAN) - self.own.start) as usize][usize::from(destination & IS_NAN != 0)] += 1;
        }
        let row_bytes = self.division.schema.row_bytes();
        let room = |count: usize| Vec::with_capacity(count * row_bytes);
        let mut pieces: Vec<Piece> =
            counts.iter().map(|[regular, nan]| Piece { regular: room(*regular), nan: room(*nan) }).collect();
        // A copy of a fixed size takes a fraction of the time of one of any size.
        match row_bytes {
            12 => self.scatter::<12>(&mut pieces),
            16 => self.scatter::<16>(&mut pieces),
            20 => self.scatter::<20>(&mut pieces),
            _ => self.scatter_any(row_bytes, &mut pieces),
        }
        Ok(pieces)
    }

    /// Makes stored rows of the entries.
    fn pack(&mut self) -> Result<()> {
        self.rows.clear();
        self.division.schema.pack(&self.reader.entries()?, &mut self.rows)?;
        Ok(())
    }

    /// Computes the part of each entry of a row group. Entries without an order are spread over all parts.
    fn route(&mut self, number: usize, by_place: bool) {
        let Division { schema, partitioner, table } = self.division;
        self.ordinals.clear();
        self.destinations.clear();
        let (keys, stride) = match by_place {
            true => (self.rows.as_slice(), schema.row_bytes()),
            false => (self.reader.keys(), self.reader.key_bytes()),
        };
        partitioner.ordinals(keys, stride, &mut self.ordinals);
        match table.partitions() {
            1 => self.destinations.resize(self.ordinals.len(), 0),
            _ => table.destinations(&self.ordinals, &mut TieSequence::new(number as u32), &mut self.destinations),
        }
        // NaN has the largest ordinal.
        if self.ordinals.iter().max().is_some_and(|largest| partitioner.is_nan(*largest)) {
            let nan = (number as u64 % u64::from(table.partitions())) as u32 | IS_NAN;
            let routed = self.destinations.iter_mut().zip(&self.ordinals);
            routed.filter(|(_, ordinal)| partitioner.is_nan(**ordinal)).for_each(|(part, _)| *part = nan);
        }
    }

    fn scatter<const BYTES: usize>(&self, pieces: &mut [Piece]) {
        let (rows, _) = self.rows.as_chunks::<BYTES>();
        for (row, destination) in rows.iter().zip(&self.destinations) {
            self.piece(pieces, *destination).extend_from_slice(row);
        }
    }

    fn scatter_any(&self, row_bytes: usize, pieces: &mut [Piece]) {
        for (row, destination) in self.rows.chunks_exact(row_bytes).zip(&self.destinations) {
            self.piece(pieces, *destination).extend_from_slice(row);
        }
    }

    #[inline]
    fn piece<'p>(&self, pieces: &'p mut [Piece], destination: u32) -> &'p mut Vec<u8> {
        let Piece { regular, nan } = &mut pieces[((destination & !IS_NAN) - self.own.start) as usize];
        if destination & IS_NAN == 0 { regular } else { nan }
    }
}

impl Piece {
    /// Returns the rows by the kind of the runs that they belong to.
    pub(super) fn by_kind(&self) -> impl Iterator<Item = (RunKind, &[u8])> {
        let kinds = [(RunKind::Regular, &self.regular[..]), (RunKind::NanKey, &self.nan[..])];
        kinds.into_iter().filter(|(_, rows)| !rows.is_empty())
    }
}

/// Returns the parts that one of several processes writes.
pub(super) fn share(parts: u32, rank: usize, ranks: usize) -> Range<u32> {
    let begin = |rank: usize| (u64::from(parts) * rank as u64).div_ceil(ranks as u64) as u32;
    begin(rank)..begin(rank + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_has_one_process() {
        for parts in 1..=64 {
            for ranks in 1..=70 {
                let shares: Vec<Range<u32>> = (0..ranks).map(|rank| share(parts, rank, ranks)).collect();
                assert!(!shares[0].is_empty(), "the first process shows its progress");
                let all: Vec<u32> = shares.iter().cloned().flatten().collect();
                assert_eq!(all, (0..parts).collect::<Vec<_>>(), "{ranks} processes");
                let most = shares.iter().map(ExactSizeIterator::len).max();
                assert!(most <= Some(parts.div_ceil(ranks as u32) as usize), "{parts} parts, {ranks} processes");
            }
        }
    }
}
