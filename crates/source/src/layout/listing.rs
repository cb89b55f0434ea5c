//! Finds the files that match a layout's path, and checks that none is missing.

use std::path::Path;

use super::document::Layout;
use crate::error::SourceError;
use crate::inventory::FilesByRank;
use crate::listing::Listing;
use crate::options::SourceOptions;
use crate::pattern::FolderPattern;
use crate::ranks::Expected;

/// Returns the files that match the first pattern that any file matches, after checking that none of them is missing.
pub(super) fn find<'a>(
    root: &Path,
    layout_path: &Path,
    layout: &Layout,
    patterns: &[FolderPattern],
    options: &'a SourceOptions,
) -> Result<Listing<'a>, SourceError> {
    let (files, pattern) = group(root, layout_path, &layout.path, patterns, options)?;
    let in_layout = |ranks| Expected { ranks: u64::from(ranks), origin: "that the layout states".to_owned() };
    let stated = layout.ranks.map(in_layout);
    let sibling = |example: &Path, epoch, rank| pattern.sibling(root, example, epoch, rank);
    Listing::of(root, files, pattern.names_ranks(), stated, &sibling, options)
}

/// Groups the matching files by epoch and rank. Returns them with their pattern.
pub(super) fn group<'a>(
    root: &Path,
    layout_path: &Path,
    text: &str,
    patterns: &'a [FolderPattern],
    options: &SourceOptions,
) -> Result<(FilesByRank, &'a FolderPattern), SourceError> {
    for pattern in patterns {
        let mut files = FilesByRank::new();
        for found in pattern.find(root)? {
            let (epoch, rank) = (found.epoch, found.rank);
            if let Some(other) = files.entry(epoch).or_default().insert(rank, found.path.clone()) {
                return Err(SourceError::Twice { one: other, other: found.path, epoch, rank });
            }
        }
        if !files.is_empty() {
            if !pattern.names_ranks() {
                options.refuse_ranks(&format!("the path '{text}' has no {{rank}}"))?;
            }
            return Ok((files, pattern));
        }
    }
    let what = format!("no files match {text}, the path in {}", layout_path.display());
    Err(SourceError::Unfit { path: root.to_owned(), what })
}
