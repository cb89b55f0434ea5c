//! The seal after every run, by which salvage finds the run in a file without a footer.
//!
//! A seal ends at a block boundary, so the last bytes of every block suffice to find all seals. Seals lie in the gaps
//! after a run's last page, which Parquet readers never read.

use std::io;
use std::path::Path;

use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_64;

use crate::error::{IoContext, Result};
use crate::format::manifest::entries::{PartId, RunKind};
use crate::format::parquet::footer::PartIdentity;
use crate::format::parquet::physical::{Bound, decode_bound, encode_bound, physical_width};
use crate::format::row_group::level_intervals::LevelIntervals;
use crate::format::version::FORMAT_VERSION;
use crate::schema::{Schema, Value};
use crate::storage::{ALIGNMENT, ReadableFile};

/// Magic number at the end of a seal.
const SEAL_MAGIC: &[u8; 8] = b"TBDTSEAL";
/// Length of a seal's trailer in bytes: the seal's length (u64), its checksum (u64) and the magic number.
const TRAILER_BYTES: usize = 24;
/// Maximum length of a seal in bytes, sufficient for Parquet's limit of 32,767 row groups.
const MAX_SEAL_BYTES: usize = 1 << 21;
/// The number of a run's partition, if there is none or it is unknown.
const NO_PARTITION: u32 = u32::MAX;
/// Number of bytes per read while scanning.
const SCAN_BYTES: usize = 1 << 20;

/// The location of one row group of a sealed run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealedRowGroup {
    /// Offset of the row group's pages in the file.
    pub offset: u64,
    /// Length of the row group's pages in bytes.
    pub bytes: u64,
    /// Number of records.
    pub rows: u64,
    /// xxh3-64 of the row group's pages.
    pub checksum: u64,
}

/// A completely written run, as its seal describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct SealedRun {
    /// Dataset, commit and epoch for which the run was written.
    pub identity: PartIdentity,
    /// Part to which the run was written.
    pub part: PartId,
    /// Level of detail of the part. 0 in datasets without levels.
    pub level: u8,
    /// How the level was sampled, if it is above 0 and levels are in proportion to a column.
    pub intervals: Option<LevelIntervals>,
    /// Number of the run.
    pub run: u32,
    /// The kind of the run.
    pub kind: RunKind,
    /// Version of the partition table in force when the run was flushed.
    pub table_version: u32,
    /// The receiver's partition at that time. `None` if the receiver had no partition.
    pub bounds: Option<(Value, Value)>,
    /// Rows per page that the writer was asked for. 0 if the places of pages do not follow from it.
    pub page_rows: u32,
    /// Row groups of the run.
    pub row_groups: Vec<SealedRowGroup>,
}

impl SealedRun {
    /// Returns the number of records in the run.
    pub fn rows(&self) -> u64 {
        self.row_groups.iter().map(|group| group.rows).sum()
    }
}

/// Encodes a seal.
pub(in crate::format) fn encode_seal(run: &SealedRun, schema: &Schema) -> Vec<u8> {
    let mut out = Vec::with_capacity(192 + 32 * run.row_groups.len());
    out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    out.extend_from_slice(&(schema.columns().len() as u32).to_le_bytes());
    encode_head(run, schema, &mut out);
    out.extend_from_slice(&(run.row_groups.len() as u64).to_le_bytes());
    for group in &run.row_groups {
        for number in [group.offset, group.bytes, group.rows, group.checksum] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }
    let intervals = run.intervals.iter().flat_map(LevelIntervals::numbers);
    intervals.for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
    out.extend_from_slice(&OwnerMark::of(run).encode());
    let bytes = (out.len() + TRAILER_BYTES) as u64;
    out.extend_from_slice(&bytes.to_le_bytes());
    out.extend_from_slice(&xxh3_64(&out).to_le_bytes());
    out.extend_from_slice(SEAL_MAGIC);
    out
}

fn encode_head(run: &SealedRun, schema: &Schema, out: &mut Vec<u8>) {
    out.extend_from_slice(run.identity.dataset.as_bytes());
    out.extend_from_slice(&run.identity.epoch.to_le_bytes());
    let bounded_columns = u32::from(run.bounds.is_some());
    let kind = u32::from(run.kind.code());
    for number in [run.run, kind, run.table_version, NO_PARTITION, run.page_rows, bounded_columns] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    if run.bounds.is_some() {
        encode_bounds(run.bounds, schema, out);
    }
}

/// Appends 16 bytes: the bounds in physical width, each filled up to 8 bytes. Zeros if there are none.
fn encode_bounds(bounds: Option<(Value, Value)>, schema: &Schema, out: &mut Vec<u8>) {
    let data_type = schema.key().data_type;
    let mut encoded = Vec::with_capacity(16);
    if let Some((low, high)) = bounds {
        encode_bound(data_type, low, Bound::Low, &mut encoded);
        encoded.resize(8, 0);
        encode_bound(data_type, high, Bound::High, &mut encoded);
    }
    encoded.resize(16, 0);
    out.extend_from_slice(&encoded);
}

