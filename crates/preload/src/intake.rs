//! Reads an epoch's files back and appends their records to the job.
//!
//! Blocks of a file are read in an order in which every prefix is a sample of the whole file: partition tables are
//! computed from the records appended so far, and neighbouring records of a dump are similar.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

use turbidite::partition::{block_records, sample_order};
use turbidite::{ColumnView, RankJob};
use turbidite_source::checks::Lengths;
use turbidite_source::{DumpFormat, Field, lammps, signature, vpic};

use crate::config::DatasetPlan;
use crate::conversion;
use crate::pending::{EpochFiles, Finished, Gathered, Share};

/// Maximum size of a read, unless a record is longer.
const BLOCK_BYTES: u64 = 1 << 20;

/// A range of consecutive records.
struct Span {
    offset: u64,
    records: u64,
    /// The size of a record in the file.
    stride: u64,
}

impl Span {
    /// Returns the part that one of several ranks reads.
    fn part(self, share: Share) -> Self {
        let (first, records) = share.records(self.records);
        // The records lie within the file, so the sum does not overflow.
        Self { offset: self.offset + first * self.stride, records, ..self }
    }
}

/// The buffers for one block, and the rank that reads it.
struct Blocks {
    read: Vec<u8>,
    converted: Vec<u8>,
    rank: u32,
}

impl Blocks {
    /// Splits consecutive records of `stride` bytes into blocks. Returns each block's first record and number of
    /// records. Every prefix of the returned order is a sample of all records. The order differs between ranks.
    fn of(&self, records: u64, stride: u64) -> impl Iterator<Item = (u64, u64)> + use<> {
        let length = block_records(records, BLOCK_BYTES / stride);
        let count = usize::try_from(records.div_ceil(length)).unwrap_or(usize::MAX);
        let firsts = sample_order(count, u64::from(self.rank)).into_iter().map(move |number| number as u64 * length);
        firsts.map(move |first| (first, length.min(records - first)))
    }
}

/// Appends all records of an epoch that this rank has.
pub(crate) fn append(
    plan: &DatasetPlan,
    epoch: u64,
    files: &mut EpochFiles,
    job: &mut RankJob,
    rank: u32,
) -> Result<(), String> {
    if let Some(failure) = files.failure.take() {
        return Err(failure);
    }
    let mut blocks = Blocks { read: Vec::new(), converted: Vec::new(), rank };
    if plan.pattern.names_records() {
        return append_gathered(plan, &mut files.gathered, job, &mut blocks);
    }
    for file in &files.finished {
        let place = file.place();
        let appended = match plan.format {
            DumpFormat::Records | DumpFormat::Vpic => append_file(plan, &place, file.share, job, &mut blocks),
            DumpFormat::Lammps => append_step(plan, file, epoch, job, &mut blocks),
        };
        appended.map_err(|what| format!("{}: {what}", file.path.display()))?;
    }
    Ok(())
}

/// Opens a file and returns its size. Returns `None` if the file is empty: a rank without data may not even write a
/// header.
fn open(path: &Path) -> Result<Option<(File, u64)>, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let bytes = file.metadata().map_err(|error| error.to_string())?.len();
    Ok((bytes > 0).then_some((file, bytes)))
}

/// Checks a file's header, and the file's length against the header.
fn check_header(plan: &DatasetPlan, header: &[u8], bytes: u64) -> Result<(), String> {
    match (plan.format, header.first_chunk()) {
        (DumpFormat::Vpic, Some(header)) => vpic::check(header, bytes),
        _ => {
            let (header_bytes, record_bytes) = (plan.header_bytes as u64, plan.file_record_bytes() as u64);
            plan.checks.check(header, Lengths { file: bytes, header: header_bytes, record: record_bytes })
        }
    }
}

/// Returns an error if a file whose header is not checked has another format.
fn check_format(plan: &DatasetPlan, head: &[u8]) -> Result<(), String> {
    match signature::recognize(head).filter(|_| plan.lacks_checks()) {
        None => Ok(()),
        Some(name) => Err(format!(
            "is {name}, not records as {} describes them; `turbidite ingest --help` lists the formats that can be indexed \
             later",
            plan.config.display()
        )),
    }
}

/// Returns the record of a single-record file; `content` is the whole file.
pub(crate) fn only_record<'a>(plan: &DatasetPlan, content: &'a [u8]) -> Result<&'a [u8], String> {
    let (header_bytes, record_bytes) = (plan.header_bytes, plan.file_record_bytes());
    let rest = content.get(header_bytes..).filter(|rest| rest.len() == record_bytes);
    let wanted = header_bytes + record_bytes;
    let record =
        rest.ok_or_else(|| format!("has {} bytes, expected {wanted} for a file of one record", content.len()))?;
    check_header(plan, &content[..header_bytes], content.len() as u64)?;
    check_format(plan, content)?;
    Ok(record)
}

