//! Audits the sidecars of a bitmap index, read as FORMAT.md specifies them: each row of the epoch is in a bin that has
//! its value.

use parquet::file::reader::FileReader;
use turbidite::BitmapDefinition;
use turbidite::format::PartId;
use turbidite::storage::{MemoryStorage, Storage};
use turbidite::store::DatasetPaths;
use uuid::Uuid;

use crate::audit::read_file;
use crate::audit_index::{manifest, numbers, parts};
use crate::coverage::Coverage;
use crate::disk::ROOT;

/// Compares the sidecars of an index with the records of an epoch. Unless the index is `required` to have the epoch, it
/// may lack it, or have sidecars of another commit.
pub(crate) fn audit_bitmap(
    storage: &MemoryStorage,
    epoch: u64,
    definition: &BitmapDefinition,
    required: bool,
    coverage: &mut Coverage,
) -> Result<(), String> {
    check(storage, epoch, definition, required, coverage)
        .map_err(|what| format!("index: {definition}, epoch {epoch}: {what}"))
}

fn check(
    storage: &MemoryStorage,
    epoch: u64,
    definition: &BitmapDefinition,
    required: bool,
    coverage: &mut Coverage,
) -> Result<(), String> {
    let layout = DatasetPaths::new(ROOT);
    let commit = manifest(storage, &layout, epoch)?.commit;
    let folder = layout.index(&definition.name()).root().join(format!("{epoch}.{commit}"));
    if storage.kind(&folder).map_err(|error| error.to_string())?.is_none() {
        coverage.met("bitmap: sidecars are missing");
        return if required { Err("there are no sidecars of its commit".to_owned()) } else { Ok(()) };
    }
    let names = storage.list(&folder).map_err(|error| error.to_string())?.len();
    let parts = parts(storage, &layout, epoch)?;
    if names != parts.len() {
        return Err(format!("{names} sidecars of {} parts", parts.len()));
    }
    for (number, reader) in &parts {
        let part = PartId { rank: number >> 12, roll: number & 0xFFF };
        let path = folder.join(part.file_name().replace(".parquet", ".bitmap"));
        let content = read_file(storage, &path)?;
        let sidecar = Sidecar::read(&content, (epoch, commit, part), definition.columns().len())
            .ok_or_else(|| format!("{} is not as FORMAT.md says", path.display()))?;
        if sidecar.rows.len() != reader.num_row_groups() {
            return Err(format!(
                "{}: {} of {} row groups",
                path.display(),
                sidecar.rows.len(),
                reader.num_row_groups()
            ));
        }
        for number in 0..reader.num_row_groups() {
            let group = reader.get_row_group(number).map_err(|error| error.to_string())?;
            for (column, name) in definition.columns().iter().enumerate() {
                let values = numbers(&*group, name)?;
                let is_right = sidecar.has(&content, (number, column), &values, name == "key");
                if is_right != Some(true) {
                    return Err(format!("{}: row group {number}, {name}", path.display()));
                }
            }
        }
    }
    coverage.met("bitmap: a bin for each value");
    if parts.iter().any(|(number, _)| number & 0xFFF > 0) {
        coverage.met("bitmap: parts that have rolled over");
    }
    Ok(())
}

/// The directory of a sidecar.
struct Sidecar {
    rows: Vec<u32>,
    /// Offset and length of the bins, and of the bin numbers, and the encoding of these.
    sections: Vec<(u64, u32, u64, u32, u32)>,
    columns: usize,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
}

