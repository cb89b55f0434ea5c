//! Layout files: TOML descriptions of a source's files and their content.
//!
//! ```toml
//! # CARP's published VPIC traces: one energy per record and nothing else.
//! path = "T.{epoch}/eparticle.{epoch}.{rank}"
//! header_bytes = 0          # skipped at the beginning of each file
//! record_bytes = 4          # may be left out: then records end with their last field
//! ranks = 512               # may be left out: then the ranks that are there must be 0, 1, 2, … without a gap
//! # records = "i32@111"     # a number in each header that has to be that of the records: i32, u32, i64 or u64 at a byte
//! # magic = "fe ca ef be@5" # bytes that each header has to have at a byte, in hexadecimal; or a list of such texts
//!
//! [[field]]
//! name = "energy"
//! type = "f32"
//! unit = "mc^2"             # may be left out
//! offset = 0                # may be left out: then the field follows the one before it
//!
//! [filler]                  # may be left out: bytes attached to each record, generated
//! name = "payload"
//! bytes = 56
//! ```
//!
//! Parquet files describe their own content:
//!
//! ```toml
//! format = "parquet"
//! path = "step-{epoch}/part-{rank}.parquet"
//! ```

use std::path::Path;

use serde::Deserialize;

use crate::checks::Texts;
use crate::error::{SourceContext, SourceError};
use crate::field::FieldLayout;
use crate::files::file_bytes;

/// Maximum size of a layout file, which keeps a data file given by mistake from being read whole.
const MAX_LAYOUT_BYTES: u64 = 1 << 20;

/// A layout file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Layout {
    #[serde(default)]
    pub(super) format: Format,
    pub(super) path: String,
    pub(super) header_bytes: Option<u64>,
    pub(super) record_bytes: Option<usize>,
    pub(super) records: Option<String>,
    pub(super) magic: Option<Texts>,
    pub(super) ranks: Option<u32>,
    #[serde(rename = "field", default)]
    pub(super) fields: Vec<FieldLayout>,
    pub(super) filler: Option<FillerLayout>,
}

/// The format of the files.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Format {
    #[default]
    Raw,
    Parquet,
}

/// A `[filler]` table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FillerLayout {
    pub(super) name: String,
    pub(super) bytes: u32,
}

impl Layout {
    /// Reads a layout file.
    pub(super) fn read(path: &Path) -> Result<Self, SourceError> {
        if file_bytes(path)? > MAX_LAYOUT_BYTES {
            return Err(SourceError::Layout { path: path.to_owned(), what: "too large for a layout file".into() });
        }
        let text = std::fs::read_to_string(path).of("read", path)?;
        toml::from_str(&text).map_err(|error| SourceError::Layout { path: path.to_owned(), what: error.to_string() })
    }

    /// Returns whether it describes the layout of records in a file.
    pub(super) fn describes_records(&self) -> bool {
        let header = self.header_bytes.is_some() || self.records.is_some() || self.magic.is_some();
        header || self.record_bytes.is_some() || !self.fields.is_empty() || self.filler.is_some()
    }
}
