//! One file per command. Each has the options, `run`, and nothing that another command needs.
//!
//! Shared by several: `answers` writes results, `epochs` chooses epochs, `epoch_statistics` derives statistics from
//! manifests; `feed` and `job` move records for `ingest` and `simulate`, `batch` runs the queries of `query --batch`,
//! `spooled` is `salvage --spool`.

mod answers;
mod batch;
pub(crate) mod compact;
pub(crate) mod completions;
pub(crate) mod epoch_statistics;
mod epochs;
mod feed;
pub(crate) mod hist;
pub(crate) mod ingest;
pub(crate) mod inspect;
mod job;
pub(crate) mod man;
pub(crate) mod quantiles;
pub(crate) mod query;
pub(crate) mod report;
pub(crate) mod salvage;
pub(crate) mod simulate;
mod spooled;
pub(crate) mod stats;
pub(crate) mod tracks;
pub(crate) mod truncate;
pub(crate) mod verify;
