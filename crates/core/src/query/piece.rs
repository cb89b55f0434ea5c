//! A piece of a query, as another process receives it.

use std::ops::Range;
use std::path::Path;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::{Error, Result, UsageError};
use crate::format::EpochManifest;

/// Version of the serialized form of a [`Piece`].
const VERSION: u32 = 1;

/// A part of a query: some row groups of one commit of an epoch. The pieces of a query together return its rows, each
/// row once. A piece is data: it is serialized, sent to another process, and executed by [`Query::piece`] on a dataset
/// that this process has opened.
///
/// A piece refers to a commit. If the epoch has been replaced since, executing the piece is an error.
///
/// [`Query::piece`]: crate::query::Query::piece
///
/// ```no_run
/// use turbidite::query::{Dataset, Query};
/// let dataset = Dataset::open("particles.tbd")?;
/// let query = Query::new().filter("energy > 1.5").columns(["id"]);
/// for piece in dataset.pieces(&query, 64 << 20)? {
///     // Usually in another process.
///     for batch in dataset.run(&query.clone().piece(piece))? {
///         println!("{} rows", batch?.num_rows());
///     }
/// }
/// # Ok::<(), turbidite::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Piece {
    version: u32,
    epoch: u64,
    commit: Uuid,
    /// Positions of the row groups in the manifest's list: the first one, and the one after the last.
    row_groups: (usize, usize),
    /// Maximum number of rows that the piece returns.
    rows_most: u64,
    /// Maximum size of the values that the piece reads, in bytes.
    bytes_most: u64,
    /// Number of rows of the first row group before the piece, and of the last row group after it. Only pieces of a
    /// share leave out rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    left_out: Option<(u64, u64)>,
}

impl Piece {
    /// Creates a piece of one row group, given by its position in the manifest's list.
    pub(super) fn new(manifest: &EpochManifest, entry: usize, rows: u64, bytes: u64) -> Self {
        let row_groups = (entry, entry + 1);
        Self {
            version: VERSION,
            epoch: manifest.epoch,
            commit: manifest.commit,
            row_groups,
            rows_most: rows,
            bytes_most: bytes,
            left_out: None,
        }
    }

    /// Creates a piece of all row groups of an epoch.
    pub(super) fn of_epoch(manifest: &EpochManifest) -> Self {
        let row_groups = (0, manifest.row_groups.len());
        Self { row_groups, ..Self::new(manifest, 0, manifest.rows(), u64::MAX) }
    }

    /// Creates a piece of some rows of one row group, and of all row groups before and after that the piece is extended
    /// by.
    pub(super) fn of_rows(manifest: &EpochManifest, entry: usize, rows: &Range<u64>, row_bytes: u64) -> Self {
        let mut piece = Self::new(manifest, entry, 0, 0);
        piece.left_out = Some((rows.start, 0));
        piece.extend_by_rows(manifest, entry, rows, row_bytes);
        piece
    }

    /// Extends the piece by rows of a row group that follow the rows of the piece.
    pub(super) fn extend_by_rows(&mut self, manifest: &EpochManifest, entry: usize, rows: &Range<u64>, row_bytes: u64) {
        let count = rows.end - rows.start;
        self.extend(entry, count, count.saturating_mul(row_bytes));
        if let Some((_, after)) = &mut self.left_out {
            *after = manifest.row_groups[entry].rows - rows.end;
        }
    }

    /// Extends the piece up to a later row group of the same epoch.
    pub(super) fn extend(&mut self, entry: usize, rows: u64, bytes: u64) {
        self.row_groups.1 = entry + 1;
        self.rows_most += rows;
        self.bytes_most += bytes;
    }

    /// Returns the epoch of the piece.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the maximum number of rows that the piece returns.
    pub fn rows_most(&self) -> u64 {
        self.rows_most
    }

    /// Returns the maximum size of the values that the piece reads, in bytes.
    pub fn bytes_most(&self) -> u64 {
        self.bytes_most
    }

    /// Checks a piece that may come from another release or another process.
    pub(super) fn check(&self) -> Result<()> {
        let wrong = |what: String| Err(UsageError::Option { option: "piece", what }.into());
        if self.version != VERSION {
            return wrong(format!("has version {}, but this release reads {VERSION}", self.version));
        }
        if self.row_groups.0 > self.row_groups.1 {
            return wrong("has its row groups in descending order".to_owned());
        }
        Ok(())
    }

    /// Checks that a manifest is the one from which the piece was made.
    pub(super) fn check_commit(&self, root: &Path, manifest: &EpochManifest) -> Result<()> {
        if manifest.commit == self.commit {
            return Ok(());
        }
        Err(Error::EpochReplaced { epoch: self.epoch, path: root.to_owned() })
    }

    /// Returns whether a row group belongs to the piece, in full or in part.
    pub(super) fn contains(&self, entry: usize) -> bool {
        (self.row_groups.0..self.row_groups.1).contains(&entry)
    }

    /// Returns the rows of a row group, which has `rows` rows, that belong to the piece.
    pub(super) fn rows_of(&self, entry: usize, rows: u64) -> Range<u64> {
        let (before, after) = self.left_out.unwrap_or_default();
        let start = if entry == self.row_groups.0 { before.min(rows) } else { 0 };
        let end = if entry + 1 == self.row_groups.1 { rows.saturating_sub(after) } else { rows };
        start..end.max(start)
    }
}
