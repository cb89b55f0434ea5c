//! Counts the ranks that a rank exchanges records with in an epoch. Representatives keep their number small.
//!
//! A rank counts once, regardless of the number of batches. A representative without batches does not count.

use std::collections::BTreeSet;

/// The ranks at the other ends of this rank's batches.
#[derive(Debug, Default)]
pub(super) struct PeerSet {
    recipients: BTreeSet<u32>,
    senders: BTreeSet<u32>,
}

/// Numbers of ranks that one rank exchanged records with in an epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Peers {
    /// Number of other ranks that the rank sent batches of records to.
    pub recipients: u32,
    /// Number of other ranks that the rank received batches of records from.
    pub senders: u32,
}

impl PeerSet {
    pub(super) fn sent(&mut self, from: u32, to: u32) {
        if from != to {
            self.recipients.insert(to);
        }
    }

    pub(super) fn received(&mut self, from: u32, at: u32) {
        if from != at {
            self.senders.insert(from);
        }
    }

    pub(super) fn peers(&self) -> Peers {
        // Rank numbers are u32, so the lengths of the sets fit u32.
        Peers { recipients: self.recipients.len() as u32, senders: self.senders.len() as u32 }
    }
}
