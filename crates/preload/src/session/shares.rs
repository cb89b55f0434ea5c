//! Divides files that several ranks wrote, so that each of their records is stored once.
//!
//! Files are the same if they are the same inode of one device, on one node. Device numbers differ between nodes, so
//! whether nodes share a folder is tested once per dataset: one rank creates a file there, and the others look for it.
//! If they share it, an inode's number and name tell files apart. Otherwise, files of different nodes are different.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use super::state::Session;
use crate::pending::{EpochFiles, Finished, Reach, Share};
use crate::spool::Identity;
use crate::world::World;

/// Returns a hash that fits a reduction's non-negative values.
fn hash(value: impl Hash) -> i64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    (hasher.finish() >> 1) as i64
}

/// Returns a number of this node, which other nodes do not have.
fn node() -> i64 {
    let name = rustix::system::uname().nodename().to_owned();
    hash((name, std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()))
}

/// Returns the identity of a file, or 0 if it no longer exists.
fn identity(file: &Finished, reach: Reach) -> i64 {
    let place = file.place();
    let Ok(about) = place.metadata() else { return 0 };
    let begin = file.begin.unwrap_or(0);
    match reach {
        Reach::AllNodes => hash((Identity::of(&about).inode(), file.path.file_name(), begin)),
        Reach::Unknown | Reach::Node => hash((Identity::of(&about), node(), begin)),
    }
}

impl Session {
    /// Assigns each rank its share of the files that several ranks wrote. If `are_distinct`, no two ranks wrote the
    /// same file. Returns `None` if ranks cannot agree. Collective, unless `are_distinct`.
    pub(super) fn share(&mut self, index: usize, files: &mut EpochFiles, are_distinct: bool) -> Option<()> {
        if self.world.is_alone() || are_distinct {
            keep_each_once(files, Reach::Node);
            return Some(());
        }
        if self.datasets[index].reach == Reach::Unknown {
            self.datasets[index].reach = self.test_reach(files)?;
        }
        let reach = self.datasets[index].reach;
        keep_each_once(files, reach);
        let own: Vec<i64> = files.finished.iter().map(|file| identity(file, reach)).collect();
        let mut holders: HashMap<i64, Vec<usize>> = HashMap::new();
        for (rank, identities) in gather(&self.world, &own)?.into_iter().enumerate() {
            identities.into_iter().for_each(|identity| holders.entry(identity).or_default().push(rank));
        }
        let rank = self.world.rank() as usize;
        for (file, identity) in files.finished.iter_mut().zip(own) {
            let ranks = holders.get(&identity).map_or(&[][..], Vec::as_slice);
            if let Some(position) = ranks.iter().position(|&holder| holder == rank).filter(|_| identity != 0) {
                file.share = Share { index: position as u64, of: ranks.len() as u64 };
            }
        }
        Some(())
    }

    /// Tests whether all nodes see the folder of one rank's files. Collective.
    fn test_reach(&self, files: &EpochFiles) -> Option<Reach> {
        let folder = files.finished.first().and_then(|file| file.path.parent());
        let rank = i64::from(self.world.rank());
        let mut values = [node(), -node(), if folder.is_some() { rank } else { i64::MAX }, hash(std::process::id())];
        if !self.world.minimum(&mut values) {
            return None;
        }
        let [least, most, first, token] = values;
        if least == -most {
            return Some(Reach::Node);
        }
        let probe = |folder: &Path| folder.join(format!(".turbidite-shared-{token:x}"));
        let created: Option<PathBuf> = folder.filter(|_| first == rank).map(probe);
        if let Some(path) = &created {
            // If this fails, no other rank finds the file, and files of different nodes count as different.
            let _ = std::fs::File::create(path);
        }
        // Each reduction is also a barrier: the file is created before it is looked for, and removed afterwards.
        let created_by_now = self.world.minimum(&mut [0]);
        let sees = folder.is_some_and(|folder| probe(folder).exists());
        let looked_by_now = self.world.minimum(&mut [0]);
        if let Some(path) = &created {
            let _ = std::fs::remove_file(path);
        }
        let reach = if sees { Reach::AllNodes } else { Reach::Node };
        (created_by_now && looked_by_now).then_some(reach)
    }
}

/// Keeps one of several names of a file.
fn keep_each_once(files: &mut EpochFiles, reach: Reach) {
    if files.finished.len() < 2 {
        return;
    }
    let mut seen = std::collections::HashSet::new();
    files.finished.retain(|file| {
        let identity = identity(file, reach);
        identity == 0 || seen.insert(identity)
    });
}

/// Returns the values of each rank. Collective.
fn gather(world: &World, own: &[i64]) -> Option<Vec<Vec<i64>>> {
    let rank = world.rank() as usize;
    let mut counts = vec![0; world.ranks() as usize];
    counts[rank] = own.len() as i64;
    if !world.sum(&mut counts) {
        return None;
    }
    let counts: Vec<usize> = counts.into_iter().map(|count| usize::try_from(count).unwrap_or(0)).collect();
    let mut all = vec![0; counts.iter().sum()];
    let begin: usize = counts[..rank].iter().sum();
    all[begin..begin + own.len()].copy_from_slice(own);
    if !world.sum(&mut all) {
        return None;
    }
    let mut rest = all.as_slice();
    let pieces = counts.into_iter().map(|count| {
        let (piece, behind) = rest.split_at(count);
        rest = behind;
        piece.to_vec()
    });
    Some(pieces.collect())
}
