//! Where records come from: folders of dump files, one file per epoch and rank, or a single Parquet file.
//!
//! Opening a source looks at every file's name, header and length, so that a missing rank or a truncated file is found
//! before anything is written. Records are then read in bounded chunks: a source never holds an epoch in memory.
//!
//! [`vpic`] knows VPIC's particle dumps ([`header`] their first 115 bytes). Other files are found by a TOML file, [`layout`]
//! ([`pattern`] its path patterns): [`raw`] records of a fixed size ([`checks`] what their headers say), or [`parquet`]. All end in the same catalogue of files,
//! [`Source`]; [`slices`] spreads it over any number of ranks and [`reader`] reads a rank's share.

mod checks;
mod error;
mod filler;
mod header;
mod layout;
mod parquet;
mod pattern;
mod raw;
mod reader;
mod slices;
mod vpic;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use turbidite::{Column, DataType};

pub(crate) use error::SourceError;
pub(crate) use filler::Filler;
pub(crate) use reader::{Chunk, RankReader};

use error::SourceContext;

/// Most ranks of a job that nobody gave a number of: a file with more row groups is no sign that more are wanted.
const MOST_ASSUMED_RANKS: usize = 16;

/// What a user may say about a source beside its path.
#[derive(Debug, Clone, Default)]
pub(crate) struct SourceOptions {
    /// Which particles, where a folder holds several species.
    pub species: Option<String>,
    /// Columns in the bytes that follow VPIC's own 32 of each particle.
    pub extra: Vec<Column>,
    /// A TOML file that describes other files; without it a folder holds VPIC dumps.
    pub layout: Option<PathBuf>,
    /// Which columns to read of Parquet files; all without it.
    pub columns: Option<Vec<String>>,
    /// The epoch of a source that is a single file.
    pub epoch: Option<u64>,
}

/// One column inside a record.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Field {
    /// Name, type and unit.
    pub column: Column,
    /// Where its value begins in the record, in bytes.
    pub offset: usize,
}

/// One file: what one rank wrote in one epoch.
#[derive(Debug, Clone)]
pub(crate) struct RecordFile {
    /// Where it is.
    pub path: PathBuf,
    /// The rank that wrote it.
    pub rank: u32,
    /// How many records it holds.
    pub records: u64,
    /// Values of the source's constants in this file, in the order of [`Source::constant`].
    pub constants: Box<[f64]>,
    /// Records of each row group of a Parquet file; other files have none.
    pub row_groups: Box<[u64]>,
}

/// What lies in the files.
#[derive(Debug)]
enum Form {
    /// Records of a fixed size.
    Records(RecordForm),
    /// Columns of these names and types, among others perhaps.
    Parquet(Vec<Column>),
}

/// How records of a fixed size lie in their file.
#[derive(Debug)]
struct RecordForm {
    fields: Vec<Field>,
    filler: Option<Filler>,
    header_bytes: u64,
    constants: &'static [&'static str],
}

/// A checked catalogue of files.
#[derive(Debug)]
pub(crate) struct Source {
    epochs: BTreeMap<u64, Vec<RecordFile>>,
    form: Form,
    record_bytes: usize,
    notes: Vec<String>,
}

impl Source {
    /// Looks through a folder, or at a single file, and checks every file.
    pub(crate) fn open(path: &Path, options: &SourceOptions) -> Result<Self, SourceError> {
        let kind = std::fs::metadata(path).of("read", path)?;
        let usage = |what: &str| Err(SourceError::Usage(what.into()));
        match (&options.layout, kind.is_dir()) {
            (None, false) => parquet::open_file(path, options),
            (Some(_), false) => usage("--layout describes the files of a folder; SOURCE is a file"),
            (_, true) if options.epoch.is_some() => {
                usage("--epoch is for a source that is a single file; --epochs chooses among those of a folder")
            }
            (Some(layout), true) => layout::open(path, layout, options),
            (None, true) if options.columns.is_some() => {
                usage("--columns is for Parquet files; --drop leaves out columns of other sources")
            }
            (None, true) => vpic::open(path, options),
        }
    }

