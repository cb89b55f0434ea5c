//! Opens Parquet files and checks that all of them have the same columns.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use turbidite::Column;

use super::columns::{Chosen, ParquetForm, same_columns};
use super::file::PagedFile;
use super::footer::{load, row_groups};
use crate::catalogue::{FilesByRank, Form, RecordFile, Source};
use crate::error::{SourceContext, SourceError};
use crate::options::{Nulls, SourceOptions};
use crate::signature::{self, HEAD_BYTES};

/// The first and last bytes of every Parquet file.
const MAGIC: [u8; 4] = *b"PAR1";

/// Opens a source that is a single file.
pub(crate) fn open_file(path: &Path, options: &SourceOptions) -> Result<Source, SourceError> {
    let mut head = Vec::new();
    File::open(path).of("open", path)?.take(HEAD_BYTES as u64).read_to_end(&mut head).of("read", path)?;
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
    if options.species.is_some() || !options.extra.is_empty() {
        return usage("--species and --extra are for VPIC dumps; a Parquet file describes its own columns".into());
    }
    let Some(epoch) = options.epoch else {
        return usage(format!(
            "{}: the epoch of a single Parquet file is not known; set it with --epoch",
            path.display()
        ));
    };
    open(FilesByRank::from([(epoch, BTreeMap::from([(0, path.to_owned())]))]), options, Vec::new())
}

/// Checks all files, and that all of them have the same columns.
pub(crate) fn open(files: FilesByRank, options: &SourceOptions, mut notes: Vec<String>) -> Result<Source, SourceError> {
    options.check_nulls(Some(Nulls::Nan))?;
    let nulls_as_nan = options.nulls.is_some();
    let mut first: Option<(PathBuf, Vec<Column>)> = None;
    let mut epochs = BTreeMap::new();
    for (epoch, files) in files {
        let mut checked = Vec::with_capacity(files.len());
        for (rank, path) in files {
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
            checked.push(RecordFile { path, rank, records, constants: Box::default(), row_groups });
        }
        epochs.insert(epoch, checked);
    }
    let columns = first.map(|(_, columns)| columns).unwrap_or_default();
    let record_bytes = columns.iter().map(|column| column.data_type.width()).sum();
    let form = ParquetForm { columns, nulls_as_nan };
    Ok(Source { epochs, form: Form::Parquet(form), record_bytes, notes })
}
