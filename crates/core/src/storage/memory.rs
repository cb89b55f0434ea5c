//! An in-memory file system that models power failures.
//!
//! `sync` of a file makes its content durable. `sync_dir` of a folder makes its names durable. Until then, every change
//! of a name stays in a log of pending changes. Syncing a folder settles the changes that touch it, and the earlier
//! changes on which these depend. A rename between two folders is one change, and takes effect in both folders or in
//! neither, as in a journaling file system. [`MemoryStorage::crash`] drops all pending changes.
//! [`MemoryStorage::crash_keeping`] keeps some of them, as a real disk may.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{DirEntry, FileKind, ReadableFile, Storage, WritableFile};
use crate::random::Random;

type NodeId = usize;

#[derive(Debug, Clone)]
enum Node {
    File(Arc<Mutex<FileContent>>),
    Directory { names: BTreeMap<String, NodeId>, durable_names: BTreeMap<String, NodeId> },
}

/// The current bytes of a file, and its bytes after a crash.
#[derive(Debug, Clone, Default)]
struct FileContent {
    now: Arc<Vec<u8>>,
    durable: Arc<Vec<u8>>,
}

/// A pending change of names. Each slot names an entry of a folder and its new node, or `None` for removal. All slots
/// change together.
#[derive(Debug, Clone)]
struct Change {
    slots: Vec<(NodeId, String, Option<NodeId>)>,
}

impl Change {
    fn touches(&self, folders: &BTreeSet<NodeId>) -> bool {
        self.slots.iter().any(|(folder, _, _)| folders.contains(folder))
    }
}

#[derive(Debug, Clone)]
struct Tree {
    nodes: Vec<Node>,
    pending: Vec<Change>,
}

const ROOT: NodeId = 0;

/// A file system in memory. Clones share its files.
#[derive(Debug, Clone)]
pub struct MemoryStorage {
    tree: Arc<Mutex<Tree>>,
    exchanges: bool,
}

impl Default for MemoryStorage {
    fn default() -> Self {
        Self::new()
    }
}

/// Locks a mutex even if it is poisoned. Changes are made in whole steps, so a panic of one test thread does not affect
/// the others.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn error<T>(kind: io::ErrorKind) -> io::Result<T> {
    Err(kind.into())
}

/// Returns the names in a path. Relative paths start at the root too.
fn names(path: &Path) -> io::Result<Vec<&str>> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::RootDir | Component::CurDir => {}
            Component::Normal(name) => {
                names.push(name.to_str().ok_or(io::ErrorKind::InvalidInput)?);
            }
            Component::ParentDir | Component::Prefix(_) => return error(io::ErrorKind::InvalidInput),
        }
    }
    Ok(names)
}

impl Tree {
    fn new() -> Self {
        let root = Node::Directory { names: BTreeMap::new(), durable_names: BTreeMap::new() };
        Self { nodes: vec![root], pending: Vec::new() }
    }

    fn folder(&self, id: NodeId) -> io::Result<&BTreeMap<String, NodeId>> {
        match &self.nodes[id] {
            Node::Directory { names, .. } => Ok(names),
            Node::File(_) => error(io::ErrorKind::NotADirectory),
        }
    }

    fn walk(&self, names: &[&str]) -> io::Result<NodeId> {
        let mut id = ROOT;
        for name in names {
            id = *self.folder(id)?.get(*name).ok_or(io::ErrorKind::NotFound)?;
        }
        Ok(id)
    }

    fn find(&self, path: &Path) -> io::Result<NodeId> {
        self.walk(&names(path)?)
    }

    /// Returns the folder that contains a path, and the last name of the path.
    fn slot(&self, path: &Path) -> io::Result<(NodeId, String)> {
        let names = names(path)?;
        let (last, above) = names.split_last().ok_or(io::ErrorKind::InvalidInput)?;
        let folder = self.walk(above)?;
        self.folder(folder)?;
        Ok((folder, (*last).to_owned()))
    }

    fn get(&self, slot: &(NodeId, String)) -> io::Result<Option<NodeId>> {
        Ok(self.folder(slot.0)?.get(&slot.1).copied())
    }

