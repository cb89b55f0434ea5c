//! The state of a session on one rank, and the receiver of its records.

use std::sync::Arc;
use std::time::Instant;

use crate::format::{BucketBounds, RunKind};
use crate::runtime::process::memory::Share;
use crate::schema::Value;
use crate::shuffle::{Failure, Payloads, Receiver};
use crate::store::EpochCommit;
use crate::writer::{PartFactory, Writer};

/// A session's state on this rank.
#[derive(Debug, Default)]
pub(super) enum SessionState {
    /// No session has begun.
    #[default]
    Idle,
    /// The session stores no records, or does not store any yet.
    Agreement(Agreement),
    /// The session stores records.
    Storing(Box<Storing>),
    /// This rank has sealed its parts and reported them to rank 0.
    Reported {
        epoch: Epoch,
        /// The reports of all ranks, while rank 0 holds the commit.
        held: Option<Payloads>,
    },
    /// The session has ended with one outcome for all ranks.
    Over(Result<Vec<u8>, Failure>),
}

/// A session without records.
#[derive(Debug, Default)]
pub(super) struct Agreement {
    /// Rank 0's announcement, until it is taken.
    pub(super) announcement: Option<Vec<u8>>,
    /// This rank's objection, if any.
    pub(super) objection: Option<String>,
    /// The bytes that this rank reports to rank 0.
    pub(super) report: Vec<u8>,
}

/// The writer of a session that stores records.
#[derive(Debug)]
pub(super) struct Storing {
    pub(super) epoch: Epoch,
    pub(super) writer: Writer,
    /// The writer's share of the process's memtable budget.
    pub(super) share: Share,
    /// The key distribution of the memtables of earlier epochs.
    pub(super) spread: Option<BucketBounds>,
    /// Size of a memtable while no other dataset needs memory, in bytes.
    pub(super) memtable_bytes: usize,
    /// Whether every record of the session has been delivered.
    pub(super) all_arrived: bool,
}

/// The destination of an epoch's records.
#[derive(Debug)]
pub(super) struct Epoch {
    pub(super) factory: Arc<PartFactory>,
    /// The epoch to commit, and the time at which it was begun. Present on rank 0 only.
    pub(super) commit: Option<(EpochCommit, Instant)>,
}

impl SessionState {
    pub(super) fn storing(&mut self) -> Option<&mut Storing> {
        if let Self::Storing(storing) = self { Some(storing) } else { None }
    }

    /// Returns the epoch, if the session stores records and is not over.
    pub(super) fn epoch(&self) -> Option<&Epoch> {
        match self {
            Self::Storing(storing) => Some(&storing.epoch),
            Self::Reported { epoch, .. } => Some(epoch),
            Self::Idle | Self::Agreement(_) | Self::Over(_) => None,
        }
    }
}

/// The receiver of a rank's records, which passes them to the writer. It accepts no records without a writer: before
/// the rank has begun the epoch, and after its parts are sealed.
pub(super) struct Arrivals<'a>(pub(super) Option<&'a mut Storing>);

impl Receiver for Arrivals<'_> {
    fn accepts(&mut self) -> bool {
        self.0.as_ref().is_some_and(|storing| storing.writer.accepts())
    }

    fn set_partition(&mut self, version: u32, bounds: Option<(Value, Value)>) {
        if let Some(storing) = &mut self.0 {
            storing.writer.set_partition(version, bounds);
        }
    }

    fn deliver(&mut self, kind: RunKind, rows: &[u8]) {
        if let Some(storing) = &mut self.0 {
            // Only ranks that receive records take memory.
            while kind == RunKind::Regular
                && storing.writer.lacks_memory()
                && let Some(memory) = storing.share.take()
            {
                storing.writer.reuse(memory, storing.spread);
            }
            storing.writer.push(kind, rows);
        }
    }
}
