//! The seal that ends every run: enough to find the run again in a file whose writer died before the footer.
//!
//! A seal ends at a block boundary, so the last bytes of every block suffice to find all seals. Parquet readers do not
//! see it: it lies in the gap after the run's last page.

use std::path::Path;

use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_64;

use crate::error::{IoContext, Result};
use crate::format::manifest::entries::{PartId, RunKind};
use crate::format::parquet::footer::{FORMAT_VERSION, PartIdentity};
use crate::format::parquet::physical::{Bound, decode_bound, encode_bound};
use crate::schema::{DataType, Schema, Value};
use crate::storage::{ALIGNMENT, ReadableFile};

/// The last eight bytes of a seal.
const SEAL_MAGIC: &[u8; 8] = b"TBDTSEAL";
/// Length (u64), checksum (u64) and magic at the end of a seal.
const TRAILER_BYTES: usize = 24;
/// Maximum length of a seal: its row groups are at most Parquet's 32,767.
const MAX_SEAL_BYTES: usize = 1 << 21;
/// Bytes read at a time while scanning.
const SCAN_BYTES: usize = 1 << 20;

/// The location of one row group of a sealed run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealedRowGroup {
    /// Offset of its pages.
    pub offset: u64,
    /// Length of its pages in bytes.
    pub bytes: u64,
    /// Number of records.
    pub rows: u64,
    /// xxh3-64 of its bytes.
    pub checksum: u64,
}

/// A completely written run, as described by its seal.
#[derive(Debug, Clone, PartialEq)]
pub struct SealedRun {
    /// The dataset, commit and epoch it was written for.
    pub identity: PartIdentity,
    /// The part it was written to.
    pub part: PartId,
    /// Number of the run.
    pub run: u32,
    /// The kind of the run.
    pub kind: RunKind,
    /// Version of the partition table in force.
    pub table_version: u32,
    /// The receiver's partition then.
    pub bounds: Option<(Value, Value)>,
    /// Its row groups.
    pub row_groups: Vec<SealedRowGroup>,
}

impl SealedRun {
    /// Returns the number of records.
    pub fn rows(&self) -> u64 {
        self.row_groups.iter().map(|group| group.rows).sum()
    }
}

/// Encodes a seal.
pub(in crate::format) fn encode_seal(run: &SealedRun, schema: &Schema) -> Vec<u8> {
    let mut out = Vec::with_capacity(160 + 32 * run.row_groups.len());
    out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    out.extend_from_slice(&(schema.columns().len() as u32).to_le_bytes());
    out.extend_from_slice(run.identity.dataset.as_bytes());
    out.extend_from_slice(run.identity.commit.as_bytes());
    out.extend_from_slice(&run.identity.epoch.to_le_bytes());
    for number in [run.part.rank, run.part.roll, run.run, u32::from(run.kind.code()), run.table_version] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(&u32::from(run.bounds.is_some()).to_le_bytes());
    let data_type = schema.key().data_type;
    let mut bounds = Vec::with_capacity(16);
    if let Some((low, high)) = run.bounds {
        encode_bound(data_type, low, Bound::Low, &mut bounds);
        bounds.resize(8, 0);
        encode_bound(data_type, high, Bound::High, &mut bounds);
    }
    bounds.resize(16, 0);
    out.extend_from_slice(&bounds);
    out.extend_from_slice(&(run.row_groups.len() as u64).to_le_bytes());
    for group in &run.row_groups {
        for number in [group.offset, group.bytes, group.rows, group.checksum] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }
    let bytes = (out.len() + TRAILER_BYTES) as u64;
    out.extend_from_slice(&bytes.to_le_bytes());
    out.extend_from_slice(&xxh3_64(&out).to_le_bytes());
    out.extend_from_slice(SEAL_MAGIC);
    out
}

/// Reads fixed-width numbers off the front of a slice.
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

