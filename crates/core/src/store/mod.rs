//! The folder of a dataset: the writer lock, commits, recovery, salvage and verification.
//!
//! ```text
//! DS/data/epoch=200/part-00000.parquet …   the records, and nothing else
//! DS/_turbidite/dataset.json               schema and identity of the dataset (`descriptor`)
//! DS/_turbidite/manifest/200.<uuid>.arrow  the row groups of one commit of one epoch
//! DS/_turbidite/tmp/200.<uuid>/            an attempt: parts of a running or crashed writer
//! DS/_turbidite/tmp/200.<uuid>.replaced/   old data that the replacement by commit <uuid> set aside
//! DS/_turbidite/tmp/200.<uuid>.removed/    data that a truncation removed
//! DS/_turbidite/index/NAME/                an index: a dataset of entries, with the same files, or
//! DS/_turbidite/index/NAME/index.json      the description of an index by sidecars (`sidecar_index`)
//! DS/_turbidite/index/NAME/200.<uuid>/     its sidecars of one commit of one epoch, one for each part
//! DS/_turbidite/lock                       the writer lock (`lock`)
//! ```
//!
//! Modules:
//!
//! - `paths` defines the paths, `listing` lists epochs and parts, and `files` creates files and folders durably.
//! - `descriptor` reads and writes dataset.json, `target_folder` checks where a dataset may be created, `lock` admits
//!   one writer, and `lock_holder` describes it.
//! - `epochs` finds epochs and their manifests.
//! - `commit` writes an epoch in an attempt, and `commit_protocol` defines the steps of its commit.
//! - `recovery` runs before a new writer starts, `truncate` returns to a checkpoint, and `salvage` recovers unfinished
//!   epochs.
//! - `verify` checks a whole dataset.
//!
//! Invariants:
//!
//! - An epoch exists if and only if its folder is in `data`. The folder enters and leaves `data` by one rename or
//!   exchange.
//! - All prerequisites of a rename are durable before it. Old data is removed only after the new data is durable.
//! - The commit in the parts' footers determines the valid manifest. Manifests without data are ignored.
//! - Readers access only `data`, `manifest` and `dataset.json`, never `tmp`, and need no lock. An open part stays
//!   readable while its epoch is replaced.
//! - Every change of the folder requires the lock. A change can be interrupted at any point and repeated.

mod commit;
mod commit_protocol;
mod descriptor;
mod epoch_set;
mod epochs;
mod files;
mod findings;
mod listing;
mod lock;
mod lock_holder;
mod paths;
mod recovery;
pub mod salvage;
mod sidecar_index;
mod target_folder;
#[cfg(test)]
mod tests;
mod truncate;
mod verify;
mod verify_hash;
mod verify_part;
mod verify_sidecars;

pub(crate) use commit::discard_attempt;
pub use commit::{EpochCommit, IfExists};
pub use commit_protocol::{CommitProtocol, CommitStep, StepOutcome};
pub use descriptor::DatasetDescriptor;
pub use epoch_set::{EpochSet, EpochSpan};
pub use epochs::load_manifest;
pub(crate) use epochs::{ScanManifest, is_of_data, load_named_manifest, load_scan_manifest};
pub use findings::{Finding, FindingKind, VerifyReport};
pub(crate) use listing::epoch_exists;
pub(crate) use listing::is_index;
pub(crate) use listing::list_sidecar_indexes;
pub use listing::{ManifestNames, list_epochs, list_indexes};
#[cfg(test)]
pub(crate) use lock::forged;
pub use lock::{LockHolder, LockNotice, WriterLock, lock_holder};
pub use paths::{DatasetPaths, EpochRange, parse_epoch};
pub(crate) use paths::{OVERVIEW_INDEX, REMOVED_INDEX};
pub(crate) use recovery::remove_useless;
pub use recovery::{Recovery, recover};
pub(crate) use sidecar_index::{SidecarDescriptor, SidecarEpoch};
pub(crate) use target_folder::check_vacant;
pub(crate) use truncate::remove_stale_epochs;
pub use truncate::{StaleIndex, Truncation, truncate_after};
pub use verify::{VerifyOptions, VerifyProgress, verify, verify_on};
