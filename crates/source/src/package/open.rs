//! Opens a source by the package: asks a reader for the inventory, and checks it.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use turbidite::{Attribute, Column, DataType, SchemaError};

use super::messages::{Inventory, StatedColumn, StatedEpoch, StatedLeftOut};
use super::pool::{BlockForm, open_request};
use super::process::ReaderProcess;
use crate::epochs::EpochChoice;
use crate::error::SourceError;
use crate::inventory::{FilesByRank, Form, RecordFile, Source};
use crate::options::SourceOptions;
use crate::pattern::part_path;
use crate::periods::StatedPeriod;
use crate::ranks::{Expected, RankCheck, by_neighbours};

/// Maximum size of a block, in bytes. Each rank holds one block.
const MAX_BLOCK_BYTES: u64 = 64 << 20;

/// Opens a source by the package.
pub(crate) fn open(path: &Path, options: &SourceOptions) -> Result<Source, SourceError> {
    if !options.extra.is_empty() {
        return Err(SourceError::Usage("--extra is for VPIC dumps; these files describe their own columns".into()));
    }
    let path = path.to_owned();
    let mut reader = ReaderProcess::start(&path)?;
    let Inventory { format, columns, epochs, notes, labels, left_out, index } =
        reader.ask(&open_request(&path, options, None))?;
    let wrong = |what: String| SourceError::Unfit { path: path.clone(), what: format!("{format}: {what}") };
    let columns: Vec<Column> =
        columns.into_iter().map(column).collect::<Result<_, _>>().map_err(|error| wrong(error.to_string()))?;
    let record_bytes: usize = columns.iter().map(|column| column.data_type.width()).sum();
    if columns.is_empty() && !epochs.is_empty() {
        return Err(wrong("the files have no columns".into()));
    }
    let mut parts: BTreeMap<u64, Vec<StatedEpoch>> = BTreeMap::new();
    let mut periods: BTreeMap<u64, BTreeMap<String, StatedPeriod>> = BTreeMap::new();
    let mut attributes: BTreeMap<u64, BTreeMap<String, Attribute>> = BTreeMap::new();
    let known = epochs.iter().map(|stated| stated.epoch).chain(labels).collect::<BTreeSet<u64>>();
    for mut stated in epochs.into_iter().filter(|stated| options.selects(stated.epoch)) {
        add_periods(periods.entry(stated.epoch).or_default(), std::mem::take(&mut stated.periods));
        for (name, attribute) in std::mem::take(&mut stated.attributes) {
            // Those of the first part, which others repeat.
            attributes.entry(stated.epoch).or_default().entry(name).or_insert(attribute);
        }
        parts.entry(stated.epoch).or_default().push(stated);
    }
    let mut choice = EpochChoice::among(&path, known, options)?;
    for StatedLeftOut { epoch, path, message } in left_out {
        choice.leave_out(epoch, format!("{}: {message}", path.display()));
    }
    if parts.is_empty() && !options.complete_only {
        return Err(wrong("no epoch was found".into()));
    }
    let notes = notes.into_iter().chain(check_parts(&mut parts, &mut choice, options)?).collect();
    let mut epochs = BTreeMap::new();
    for (epoch, stated) in parts {
        let files: Option<Vec<RecordFile>> = stated.into_iter().map(|part| record_file(part, record_bytes)).collect();
        let files = files.ok_or_else(|| wrong(format!("epoch {epoch} has invalid blocks")))?;
        if files.windows(2).any(|pair| pair[0].rank >= pair[1].rank) {
            return Err(wrong(format!("epoch {epoch} occurs twice")));
        }
        epochs.insert(epoch, files);
    }
    let options = options.clone();
    let form = BlockForm { columns, periods, attributes, path, options, index, idle: Mutex::new(vec![reader]) };
    let EpochChoice { labels, left_out, .. } = choice;
    Ok(Source { epochs, form: Form::Blocks(Box::new(form)), record_bytes, notes, labels, left_out })
}

