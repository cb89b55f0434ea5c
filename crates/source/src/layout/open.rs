//! Opens the files that a layout describes.

use std::path::Path;

use super::document::{Format, Layout};
use super::listing::find;
use super::raw::RawRecords;
use crate::catalogue::{FilesByRank, Source};
use crate::error::SourceError;
use crate::options::SourceOptions;
use crate::pattern::FolderPattern;

/// Opens the files below `root` that the layout describes.
pub(crate) fn open(root: &Path, layout_path: &Path, options: &SourceOptions) -> Result<Source, SourceError> {
    if options.species.is_some() || !options.extra.is_empty() {
        return Err(SourceError::Usage(
            "--species and --extra are for VPIC dumps; with --layout, the layout file describes the records".into(),
        ));
    }
    let layout = Layout::read(layout_path)?;
    let wrong = |what: String| SourceError::Layout { path: layout_path.to_owned(), what };
    let pattern = FolderPattern::parse(&layout.path).map_err(wrong)?;
    let find = || find(root, layout_path, &layout, &pattern, options);
    match layout.format {
        Format::Raw if options.columns.is_some() => {
            Err(SourceError::Usage("--columns is for Parquet files; use --drop for columns of other sources".into()))
        }
        Format::Raw => {
            let records = RawRecords::of(&layout).map_err(wrong)?;
            let found = find()?;
            records.open(found.files, found.notes)
        }
        Format::Parquet if !layout.describes_records() => {
            let found = find()?;
            open_parquet(root, found.files, options, found.notes)
        }
        Format::Parquet => Err(wrong(
            "Parquet files describe their own columns: omit all settings except format, path and ranks".into(),
        )),
    }
}

/// Opens the Parquet files of a layout.
#[cfg(feature = "parquet")]
fn open_parquet(
    _root: &Path,
    files: FilesByRank,
    options: &SourceOptions,
    notes: Vec<String>,
) -> Result<Source, SourceError> {
    crate::parquet::open(files, options, notes)
}

/// Returns the error of a build without Parquet support.
#[cfg(not(feature = "parquet"))]
fn open_parquet(
    root: &Path,
    _files: FilesByRank,
    _options: &SourceOptions,
    _notes: Vec<String>,
) -> Result<Source, SourceError> {
    Err(SourceError::Unfit { path: root.to_owned(), what: "this build does not read Parquet files".into() })
}
