//! Reading an epoch's files back and appending their records.
//!
//! Blocks of a file are taken in an order of which every beginning is a sample of the whole: partition tables are made from
//! what was appended so far, and neighbours in a dump are alike.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

use turbidite::{ColumnView, DataType, RankJob};

use crate::config::{Format, Plan};
use crate::pending::{EpochFiles, Gathered};
use crate::spool::Spooled;
use crate::{conversion, lammps};

/// Bytes read at a time.
const BLOCK_BYTES: usize = 1 << 20;

/// Records that lie one behind the other.
struct Span {
    offset: u64,
    records: u64,
    /// Bytes of a record in the file.
    stride: u64,
}

/// Memory for one block at a time.
#[derive(Default)]
struct Blocks {
    read: Vec<u8>,
    converted: Vec<u8>,
}

/// Appends everything this rank has of an epoch.
pub(crate) fn append(plan: &Plan, epoch: u64, files: &mut EpochFiles, job: &mut RankJob) -> Result<(), String> {
    if let Some(failure) = files.failure.take() {
        return Err(failure);
    }
    let mut blocks = Blocks::default();
    if plan.pattern.names_records() {
        return append_gathered(plan, &mut files.gathered, job, &mut blocks.read);
    }
    for file in &files.finished {
        let place = file.spool.as_ref().map_or(file.path.as_path(), Spooled::place);
        let appended = match plan.format {
            Format::Records => append_file(plan, place, job, &mut blocks),
            Format::Lammps => append_step(plan, place, file.begin.map(|begin| (begin, epoch)), job, &mut blocks),
        };
        appended.map_err(|what| format!("{}: {what}", file.path.display()))?;
    }
    Ok(())
}

/// Opens a file; `None` where it is empty, as one is that was opened by a rank that had nothing to write, not even a
/// header.
fn open(path: &Path) -> Result<Option<(File, u64)>, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let bytes = file.metadata().map_err(|error| error.to_string())?.len();
    Ok((bytes > 0).then_some((file, bytes)))
}

fn append_file(plan: &Plan, path: &Path, job: &mut RankJob, blocks: &mut Blocks) -> Result<(), String> {
    let Some((file, bytes)) = open(path)? else { return Ok(()) };
    let offset = plan.header_bytes as u64;
    let stride = plan.record_bytes as u64;
    let Some(body) = bytes.checked_sub(offset) else {
        return Err(format!("has {bytes} bytes, less than a header of {offset}"));
    };
    if !body.is_multiple_of(stride) {
        return Err(format!("has {bytes} bytes, no header of {offset} and records of {stride}"));
    }
    let mut header = vec![0; plan.header_bytes];
    file.read_exact_at(&mut header, 0).map_err(|error| error.to_string())?;
    let constants: Vec<f64> = plan.constants.iter().map(|field| number(&header[field.offset..], field)).collect();
    let span = Span { offset, records: body / stride, stride };
    append_span(plan, &file, &span, &constants, job, blocks, None)
}

/// Appends one step of a LAMMPS file: the one that was found at a byte, or the only one.
fn append_step(
    plan: &Plan,
    path: &Path,
    found: Option<(u64, u64)>,
    job: &mut RankJob,
    blocks: &mut Blocks,
) -> Result<(), String> {
    let Some((file, bytes)) = open(path)? else { return Ok(()) };
    let begin = found.map_or(0, |(begin, _)| begin);
    let step = lammps::read(&file, begin, bytes)?;
    let step = step.ok_or_else(|| format!("has {bytes} bytes and ends within the step at byte {begin}"))?;
    match found {
        None if step.end < bytes => {
            return Err("has more than one step; its pattern is to be without {epoch}".to_owned());
        }
        Some((_, epoch)) if step.step != epoch => {
            return Err(format!("has step {} at byte {begin}, where step {epoch} was before", step.step));
        }
        _ => {}
    }
    let places = conversion::places(plan, &step)?;
    for chunk in &step.chunks {
        // The step was found to lie in the file.
        let span = Span { offset: chunk.offset, records: chunk.rows, stride: step.values as u64 * 8 };
        append_span(plan, &file, &span, &step.domain, job, blocks, Some(&places))?;
    }
    Ok(())
}