    /// The epochs, ascending.
    pub(crate) fn epochs(&self) -> impl Iterator<Item = u64> {
        self.epochs.keys().copied()
    }

    /// The files of an epoch by rank; none for an epoch that is not there.
    pub(crate) fn files(&self, epoch: u64) -> &[RecordFile] {
        self.epochs.get(&epoch).map_or(&[], Vec::as_slice)
    }

    /// Number of ranks that wrote the largest epoch; for an epoch in one Parquet file as many as can read it side by side.
    pub(crate) fn ranks(&self) -> u32 {
        let ranks = |files: &Vec<RecordFile>| match files.as_slice() {
            [only] => only.row_groups.len().clamp(1, MOST_ASSUMED_RANKS),
            files => files.len(),
        };
        // File counts came from u32 ranks.
        self.epochs.values().map(|files| ranks(files) as u32).max().unwrap_or(0)
    }

    /// Number of records in an epoch.
    pub(crate) fn records(&self, epoch: u64) -> u64 {
        self.files(epoch).iter().map(|file| file.records).sum()
    }

    /// Generated bytes that are attached to each record, if asked for.
    pub(crate) fn filler(&self) -> Option<&Filler> {
        match &self.form {
            Form::Records(form) => form.filler.as_ref(),
            Form::Parquet(_) => None,
        }
    }

    /// The columns a record has: its fields, then the filler.
    pub(crate) fn columns(&self) -> Vec<Column> {
        match &self.form {
            Form::Records(form) => {
                let fields = form.fields.iter().map(|field| &field.column);
                fields.chain(form.filler.iter().map(|filler| &filler.column)).cloned().collect()
            }
            Form::Parquet(columns) => columns.clone(),
        }
    }

    /// Length of one record, in bytes: in its file, or of its values where the file is encoded.
    pub(crate) fn record_bytes(&self) -> usize {
        self.record_bytes
    }

    /// Position of a constant such as `header.x0` among [`RecordFile::constants`].
    pub(crate) fn constant(&self, name: &str) -> Option<usize> {
        match &self.form {
            Form::Records(form) => form.constants.iter().position(|known| known.eq_ignore_ascii_case(name)),
            Form::Parquet(_) => None,
        }
    }

    /// What a user may want to know about files that were left out.
    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }
}

/// Columns written as `tag0:i64,tag1:i64`.
pub(crate) fn parse_columns(text: &str) -> Result<Vec<Column>, String> {
    text.split(',')
        .map(|part| {
            let (name, kind) =
                part.split_once(':').ok_or_else(|| format!("'{part}' is not NAME:TYPE, as in tag0:i64"))?;
            let data_type: DataType = kind.parse().map_err(|error: turbidite::SchemaError| error.to_string())?;
            Ok(Column::new(name.trim(), data_type))
        })
        .collect()
}

/// Names in a folder in byte order, those that are not UTF-8 or hidden left out.
fn names(folder: &Path) -> Result<Vec<String>, SourceError> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).of("list", folder)? {
        let entry = entry.of("list", folder)?;
        if let Ok(name) = entry.file_name().into_string()
            && !name.starts_with('.')
        {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Length of a regular file.
fn file_bytes(path: &Path) -> Result<u64, SourceError> {
    let metadata = std::fs::metadata(path).of("read", path)?;
    if !metadata.is_file() {
        return Err(SourceError::Unfit { path: path.to_owned(), what: "not a regular file".into() });
    }
    Ok(metadata.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extra_columns_are_parsed() {
        let columns = parse_columns("tag0:i64, rest:fixed_bytes(8)").unwrap();
        assert_eq!(columns, [Column::new("tag0", DataType::I64), Column::new("rest", DataType::FixedBytes(8))]);
        assert!(parse_columns("tag0").unwrap_err().contains("NAME:TYPE"));
        assert!(parse_columns("tag0:i63").unwrap_err().contains("i63"));
    }
}
