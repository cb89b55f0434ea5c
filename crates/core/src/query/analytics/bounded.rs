//! A row count with bounds.

use serde::Serialize;

/// A row count with bounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Bounded {
    /// Lower bound.
    pub least: u64,
    /// Estimate.
    pub estimate: u64,
    /// Upper bound.
    pub most: u64,
}

impl Bounded {
    /// Returns a count that is known.
    pub fn exactly(rows: u64) -> Self {
        Self { least: rows, estimate: rows, most: rows }
    }

    /// Returns whether the count is known.
    pub fn is_exact(self) -> bool {
        self.least == self.most
    }

    /// Returns the sum of two counts.
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            least: self.least.saturating_add(other.least),
            estimate: self.estimate.saturating_add(other.estimate),
            most: self.most.saturating_add(other.most),
        }
    }
}
