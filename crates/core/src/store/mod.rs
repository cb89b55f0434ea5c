//! The dataset's folder: who may write, what an epoch's commit is, what is left after a crash, and whether all is well.
//!
//! ```text
//! DS/data/epoch=200/part-00000.parquet …   the records, and nothing else
//! DS/_turbidite/dataset.json               what the dataset is (`descriptor`)
//! DS/_turbidite/manifest/200.<uuid>.arrow  the runs of one commit of one epoch
//! DS/_turbidite/tmp/200.<uuid>/            an attempt: what a running or crashed writer left
//! DS/_turbidite/tmp/200.<uuid>.replaced/   old data that a replacement by commit <uuid> set aside
//! DS/_turbidite/tmp/200.<uuid>.removed/    data that a truncation removed
//! DS/_turbidite/lock                       the writer (`lock`)
//! ```
//!
//! Map: `layout` knows the paths, `files` small whole files, `descriptor` dataset.json, `vacancy` where one may be
//! created, `lock` the one writer, `epochs`
//! which epochs there are, `protocol` the steps of a commit, `commit` one attempt at an epoch, `recovery` what a new
//! writer does first, `truncate` going back to a checkpoint, `salvage` unfinished epochs, `verify` everything against
//! everything.
//!
//! Invariants:
//! - An epoch exists exactly when its folder lies in `data`; it gets there and leaves by one rename or exchange.
//! - Whatever a rename relies on is durable before it; nothing old is removed before the new is durable.
//! - The commit that the parts' footers name decides which manifest holds. A manifest without data means nothing.
//! - Readers look into `data`, `manifest` and `dataset.json` only, never into `tmp`, and need no lock: a part that is
//!   open stays readable while its epoch is replaced.
//! - Whatever changes the folder holds the lock. Every change can be cut short anywhere and repeated.

mod commit;
mod descriptor;
mod epochs;
mod files;
mod findings;
mod layout;
mod listing;
mod lock;
mod protocol;
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
pub use descriptor::{DATASET_VERSION, DatasetDescriptor};
pub use epochs::load_manifest;
pub use findings::{Finding, FindingKind, VerifyReport};
pub use layout::{EpochRange, Layout, parse_epoch};
pub(crate) use listing::epoch_exists;
pub use listing::list_epochs;
#[cfg(test)]
pub(crate) use lock::forged;
pub use lock::{LockHolder, LockNotice, WriterLock, lock_holder};
pub use protocol::{CommitProtocol, CommitStep, StepOutcome};
pub use recovery::{Recovery, recover};
pub use truncate::truncate_after;
pub(crate) use vacancy::check_vacant;
pub use verify::{VerifyOptions, VerifyProgress, verify};
