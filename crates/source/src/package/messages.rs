//! Requests to a reader of the package, and its answers: one JSON object per line, after a greeting.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use turbidite::Attribute;

use crate::periods::StatedPeriod;

/// Version of the protocol. The package refuses another one.
pub(super) const VERSION: u32 = 2;

/// The first line of a reader: the release of its package.
#[derive(Debug, Deserialize)]
pub(super) struct Greeting {
    pub(super) release: String,
}

/// A request.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Request<'a> {
    Open(Open<'a>),
    Read(Read),
}

/// Opens a source. Must be the first request.
#[derive(Debug, Serialize)]
pub(super) struct Open<'a> {
    pub(super) version: u32,
    pub(super) path: &'a Path,
    pub(super) format: Option<&'a str>,
    pub(super) species: Option<&'a str>,
    pub(super) columns: Option<&'a [String]>,
    pub(super) epoch: Option<u64>,
    pub(super) if_repeated: Option<&'a str>,
    pub(super) nulls: Option<&'a str>,
    /// The epochs that are read. All epochs if they depend on which exist.
    pub(super) epochs: Option<Vec<[u64; 3]>>,
    /// Epochs that have been read before.
    pub(super) done: Vec<u64>,
    pub(super) resume: Option<&'a str>,
    pub(super) allow_missing_ranks: bool,
    pub(super) complete_only: bool,
    /// The index from the first reader's inventory, which spares further readers the search for epochs.
    pub(super) index: Option<&'a RawValue>,
}

/// Reads one block of an epoch. The answer is [`Rows`], followed by the packed values of each column.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Read {
    pub(super) epoch: u64,
    pub(super) rank: u32,
    pub(super) first: u64,
    pub(super) rows: u64,
}

/// The answer to [`Open`].
#[derive(Debug, Deserialize)]
pub(super) struct Inventory {
    pub(super) format: String,
    pub(super) columns: Vec<StatedColumn>,
    pub(super) epochs: Vec<StatedEpoch>,
    #[serde(default)]
    pub(super) notes: Vec<String>,
    /// The epochs of the files, whether they are read or not.
    #[serde(default)]
    pub(super) labels: Vec<u64>,
    #[serde(default)]
    pub(super) left_out: Vec<StatedLeftOut>,
    pub(super) index: Option<Box<RawValue>>,
}

/// An epoch that is not whole.
#[derive(Debug, Deserialize)]
pub(super) struct StatedLeftOut {
    pub(super) epoch: Option<u64>,
    pub(super) path: PathBuf,
    pub(super) message: String,
}

/// A column of an inventory.
#[derive(Debug, Deserialize)]
pub(super) struct StatedColumn {
    pub(super) name: String,
    #[serde(rename = "type")]
    pub(super) data_type: String,
    pub(super) unit: Option<String>,
}

/// An epoch of an inventory, or a part of one.
#[derive(Debug, Deserialize)]
pub(super) struct StatedEpoch {
    pub(super) epoch: u64,
    pub(super) path: PathBuf,
    pub(super) records: u64,
    pub(super) block_rows: u64,
    /// The periods of coordinates, by column.
    #[serde(default)]
    pub(super) periods: BTreeMap<String, StatedPeriod>,
    /// Numbers that describe the epoch, by name.
    #[serde(default)]
    pub(super) attributes: BTreeMap<String, Attribute>,
    #[serde(default)]
    pub(super) rank: u32,
    /// The path with `{rank}` in place of the part's number, if parts have numbers.
    pub(super) numbered: Option<String>,
    /// Number of parts that the file's header states.
    pub(super) parts: Option<u64>,
}

/// The answer to [`Read`].
#[derive(Debug, Deserialize)]
pub(super) struct Rows {
    pub(super) rows: u64,
}

/// Whether an answer is an error.
#[derive(Debug, Deserialize)]
pub(super) struct Outcome {
    pub(super) error: Option<Refusal>,
}

/// An error, in place of any answer.
#[derive(Debug, Deserialize)]
pub(super) struct Refusal {
    pub(super) class: String,
    pub(super) path: Option<PathBuf>,
    pub(super) message: String,
}