fn append_file(
    plan: &DatasetPlan,
    path: &Path,
    share: Share,
    job: &mut RankJob,
    blocks: &mut Blocks,
) -> Result<(), String> {
    let Some((file, bytes)) = open(path)? else { return Ok(()) };
    let offset = plan.header_bytes as u64;
    let stride = plan.record_bytes as u64;
    let Some(body) = bytes.checked_sub(offset) else {
        return Err(format!("has {bytes} bytes, less than the header of {offset}"));
    };
    let mut header = vec![0; plan.header_bytes];
    file.read_exact_at(&mut header, 0).map_err(|error| error.to_string())?;
    check_header(plan, &header, bytes)?;
    let mut head = vec![0; bytes.min(signature::HEAD_BYTES as u64) as usize];
    file.read_exact_at(&mut head, 0).map_err(|error| error.to_string())?;
    check_format(plan, &head)?;
    if !body.is_multiple_of(stride) {
        return Err(format!("has {bytes} bytes, expected a header of {offset} and whole records of {stride}"));
    }
    let constants: Vec<f64> = plan.constants.iter().map(|field| field.number(&header)).collect();
    let span = Span { offset, records: body / stride, stride }.part(share);
    append_span(plan, &file, &span, &constants, job, blocks, None)
}

/// Appends one step of a LAMMPS file: the step at the byte where it was found, or else the file's only step.
fn append_step(
    plan: &DatasetPlan,
    finished: &Finished,
    epoch: u64,
    job: &mut RankJob,
    blocks: &mut Blocks,
) -> Result<(), String> {
    let Some((file, bytes)) = open(&finished.place())? else { return Ok(()) };
    let begin = finished.begin.unwrap_or(0);
    let step = lammps::read(&file, begin, bytes)?;
    let step = step.ok_or_else(|| format!("has {bytes} bytes and ends within the step at byte {begin}"))?;
    match finished.begin {
        None if step.end < bytes => {
            return Err("has several steps; its pattern must not contain {epoch}".to_owned());
        }
        Some(_) if step.step != epoch => {
            return Err(format!("has step {} at byte {begin}, where step {epoch} was found before", step.step));
        }
        _ => {}
    }
    let places = conversion::places(plan, &step)?;
    for chunk in &step.chunks {
        // `lammps::read` has checked that the step lies within the file.
        let span = Span { offset: chunk.offset, records: chunk.rows, stride: step.values as u64 * 8 };
        let span = span.part(finished.share);
        append_span(plan, &file, &span, &step.domain, job, blocks, Some(&places))?;
    }
    Ok(())
}

/// Appends records. If `places` is given, the records are rows of doubles and are converted first.
fn append_span(
    plan: &DatasetPlan,
    file: &File,
    span: &Span,
    constants: &[f64],
    job: &mut RankJob,
    blocks: &mut Blocks,
    places: Option<&[usize]>,
) -> Result<(), String> {
    for (first, count) in blocks.of(span.records, span.stride) {
        // The product is at most the length of the file.
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

fn append_gathered(
    plan: &DatasetPlan,
    gathered: &mut Gathered,
    job: &mut RankJob,
    blocks: &mut Blocks,
) -> Result<(), String> {
    append_records(plan, &gathered.memory, &[], job)?;
    let Some(file) = &mut gathered.file else { return Ok(()) };
    let bytes = file.seek(SeekFrom::End(0)).map_err(|error| error.to_string())?;
    // The buffer holds whole records.
    let stride = plan.record_bytes as u64;
    for (first, count) in blocks.of(bytes / stride, stride) {
        blocks.read.resize((count * stride) as usize, 0);
        file.read_exact_at(&mut blocks.read, first * stride).map_err(|error| error.to_string())?;
        append_records(plan, &blocks.read, &[], job)?;
    }
    Ok(())
}

fn append_records(plan: &DatasetPlan, records: &[u8], constants: &[f64], job: &mut RankJob) -> Result<(), String> {
    let count = records.len() / plan.record_bytes;
    if count == 0 {
        return Ok(());
    }
    let view =
        |field: &Field| ColumnView::new(&records[field.offset..], plan.record_bytes, count, field.column.data_type);
    let mut views = plan.fields.iter().map(view).collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
    let constant = |name: &str| plan.constant(name).map(|index| constants[index]);
    let derived = plan.derivations.evaluate(&views, count, &constant).map_err(|error| error.to_string())?;
    job.count_out_of_range(derived.out_of_range());
    views.extend((0..derived.len()).map(|index| derived.view(index)));
    let stored: Vec<ColumnView<'_>> = plan.stored.iter().map(|&index| views[index]).collect();
    job.append(&stored).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_the_records_once() {
        let blocks = Blocks { read: Vec::new(), converted: Vec::new(), rank: 3 };
        for (records, stride) in
            [(0, 8), (1, 8), (2047, 8), (2049, 8), (1_000_000, 36), (100_000_000, 64), (5, 3 << 20)]
        {
            let mut seen: Vec<(u64, u64)> = blocks.of(records, stride).collect();
            assert!(seen.iter().all(|&(_, count)| count > 0 && (count == 1 || count * stride <= BLOCK_BYTES)));
            seen.sort_unstable();
            let end = seen.iter().fold(0, |end, &(first, count)| {
                assert_eq!(first, end, "{records} of {stride}");
                end + count
            });
            assert_eq!(end, records);
        }
    }
}