impl Sidecar {
    fn read(content: &[u8], (epoch, commit, part): (u64, Uuid, PartId), columns: usize) -> Option<Self> {
        let trailer = content.len().checked_sub(32)?;
        let directory = content.get(u64_at(content, trailer)? as usize..trailer)?;
        let is_right = content.starts_with(b"TBITMAP1")
            && content.ends_with(b"TBITMAP1")
            && u64_at(content, trailer + 8)? == directory.len() as u64
            && directory.get(16..32)? == commit.as_bytes()
            && u64_at(directory, 32)? == epoch
            && (u32_at(directory, 40)?, u32_at(directory, 44)?) == (part.rank, part.roll)
            && u32_at(directory, 48)? == columns as u32;
        let groups = if is_right { u32_at(directory, 52)? } else { return None };
        let (mut at, mut rows, mut sections) = (56, Vec::new(), Vec::new());
        for _ in 0..groups {
            rows.push(u32_at(directory, at)?);
            at += 8;
            for _ in 0..columns {
                let numbers = at + 20;
                sections.push((
                    u64_at(directory, at)?,
                    u32_at(directory, at + 16)?,
                    u64_at(directory, numbers)?,
                    u32_at(directory, numbers + 16)?,
                    u32_at(directory, numbers + 20)?,
                ));
                at += 48;
            }
        }
        (at == directory.len()).then_some(Self { rows, sections, columns })
    }

    /// Returns whether the bin of each row of a column has its value. `bits` are those of the values.
    fn has(&self, content: &[u8], (group, column): (usize, usize), bits: &[u64], is_float: bool) -> Option<bool> {
        let (bins_at, bins_bytes, numbers_at, numbers_bytes, encoding) = self.sections[group * self.columns + column];
        let section = |at: u64, bytes: u32| content.get(at as usize..at as usize + bytes as usize);
        let width = if is_float { 4 } else { 8 };
        let bins = section(bins_at, bins_bytes)?.chunks_exact(2 * width + 4).map(|bin| {
            let end = |at: usize| if is_float { u32_at(bin, at).map(u64::from) } else { u64_at(bin, at) };
            Some((end(0)?, end(width)?, u32_at(bin, 2 * width)? as usize))
        });
        let bins: Vec<(u64, u64, usize)> = bins.collect::<Option<_>>()?;
        let rows = self.rows[group] as usize;
        let numbers = decoded(section(numbers_at, numbers_bytes)?, encoding, rows, bins.len())?;
        let is_in = |value: u64, (least, greatest, _): (u64, u64, usize)| {
            let float = |bits: u64| f32::from_bits(bits as u32);
            match is_float {
                true if float(value).is_nan() => float(least).is_nan() && float(greatest).is_nan(),
                true => float(least) <= float(value) && float(value) <= float(greatest),
                false => (least..=greatest).contains(&value),
            }
        };
        let count = |bin: usize| numbers.iter().filter(|number| **number == bin).count();
        let counted = bins.iter().enumerate().all(|(bin, (_, _, stated))| count(bin) == *stated);
        let placed = bits.len() == rows
            && bits
                .iter()
                .zip(&numbers)
                .all(|(value, number)| bins.get(*number).is_some_and(|bin| is_in(*value, *bin)));
        Some(counted && placed)
    }
}

/// Decodes the bin numbers of `rows` rows.
fn decoded(stored: &[u8], encoding: u32, rows: usize, bins: usize) -> Option<Vec<usize>> {
    if bins <= 1 {
        return stored.is_empty().then(|| vec![0; rows]);
    }
    let mut numbers = vec![0; rows];
    match encoding {
        0 if stored.len() == rows => {
            numbers.iter_mut().zip(stored).for_each(|(number, byte)| *number = usize::from(*byte));
        }
        1 => {
            let slice_bytes = rows.div_ceil(64) * 8;
            for (bit, slice) in stored.chunks(slice_bytes).enumerate() {
                for (row, number) in numbers.iter_mut().enumerate() {
                    *number |= usize::from(slice.get(row / 8)? >> (row % 8) & 1) << bit;
                }
            }
        }
        2 => {
            let (mut at, mut row) = (0, 0);
            while at < stored.len() {
                let (bin, mut length, mut shift) = (usize::from(stored[at]), 0, 0);
                loop {
                    at += 1;
                    let byte = usize::from(*stored.get(at)?);
                    length |= (byte & 0x7F) << shift;
                    shift += 7;
                    if byte & 0x80 == 0 {
                        break;
                    }
                }
                at += 1;
                numbers.get_mut(row..row + length)?.fill(bin);
                row += length;
            }
            if row != rows {
                return None;
            }
        }
        _ => return None,
    }
    Some(numbers)
}