/// Adds the periods that a part of an epoch states. All parts have the same box.
fn add_periods(known: &mut BTreeMap<String, StatedPeriod>, stated: BTreeMap<String, StatedPeriod>) {
    for (column, period) in stated {
        match known.entry(column) {
            Entry::Vacant(entry) => drop(entry.insert(period)),
            Entry::Occupied(mut entry) if *entry.get() != period => {
                entry.insert(StatedPeriod::Missing("the parts of an epoch have different boxes".to_owned()));
            }
            Entry::Occupied(_) => {}
        }
    }
}

/// Checks that no epoch lacks parts, and keeps those that are whole. Returns a note.
fn check_parts(
    parts: &mut BTreeMap<u64, Vec<StatedEpoch>>,
    choice: &mut EpochChoice<'_>,
    options: &SourceOptions,
) -> Result<Option<String>, SourceError> {
    let has_numbers = parts.values().flatten().any(|part| part.numbered.is_some());
    if !has_numbers && !parts.is_empty() {
        options.refuse_ranks("no pattern with {rank} names them")?;
    }
    let of_epoch = |parts: &Vec<StatedEpoch>| parts.iter().map(|part| (part.rank, part.path.clone())).collect();
    // Epochs that have been read before are neighbours, too.
    let done = options.done.iter().filter_map(|(epoch, ranks)| Some((*epoch, ranks.checked_sub(1)?)));
    let done = done.map(|(epoch, last)| (epoch, BTreeMap::from([(last, PathBuf::new())])));
    let files: FilesByRank = done.chain(parts.iter().map(|(epoch, parts)| (*epoch, of_epoch(parts)))).collect();
    let mut check = RankCheck::new(options);
    let mut whole = BTreeMap::new();
    for (epoch, stated) in std::mem::take(parts) {
        let (Some(first), Some(found)) = (stated.first(), files.get(&epoch)) else { continue };
        let (mut is_counted, mut unstated) = (true, "nothing states the number of its files: --source-ranks does");
        if let Some(numbered) = &first.numbered {
            let origin = || format!("that {} states", first.path.display());
            let in_header = first.parts.map(|ranks| Expected { ranks, origin: origin() });
            let expected = check.stated().or(in_header);
            is_counted = expected.is_some() && !options.allow_missing_ranks;
            let expected = expected.unwrap_or_else(|| by_neighbours(epoch, &files));
            let path = |rank| part_path(numbered, &first.path, rank);
            if choice.judge(epoch, check.check(epoch, found, &expected, path))?.is_none() {
                continue;
            }
        } else if first.path.is_dir() {
            // A series of ADIOS2, whose last step may be incomplete.
            (is_counted, unstated) = (false, "the series may be written");
        }
        if choice.is_whole(epoch, is_counted, unstated) {
            whole.insert(epoch, stated);
        }
    }
    *parts = whole;
    Ok(check.note())
}

fn column(StatedColumn { name, data_type, unit }: StatedColumn) -> Result<Column, SchemaError> {
    let data_type: DataType = data_type.parse()?;
    let column = Column::new(name, data_type);
    Ok(match unit {
        Some(unit) => column.with_unit(unit),
        None => column,
    })
}

/// Returns the file of an epoch with its blocks as row groups, or `None` if the blocks are too large.
fn record_file(stated: StatedEpoch, record_bytes: usize) -> Option<RecordFile> {
    let StatedEpoch { path, records, block_rows, rank, .. } = stated;
    let block_bytes = block_rows.checked_mul(record_bytes as u64)?;
    // Bounds the list of blocks as well: 2⁴⁰ records of at least 4,096 in a block.
    if block_rows == 0 || block_bytes > MAX_BLOCK_BYTES || records.div_ceil(block_rows) > 1 << 28 {
        return None;
    }
    let row_groups = (0..records).step_by(block_rows as usize).map(|first| block_rows.min(records - first)).collect();
    Some(RecordFile { path, rank, records, constants: Box::default(), row_groups })
}
