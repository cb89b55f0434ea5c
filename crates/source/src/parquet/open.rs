//! Opens Parquet files and checks that all of them have the same columns.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use turbidite::Column;

use super::columns::{Chosen, ParquetForm, same_columns};
use super::file::PagedFile;
use super::footer::{load, row_groups};
use crate::error::{SourceContext, SourceError};
use crate::inventory::{FilesByRank, Form, RecordFile, Source};
use crate::listing::Listing;
use crate::options::{Nulls, SourceOptions};
use crate::pattern::{Series, SeriesPattern};
use crate::signature::{self, HEAD_BYTES};

/// The first and last bytes of every Parquet file.
const MAGIC: [u8; 4] = *b"PAR1";

/// Opens a source that is a single file.
pub(crate) fn open_file(path: &Path, options: &SourceOptions) -> Result<Source, SourceError> {
    let head = head(path)?;
    if !head.starts_with(&MAGIC) {
        let what = match signature::find(&head) {
            Some((name, remedy)) => format!("neither a folder nor a Parquet file, but {name}: {}", remedy.advice()),
            None => "neither a folder nor a Parquet file, nor one that the Python package reads (HDF5, openPMD, LAMMPS text, \
                     .npz, .npy, Arrow); convert it to one of them, or give the folder that contains the dumps of all epochs"
                .to_owned(),
        };
        return Err(SourceError::Unfit { path: path.to_owned(), what });
    }
    let usage = |what: String| Err(SourceError::Usage(what));
    refuse_species(options)?;
    let Some(epoch) = options.epoch else {
        return usage(format!(
            "{}: the epoch of a single Parquet file is not known; set it with --epoch",
            path.display()
        ));
    };
    let files = FilesByRank::from([(epoch, BTreeMap::from([(0, path.to_owned())]))]);
    open(Listing::of(path, files, false, None, &|example, _, _| example.to_owned(), options)?, options)
}

/// Opens files that are found by a pattern, such as `step-%T.parquet`. Returns `None` if it does not name Parquet
/// files.
pub(crate) fn open_series(path: &Path, options: &SourceOptions) -> Result<Option<Source>, SourceError> {
    let Some(pattern) = SeriesPattern::of(path) else { return Ok(None) };
    let found = pattern.find()?;
    let names_parquet = path.extension().is_some_and(|ending| ending == "parquet");
    if !names_parquet && !found.iter().any(|file| begins_as_parquet(&file.path).unwrap_or(false)) {
        return Ok(None);
    }
    refuse_species(options)?;
    options.refuse_repeated()?;
    if found.is_empty() {
        return Err(SourceError::Unfit { path: path.to_owned(), what: "no file matches the pattern".into() });
    }
    let series = Series::of(found, options)?;
    if !series.names_ranks {
        options.refuse_ranks(&format!("the pattern '{}' has no {{rank}}", path.display()))?;
    }
    let sibling = |example: &Path, _, rank| series.sibling(example, rank);
    let found = Listing::of(path, series.files.clone(), series.names_ranks, None, &sibling, options)?;
    open(found, options).map(Some)
}

/// Returns whether a file begins like a Parquet file.
fn begins_as_parquet(path: &Path) -> Result<bool, SourceError> {
    Ok(head(path)?.starts_with(&MAGIC))
}

/// Returns the first bytes of a file.
fn head(path: &Path) -> Result<Vec<u8>, SourceError> {
    let mut head = Vec::new();
    File::open(path).of("open", path)?.take(HEAD_BYTES as u64).read_to_end(&mut head).of("read", path)?;
    Ok(head)
}

fn refuse_species(options: &SourceOptions) -> Result<(), SourceError> {
    match options.species.is_some() || !options.extra.is_empty() {
        true => Err(SourceError::Usage(
            "--species and --extra are for VPIC dumps; a Parquet file describes its own columns".into(),
        )),
        false => Ok(()),
    }
}

/// Checks all files, and that all of them have the same columns.
pub(crate) fn open(mut found: Listing<'_>, options: &SourceOptions) -> Result<Source, SourceError> {
    options.check_nulls(Some(Nulls::Nan))?;
    let nulls_as_nan = options.nulls.is_some();
    let mut first: Option<(PathBuf, Vec<Column>)> = None;
    let mut notes = Vec::new();
    let epochs = found.checked(true, |rank, path| {
        let footer = load(&PagedFile::open(&path)?, &path)?;
        let chosen = Chosen::of(&path, &footer, options.columns.as_deref())?;
        chosen.check_content(&path, &footer, nulls_as_nan)?;
        match &first {
            Some((first, columns)) => same_columns(&path, &chosen.columns, first, columns)?,
            None => {
                notes.extend(chosen.notes(&footer));
                first = Some((path.clone(), chosen.columns));
            }
        }
        let row_groups = row_groups(&path, &footer)?;
        let records = row_groups.iter().sum();
        Ok(RecordFile { path, rank, records, constants: Box::default(), row_groups })
    })?;
    found.notes.append(&mut notes);
    let columns = first.map(|(_, columns)| columns).unwrap_or_default();
    let record_bytes = columns.iter().map(|column| column.data_type.width()).sum();
    let form = ParquetForm { columns, nulls_as_nan };
    Ok(found.source(epochs, Form::Parquet(form), record_bytes))
}
