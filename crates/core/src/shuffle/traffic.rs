//! With whom a rank exchanges records in an epoch: what representatives are to keep few.
//!
//! Ranks count once however many batches pass, and only those that did: a representative that nobody needed is none.

use std::collections::BTreeSet;

/// The ranks at the other ends of this rank's batches.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    recipients: BTreeSet<u32>,
    senders: BTreeSet<u32>,
}

/// How much of the job one rank had to do with in an epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Peers {
    /// Other ranks it sent batches of records to.
    pub recipients: u32,
    /// Other ranks it took batches of records from.
    pub senders: u32,
}

impl Traffic {
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
        // There are no more than ranks.
        Peers { recipients: self.recipients.len() as u32, senders: self.senders.len() as u32 }
    }
}
