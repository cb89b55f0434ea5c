//! The state of this process.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use turbidite::runtime;
use turbidite_source::Named;

use super::placement::Open;
use crate::config::DatasetPlan;
use crate::dataset::Dataset;
use crate::poll_interval::PollInterval;
use crate::process;
use crate::world::World;

/// The state of this process.
pub(crate) struct Session {
    pub(super) datasets: Vec<Dataset>,
    /// The open files, by our own numbers; duplicated descriptors share one.
    pub(super) files: HashMap<u64, Open>,
    pub(super) descriptors: HashMap<i32, u64>,
    /// The files that are mapped, or were when the mappings were looked at last.
    pub(super) mapped: HashSet<u64>,
    pub(super) next_file: u64,
    pub(super) world: World,
    pub(super) calls: u64,
    pub(super) next_question: u64,
    pub(super) pace: PollInterval,
    pub(super) asked: Instant,
    /// The duration of the last question on this rank.
    pub(super) question: Duration,
    pub(super) has_looked_for_leftovers: bool,
}

impl Session {
    /// Creates a session without open files.
    pub(super) fn new(plans: Vec<DatasetPlan>, world: World) -> Self {
        let process = Arc::new(runtime::Process::new());
        Self {
            datasets: plans.into_iter().map(|plan| Dataset::new(plan, Arc::clone(&process))).collect(),
            files: HashMap::new(),
            descriptors: HashMap::new(),
            mapped: HashSet::new(),
            next_file: 0,
            world,
            calls: 0,
            next_question: 0,
            pace: PollInterval::new(),
            asked: Instant::now(),
            question: Duration::ZERO,
            has_looked_for_leftovers: false,
        }
    }

    /// Returns whether the program has opened files that match or resemble a pattern.
    pub(super) fn has_seen_files(&self) -> bool {
        let seen = |(index, dataset): (usize, &Dataset)| {
            dataset.tally.files > 0 || !dataset.pending.is_empty() || process::nearest(index).is_some()
        };
        self.datasets.iter().enumerate().any(seen)
    }

    /// Returns the first dataset whose pattern matches this path.
    pub(super) fn dataset_of(&self, path: &Path) -> Option<(usize, Named)> {
        let path = path.to_str()?;
        let matches = |dataset: &Dataset| dataset.plan.pattern.matches(path);
        self.datasets.iter().enumerate().find_map(|(index, dataset)| matches(dataset).map(|named| (index, named)))
    }

    /// Returns a hash that differs between configurations.
    pub(crate) fn fingerprint(&self) -> i64 {
        self.datasets.iter().fold(self.datasets.len() as i64, |sum, dataset| {
            let text = dataset.plan.summary();
            text.bytes().fold(sum, |sum, byte| sum.wrapping_mul(31).wrapping_add(i64::from(byte)) & 0xffff_ffff)
        })
    }
}
