//! `turbidite truncate`: removes all epochs after a checkpoint.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use serde_json::json;
use turbidite::storage::{FileSystem, Storage};
use turbidite::store::{DatasetDescriptor, DatasetPaths, WriterLock, truncate_after};

use super::answers::{say, say_json};
use crate::failure::{Failure, complain};
use crate::text;

/// Remove all epochs after a given one, for a restart from a checkpoint
#[derive(Debug, Args)]
pub(crate) struct Truncate {
    /// The dataset
    dataset: PathBuf,
    /// The last epoch to keep; it need not exist
    #[arg(long, value_name = "E")]
    after: u64,
    /// Take over locks whose holder cannot be checked, as on another host, and is certainly gone
    #[arg(long)]
    break_lock: bool,
}

impl Truncate {
    pub(crate) fn run(&self, as_json: bool) -> Result<(), Failure> {
        let storage: Arc<dyn Storage> = Arc::new(FileSystem::new());
        let layout = DatasetPaths::new(&self.dataset);
        // The descriptor is read before the lock is acquired, since the lock would create a folder where no dataset
        // exists.
        let descriptor = DatasetDescriptor::read(&*storage, &layout)?;
        let (lock, notice) = WriterLock::acquire(&storage, &layout, self.break_lock)?;
        if let Some(notice) = notice.filter(|_| !as_json) {
            complain(&format!("turbidite: {notice}"));
        }
        let truncation = truncate_after(&storage, &layout, &descriptor, self.after, self.break_lock)?;
        lock.release()?;
        truncation
            .lock_notices
            .iter()
            .filter(|_| !as_json)
            .for_each(|notice| complain(&format!("turbidite: {notice}")));
        truncation.stale.iter().for_each(|index| complain(&format!("turbidite: {index}")));
        let removed = truncation.removed;
        if as_json {
            let stale: Vec<_> = truncation.stale.iter().map(|index| &index.path).collect();
            let report = json!({
                "dataset": self.dataset, "after": self.after, "removed": removed, "stale_indexes": stale,
            });
            return say_json(&report);
        }
        let labels: Vec<String> = removed.iter().map(u64::to_string).collect();
        say(&match labels.as_slice() {
            [] => format!("there are no epochs after {}", self.after),
            labels => {
                format!("removed {}: {}", text::counted(labels.len() as u64, "epoch", "epochs"), labels.join(", "))
            }
        })
    }
}
