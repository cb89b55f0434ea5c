//! Finds the files that match a layout's path, and checks that none is missing.

use std::path::Path;

use super::document::Layout;
use crate::catalogue::FilesByRank;
use crate::error::SourceError;
use crate::options::SourceOptions;
use crate::pattern::FolderPattern;
use crate::ranks::{Expected, RankCheck, by_neighbours};

/// The matching files of a layout, and notes to print for the user.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) files: FilesByRank,
    pub(super) notes: Vec<String>,
}

/// Returns the matching files, after checking that none of them is missing.
pub(super) fn find(
    root: &Path,
    layout_path: &Path,
    layout: &Layout,
    pattern: &FolderPattern,
    options: &SourceOptions,
) -> Result<Listing, SourceError> {
    if !pattern.names_ranks() {
        options.refuse_ranks(&format!("the path '{}' has no {{rank}}", layout.path))?;
    }
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
    let mut check = RankCheck::new(options);
    let in_layout = |ranks| Expected { ranks: u64::from(ranks), origin: "that the layout states".to_owned() };
    for (&epoch, found) in &files {
        let stated = check.stated().or_else(|| layout.ranks.map(in_layout));
        let expected = stated.unwrap_or_else(|| by_neighbours(epoch, &files));
        // A group of files has at least one.
        let Some(example) = found.values().next() else { continue };
        check.check(epoch, found, &expected, |rank| pattern.sibling(root, example, epoch, rank))?;
    }
    Ok(Listing { notes: check.note().into_iter().collect(), files })
}
