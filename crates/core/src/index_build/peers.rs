//! The other processes that make an index together with this one.

use std::sync::{Mutex, PoisonError};

use crate::error::{Error, Result, UsageError};
use crate::query::{Dataset, EpochGroups};
use crate::runtime::rank::RankSteps;
use crate::shuffle::{Topology, Transport};

/// The operation that ranks wait for, in errors.
const CALL: &str = "index add";

/// The connection of this process with the others that build an index.
pub(super) struct Link {
    /// The rank of this process, and their number.
    pub(super) place: (u32, u32),
    pub(super) topology: Topology,
    pub(super) transport: Box<dyn Transport + Send>,
}

/// The place of this process among those that build an index.
#[derive(Debug)]
pub(super) struct BuildPeers {
    steps: RankSteps,
    pub(super) rank: usize,
    pub(super) ranks: usize,
}

impl BuildPeers {
    /// Connects this process with the peers, and opens a build on every rank. A rank has one thread by default.
    ///
    /// # Errors
    /// If the topology does not fit the number of ranks; the errors of `open`, on every rank.
    pub(super) fn open<B>(link: Link, open: impl FnOnce() -> Result<B>) -> Result<(Self, B)> {
        let Link { place: (rank, ranks), topology, transport } = link;
        let steps = RankSteps::new((rank, ranks), topology, transport)?;
        let mut peers = Self { steps, rank: rank as usize, ranks: ranks as usize };
        let mut opened = None;
        let lead = || Ok(String::new());
        peers.take(lead, |_| {
            opened = Some(open()?);
            Ok(())
        })?;
        Ok((peers, opened.ok_or_else(|| Error::internal("an index was not opened"))?))
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

    /// Takes a step like [`BuildPeers::take`]. Returns what all ranks have reported, in any order, on rank 0.
    ///
    /// # Errors
    /// As for [`BuildPeers::take`].
    pub(super) fn collect(
        &mut self,
        lead: impl FnOnce() -> Result<String>,
        share: impl FnOnce(&str) -> Result<Vec<Vec<u8>>>,
    ) -> Result<Vec<Vec<u8>>> {
        self.steps.collect(CALL, lead, share)
    }

    /// Returns the epochs that rank 0 lists if there are other processes. They may see other ones: a program may commit
    /// epochs meanwhile.
    ///
    /// # Errors
    /// As for [`BuildPeers::take`], and the errors of `list`.
    pub(super) fn epochs(peers: &Mutex<Option<Self>>, list: impl FnOnce() -> Result<Vec<u64>>) -> Result<Vec<u64>> {
        let mut peers = peers.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(peers) = peers.as_mut() else { return list() };
        let lead = || Ok(list()?.iter().map(u64::to_string).collect::<Vec<_>>().join(" "));
        let announced = peers.take(lead, |_| Ok(()))?;
        let epochs = announced.split_whitespace().map(str::parse);
        epochs.collect::<std::result::Result<_, _>>().map_err(|_| Error::internal("an announcement of no epochs"))
    }
}

/// Opens the row groups of an epoch, of a level of detail and above, and of the commit that rank 0 has announced.
///
/// # Errors
/// A usage error if the epoch has been replaced since then; a corrupt manifest; I/O errors.
pub(super) fn open_announced(dataset: &Dataset, epoch: u64, level: u8, commit: &str) -> Result<EpochGroups> {
    let groups = EpochGroups::open_above(dataset, epoch, level)?;
    if commit == groups.commit().to_string() {
        return Ok(groups);
    }
    let what = format!("epoch {epoch} was replaced while its index was made; repeat the command");
    Err(UsageError::Option { option: "index", what }.into())
}
