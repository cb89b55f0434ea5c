//! Opens the files that a layout describes.

use std::path::Path;

use super::document::{Format, Layout};
use super::listing::{find, group};
use super::raw::RawRecords;
use crate::configuration::{DatasetEntry, DumpFormat};
use crate::error::SourceError;
use crate::inventory::Source;
use crate::listing::Listing;
use crate::options::SourceOptions;
use crate::pattern::FolderPattern;
use crate::vpic;

/// Opens the files below `root` that the layout describes.
pub(crate) fn open(root: &Path, layout_path: &Path, options: &SourceOptions) -> Result<Source, SourceError> {
    if options.species.is_some() || !options.extra.is_empty() {
        return Err(SourceError::Usage(
            "--species and --extra are for VPIC dumps; with --layout, the layout file describes the records".into(),
        ));
    }
    let wrong = |what: String| SourceError::Layout { path: layout_path.to_owned(), what };
    if let Some(entry) = &options.dataset {
        return open_configured(root, layout_path, entry, options);
    }
    let layout = Layout::read(layout_path)?;
    let patterns = [FolderPattern::parse(&layout.path).map_err(wrong)?];
    let find = || find(root, layout_path, &layout, &patterns, options);
    match layout.format {
        Format::Raw if options.columns.is_some() => {
            Err(SourceError::Usage("--columns is for Parquet files; use --drop for columns of other sources".into()))
        }
        Format::Raw => {
            let records = RawRecords::of(&layout).map_err(wrong)?;
            records.open(find()?)
        }
        Format::Parquet if !layout.describes_records() => open_parquet(root, find()?, options),
        Format::Parquet => Err(wrong(
            "Parquet files describe their own columns: omit all settings except format, path and ranks".into(),
        )),
    }
}

/// Opens the files of a dataset of a preload configuration.
fn open_configured(
    root: &Path,
    path: &Path,
    entry: &DatasetEntry,
    options: &SourceOptions,
) -> Result<Source, SourceError> {
    let wrong = |what: String| SourceError::Layout { path: path.to_owned(), what };
    if options.columns.is_some() {
        return Err(SourceError::Usage(
            "--columns is for Parquet files; use --drop for columns of other sources".into(),
        ));
    }
    if entry.files.contains("{id}") {
        let what = "hold one record each, which only the preload library reads";
        return Err(wrong(format!("files = \"{}\": files with an {{id}} {what}", entry.files)));
    }
    let patterns = FolderPattern::below(&entry.files, root).map_err(wrong)?;
    match entry.format {
        DumpFormat::Records => {
            let layout = Layout::from(entry);
            let records = RawRecords::of(&layout).map_err(wrong)?;
            records.open(find(root, path, &layout, &patterns, options)?)
        }
        DumpFormat::Vpic => {
            let (files, pattern) = group(root, path, &entry.files, &patterns, options)?;
            let sibling = |example: &Path, epoch, rank| pattern.sibling(root, example, epoch, rank);
            vpic::open_steps(root, &files, &sibling, Vec::new(), options)
        }
        DumpFormat::Lammps => Err(wrong(
            "only the preload library reads LAMMPS' binary dumps; LAMMPS' binary2txt converts them to text, which \
             'turbidite ingest' reads without --layout"
                .into(),
        )),
    }
}

/// Opens the Parquet files of a layout.
#[cfg(feature = "parquet")]
fn open_parquet(_root: &Path, found: Listing<'_>, options: &SourceOptions) -> Result<Source, SourceError> {
    crate::parquet::open(found, options)
}

/// Returns the error of a build without Parquet support.
#[cfg(not(feature = "parquet"))]
fn open_parquet(root: &Path, _found: Listing<'_>, _options: &SourceOptions) -> Result<Source, SourceError> {
    Err(SourceError::Unfit { path: root.to_owned(), what: "this build does not read Parquet files".into() })
}