fn decode_key(data_type: DataType, raw: [u8; 8]) -> Option<Value> {
    decode_bound(data_type, raw.get(..crate::format::parquet::physical::physical_width(data_type))?)
}

/// Decodes a seal that begins at `start` of its file; `None` when it is not valid or does not fit its position.
fn decode_seal(bytes: &[u8], start: u64, schema: &Schema) -> Option<SealedRun> {
    let (covered, trailer) = bytes.split_at_checked(bytes.len().checked_sub(16)?)?;
    if trailer[..8] != xxh3_64(covered).to_le_bytes() || trailer[8..] != *SEAL_MAGIC {
        return None;
    }
    let mut cursor = Cursor(covered);
    if cursor.u32()? != FORMAT_VERSION || cursor.u32()? as usize != schema.columns().len() {
        return None;
    }
    let identity = PartIdentity {
        dataset: Uuid::from_bytes(cursor.take()?),
        commit: Uuid::from_bytes(cursor.take()?),
        epoch: cursor.u64()?,
    };
    let part = PartId { rank: cursor.u32()?, roll: cursor.u32()? };
    let (run, kind, table_version) = (cursor.u32()?, RunKind::from_code(cursor.u32()?)?, cursor.u32()?);
    let bounded = cursor.u32()? == 1;
    let (low, high) = (cursor.take()?, cursor.take()?);
    let bounds = match bounded {
        true => Some((decode_key(schema.key().data_type, low)?, decode_key(schema.key().data_type, high)?)),
        false => None,
    };
    let count = cursor.u64()?;
    let mut row_groups = Vec::new();
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
        // Every record takes at least one byte; counts by rows stay within the file's length then.
        if group.rows > group.bytes {
            return None;
        }
        position = Some(group.offset.checked_add(group.bytes)?);
        row_groups.push(group);
    }
    // A seal lies less than a block behind its last page; otherwise it is a copy from another place.
    let gap = start.checked_sub(position?)?;
    (gap < ALIGNMENT as u64).then_some(SealedRun { identity, part, run, kind, table_version, bounds, row_groups })
}

/// Finds the sealed runs of a part, whether or not it has a footer, in the order they lie in the file.
///
/// The pages themselves are not checked; their checksums are verified when a part is recovered.
///
/// # Errors
/// When the file cannot be read. Corruption is not an error: a run without a valid seal is left out.
pub fn scan_seals(file: &dyn ReadableFile, path: &Path, schema: &Schema) -> Result<Vec<SealedRun>> {
    let mut runs = Vec::new();
    visit_seals(file, path, schema, |run| {
        runs.push(run);
        true
    })?;
    Ok(runs)
}

/// Returns whether a part has a sealed run. Reads no further than to the first, which is at most a memtable into the
/// file.
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

/// Maximum gap between the records of one run and those of the next: a seal, and zeros up to a block boundary.
pub(crate) const MAX_GAP_BYTES: u64 = (MAX_SEAL_BYTES + ALIGNMENT) as u64;

/// Returns the bytes of a gap that precede the seal at its end, all of which are zeros unless they are corrupt; `None`
/// if there is no seal.
pub(crate) fn padding(gap: &[u8]) -> Option<&[u8]> {
    let block = gap.last_chunk::<TRAILER_BYTES>()?;
    let length = seal_bytes(block, gap.len() as u64)?;
    Some(&gap[..gap.len() - length])
}

/// Calls `visit` with the seals of a file one after the other, until it returns false.
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

/// Returns the length of the seal that a block seems to end with; the block ends at `end` of its file.
fn seal_bytes(block: &[u8], end: u64) -> Option<usize> {
    let (rest, _) = block.split_at(block.len() - TRAILER_BYTES + 8);
    let length = u64::from_le_bytes(*rest.last_chunk()?);
    let possible = TRAILER_BYTES as u64..=end.min(MAX_SEAL_BYTES as u64);
    (block.ends_with(SEAL_MAGIC) && possible.contains(&length)).then_some(length as usize)
}
