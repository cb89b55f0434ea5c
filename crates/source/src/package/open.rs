//! Opens a source by the package: asks a reader for the catalogue, and checks it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use turbidite::{Column, DataType, SchemaError};

use super::messages::{Catalogue, StatedColumn, StatedEpoch};
use super::pool::{BlockForm, open_request};
use super::process::ReaderProcess;
use crate::catalogue::{Form, RecordFile, Source};
use crate::error::SourceError;
use crate::options::SourceOptions;

/// Maximum size of a block, in bytes. Each rank holds one block.
const MOST_BLOCK_BYTES: u64 = 64 << 20;

/// Opens a source by the package.
pub(crate) fn open(path: &Path, options: &SourceOptions) -> Result<Source, SourceError> {
    if !options.extra.is_empty() {
        return Err(SourceError::Usage("--extra is for VPIC dumps; these files describe their own columns".into()));
    }
    let path = path.to_owned();
    let mut reader = ReaderProcess::start(&path)?;
    let Catalogue { format, columns, epochs, notes, index } = reader.ask(&open_request(&path, options, None))?;
    let wrong = |what: String| SourceError::Unfit { path: path.clone(), what: format!("{format}: {what}") };
    let columns: Vec<Column> =
        columns.into_iter().map(column).collect::<Result<_, _>>().map_err(|error| wrong(error.to_string()))?;
    let record_bytes: usize = columns.iter().map(|column| column.data_type.width()).sum();
    if columns.is_empty() {
        return Err(wrong("the files have no columns".into()));
    }
    let mut catalogue = BTreeMap::new();
    let mut periods = BTreeMap::new();
    for mut stated in epochs {
        let epoch = stated.epoch;
        periods.insert(epoch, std::mem::take(&mut stated.periods));
        let file =
            record_file(stated, record_bytes).ok_or_else(|| wrong(format!("epoch {epoch} has invalid blocks")))?;
        if catalogue.insert(epoch, vec![file]).is_some() {
            return Err(wrong(format!("epoch {epoch} occurs twice")));
        }
    }
    if catalogue.is_empty() {
        return Err(wrong("no epoch was found".into()));
    }
    let options = options.clone();
    let form = BlockForm { columns, periods, path, options, index, idle: Mutex::new(vec![reader]) };
    Ok(Source { epochs: catalogue, form: Form::Blocks(Box::new(form)), record_bytes, notes })
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
    let StatedEpoch { path, records, block_rows, .. } = stated;
    let block_bytes = block_rows.checked_mul(record_bytes as u64)?;
    // Bounds the list of blocks as well: 2⁴⁰ records of at least 4,096 in a block.
    if block_rows == 0 || block_bytes > MOST_BLOCK_BYTES || records.div_ceil(block_rows) > 1 << 28 {
        return None;
    }
    let row_groups = (0..records).step_by(block_rows as usize).map(|first| block_rows.min(records - first)).collect();
    Some(RecordFile { path: PathBuf::from(&path), rank: 0, records, constants: Box::default(), row_groups })
}
