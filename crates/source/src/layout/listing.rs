//! Finds the files that match a layout's path, and checks that none is missing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::document::Layout;
use crate::catalogue::FilesByRank;
use crate::error::SourceError;
use crate::pattern::FolderPattern;

/// Returns the matching files, after checking that none of them is missing.
pub(super) fn find(
    root: &Path,
    layout_path: &Path,
    layout: &Layout,
    pattern: &FolderPattern,
) -> Result<FilesByRank, SourceError> {
    let mut files = FilesByRank::new();
    for found in pattern.find(root)? {
        let (epoch, rank) = (found.epoch, found.rank);
        if let Some(other) = files.entry(epoch).or_default().insert(rank, found.path.clone()) {
            return Err(SourceError::Twice { one: other, other: found.path, epoch, rank });
        }
    }
    if files.is_empty() {
        let what = format!("no files match {}, the path in {}", layout.path, layout_path.display());
        return Err(SourceError::Unfit { path: root.to_owned(), what });
    }
    for (&epoch, files) in &files {
        check_ranks(root, pattern, epoch, files, layout.ranks)?;
    }
    Ok(files)
}

/// Checks that the ranks are 0, 1, 2, … without a gap.
fn check_ranks(
    root: &Path,
    pattern: &FolderPattern,
    epoch: u64,
    files: &BTreeMap<u32, PathBuf>,
    stated: Option<u32>,
) -> Result<(), SourceError> {
    let found = files.keys().last().map_or(0, |last| u64::from(*last) + 1);
    let expected = stated.map_or(found, u64::from);
    // The number of files bounds the search, however large the configured number of ranks is.
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

/// Returns a note if epochs have different numbers of files and the layout does not state the number of ranks.
pub(super) fn notes(files: &FilesByRank) -> Vec<String> {
    let mut counts = files.iter().map(|(epoch, files)| (epoch, files.len()));
    let Some((first, ranks)) = counts.next() else { return Vec::new() };
    let other = counts.find(|(_, other)| *other != ranks);
    let say =
        |(epoch, other)| format!("epoch {first} has {ranks} ranks, but epoch {epoch} has {other}; are files missing?");
    other.map(say).into_iter().collect()
}