/// The commit and the part that a seal states just before its trailer, at a fixed distance from its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::format) struct OwnerMark {
    pub(in crate::format) commit: Uuid,
    pub(in crate::format) part: PartId,
    pub(in crate::format) level: u32,
}

impl OwnerMark {
    /// Length of the mark and of the trailer after it.
    pub(in crate::format) const CLOSING_BYTES: usize = 32 + TRAILER_BYTES;

    fn of(run: &SealedRun) -> Self {
        Self { commit: run.identity.commit, part: run.part, level: u32::from(run.level) }
    }

    fn encode(self) -> [u8; 32] {
        let mut mark = [0; 32];
        mark[..16].copy_from_slice(self.commit.as_bytes());
        for (place, number) in [(16, self.part.rank), (20, self.part.roll), (24, self.level)] {
            mark[place..place + 4].copy_from_slice(&number.to_le_bytes());
        }
        mark
    }

    fn decode(cursor: &mut Cursor<'_>) -> Option<Self> {
        let commit = Uuid::from_bytes(cursor.take()?);
        let part = PartId { rank: cursor.u32()?, roll: cursor.u32()? };
        let level = cursor.u32()?;
        cursor.u32()?;
        Some(Self { commit, part, level })
    }

    /// Decodes the mark from the last [`OwnerMark::CLOSING_BYTES`] bytes of a seal. Returns `None` if they do not end a
    /// seal.
    pub(in crate::format) fn find(closing: &[u8; Self::CLOSING_BYTES]) -> Option<Self> {
        closing.ends_with(SEAL_MAGIC).then_some(())?;
        Self::decode(&mut Cursor(closing))
    }
}

/// A cursor that reads fixed-width numbers from the front of a slice.
struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}

/// Decodes a seal at offset `start` of its file. Returns `None` if the seal is invalid or does not match its position.
fn decode_seal(bytes: &[u8], start: u64, schema: &Schema) -> Option<SealedRun> {
    let (covered, trailer) = bytes.split_at_checked(bytes.len().checked_sub(16)?)?;
    if trailer[..8] != xxh3_64(covered).to_le_bytes() || trailer[8..] != *SEAL_MAGIC {
        return None;
    }
    let mut cursor = Cursor(covered);
    if (cursor.u32()?, cursor.u32()? as usize) != (FORMAT_VERSION, schema.columns().len()) {
        return None;
    }
    let mut run = decode_head(&mut cursor, covered, schema)?;
    let count = cursor.u64()?;
    let mut position = None;
    for _ in 0..count {
        let group = SealedRowGroup {
            offset: cursor.u64()?,
            bytes: cursor.u64()?,
            rows: cursor.u64()?,
            checksum: cursor.u64()?,
        };
        if position.is_some_and(|position| position != group.offset) {
            return None;
        }
        // A record takes at least one byte. This limits counts by rows to the length of the file.
        if group.rows > group.bytes {
            return None;
        }
        position = Some(group.offset.checked_add(group.bytes)?);
        run.row_groups.push(group);
    }
    if run.level > 0 && schema.level_weight().is_some() {
        let numbers: Option<Vec<f64>> = (0..=run.level).map(|_| cursor.u64().map(f64::from_bits)).collect();
        run.intervals = Some(LevelIntervals::of_numbers(&numbers?)?);
    }
    // A seal begins less than one block after the last page. Any other seal was copied from another position.
    let gap = start.checked_sub(position?)?;
    (gap < ALIGNMENT as u64).then_some(run)
}

fn decode_head(cursor: &mut Cursor<'_>, covered: &[u8], schema: &Schema) -> Option<SealedRun> {
    let mark_at = covered.len().checked_sub(OwnerMark::CLOSING_BYTES - 16)?;
    let OwnerMark { commit, part, level } = OwnerMark::decode(&mut Cursor(&covered[mark_at..]))?;
    let dataset = Uuid::from_bytes(cursor.take()?);
    let identity = PartIdentity { dataset, commit, epoch: cursor.u64()? };
    let (run, kind, table_version) = (cursor.u32()?, RunKind::from_code(cursor.u32()?)?, cursor.u32()?);
    let (_partition, page_rows) = (cursor.u32()?, cursor.u32()?);
    let bounds = match cursor.u32()? {
        0 => None,
        1 => decode_bounds(cursor, schema).map(|(low, high)| low.zip(high))?,
        _ => return None,
    };
    let (level, row_groups) = (u8::try_from(level).ok()?, Vec::new());
    Some(SealedRun { identity, part, level, intervals: None, run, kind, table_version, bounds, page_rows, row_groups })
}

