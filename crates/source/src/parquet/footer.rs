//! Reads footers, and converts errors and panics of the `parquet` crate.

use std::path::Path;

use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::errors::ParquetError;

use super::file::PagedFile;
use crate::error::SourceError;
use crate::panics;

/// Reads a file's footer.
pub(super) fn load(file: &PagedFile, path: &Path) -> Result<ArrowReaderMetadata, SourceError> {
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    guarded(path, "the footer", || ArrowReaderMetadata::load(file, options))
}

/// Runs a decoding step. The `parquet` crate panics on some corrupt files. Such panics are converted to errors.
pub(super) fn guarded<T>(
    path: &Path,
    place: impl std::fmt::Display,
    step: impl FnOnce() -> Result<T, ParquetError>,
) -> Result<T, SourceError> {
    let done = panics::catch(step).unwrap_or_else(|what| Err(ParquetError::General(what)));
    done.map_err(|error| unreadable(path, place, error))
}

/// Returns the error for a file that cannot be read.
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

/// Returns the number of records of each row group, as stated in the footer.
pub(super) fn row_groups(path: &Path, footer: &ArrowReaderMetadata) -> Result<Box<[u64]>, SourceError> {
    let groups = footer.metadata().row_groups();
    let rows: Option<Box<[u64]>> = groups.iter().map(|group| u64::try_from(group.num_rows()).ok()).collect();
    let total = |rows: &[u64]| rows.iter().try_fold(0u64, |sum, rows| sum.checked_add(*rows));
    let stated = u64::try_from(footer.metadata().file_metadata().num_rows()).ok();
    rows.filter(|rows| total(rows).is_some_and(|total| Some(total) == stated)).ok_or_else(|| SourceError::Undecodable {
        path: path.to_owned(),
        place: "the footer".into(),
        what: "the rows of the row groups do not add up to the file's".into(),
    })
}
