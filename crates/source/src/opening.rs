//! Opens a source. The path and the options determine the format of its files.

use std::path::Path;

use crate::error::{SourceContext, SourceError};
use crate::inventory::Source;
use crate::options::SourceOptions;
#[cfg(feature = "package")]
use crate::package;
use crate::{layout, vpic};

impl Source {
    /// Opens a folder, a pattern or a single file, and checks every file of the epochs that are read.
    ///
    /// # Errors
    /// Returns an error for the first file that is missing, truncated or otherwise invalid, or for an option that does
    /// not fit the source. With [`SourceOptions::complete_only`], only options that do not fit are errors.
    pub fn open(path: &Path, options: &SourceOptions) -> Result<Self, SourceError> {
        match Self::open_checked(path, options) {
            // A running simulation may be about to write the first file.
            Err(error) if options.complete_only && !error.is_usage() => Ok(Self::without_epochs(error.to_string())),
            opened => opened,
        }
    }

    fn open_checked(path: &Path, options: &SourceOptions) -> Result<Self, SourceError> {
        if options.layout.is_none()
            && options.format.is_none()
            && let Some(source) = open_series(path, options)?
        {
            return Ok(source);
        }
        if is_for_package(path, options) {
            return open_by_package(path, options);
        }
        options.refuse_repeated()?;
        let kind = std::fs::metadata(path).of("read", path)?;
        let usage = |what: &str| Err(SourceError::Usage(what.into()));
        match (&options.layout, kind.is_dir()) {
            (None, false) => {
                options.refuse_ranks(&format!("{} is one file", path.display()))?;
                open_file(path, options)
            }
            (Some(_), false) => usage("--layout describes the files of a folder; SOURCE is a file"),
            (_, true) if options.epoch.is_some() => {
                usage("--epoch is for a source that is a single file; --epochs selects epochs of a folder")
            }
            (Some(layout), true) => layout::open(path, layout, options),
            (None, true) if options.columns.is_some() => {
                usage("--columns is for Parquet files; use --drop for columns of other sources")
            }
            (None, true) => vpic::open(path, options),
        }
    }
}

/// Opens a pattern of Parquet files. Returns `None` for other sources.
#[cfg(feature = "parquet")]
fn open_series(path: &Path, options: &SourceOptions) -> Result<Option<Source>, SourceError> {
    crate::parquet::open_series(path, options)
}

/// Returns `None`: this build does not read Parquet files.
#[cfg(not(feature = "parquet"))]
fn open_series(_path: &Path, _options: &SourceOptions) -> Result<Option<Source>, SourceError> {
    Ok(None)
}

/// Opens a single file.
#[cfg(feature = "parquet")]
fn open_file(path: &Path, options: &SourceOptions) -> Result<Source, SourceError> {
    crate::parquet::open_file(path, options)
}

/// Returns the error of a build without Parquet support. Only Parquet files are read as single files.
#[cfg(not(feature = "parquet"))]
fn open_file(path: &Path, _options: &SourceOptions) -> Result<Source, SourceError> {
    Err(SourceError::Unfit { path: path.to_owned(), what: "this build does not read Parquet files".into() })
}

/// Returns whether the Python package reads the source: its format is stated, or the path shows it.
#[cfg(feature = "package")]
fn is_for_package(path: &Path, options: &SourceOptions) -> bool {
    let shows = || match std::fs::metadata(path) {
        Ok(kind) if kind.is_dir() => package::reads_folder(path),
        Ok(_) => package::reads_file(path),
        Err(_) => package::is_pattern(path),
    };
    options.layout.is_none() && (options.format.is_some() || shows())
}

/// Opens a source by the Python package.
#[cfg(feature = "package")]
fn open_by_package(path: &Path, options: &SourceOptions) -> Result<Source, SourceError> {
    package::open(path, options)
}

/// Returns `false`: this build reads no files by the Python package.
#[cfg(not(feature = "package"))]
fn is_for_package(_path: &Path, _options: &SourceOptions) -> bool {
    false
}

/// Returns the error of a build that reads no files by the Python package.
#[cfg(not(feature = "package"))]
fn open_by_package(path: &Path, _options: &SourceOptions) -> Result<Source, SourceError> {
    Err(SourceError::Unfit { path: path.to_owned(), what: "this build does not read such files".into() })
}
