//! Divides files that several ranks wrote, so that each of their records is stored once.
//!
//! Files are the same if they are the same inode of one device, on one node. Device numbers differ between nodes, so
//! files of several nodes that have the same inode number and name are tested: one rank creates a file beside its own,
//! and the others look for it beside theirs. Nodes that find it share the file. Otherwise, files of different nodes are
//! different.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::time::SystemTime;

use super::state::Session;
use crate::pending::{EpochFiles, Finished, Share};
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

/// A file of an epoch on one rank. All values are hashes.
#[derive(Debug, Clone, Copy)]
struct Held {
    /// The inode number, name and section of the file, or 0 if it no longer exists.
    inode: i64,
    /// The device and the node.
    device: i64,
    /// The path of the folder.
    folder: i64,
}

impl Held {
    const VALUES: usize = 3;

    fn of(file: &Finished, node: i64) -> Self {
        let Ok(about) = file.place().metadata() else { return Self { inode: 0, device: 0, folder: 0 } };
        let identity = Identity::of(&about);
        Self {
            inode: hash((identity.inode(), file.path.file_name(), file.begin.unwrap_or(0))),
            device: hash((identity.device(), node)),
            folder: hash(file.path.parent()),
        }
    }

    fn values(self) -> [i64; Self::VALUES] {
        [self.inode, self.device, self.folder]
    }

    fn from_values(values: &[i64]) -> Self {
        Self { inode: values[0], device: values[1], folder: values[2] }
    }
}

/// The files of all ranks.
struct Everywhere {
    /// A random number of each rank.
    tokens: Vec<i64>,
    files: Vec<Vec<Held>>,
    /// The files with one inode number and name, each with its rank, in the order of the ranks.
    holders: HashMap<i64, Vec<(usize, Held)>>,
}

impl Everywhere {
    /// Collective.
    fn gather(world: &World, own: &[Held]) -> Option<Self> {
        let token = hash((node(), std::process::id(), SystemTime::now()));
        let values: Vec<i64> = [token].into_iter().chain(own.iter().flat_map(|held| held.values())).collect();
        let mut all = Self { tokens: Vec::new(), files: Vec::new(), holders: HashMap::new() };
        for (rank, values) in gather(world, &values)?.into_iter().enumerate() {
            let (&token, values) = values.split_first()?;
            let files: Vec<Held> = values.chunks_exact(Held::VALUES).map(Held::from_values).collect();
            for held in files.iter().filter(|held| held.inode != 0) {
                all.holders.entry(held.inode).or_default().push((rank, *held));
            }
            all.tokens.push(token);
            all.files.push(files);
        }
        Some(all)
    }

    /// Returns the ranks' files with one inode number and name.
    fn holders(&self, inode: i64) -> &[(usize, Held)] {
        self.holders.get(&inode).map_or(&[], Vec::as_slice)
    }

    /// Returns the first rank's file with this inode number and name, if such files are on different devices or nodes.
    fn first_of_several(&self, inode: i64) -> Option<(usize, Held)> {
        let (&first, others) = self.holders(inode).split_first()?;
        others.iter().any(|(_, held)| held.device != first.1.device).then_some(first)
    }

    /// Tests which files on different devices or nodes are the same. Returns their inodes and devices. Collective.
    fn test_reach(&self, world: &World, files: &EpochFiles, own: &[Held]) -> Option<HashSet<(i64, i64)>> {
        if self.holders.keys().all(|&inode| self.first_of_several(inode).is_none()) {
            return Some(HashSet::new());
        }
        let rank = world.rank() as usize;
        let mut created: HashSet<PathBuf> = HashSet::new();
        let mut beside = |file: &Finished, held: &Held| -> Option<PathBuf> {
            // No other node has a file in the spool.
            let folder = file.path.parent().filter(|_| file.place() == file.path)?;
            let (first, of_first) = self.first_of_several(held.inode)?;
            let path = folder.join(format!(".turbidite-shared-{:x}-{:x}", self.tokens[first], of_first.folder));
            if first == rank && created.insert(path.clone()) {
                // If this fails, no rank finds the file, and files of different nodes count as different.
                let _ = std::fs::File::create(&path);
            }
            Some(path)
        };
        let looked_for: Vec<_> = files.finished.iter().zip(own).map(|(file, held)| beside(file, held)).collect();
        // Each exchange is also a barrier: the files are created before they are looked for, and removed afterwards.
        let are_created = world.minimum(&mut [0]);
        let sees = looked_for.iter().map(|path| i64::from(path.as_ref().is_some_and(|path| path.exists())));
        let seen = gather(world, &sees.collect::<Vec<_>>());
        for path in created {
            let _ = std::fs::remove_file(path);
        }
        let seen = seen.filter(|_| are_created)?;
        let all = self.files.iter().flatten().zip(seen.into_iter().flatten());
        Some(all.filter(|(_, sees)| *sees != 0).map(|(held, _)| (held.inode, held.device)).collect())
    }
}

impl Session {
    /// Assigns each rank its share of the files that several ranks wrote. If `are_distinct`, no two ranks wrote the
    /// same file. Returns `None` if ranks cannot agree. Collective, unless `are_distinct`.
    pub(super) fn share(&self, files: &mut EpochFiles, are_distinct: bool) -> Option<()> {
        keep_each_once(files);
        if self.world.is_alone() || are_distinct {
            return Some(());
        }
        let (node, rank) = (node(), self.world.rank() as usize);
        let own: Vec<Held> = files.finished.iter().map(|file| Held::of(file, node)).collect();
        let all = Everywhere::gather(&self.world, &own)?;
        let shared = all.test_reach(&self.world, files, &own)?;
        for (file, held) in files.finished.iter_mut().zip(own) {
            let is_shared = |held: &Held| shared.contains(&(held.inode, held.device));
            let is_same = |other: &Held| other.device == held.device || (is_shared(&held) && is_shared(other));
            let same = all.holders(held.inode).iter().filter(|(_, other)| is_same(other));
            let ranks: Vec<usize> = same.map(|&(rank, _)| rank).collect();
            if let Some(position) = ranks.iter().position(|&holder| holder == rank) {
                file.share = Share { index: position as u64, of: ranks.len() as u64 };
            }
        }
        Some(())
    }
}

/// Keeps one of several names of a file.
fn keep_each_once(files: &mut EpochFiles) {
    if files.finished.len() < 2 {
        return;
    }
    let mut seen = HashSet::new();
    files.finished.retain(|file| {
        let held = Held::of(file, 0);
        held.inode == 0 || seen.insert((held.inode, held.device))
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
