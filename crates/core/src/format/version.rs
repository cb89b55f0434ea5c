//! Versions of the on-disk format.

use std::path::Path;

use crate::error::{Error, Result};

/// A version of the format that FORMAT.md describes. Every file of a dataset has the version of its `dataset.json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FormatVersion {
    /// The first version. Its queries read the footers of parts.
    V1,
    /// The version of new datasets. Its manifests contain the places and the bounds of pages, and are read by column.
    V2,
}

impl FormatVersion {
    /// The version of new datasets, and the highest version that this release reads.
    pub const LATEST: Self = Self::V2;

    /// Returns the number of the version, as files state it.
    pub const fn number(self) -> u32 {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
        }
    }

    /// Returns the version with a number.
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::V1),
            2 => Some(Self::V2),
            _ => None,
        }
    }

    /// Returns the version that the file at `path` states.
    ///
    /// # Errors
    /// [`Error::Version`] for the version of a newer release, and [`Error::Corruption`] for one that never existed.
    pub(crate) fn stated(number: u32, path: &Path) -> Result<Self> {
        match Self::from_number(number) {
            Some(version) => Ok(version),
            None if number > Self::LATEST.number() => {
                Err(Error::Version { path: path.to_owned(), found: number, supported: Self::LATEST.number() })
            }
            None => Err(Error::corruption(path, format!("it states format version {number}"))),
        }
    }
}

impl std::fmt::Display for FormatVersion {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.number().fmt(formatter)
    }
}
