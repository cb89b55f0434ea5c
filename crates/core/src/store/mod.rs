//! The dataset's folder: the writer lock, commits, recovery, salvage and verification.
//!
//! ```text
//! DS/data/epoch=200/part-00000.parquet …   the records, and nothing else
//! DS/_turbidite/dataset.json               schema and identity of the dataset (`descriptor`)
//! DS/_turbidite/manifest/200.<uuid>.arrow  the runs of one commit of one epoch
//! DS/_turbidite/tmp/200.<uuid>/            an attempt: parts of a running or crashed writer
//! DS/_turbidite/tmp/200.<uuid>.replaced/   old data that a replacement by commit <uuid> set aside
//! DS/_turbidite/tmp/200.<uuid>.removed/    data that a truncation removed
//! DS/_turbidite/lock                       the writer (`lock`)
//! ```
//!
//! Map: `paths` has the paths, `files` writes small files atomically, `descriptor` is dataset.json, `vacancy` checks
//! where a dataset may be created, `lock` admits one writer, `epochs` finds epochs and their manifests,
//! `commit_protocol` has the steps of a commit, `commit` is one attempt at an epoch, `recovery` runs before a new
//! writer, `truncate` returns to a checkpoint, `salvage` recovers unfinished epochs, `verify` checks a whole dataset.
//!
//! Invariants:
//! - An epoch exists exactly when its folder lies in `data`; it gets there and leaves by one rename or exchange.
//! - Everything a rename relies on is durable before it; old data is removed only after the new data is durable.
//! - The commit named in the parts' footers decides which manifest is valid. A manifest without data is ignored.
//! - Readers access only `data`, `manifest` and `dataset.json`, never `tmp`, and need no lock: an open part stays
//!   readable while its epoch is replaced.
//! - Every change of the folder requires the lock. Every change can be interrupted anywhere and repeated.

mod commit;
mod commit_protocol;
mod descriptor;
mod epochs;
mod files;
mod findings;
mod listing;
mod lock;
mod paths;
mod recovery;
pub mod salvage;
#[cfg(test)]
mod tests;
mod truncate;
mod vacancy;
mod verify;
mod verify_part;

pub(crate) use commit::discard_attempt;
pub use commit::{EpochCommit, IfExists};
pub use commit_protocol::{CommitProtocol, CommitStep, StepOutcome};
pub use descriptor::{DATASET_VERSION, DatasetDescriptor};
pub use epochs::load_manifest;
pub use findings::{Finding, FindingKind, VerifyReport};
pub(crate) use listing::epoch_exists;
pub use listing::list_epochs;
#[cfg(test)]
pub(crate) use lock::forged;
pub use lock::{LockHolder, LockNotice, WriterLock, lock_holder};
pub use paths::{DatasetPaths, EpochRange, parse_epoch};
pub use recovery::{Recovery, recover};
pub use truncate::truncate_after;
pub(crate) use vacancy::check_vacant;
pub use verify::{VerifyOptions, VerifyProgress, verify, verify_on};
