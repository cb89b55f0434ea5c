//! Findings of verification.

use std::path::{Path, PathBuf};

use crate::error::Error;

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FindingKind {
    /// Stored bytes are corrupt, or files are missing or superfluous.
    Corruption,
    /// The system could not read a file, so its state is unknown.
    Unreadable,
    /// The data is correct, but the user should know.
    Notice,
}

/// A finding of verification.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// Its severity.
    pub kind: FindingKind,
    /// The file or folder.
    pub path: PathBuf,
    /// The place in the file: a run, a page.
    pub place: Option<String>,
    /// The problem.
    pub what: String,
}

impl Finding {
    pub(super) fn new(kind: FindingKind, path: &Path, what: impl Into<String>) -> Self {
        Self { kind, path: path.to_owned(), place: None, what: what.into() }
    }

    pub(super) fn corruption_at(path: &Path, place: impl Into<String>, what: impl Into<String>) -> Self {
        Self { place: Some(place.into()), ..Self::new(FindingKind::Corruption, path, what) }
    }

    /// Converts an error to a finding; `path` is used if the error names none.
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

/// The scope and the findings of a verification.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Epochs verified.
    pub epochs: u64,
    /// Parts opened.
    pub parts: u64,
    /// Row groups read.
    pub row_groups: u64,
    /// Pages read.
    pub pages: u64,
    /// Records read.
    pub rows: u64,
    /// Bytes of records read.
    pub bytes: u64,
    /// Attempts at epochs that were begun and never committed, or are being written.
    pub unfinished: u64,
    /// The findings, in the order of epochs and parts.
    pub findings: Vec<Finding>,
}

impl VerifyReport {
    /// Returns whether there are no findings but notices.
    pub fn is_clean(&self) -> bool {
        self.findings.iter().all(|finding| finding.kind == FindingKind::Notice)
    }

    /// Adds another report's counts and findings.
    pub(super) fn add(&mut self, other: Self) {
        self.epochs += other.epochs;
        self.parts += other.parts;
        self.row_groups += other.row_groups;
        self.pages += other.pages;
        self.rows += other.rows;
        self.bytes += other.bytes;
        self.unfinished += other.unfinished;
        self.findings.extend(other.findings);
    }
}
