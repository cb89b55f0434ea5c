//! Steps that ranks take together, without records.

use std::path::Path;
use std::sync::Arc;

use super::announcement::Announcement;
use super::open::Connections;
use super::stage::{RankStage, refusal};
use crate::error::{Error, Result};
use crate::runtime::WriteOptions;
use crate::runtime::process::host::Process;
use crate::schema::{Column, DataType, Schema};
use crate::shuffle::{Topology, Transport};
use crate::storage::Storage;

/// One of several processes that take the same steps.
#[derive(Debug)]
pub(crate) struct RankSteps(RankStage);

impl RankSteps {
    /// Creates one of `ranks` processes. They wait for each other without a limit, since shares may take long.
    pub(crate) fn new(
        storage: &Arc<dyn Storage>,
        (rank, ranks): (u32, u32),
        topology: Topology,
        transport: Box<dyn Transport + Send>,
    ) -> Result<Self> {
        let options = WriteOptions { topology, stall_limit: None, ..WriteOptions::new(ranks) };
        options.check()?;
        // No record will be appended, so any schema is sufficient.
        let schema = Schema::new(vec![Column::new("none", DataType::U8)], "none")?;
        let (host, storage) = (Arc::new(Process::new()), Arc::clone(storage));
        let connections = Connections::of(transport, 0);
        RankStage::unopened(host, storage, Path::new(""), schema, options, rank, connections).map(Self)
    }

    /// Takes a step: rank 0 calls `lead`, then all ranks call `share` with its result, which is returned. All ranks
    /// make the same calls.
    ///
    /// # Errors
    /// If `lead` or the `share` of any rank fails, on every rank; when the connection has failed.
    pub(crate) fn take(
        &mut self,
        call: &'static str,
        lead: impl FnOnce() -> Result<String>,
        share: impl FnOnce(&str) -> Result<()>,
    ) -> Result<String> {
        let announcement = (self.0.rank == 0).then(|| match lead() {
            Ok(text) => Announcement::Step { text },
            Err(error) => Announcement::refused(&error),
        });
        let announced = self.0.begin_session(call, announcement)?;
        let shared = if let Announcement::Step { text } = &announced { share(text) } else { Ok(()) };
        if let Err(error) = &shared {
            let (class, cause) = (error.class(), error.cause());
            self.0.object(Error::Refused { rank: self.0.rank, class, refusal: error.refusal(), cause });
        }
        let ended = self.0.end_session(call);
        // The rank that has failed knows its error best.
        shared.and(ended)?;
        match announced {
            Announcement::Step { text } => Ok(text),
            other => Err(refusal(other).unwrap_or_else(|| Error::internal("an announcement of no step"))),
        }
    }
}
