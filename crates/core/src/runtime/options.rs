//! Write options: every option, its default and its check.

use std::time::Duration;

use crate::error::UsageError;
use crate::format::{MAX_ROW_GROUPS, PartOptions};
use crate::shuffle::{EngineOptions, Renegotiation, Routing, Topology};
use crate::store::IfExists;
use crate::writer::WriterOptions;

/// Options for writing a dataset. [`WriteOptions::new`] has the defaults.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WriteOptions {
    /// Ranks that append.
    pub ranks: u32,
    /// Ranks that store, at most `ranks`.
    pub receivers: u32,
    /// The ranks of each node.
    pub topology: Topology,
    /// The routing of records.
    pub routing: Routing,
    /// Pivots per rank in a negotiation.
    pub pivots: u32,
    /// When to negotiate a new partition table.
    pub renegotiation: Renegotiation,
    /// Size of a memtable in bytes; a receiver has two.
    pub memtable_bytes: usize,
    /// Rows per page.
    pub page_rows: u32,
    /// Row groups per run.
    pub row_groups_per_run: u32,
    /// Row groups after which a part rolls over to a new file.
    pub row_groups_per_part: u32,
    /// The action when an epoch exists.
    pub if_exists: IfExists,
    /// Take over a lock whose holder's state cannot be determined from this host.
    pub break_lock: bool,
    /// Background threads that sort, encode and write; 0 for two per core, since they wait for the disk much of their
    /// time. There are never more of them than ranks, and one in each process of a parallel program.
    pub threads: usize,
    /// Maximum number of data batches waiting at a receiver.
    pub credit_batches: usize,
    /// Timeout of an append for credit, after which its records stay on their rank as spills.
    pub credit_timeout: Duration,
    /// Maximum time of a collective call without progress; `None`: unlimited.
    pub stall_limit: Option<Duration>,
    /// The origin of the records, as free text for dataset.json.
    pub source: Option<String>,
    /// Refuse a dataset whose `source` differs while both have the same scheme, the text before `": "`. A dataset
    /// without a source, or with one of another scheme, is accepted.
    pub match_source: bool,
    /// Refuse a dataset that has epochs.
    pub must_be_empty: bool,
    /// Derivations that computed the columns, for dataset.json.
    pub derivations: Vec<String>,
}

impl WriteOptions {
    /// Returns the defaults for a job of `ranks`, all of which receive.
    pub fn new(ranks: u32) -> Self {
        let part = PartOptions::default();
        Self {
            ranks,
            receivers: ranks,
            topology: Topology::one_node(),
            routing: Routing::default(),
            pivots: 512,
            renegotiation: Renegotiation::Adaptive,
            memtable_bytes: 7 << 20,
            page_rows: part.page_rows,
            row_groups_per_run: part.row_groups_per_run,
            row_groups_per_part: MAX_ROW_GROUPS,
            if_exists: IfExists::Error,
            break_lock: false,
            threads: 0,
            credit_batches: 8,
            credit_timeout: Duration::from_secs(10),
            stall_limit: None,
            source: None,
            match_source: false,
            must_be_empty: false,
            derivations: Vec::new(),
        }
    }

    /// Checks every value's range.
    pub(crate) fn check(&self) -> Result<(), UsageError> {
        let within = |option: &'static str, value: usize, low: usize, high: usize| {
            if (low..=high).contains(&value) {
                Ok(())
            } else {
                Err(UsageError::Option { option, what: format!("{value} is outside {low} to {high}") })
            }
        };
        within("ranks", self.ranks as usize, 1, 1 << 20)?;
        within("receivers", self.receivers as usize, 1, self.ranks as usize)?;
        within("pivots", self.pivots as usize, 2, 1 << 16)?;
        within("memtable", self.memtable_bytes, 1 << 10, 1 << 30)?;
        within("page rows", self.page_rows as usize, 1, 1 << 20)?;
        within("row groups per run", self.row_groups_per_run as usize, 1, 1 << 10)?;
        within("row groups per part", self.row_groups_per_part as usize, 1, MAX_ROW_GROUPS as usize)?;
        within("credit", self.credit_batches, 1, 1 << 16)?;
        if !self.topology.fits(self.ranks) {
            let what = format!("must name the node of each of the {} ranks", self.ranks);
            return Err(UsageError::Option { option: "topology", what });
        }
        if self.renegotiation == Renegotiation::Every(0) {
            return Err(UsageError::Option { option: "renegotiate", what: "must be at least 1 record".into() });
        }
        Ok(())
    }

    /// Returns the options of one rank's engine.
    pub(crate) fn engine(&self, rank: u32) -> EngineOptions {
        let defaults = EngineOptions::new(rank, self.ranks);
        EngineOptions {
            receivers: self.receivers,
            topology: self.topology.clone(),
            routing: self.routing,
            pivots: self.pivots,
            renegotiation: self.renegotiation,
            ..defaults
        }
    }

    /// Returns the options of one rank's writer.
    pub(crate) fn writer(&self, rank: u32) -> WriterOptions {
        WriterOptions {
            rank,
            memtable_bytes: self.memtable_bytes,
            row_groups_per_run: self.row_groups_per_run,
            row_groups_per_part: self.row_groups_per_part,
        }
    }

    /// Returns the layout of parts.
    pub(crate) fn part(&self) -> PartOptions {
        PartOptions { page_rows: self.page_rows, row_groups_per_run: self.row_groups_per_run, ..PartOptions::default() }
    }
}

/// The result of beginning an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EpochStart {
    /// Records may be appended.
    Started,
    /// The epoch exists and skipping was requested: append nothing, do not end it.
    Skipped,
}