/// Appends records, converted when the places of their values among a row of doubles are given.
fn append_span(
    plan: &Plan,
    file: &File,
    span: &Span,
    constants: &[f64],
    job: &mut RankJob,
    blocks: &mut Blocks,
    places: Option<&[usize]>,
) -> Result<(), String> {
    let block_records = (BLOCK_BYTES as u64 / span.stride).max(1);
    for number in scattered(span.records.div_ceil(block_records)) {
        let first = number * block_records;
        let count = block_records.min(span.records - first);
        // Both factors are those of a file's length.
        blocks.read.resize((count * span.stride) as usize, 0);
        file.read_exact_at(&mut blocks.read, span.offset + first * span.stride).map_err(|error| error.to_string())?;
        match places {
            None => append_records(plan, &blocks.read, constants, job)?,
            Some(places) => {
                conversion::convert(plan, places, &blocks.read, span.stride as usize, &mut blocks.converted)?;
                append_records(plan, &blocks.converted, constants, job)?;
            }
        }
    }
    Ok(())
}

fn append_gathered(plan: &Plan, gathered: &mut Gathered, job: &mut RankJob, block: &mut Vec<u8>) -> Result<(), String> {
    append_records(plan, &gathered.memory, &[], job)?;
    let Some(file) = &mut gathered.file else { return Ok(()) };
    let bytes = file.seek(SeekFrom::End(0)).map_err(|error| error.to_string())?;
    let block_bytes = (BLOCK_BYTES / plan.record_bytes).max(1) * plan.record_bytes;
    for number in scattered(bytes.div_ceil(block_bytes as u64)) {
        let offset = number * block_bytes as u64;
        block.resize((block_bytes as u64).min(bytes - offset) as usize, 0);
        file.read_exact_at(block, offset).map_err(|error| error.to_string())?;
        append_records(plan, block, &[], job)?;
    }
    Ok(())
}

fn append_records(plan: &Plan, records: &[u8], constants: &[f64], job: &mut RankJob) -> Result<(), String> {
    let count = records.len() / plan.record_bytes;
    if count == 0 {
        return Ok(());
    }
    let view = |field: &crate::config::Field| {
        ColumnView::new(&records[field.offset..], plan.record_bytes, count, field.column.data_type)
    };
    let mut views = plan.fields.iter().map(view).collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
    let constant = |name: &str| plan.constant(name).map(|index| constants[index]);
    let derived = plan.derivations.evaluate(&views, count, &constant).map_err(|error| error.to_string())?;
    views.extend((0..derived.len()).map(|index| derived.view(index)));
    let stored: Vec<ColumnView<'_>> = plan.stored.iter().map(|&index| views[index]).collect();
    job.append(&stored).map_err(|error| error.to_string())
}

/// The value of a constant; the configuration's check has it lie inside of the header.
fn number(bytes: &[u8], field: &crate::config::Field) -> f64 {
    macro_rules! read {
        ($type:ty) => {
            bytes.first_chunk().map_or(f64::NAN, |bytes| <$type>::from_le_bytes(*bytes) as f64)
        };
    }
    match field.column.data_type {
        DataType::I8 => read!(i8),
        DataType::I16 => read!(i16),
        DataType::I32 => read!(i32),
        DataType::I64 => read!(i64),
        DataType::U8 => read!(u8),
        DataType::U16 => read!(u16),
        DataType::U32 => read!(u32),
        DataType::U64 => read!(u64),
        DataType::F32 => read!(f32),
        DataType::F64 => read!(f64),
        DataType::FixedBytes(_) => f64::NAN,
    }
}

/// 0 to `count` - 1, each once, in steps of about the golden ratio.
fn scattered(count: u64) -> impl Iterator<Item = u64> {
    let divisor = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let wanted = (count as f64 * 0.618) as u64;
    let step = (wanted.max(1)..=count).find(|&step| divisor(count, step) == 1).unwrap_or(1);
    (0..count).map(move |number| (u128::from(number) * u128::from(step) % u128::from(count.max(1))) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_taken_once_and_any_beginning_is_a_sample() {
        for count in [0, 1, 2, 3, 7, 100, 101, 4096] {
            let mut seen: Vec<u64> = scattered(count).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..count).collect::<Vec<_>>());
        }
        let first: Vec<u64> = scattered(100).take(8).collect();
        for quarter in 0..4 {
            assert!(first.iter().any(|&block| block / 25 == quarter), "{first:?}");
        }
    }
}
