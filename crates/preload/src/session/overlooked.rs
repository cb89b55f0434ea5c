//! Finds matching files that were not indexed: those of child processes, and those that the program wrote by calls that
//! are not intercepted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::state::Session;
use crate::dataset::Dataset;
use crate::notices::{complain_in_lines, count, display, ingest_command};
use crate::role;
use crate::world::World;

/// Texts of a message about one file, and about several.
const BY_CHILDREN: [&str; 2] =
    ["is not indexed, since a child process wrote it", "are not indexed, since child processes wrote them"];
const UNSEEN: [&str; 2] = [
    "is not indexed, since the calls that wrote it are not seen",
    "are not indexed, since the calls that wrote them are not seen",
];

/// Maximum number of folders that are listed, and of files that ranks compare.
const MAX_FOLDERS: usize = 64;
const MAX_FILES: usize = 256;

impl Session {
    /// Names the matching files that were not indexed, once per job and dataset. Collective.
    pub(super) fn name_overlooked(&self) {
        let mut by_children: BTreeMap<usize, Vec<PathBuf>> = BTreeMap::new();
        for path in role::written_by_children() {
            // A file that this process wrote, too, has been indexed.
            if let Some((index, _)) = self.dataset_of(&path)
                && !self.datasets[index].knows_hash(Dataset::hash_of(&path))
            {
                by_children.entry(index).or_default().push(path);
            }
        }
        for (index, dataset) in self.datasets.iter().enumerate() {
            let own = by_children.remove(&index).unwrap_or_default();
            let unseen = self.unseen(dataset).into_iter().filter(|path| !own.contains(path)).collect::<Vec<_>>();
            for (files, what) in [(own, BY_CHILDREN), (unseen, UNSEEN)] {
                report(&self.world, dataset, &files, what);
            }
        }
    }

    /// Returns the matching files that no rank has seen, on rank 0. Collective.
    fn unseen(&self, dataset: &Dataset) -> Vec<PathBuf> {
        let mut found =
            if self.world.rank() == 0 { listed(dataset, u64::from(self.world.ranks())) } else { Vec::new() };
        found.truncate(MAX_FILES);
        let mut counts = [found.len() as i64];
        if !self.world.sum(&mut counts) || counts[0] == 0 {
            return Vec::new();
        }
        // Rank 0 passes on its files' hashes, and learns which of them other ranks know.
        let mut hashes = vec![0; MAX_FILES];
        found.iter().zip(&mut hashes).for_each(|(path, hash)| *hash = Dataset::hash_of(path) as i64);
        if !self.world.sum(&mut hashes) {
            return Vec::new();
        }
        let mut known: Vec<i64> = hashes.iter().map(|&hash| i64::from(dataset.knows_hash(hash as u64))).collect();
        if !self.world.sum(&mut known) {
            return Vec::new();
        }
        found.into_iter().zip(known).filter(|(_, known)| *known == 0).map(|(path, _)| path).collect()
    }
}

/// Returns the matching files in the folders of this rank's files that are newer than the first of these, and that this
/// rank has not seen. Files of other ranks are left to those.
fn listed(dataset: &Dataset, ranks: u64) -> Vec<PathBuf> {
    let Some(since) = dataset.since.filter(|_| dataset.knows_all()) else { return Vec::new() };
    let is_newer = |path: &Path| {
        let modified = path.symlink_metadata().and_then(|about| about.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
        modified >= since
    };
    let is_unseen = |path: &PathBuf| {
        let named = path.to_str().and_then(|path| dataset.plan.pattern.matches(path));
        named.is_some_and(|named| named.rank.is_none_or(|rank| rank == 0 || rank >= ranks))
            && !dataset.knows_hash(Dataset::hash_of(path))
            && is_newer(path)
    };
    let entries = |folder: &PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten();
    let files = dataset.folders.iter().take(MAX_FOLDERS).flat_map(entries).map(|entry| entry.path());
    files.filter(is_unseen).collect()
}

/// Prints a message for the files of all ranks, on one of the ranks that have any. Collective.
fn report(world: &World, dataset: &Dataset, files: &[PathBuf], what: [&str; 2]) {
    let rank = i64::from(world.rank());
    let mut first = [if files.is_empty() { i64::MAX } else { rank }];
    let mut all = [files.len() as i64];
    if !world.minimum(&mut first) || first[0] == i64::MAX || !world.sum(&mut all) || first[0] != rank {
        return;
    }
    let number = u64::try_from(all[0]).unwrap_or(0);
    let (example, more) = (&files[0], if number > 1 { ", …" } else { "" });
    let what = format!("{} {}", count(number, "file"), what[usize::from(number > 1)]);
    let later = ingest_command(&dataset.plan, Some(example), None, world.job_ranks());
    complain_in_lines(&[format!("{what}: {}{more}{later}", display(example))]);
}