/// Decodes the 16 bytes of the bounds. A bound is `None` if its bytes are not a key.
fn decode_bounds(cursor: &mut Cursor<'_>, schema: &Schema) -> Option<(Option<Value>, Option<Value>)> {
    let data_type = schema.key().data_type;
    let key = |raw: [u8; 8]| decode_bound(data_type, raw.get(..physical_width(data_type))?);
    let (low, high) = (cursor.take()?, cursor.take()?);
    Some((key(low), key(high)))
}

/// Finds the sealed runs of a part, in file order. The part need not have a footer.
///
/// This function does not verify pages. Recovery verifies their checksums.
///
/// # Errors
/// If the file cannot be read. Corruption is not an error: runs without a valid seal are skipped.
pub fn scan_seals(file: &dyn ReadableFile, path: &Path, schema: &Schema) -> Result<Vec<SealedRun>> {
    let mut runs = Vec::new();
    visit_seals(file, path, schema, |run| {
        runs.push(run);
        true
    })?;
    Ok(runs)
}

/// Returns whether a part has a sealed run. Reads the file up to the first seal, which follows the first run.
///
/// # Errors
/// As for [`scan_seals`].
pub fn has_seal(file: &dyn ReadableFile, path: &Path, schema: &Schema) -> Result<bool> {
    let mut found = false;
    visit_seals(file, path, schema, |_| {
        found = true;
        false
    })?;
    Ok(found)
}

/// Returns whether a part ends with a sealed run, without reading more than its last block. A part that is complete
/// does not, nor does one that was cut within a run.
///
/// # Errors
/// If the file cannot be read.
pub(crate) fn ends_with_run(file: &dyn ReadableFile, path: &Path) -> Result<bool> {
    last_commit(file, file.bytes()).map(|commit| commit.is_some()).at("read", path)
}

/// Maximum gap between the pages of consecutive runs: a seal, and zeros up to a block boundary.
pub(crate) const MAX_GAP_BYTES: u64 = (MAX_SEAL_BYTES + ALIGNMENT) as u64;

/// Returns the bytes of a gap that precede the seal at its end. All of them are zero unless the file is corrupt.
/// Returns `None` if the gap has no seal.
pub(crate) fn padding(gap: &[u8]) -> Option<&[u8]> {
    let block = gap.last_chunk::<TRAILER_BYTES>()?;
    let length = seal_bytes(block, gap.len() as u64)?;
    Some(&gap[..gap.len() - length])
}

/// Returns the commit that the seal before offset `end` names, without verifying the seal. Returns `None` if there is
/// none.
///
/// # Errors
/// If the file cannot be read.
pub(in crate::format) fn last_commit(file: &dyn ReadableFile, end: u64) -> io::Result<Option<Uuid>> {
    let Some(begin) = end.checked_sub(ALIGNMENT as u64).filter(|_| end <= file.bytes()) else { return Ok(None) };
    let mut block = vec![0; ALIGNMENT];
    file.read_at(begin, &mut block)?;
    let mark = block.last_chunk().filter(|_| seal_bytes(&block, end).is_some()).and_then(OwnerMark::find);
    Ok(mark.map(|mark| mark.commit))
}

/// Calls `visit` with each seal of a file, in file order, until `visit` returns false.
fn visit_seals(
    file: &dyn ReadableFile,
    path: &Path,
    schema: &Schema,
    mut visit: impl FnMut(SealedRun) -> bool,
) -> Result<()> {
    let mut blocks = vec![0; SCAN_BYTES];
    let whole = file.bytes() - file.bytes() % ALIGNMENT as u64;
    let mut offset = 0;
    while offset < whole {
        let bytes = (whole - offset).min(SCAN_BYTES as u64) as usize;
        file.read_at(offset, &mut blocks[..bytes]).at("read", path)?;
        for (index, block) in blocks[..bytes].chunks_exact(ALIGNMENT).enumerate() {
            let end = offset + ((index + 1) * ALIGNMENT) as u64;
            if let Some(length) = seal_bytes(block, end) {
                let mut seal = vec![0; length];
                let start = end - length as u64;
                file.read_at(start, &mut seal).at("read", path)?;
                if decode_seal(&seal, start, schema).is_some_and(|run| !visit(run)) {
                    return Ok(());
                }
            }
        }
        offset += bytes as u64;
    }
    Ok(())
}

/// Returns the length of the seal at the end of a block, according to its trailer. `end` is the file offset of the
/// block's end.
fn seal_bytes(block: &[u8], end: u64) -> Option<usize> {
    let (rest, _) = block.split_at(block.len() - TRAILER_BYTES + 8);
    let length = u64::from_le_bytes(*rest.last_chunk()?);
    let possible = TRAILER_BYTES as u64..=end.min(MAX_SEAL_BYTES as u64);
    (block.ends_with(SEAL_MAGIC) && possible.contains(&length)).then_some(length as usize)
}
