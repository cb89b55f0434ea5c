//! Parquet files as a source: flat columns of numbers and of bytes of fixed size, by any writer.
//!
//! A file's footer says how many records each of its row groups holds; a row group is the unit that one rank reads, from its
//! beginning, a batch at a time. In memory are then a batch and, for each column, one page, compressed and decoded, however
//! large the row group. Encodings and compressions are the `parquet` crate's business.
//!
//! The schema that Arrow writers hide in the footer is left aside: what a column holds is what Parquet says, so that a
//! column of dictionary-encoded numbers is one of numbers. Nothing is converted. Columns of other types are refused before
//! anything is written, and so are nulls where the statistics tell of them; others are refused when they are met.
//!
//! `columns` chooses columns, `file` reads bytes, `reader` decodes.

mod columns;
mod file;
mod reader;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::errors::ParquetError;
use turbidite::Column;

use super::error::{SourceContext, SourceError};
use super::layout::Catalogue;
use super::{Form, RecordFile, Source, SourceOptions, file_bytes};
use crate::panics;
use columns::Chosen;
use file::PagedFile;
pub(super) use reader::{DecodedColumns, ParquetReader};

/// What every Parquet file begins and ends with.
const MAGIC: [u8; 4] = *b"PAR1";

/// Opens a source that is a single file.
pub(super) fn open_file(path: &Path, options: &SourceOptions) -> Result<Source, SourceError> {
    let mut begin = [0; MAGIC.len()];
    let is_short = file_bytes(path)? < MAGIC.len() as u64;
    if !is_short {
        File::open(path).of("open", path)?.read_exact(&mut begin).of("read", path)?;
    }
    if begin != MAGIC {
        let what = "neither a folder nor a Parquet file; give the folder that holds the dumps of all epochs".into();
        return Err(SourceError::Unfit { path: path.to_owned(), what });
    }
    let usage = |what: String| Err(SourceError::Usage(what));
    if options.species.is_some() || !options.extra.is_empty() {
        return usage("--species and --extra are for VPIC dumps; a Parquet file says itself what it holds".into());
    }
    let Some(epoch) = options.epoch else {
        return usage(format!("{} holds the records of which epoch? Say it with --epoch", path.display()));
    };
    open(Catalogue::from([(epoch, BTreeMap::from([(0, path.to_owned())]))]), options, Vec::new())
}

/// Checks all files and what they have in common.
pub(super) fn open(files: Catalogue, options: &SourceOptions, notes: Vec<String>) -> Result<Source, SourceError> {
    let mut first: Option<(PathBuf, Vec<Column>)> = None;
    let mut epochs = BTreeMap::new();
    for (epoch, files) in files {
        let mut checked = Vec::with_capacity(files.len());
        for (rank, path) in files {
            let footer = load(&PagedFile::open(&path)?, &path)?;
            let chosen = Chosen::of(&path, &footer, options.columns.as_deref())?;
            chosen.check_content(&path, &footer)?;
            match &first {
                Some((first, columns)) => same_columns(&path, &chosen.columns, first, columns)?,
                None => first = Some((path.clone(), chosen.columns)),
            }
            let row_groups = row_groups(&path, &footer)?;
            let records = row_groups.iter().sum();
            checked.push(RecordFile { path, rank, records, constants: Box::default(), row_groups });
        }
        epochs.insert(epoch, checked);
    }
    let columns = first.map(|(_, columns)| columns).unwrap_or_default();
    let record_bytes = columns.iter().map(|column| column.data_type.width()).sum();
    Ok(Source { epochs, form: Form::Parquet(columns), record_bytes, notes })
}

/// Reads a file's footer.
fn load(file: &PagedFile, path: &Path) -> Result<ArrowReaderMetadata, SourceError> {
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    guarded(path, "its footer", || ArrowReaderMetadata::load(file, options))
}

/// Runs a step of decoding. The `parquet` crate panics on some damaged files; here that is an error like the others.
fn guarded<T>(
    path: &Path,
    place: impl std::fmt::Display,
    step: impl FnOnce() -> Result<T, ParquetError>,
) -> Result<T, SourceError> {
    let done = panics::catch(step).unwrap_or_else(|what| Err(ParquetError::General(what)));
    done.map_err(|error| unreadable(path, place, error))
}

/// The error for a file that is not what it should be.
fn unreadable(path: &Path, place: impl std::fmt::Display, error: ParquetError) -> SourceError {
    let path = path.to_owned();
    match error {
        ParquetError::External(cause) => match cause.downcast::<std::io::Error>() {
            Ok(source) => SourceError::Io { operation: "read", path, source: *source },
            Err(cause) => SourceError::Undecodable { path, place: place.to_string(), what: cause.to_string() },
        },
        other => SourceError::Undecodable { path, place: place.to_string(), what: other.to_string() },
    }
}

/// Records of each row group, as the footer states them.
fn row_groups(path: &Path, footer: &ArrowReaderMetadata) -> Result<Box<[u64]>, SourceError> {
    let groups = footer.metadata().row_groups();
    let rows: Option<Box<[u64]>> = groups.iter().map(|group| u64::try_from(group.num_rows()).ok()).collect();
    let total = |rows: &[u64]| rows.iter().try_fold(0u64, |sum, rows| sum.checked_add(*rows));
    let stated = u64::try_from(footer.metadata().file_metadata().num_rows()).ok();
    rows.filter(|rows| total(rows).is_some_and(|total| Some(total) == stated)).ok_or_else(|| SourceError::Undecodable {
        path: path.to_owned(),
        place: "its footer".into(),
        what: "the rows of its row groups are not those of the file".into(),
    })
}

/// Checks that a file has the columns of the first one.
fn same_columns(path: &Path, columns: &[Column], first: &Path, expected: &[Column]) -> Result<(), SourceError> {
    let words = |columns: &[Column]| {
        columns.iter().map(|column| format!("{} {}", column.name, column.data_type)).collect::<Vec<_>>().join(", ")
    };
    if columns == expected {
        return Ok(());
    }
    let what = format!(
        "its columns are {}, but those of {} are {}; --columns reads what they have in common",
        words(columns),
        first.display(),
        words(expected)
    );
    Err(SourceError::Unfit { path: path.to_owned(), what })
}

#[cfg(test)]
mod tests;
