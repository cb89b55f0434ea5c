//! The ranks that a rank exchanges records with in an epoch. Representatives keep their number small.
//!
//! A rank counts once however many batches pass, and only if at least one did: an unused representative does not count.

use std::collections::BTreeSet;

/// The ranks at the other ends of this rank's batches.
#[derive(Debug, Default)]
pub(super) struct PeerSet {
    recipients: BTreeSet<u32>,
    senders: BTreeSet<u32>,
}

/// Number of ranks that one rank exchanged records with in an epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Peers {
    /// Other ranks it sent batches of records to.
    pub recipients: u32,
    /// Other ranks it received batches of records from.
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
        // The sets hold ranks, whose number fits u32.
        Peers { recipients: self.recipients.len() as u32, senders: self.senders.len() as u32 }
    }
}
