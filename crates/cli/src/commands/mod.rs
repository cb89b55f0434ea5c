//! The commands, one module per command. Each module contains the command's options and `run`, and is not used by other
//! commands.
//!
//! Shared modules: `answers` prints results, `epochs` chooses epochs, and `epoch_metrics` derives metrics from
//! manifests. `feed`, `series` and `job` append records for `ingest` and `simulate`, `level_count` is an option of the
//! former, `ingest_report` its report, and `follow` its work on a running simulation with `file_watch`. `trajectories`
//! prints those that `tracks` and `get` find, `histograms` histograms, with `estimates` (numbers), `pairs` (pictures of
//! two columns) and `bar`. `batch` implements `query --batch`, `sample` its `--quality` and `--rows`, and `spooled`
//! implements `salvage --spool`.

pub(crate) mod aggregate;
mod answers;
mod bar;
mod batch;
mod box_periods;
mod boxes;
pub(crate) mod compact;
pub(crate) mod completions;
pub(crate) mod epoch_metrics;
mod epochs;
mod estimates;
mod feed;
mod file_watch;
pub(crate) mod follow;
pub(crate) mod get;
pub(crate) mod hist;
mod histograms;
pub(crate) mod index;
pub(crate) mod ingest;
mod ingest_report;
pub(crate) mod inspect;
mod job;
mod level_count;
pub(crate) mod man;
mod pairs;
pub(crate) mod quantiles;
pub(crate) mod query;
mod rename;
pub(crate) mod report;
pub(crate) mod salvage;
mod sample;
mod series;
pub(crate) mod simulate;
mod spooled;
pub(crate) mod stats;
mod table;
pub(crate) mod tracks;
mod trajectories;
pub(crate) mod truncate;
pub(crate) mod verify;
