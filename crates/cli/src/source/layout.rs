//! Layout files: TOML that says which files there are and what lies in them.
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
//! Parquet files say themselves what lies in them:
//!
//! ```toml
//! format = "parquet"
//! path = "step-{epoch}/part-{rank}.parquet"
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::checks::Texts;
use super::error::{SourceContext, SourceError};
use super::pattern::Pattern;
use super::{Source, SourceOptions, file_bytes, parquet, raw};

/// Longest layout file that is read: a misgiven data file should not be.
const MAX_LAYOUT_BYTES: u64 = 1 << 20;

/// The files of each epoch by rank.
pub(super) type Catalogue = BTreeMap<u64, BTreeMap<u32, PathBuf>>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Layout {
    #[serde(default)]
    format: Format,
    path: String,
    pub(super) header_bytes: Option<u64>,
    pub(super) record_bytes: Option<usize>,
    pub(super) records: Option<String>,
    pub(super) magic: Option<Texts>,
    ranks: Option<u32>,
    #[serde(rename = "field", default)]
    pub(super) fields: Vec<FieldLayout>,
    pub(super) filler: Option<FillerLayout>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Format {
    #[default]
    Raw,
    Parquet,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FieldLayout {
    pub(super) name: String,
    #[serde(rename = "type")]
    pub(super) data_type: String,
    pub(super) unit: Option<String>,
    pub(super) offset: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FillerLayout {
    pub(super) name: String,
    pub(super) bytes: u32,
}

/// Looks through the files below `root` that the layout describes.
pub(super) fn open(root: &Path, layout_path: &Path, options: &SourceOptions) -> Result<Source, SourceError> {
    if options.species.is_some() || !options.extra.is_empty() {
        return Err(SourceError::Usage(
            "--species and --extra are for VPIC dumps; with --layout the layout says it".into(),
        ));
    }
    let layout = read_layout(layout_path)?;
    let wrong = |what: String| SourceError::Layout { path: layout_path.to_owned(), what };
    let pattern = Pattern::parse(&layout.path).map_err(wrong)?;
    let find = || find(root, layout_path, &layout, &pattern);
    match layout.format {
        Format::Raw if options.columns.is_some() => {
            Err(SourceError::Usage("--columns is for Parquet files; --drop leaves out columns of other sources".into()))
        }
        Format::Raw => {
            let records = raw::RawRecords::of(&layout).map_err(wrong)?;
            let files = find()?;
            let notes = notes(&files);
            records.open(files, notes)
        }
        Format::Parquet if !layout.describes_records() => {
            let files = find()?;
            let notes = notes(&files);
            parquet::open(files, options, notes)
        }
        Format::Parquet => {
            Err(wrong("Parquet files say themselves what lies in them: leave all but path and ranks out".into()))
        }
    }
}

impl Layout {
    /// Whether it says anything about how records lie in a file.
    fn describes_records(&self) -> bool {
        let header = self.header_bytes.is_some() || self.records.is_some() || self.magic.is_some();
        header || self.record_bytes.is_some() || !self.fields.is_empty() || self.filler.is_some()
    }
}

fn read_layout(path: &Path) -> Result<Layout, SourceError> {
    if file_bytes(path)? > MAX_LAYOUT_BYTES {
        return Err(SourceError::Layout { path: path.to_owned(), what: "too long for a layout".into() });
    }
    let text = std::fs::read_to_string(path).of("read", path)?;
    toml::from_str(&text).map_err(|error| SourceError::Layout { path: path.to_owned(), what: error.to_string() })
}

/// The files that match, and nothing missing among them.
fn find(root: &Path, layout_path: &Path, layout: &Layout, pattern: &Pattern) -> Result<Catalogue, SourceError> {
    let mut files = Catalogue::new();
    for found in pattern.find(root)? {
        let (epoch, rank) = (found.epoch, found.rank);
        if let Some(other) = files.entry(epoch).or_default().insert(rank, found.path.clone()) {
            return Err(SourceError::Twice { one: other, other: found.path, epoch, rank });
        }
    }
    if files.is_empty() {
        let what = format!("no files called {} in it, as {} says", layout.path, layout_path.display());
        return Err(SourceError::Unfit { path: root.to_owned(), what });
    }
    for (&epoch, files) in &files {
        check_ranks(root, pattern, epoch, files, layout.ranks)?;
    }
    Ok(files)
}

/// Checks that the ranks are 0, 1, 2, … to the end.
fn check_ranks(
    root: &Path,
    pattern: &Pattern,
    epoch: u64,
    files: &BTreeMap<u32, PathBuf>,
    stated: Option<u32>,
) -> Result<(), SourceError> {
    let found = files.keys().last().map_or(0, |last| u64::from(*last) + 1);
    let expected = stated.map_or(found, u64::from);
    // The number of files bounds the search, however large the stated number is.
    let missing = (0..=u32::MAX).zip(files.keys()).find(|(rank, key)| rank != *key).map(|(rank, _)| rank);
    let missing = missing.or_else(|| u32::try_from(files.len()).ok().filter(|next| u64::from(*next) < expected));
    if let Some(rank) = missing {
        return Err(SourceError::MissingRank {
            path: pattern.path(root, epoch, rank),
            reason: format!("epoch {epoch} has {} of {} ranks", files.len(), expected.max(found)),
        });
    }
    if found > expected {
        let what = format!("epoch {epoch} has {found} ranks, but the layout states ranks = {expected}");
        return Err(SourceError::Unfit { path: root.to_owned(), what });
    }
    Ok(())
}

/// Nothing says how many ranks there were: point out epochs that differ.
fn notes(files: &Catalogue) -> Vec<String> {
    let mut counts = files.iter().map(|(epoch, files)| (epoch, files.len()));
    let Some((first, ranks)) = counts.next() else { return Vec::new() };
    let other = counts.find(|(_, other)| *other != ranks);
    let say =
        |(epoch, other)| format!("epoch {first} has {ranks} ranks, but epoch {epoch} has {other}; are files missing?");
    other.map(say).into_iter().collect()
}
