//! The other processes that make an index together with this one.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::runtime::rank::RankSteps;
use crate::shuffle::{Topology, Transport};
use crate::storage::Storage;

/// What ranks wait for, in errors.
const CALL: &str = "index add";

/// The place of this process among those that build an index.
#[derive(Debug)]
pub(super) struct Others {
    steps: RankSteps,
    pub(super) rank: usize,
    pub(super) ranks: usize,
}

impl Others {
    /// Connects this process with the others.
    ///
    /// # Errors
    /// If the topology does not fit the number of ranks.
    pub(super) fn new(
        storage: &Arc<dyn Storage>,
        (rank, ranks): (u32, u32),
        topology: Topology,
        transport: Box<dyn Transport + Send>,
    ) -> Result<Self> {
        let steps = RankSteps::new(storage, (rank, ranks), topology, transport)?;
        Ok(Self { steps, rank: rank as usize, ranks: ranks as usize })
    }

    /// Takes a step: rank 0 calls `lead`, then all ranks call `share` with its result, which is returned.
    ///
    /// # Errors
    /// If `lead` or the `share` of any rank fails, on every rank; when the connection has failed.
    pub(super) fn take(
        &mut self,
        lead: impl FnOnce() -> Result<String>,
        share: impl FnOnce(&str) -> Result<()>,
    ) -> Result<String> {
        self.steps.take(CALL, lead, share)
    }

    /// Takes a step like [`Others::take`]. Returns what all ranks have reported, in any order, on rank 0.
    ///
    /// # Errors
    /// As for [`Others::take`].
    pub(super) fn collect(
        &mut self,
        lead: impl FnOnce() -> Result<String>,
        share: impl FnOnce(&str) -> Result<Vec<Vec<u8>>>,
    ) -> Result<Vec<Vec<u8>>> {
        self.steps.collect(CALL, lead, share)
    }

    /// Returns the epochs that rank 0 lists. The other ranks may see other ones: a program may commit epochs meanwhile.
    ///
    /// # Errors
    /// As for [`Others::take`].
    pub(super) fn epochs(&mut self, list: impl FnOnce() -> Result<Vec<u64>>) -> Result<Vec<u64>> {
        let lead = || Ok(list()?.iter().map(u64::to_string).collect::<Vec<_>>().join(" "));
        let announced = self.take(lead, |_| Ok(()))?;
        let epochs = announced.split_whitespace().map(str::parse);
        epochs.collect::<std::result::Result<_, _>>().map_err(|_| Error::internal("an announcement of no epochs"))
    }
}