    fn change(&mut self, slots: Vec<(NodeId, String, Option<NodeId>)>) {
        for (folder, name, node) in &slots {
            if let Node::Directory { names, .. } = &mut self.nodes[*folder] {
                match node {
                    Some(node) => names.insert(name.clone(), *node),
                    None => names.remove(name),
                };
            }
        }
        self.pending.push(Change { slots });
    }

    fn add(&mut self, node: Node, (folder, name): (NodeId, String)) -> NodeId {
        self.nodes.push(node);
        let id = self.nodes.len() - 1;
        self.change(vec![(folder, name, Some(id))]);
        id
    }

    fn settle(&mut self, change: Change) {
        for (folder, name, node) in change.slots {
            if let Node::Directory { durable_names, .. } = &mut self.nodes[folder] {
                match node {
                    Some(node) => durable_names.insert(name, node),
                    None => durable_names.remove(&name),
                };
            }
        }
    }

    /// Settles the pending changes that touch `folder`, and the earlier changes on which these depend.
    fn sync_folder(&mut self, folder: NodeId) {
        let mut folders = BTreeSet::from([folder]);
        let mut settled = Vec::new();
        let mut kept = Vec::new();
        for change in std::mem::take(&mut self.pending).into_iter().rev() {
            if change.touches(&folders) {
                folders.extend(change.slots.iter().map(|(folder, _, _)| *folder));
                settled.push(change);
            } else {
                kept.push(change);
            }
        }
        kept.reverse();
        self.pending = kept;
        for change in settled.into_iter().rev() {
            self.settle(change);
        }
    }

    /// Returns the tree after a crash: the current names and contents are the durable ones.
    fn after_crash(mut self) -> Self {
        self.pending.clear();
        for node in &mut self.nodes {
            match node {
                Node::File(content) => {
                    let durable = lock(content).durable.clone();
                    *content = Arc::new(Mutex::new(FileContent { now: durable.clone(), durable }));
                }
                Node::Directory { names, durable_names } => names.clone_from(durable_names),
            }
        }
        self
    }
}

impl MemoryStorage {
    /// Creates an empty file system.
    pub fn new() -> Self {
        Self { tree: Arc::new(Mutex::new(Tree::new())), exchanges: true }
    }

    /// Creates an empty file system that cannot exchange folders.
    pub fn without_exchange() -> Self {
        Self { exchanges: false, ..Self::new() }
    }

    /// Returns the state after a power failure at this time, with synced changes only. This file system is not
    /// modified.
    #[must_use]
    pub fn crash(&self) -> Self {
        let tree = lock(&self.tree).clone().after_crash();
        Self { tree: Arc::new(Mutex::new(tree)), exchanges: self.exchanges }
    }

    /// Returns the state after a power failure, like [`MemoryStorage::crash`], but with some unsynced changes. `seed`
    /// chooses a prefix of the pending changes of names, and the unsynced content of some files, whole or truncated.
    #[must_use]
    pub fn crash_keeping(&self, seed: u64) -> Self {
        let mut tree = lock(&self.tree).clone();
        let mut random = Random::new(seed);
        let mut choose = |choices: usize| random.below(choices as u64) as usize;
        let survivors = choose(tree.pending.len() + 1);
        for change in tree.pending.drain(..survivors).collect::<Vec<_>>() {
            tree.settle(change);
        }
        for node in &mut tree.nodes {
            let Node::File(content) = node else { continue };
            let mut kept = lock(content).clone();
            if kept.now != kept.durable {
                match choose(3) {
                    0 => {}
                    1 => kept.durable = kept.now.clone(),
                    _ => kept.durable = Arc::new(kept.now[..choose(kept.now.len() + 1)].to_vec()),
                }
            }
            *node = Node::File(Arc::new(Mutex::new(kept)));
        }
        Self { tree: Arc::new(Mutex::new(tree.after_crash())), exchanges: self.exchanges }
    }
}

