//! The findings and the report of a verification.

use std::path::{Path, PathBuf};

use crate::error::Error;

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FindingKind {
    /// Stored bytes are corrupt, or files are missing or superfluous.
    Corruption,
    /// A file could not be read, so its state is unknown.
    Unreadable,
    /// The data is correct, but the user should be informed.
    Notice,
}

/// A finding of a verification.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// Severity of the finding.
    pub kind: FindingKind,
    /// File or folder that the finding concerns.
    pub path: PathBuf,
    /// Place in the file, such as a run or a page.
    pub place: Option<String>,
    /// Description of the problem.
    pub what: String,
}

impl Finding {
    pub(super) fn new(kind: FindingKind, path: &Path, what: impl Into<String>) -> Self {
        Self { kind, path: path.to_owned(), place: None, what: what.into() }
    }

    pub(super) fn corruption_at(path: &Path, place: impl Into<String>, what: impl Into<String>) -> Self {
        Self { place: Some(place.into()), ..Self::new(FindingKind::Corruption, path, what) }
    }

    /// Converts an error to a finding. `path` is used if the error contains no path.
    pub(super) fn from_error(error: Error, path: &Path) -> Self {
        match error {
            Error::Corruption { path, place, what } => Self { kind: FindingKind::Corruption, path, place, what },
            Error::Io { path, source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                Self::new(FindingKind::Corruption, &path, "it is missing")
            }
            Error::Io { path, source, .. } if source.kind() == std::io::ErrorKind::UnexpectedEof => {
                Self::new(FindingKind::Corruption, &path, "it is truncated")
            }
            Error::Io { operation, path, source } => {
                Self::new(FindingKind::Unreadable, &path, format!("cannot {operation} it: {source}"))
            }
            other => Self::new(FindingKind::Unreadable, path, other.to_string()),
        }
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.kind {
            FindingKind::Corruption => "corruption",
            FindingKind::Unreadable => "unreadable",
            FindingKind::Notice => "notice",
        };
        write!(f, "{kind}: {}", self.path.display())?;
        if let Some(place) = &self.place {
            write!(f, " ({place})")?;
        }
        write!(f, ": {}", self.what)
    }
}

/// The report of a verification: its scope and its findings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Number of epochs verified.
    pub epochs: u64,
    /// Number of parts opened.
    pub parts: u64,
    /// Number of row groups read.
    pub row_groups: u64,
    /// Number of pages read.
    pub pages: u64,
    /// Number of records read.
    pub rows: u64,
    /// Size of the row groups read, in bytes.
    pub bytes: u64,
    /// Number of indexes verified. Their parts, row groups, pages and bytes are included.
    pub indexes: u64,
    /// Number of attempts to write epochs that were never committed, or are in progress, without those of indexes.
    pub unfinished: u64,
    /// Findings, in the order of epochs and parts.
    pub findings: Vec<Finding>,
}

impl VerifyReport {
    /// Returns whether all findings are notices.
    pub fn is_clean(&self) -> bool {
        self.findings.iter().all(|finding| finding.kind == FindingKind::Notice)
    }

    /// Creates the report on something that cannot be read, with one finding. `path` is used if the error contains no
    /// path.
    pub(super) fn of_error(error: Error, path: &Path) -> Self {
        Self { findings: vec![Finding::from_error(error, path)], ..Self::default() }
    }

    /// Adds the report on an index. Its entries and their epochs are no records of the dataset, and `salvage` does not
    /// list what its killed builds left.
    pub(super) fn add_index(&mut self, index: Self) {
        let (epochs, rows, unfinished) = (self.epochs, self.rows, self.unfinished);
        self.add(index);
        (self.epochs, self.rows, self.unfinished) = (epochs, rows, unfinished);
        self.indexes += 1;
    }

    /// Adds the counts and findings of another report.
    pub(super) fn add(&mut self, other: Self) {
        self.epochs += other.epochs;
        self.parts += other.parts;
        self.row_groups += other.row_groups;
        self.pages += other.pages;
        self.rows += other.rows;
        self.bytes += other.bytes;
        self.indexes += other.indexes;
        self.unfinished += other.unfinished;
        self.findings.extend(other.findings);
    }
}
