//! The options of a source besides its path.

use std::collections::BTreeMap;
use std::path::PathBuf;

use turbidite::store::EpochSet;
use turbidite::{Column, DataType};

use crate::configuration::DatasetEntry;
use crate::error::SourceError;

/// The replacement for absent values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nulls {
    /// NaN for nulls of float columns in Parquet and Arrow files, which pandas stores for NaN.
    Nan,
    /// HDF5's fill values for values that were never written.
    Fill,
}

impl Nulls {
    /// Returns the name in the request to a reader.
    #[cfg(feature = "package")]
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Nan => "nan",
            Self::Fill => "fill",
        }
    }
}

/// The options that select and describe a source's files.
#[derive(Debug, Clone, Default)]
pub struct SourceOptions {
    /// The species to read, if a folder holds several.
    pub species: Option<String>,
    /// Columns in the bytes that follow VPIC's own 32 of each particle.
    pub extra: Vec<Column>,
    /// A layout file in TOML, which describes the source's files. Without one, a folder holds VPIC dumps.
    pub layout: Option<PathBuf>,
    /// The dataset to read, if [`SourceOptions::layout`] is a configuration of the preload library.
    pub dataset: Option<Box<DatasetEntry>>,
    /// The format of files that the Python package reads, if their names do not show it.
    pub format: Option<String>,
    /// The columns to read from files that describe their own columns. All columns by default.
    pub columns: Option<Vec<String>>,
    /// The epoch of a source that is a single file.
    pub epoch: Option<u64>,
    /// Which of several occurrences of an epoch is read, `first` or `last`, of files that the Python package reads.
    /// Several are an error by default.
    pub if_repeated: Option<String>,
    /// The replacement for absent values, which are an error by default.
    pub nulls: Option<Nulls>,
    /// The epochs that are read. Others are not checked. All epochs by default.
    pub epochs: Option<EpochSet>,
    /// Epochs that have been read before, and are not read again, with the number of their files.
    pub done: BTreeMap<u64, u32>,
    /// The places from which a source of the Python package is read again ([`Source::resume`](crate::Source::resume)).
    pub resume: Option<String>,
    /// Whether epochs that are not whole are left out. They are an error by default.
    pub complete_only: bool,
    /// The number of ranks that wrote each epoch, if the user states it.
    pub source_ranks: Option<u32>,
    /// Whether epochs may lack the files of some ranks.
    pub allow_missing_ranks: bool,
}

impl SourceOptions {
    /// Returns whether an epoch is read.
    pub(crate) fn selects(&self, epoch: u64) -> bool {
        let spans = self.epochs.as_ref().and_then(EpochSet::spans);
        spans.is_none_or(|spans| spans.iter().any(|span| span.has(epoch))) && !self.done.contains_key(&epoch)
    }

    /// Refuses a choice between occurrences of an epoch for a source whose files name it once.
    pub(crate) fn refuse_repeated(&self) -> Result<(), SourceError> {
        match self.if_repeated {
            None => Ok(()),
            Some(_) => Err(SourceError::Usage(
                "--if-repeated is for LAMMPS, openPMD, HDF5, npz and Arrow files; omit the option".into(),
            )),
        }
    }

    /// Refuses a choice for absent values other than `accepted`, the one that the source has.
    pub(crate) fn check_nulls(&self, accepted: Option<Nulls>) -> Result<(), SourceError> {
        if self.nulls.is_some() && self.nulls != accepted {
            let what = "--nulls nan is for Parquet and Arrow files, --nulls fill for HDF5 files; omit the option";
            return Err(SourceError::Usage(what.into()));
        }
        Ok(())
    }

    /// Refuses a number of ranks for a source without a file of each rank.
    pub(crate) fn refuse_ranks(&self, source: &str) -> Result<(), SourceError> {
        match self.source_ranks {
            None => Ok(()),
            Some(_) => Err(SourceError::Usage(format!(
                "--source-ranks is for epochs with a file of each rank, but {source}; omit the option"
            ))),
        }
    }
}

/// Parses columns such as `tag0:i64,tag1:i64`.
///
/// # Errors
/// Returns the mistake in the text.
pub fn parse_columns(text: &str) -> Result<Vec<Column>, String> {
    text.split(',')
        .map(|part| {
            let (name, kind) =
                part.split_once(':').ok_or_else(|| format!("'{part}' is not NAME:TYPE, as in tag0:i64"))?;
            let data_type: DataType = kind.parse().map_err(|error: turbidite::SchemaError| error.to_string())?;
            Ok(Column::new(name.trim(), data_type))
        })
        .collect()
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
