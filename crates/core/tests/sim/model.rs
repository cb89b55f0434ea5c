//! The expected contents of each epoch: the one that readers see now, and those that a power failure may leave.
//!
//! The model tracks folders only by name: an epoch is the folder with its name in `data`. Acknowledged epochs must
//! survive all later events.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use turbidite::Clustering;

use crate::disk::ROOT;
use crate::workload::{Detail, Writing};

/// An index into [`Model::writings`], or `None` if the epoch does not exist.
pub(crate) type Content = Option<usize>;

/// The contents of one epoch.
#[derive(Debug, Clone, Default)]
pub(crate) struct Epoch {
    /// The content that readers see.
    pub(crate) now: Content,
    /// The contents that a power failure may leave.
    pub(crate) possible: Vec<Content>,
    /// Whether the epoch was acknowledged and not removed since. A writer that has opened the dataset must have such an
    /// epoch in place.
    committed: bool,
}

/// A writing, with its records ordered by ID.
pub(crate) type Written = (Writing, Arc<Vec<(u64, u32)>>);

/// All epochs of a history.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) clustering: Clustering,
    /// Levels of detail, if the dataset has some. Their seed is the same in every run of a history.
    pub(crate) detail: Option<Detail>,
    pub(crate) writings: Vec<Written>,
    pub(crate) epochs: BTreeMap<u64, Epoch>,
    /// The writing in the folder of each attempt.
    pub(crate) attempts: HashMap<PathBuf, usize>,
    /// The contents of folders that were moved aside.
    asides: HashMap<PathBuf, Content>,
    /// The writing that rank 0 is about to begin, if any.
    pub(crate) beginning: Option<usize>,
    /// Number of replacements.
    pub(crate) replaced: u64,
    /// A violation detected by the model, if any.
    pub(crate) wrong: Option<String>,
}

fn epoch_of(path: &Path) -> Option<u64> {
    let below = path.strip_prefix(ROOT).ok()?.strip_prefix("data").ok()?;
    below.to_str()?.strip_prefix("epoch=")?.parse().ok()
}

fn lies_in_tmp(path: &Path) -> bool {
    path.parent().is_some_and(|above| above == Path::new(ROOT).join("_turbidite/tmp"))
}

impl Model {
    pub(crate) fn new(clustering: Clustering, detail: Option<Detail>) -> Self {
        Self {
            clustering,
            detail,
            writings: Vec::new(),
            epochs: BTreeMap::new(),
            attempts: HashMap::new(),
            asides: HashMap::new(),
            beginning: None,
            replaced: 0,
            wrong: None,
        }
    }

    pub(crate) fn add(&mut self, writing: Writing) -> usize {
        let records = Arc::new(writing.records());
        self.epochs.entry(writing.epoch).or_insert_with(|| Epoch { possible: vec![None], ..Epoch::default() });
        self.writings.push((writing, records));
        self.writings.len() - 1
    }

    pub(crate) fn records(&self, writing: usize) -> &Arc<Vec<(u64, u32)>> {
        &self.writings[writing].1
    }

    /// Returns the epochs that readers see.
    pub(crate) fn visible(&self) -> Vec<u64> {
        self.epochs.iter().filter(|(_, epoch)| epoch.now.is_some()).map(|(label, _)| *label).collect()
    }

    pub(crate) fn now(&self, epoch: u64) -> Content {
        self.epochs.get(&epoch).and_then(|epoch| epoch.now)
    }

    fn set(&mut self, epoch: u64, content: Content) {
        let entry = self.epochs.entry(epoch).or_insert_with(|| Epoch { possible: vec![None], ..Epoch::default() });
        entry.now = content;
        entry.possible.push(content);
    }

    pub(crate) fn folder_created(&mut self, path: &Path) {
        if lies_in_tmp(path)
            && let Some(writing) = self.beginning
        {
            self.attempts.insert(path.to_owned(), writing);
        }
    }

    /// Applies a rename. Returns whether readers could notice it.
    pub(crate) fn renamed(&mut self, from: &Path, to: &Path) -> bool {
        if let Some(epoch) = epoch_of(from) {
            let content = self.now(epoch);
            self.asides.insert(to.to_owned(), content);
            self.set(epoch, None);
            if to.to_string_lossy().ends_with(".removed") {
                self.epochs.entry(epoch).and_modify(|epoch| epoch.committed = false);
            }
            return true;
        }
        let Some(epoch) = epoch_of(to) else { return false };
        let content = match self.asides.get(from) {
            Some(content) => *content,
            None => self.attempts.get(from).copied(),
        };
        if content.is_none() {
            self.wrong = Some(format!("nobody wrote what was renamed to {}", to.display()));
        }
        self.set(epoch, content);
        true
    }

    pub(crate) fn exchanged(&mut self, one: &Path, other: &Path) {
        if let Some(epoch) = epoch_of(other) {
            self.replaced += 1;
            self.set(epoch, self.attempts.get(one).copied());
        }
    }

    pub(crate) fn folder_synced(&mut self, path: &Path) {
        if path == Path::new(ROOT).join("data") {
            self.settle();
        }
    }

    fn settle(&mut self) {
        for epoch in self.epochs.values_mut() {
            epoch.possible = vec![epoch.now];
        }
    }

    /// Records that the product has acknowledged the visible content of an epoch.
    pub(crate) fn promised(&mut self, epoch: u64) {
        if let Some(epoch) = self.epochs.get_mut(&epoch) {
            epoch.possible = vec![epoch.now];
            epoch.committed = epoch.now.is_some();
        }
    }

    /// Records that the contents found by a writer that has opened the dataset are permanent. Checks that no
    /// acknowledged epoch is missing.
    pub(crate) fn opened(&mut self) -> Result<(), String> {
        self.settle();
        match self.epochs.iter().find(|(_, epoch)| epoch.committed && epoch.now.is_none()) {
            Some((label, _)) => {
                Err(format!("durability: epoch {label} was committed, and the next writer opens without it"))
            }
            None => Ok(()),
        }
    }

    /// Applies a crash. Readers then see the contents `found`, which are durable.
    pub(crate) fn survived(&mut self, found: &BTreeMap<u64, usize>, power: bool) -> Result<(), String> {
        for (label, epoch) in &mut self.epochs {
            let content = found.get(label).copied();
            let fits = if power { epoch.possible.contains(&content) } else { epoch.now == content };
            if !fits {
                let allowed = if power { epoch.possible.clone() } else { vec![epoch.now] };
                return Err(format!(
                    "durability: after the crash epoch {label} is {content:?} where it may be one of {allowed:?}"
                ));
            }
            epoch.now = content;
            if power {
                epoch.possible = vec![content];
            }
        }
        Ok(())
    }
}
