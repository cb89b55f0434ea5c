//! The epochs that a query reads.

use crate::store::{EpochRange, EpochSet};

/// The epochs that a query reads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum EpochSelection {
    /// All existing epochs.
    #[default]
    All,
    /// All existing epochs within a range. A range of a single epoch must exist.
    Range(EpochRange),
    /// These epochs. Each of them must exist. Order and repetition do not matter.
    List(Vec<u64>),
    /// A choice among the existing epochs.
    Set(EpochSet),
}

impl From<EpochRange> for EpochSelection {
    fn from(range: EpochRange) -> Self {
        Self::Range(range)
    }
}

impl From<EpochSet> for EpochSelection {
    fn from(set: EpochSet) -> Self {
        // A few labels are looked up by themselves, without a list of the others.
        set.labels().map_or(Self::Set(set), Self::List)
    }
}

impl From<u64> for EpochSelection {
    fn from(epoch: u64) -> Self {
        Self::List(vec![epoch])
    }
}

impl From<Vec<u64>> for EpochSelection {
    fn from(epochs: Vec<u64>) -> Self {
        Self::List(epochs)
    }
}

impl From<&[u64]> for EpochSelection {
    fn from(epochs: &[u64]) -> Self {
        Self::List(epochs.to_vec())
    }
}