impl Storage for MemoryStorage {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        let mut tree = lock(&self.tree);
        let slot = tree.slot(path)?;
        if tree.get(&slot)?.is_some() {
            return error(io::ErrorKind::AlreadyExists);
        }
        let content = Arc::new(Mutex::new(FileContent::default()));
        tree.add(Node::File(content.clone()), slot);
        Ok(Box::new(MemoryWriter { content }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadableFile>> {
        let tree = lock(&self.tree);
        match &tree.nodes[tree.find(path)?] {
            Node::File(content) => {
                let bytes = lock(content).now.len() as u64;
                Ok(Arc::new(MemoryReader { content: content.clone(), bytes }))
            }
            Node::Directory { .. } => error(io::ErrorKind::IsADirectory),
        }
    }

    fn kind(&self, path: &Path) -> io::Result<Option<FileKind>> {
        let tree = lock(&self.tree);
        match tree.find(path) {
            Ok(id) => Ok(Some(tree.kind(id))),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let tree = lock(&self.tree);
        let folder = tree.folder(tree.find(path)?)?;
        Ok(folder.iter().map(|(name, id)| DirEntry { name: name.clone(), kind: tree.kind(*id) }).collect())
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut tree = lock(&self.tree);
        let mut folder = ROOT;
        for name in names(path)? {
            let slot = (folder, name.to_owned());
            folder = match tree.get(&slot)? {
                Some(id) => id,
                None => tree.add(Node::Directory { names: BTreeMap::new(), durable_names: BTreeMap::new() }, slot),
            };
        }
        match tree.kind(folder) {
            FileKind::Directory => Ok(()),
            FileKind::File => error(io::ErrorKind::AlreadyExists),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut tree = lock(&self.tree);
        let (source, target) = (tree.slot(from)?, tree.slot(to)?);
        let node = tree.get(&source)?.ok_or(io::ErrorKind::NotFound)?;
        if tree.get(&target)?.is_some() {
            return error(io::ErrorKind::AlreadyExists);
        }
        tree.change(vec![(source.0, source.1, None), (target.0, target.1, Some(node))]);
        Ok(())
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        if !self.exchanges {
            return error(io::ErrorKind::Unsupported);
        }
        let mut tree = lock(&self.tree);
        let (first, second) = (tree.slot(one)?, tree.slot(other)?);
        let first_node = tree.get(&first)?.ok_or(io::ErrorKind::NotFound)?;
        let second_node = tree.get(&second)?.ok_or(io::ErrorKind::NotFound)?;
        tree.change(vec![(first.0, first.1, Some(second_node)), (second.0, second.1, Some(first_node))]);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut tree = lock(&self.tree);
        let slot = tree.slot(path)?;
        let id = tree.get(&slot)?.ok_or(io::ErrorKind::NotFound)?;
        if tree.kind(id) == FileKind::Directory {
            return error(io::ErrorKind::IsADirectory);
        }
        tree.change(vec![(slot.0, slot.1, None)]);
        Ok(())
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut tree = lock(&self.tree);
        let slot = tree.slot(path)?;
        let id = tree.get(&slot)?.ok_or(io::ErrorKind::NotFound)?;
        tree.folder(id)?;
        tree.change(vec![(slot.0, slot.1, None)]);
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut tree = lock(&self.tree);
        let id = tree.find(path)?;
        tree.folder(id)?;
        tree.sync_folder(id);
        Ok(())
    }
}

impl Tree {
    fn kind(&self, id: NodeId) -> FileKind {
        match self.nodes[id] {
            Node::File(_) => FileKind::File,
            Node::Directory { .. } => FileKind::Directory,
        }
    }
}

#[derive(Debug)]
struct MemoryWriter {
    content: Arc<Mutex<FileContent>>,
}

impl WritableFile for MemoryWriter {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        // An empty write does not extend the file.
        if data.is_empty() {
            return Ok(());
        }
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let end = start.checked_add(data.len()).ok_or(io::ErrorKind::FileTooLarge)?;
        let mut content = lock(&self.content);
        let bytes = Arc::make_mut(&mut content.now);
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[start..end].copy_from_slice(data);
        Ok(())
    }

    fn truncate(&mut self, bytes: u64) -> io::Result<()> {
        let bytes = usize::try_from(bytes).map_err(|_| io::ErrorKind::FileTooLarge)?;
        Arc::make_mut(&mut lock(&self.content).now).resize(bytes, 0);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut content = lock(&self.content);
        content.durable = content.now.clone();
        Ok(())
    }
}

#[derive(Debug)]
struct MemoryReader {
    content: Arc<Mutex<FileContent>>,
    bytes: u64,
}

impl ReadableFile for MemoryReader {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let now = lock(&self.content).now.clone();
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let end = start.checked_add(buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(now.get(start..end).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(storage: &MemoryStorage, path: &str, content: &[u8], sync: bool) -> Box<dyn WritableFile> {
        let mut file = storage.create(Path::new(path)).unwrap();
        file.write_at(0, content).unwrap();
        if sync {
            file.sync().unwrap();
        }
        file
    }

    fn bytes(storage: &MemoryStorage, path: &str) -> Option<Vec<u8>> {
        super::super::read_all(storage, Path::new(path), 1 << 20).ok()
    }

    #[test]
    fn a_crash_keeps_synced_content_under_synced_names_only() {
        let storage = MemoryStorage::new();
        let folder = Path::new("/a/b");
        storage.create_dir_all(folder).unwrap();
        write(&storage, "/a/b/unsynced", b"x", false);
        let mut file = write(&storage, "/a/b/synced", b"one", true);
        for path in ["/", "/a", "/a/b"] {
            storage.sync_dir(Path::new(path)).unwrap();
        }
        file.write_at(0, b"two").unwrap();
        write(&storage, "/a/b/nameless", b"x", true);
        let after = storage.crash();
        assert_eq!(bytes(&after, "/a/b/synced").unwrap(), b"one");
        assert_eq!(bytes(&after, "/a/b/unsynced").unwrap(), b"");
        assert_eq!(bytes(&after, "/a/b/nameless"), None);
        assert_eq!(bytes(&storage, "/a/b/synced").unwrap(), b"two", "the original goes on");
    }

    #[test]
    fn a_rename_survives_whole_or_not_at_all() {
        let storage = MemoryStorage::new();
        for folder in ["/from/x", "/to"] {
            storage.create_dir_all(Path::new(folder)).unwrap();
        }
        for folder in ["/", "/from", "/to"] {
            storage.sync_dir(Path::new(folder)).unwrap();
        }
        storage.rename(Path::new("/from/x"), Path::new("/to/y")).unwrap();
        let lost = storage.crash();
        assert!(lost.kind(Path::new("/from/x")).unwrap().is_some() && lost.kind(Path::new("/to/y")).unwrap().is_none());
        storage.sync_dir(Path::new("/to")).unwrap();
        let kept = storage.crash();
        assert!(kept.kind(Path::new("/from/x")).unwrap().is_none() && kept.kind(Path::new("/to/y")).unwrap().is_some());
    }

    #[test]
    fn a_change_never_becomes_durable_before_an_earlier_one_of_the_same_name() {
        let storage = MemoryStorage::new();
        for folder in ["/from", "/to"] {
            storage.create_dir_all(Path::new(folder)).unwrap();
        }
        write(&storage, "/to/x", b"old", true);
        write(&storage, "/from/y", b"new", true);
        for folder in ["/", "/from", "/to"] {
            storage.sync_dir(Path::new(folder)).unwrap();
        }
        storage.remove_file(Path::new("/to/x")).unwrap();
        storage.rename(Path::new("/from/y"), Path::new("/to/x")).unwrap();
        // Settles the rename, which touches both folders, and the earlier removal.
        storage.sync_dir(Path::new("/from")).unwrap();
        storage.sync_dir(Path::new("/to")).unwrap();
        assert_eq!(bytes(&storage.crash(), "/to/x").unwrap(), b"new");
    }

    #[test]
    fn a_lenient_crash_lies_between_nothing_and_everything() {
        let storage = MemoryStorage::new();
        for name in ["/1", "/2", "/3"] {
            write(&storage, name, b"abc", false);
        }
        let mut counts = BTreeSet::new();
        let mut contents = BTreeSet::new();
        for seed in 0..200 {
            let after = storage.crash_keeping(seed);
            let names: Vec<String> = after.list(Path::new("/")).unwrap().into_iter().map(|entry| entry.name).collect();
            assert_eq!(names, ["1", "2", "3"][..names.len()], "names survive in their order");
            counts.insert(names.len());
            contents.extend(bytes(&after, "/1"));
        }
        assert_eq!(counts.len(), 4);
        assert_eq!(contents.len(), 4, "every prefix occurs");
    }
}
