//! The version of the on-disk format.

use std::path::Path;

use crate::error::{Error, Result};

/// Version of the format that FORMAT.md describes, as all files of a dataset state it.
pub const FORMAT_VERSION: u32 = 2;

/// Checks the version that the file at `path` states.
///
/// # Errors
/// [`Error::Version`] if it is another one.
pub(crate) fn check_version(found: u32, path: &Path) -> Result<()> {
    if found == FORMAT_VERSION {
        return Ok(());
    }
    Err(Error::Version { path: path.to_owned(), found, supported: FORMAT_VERSION })
}
