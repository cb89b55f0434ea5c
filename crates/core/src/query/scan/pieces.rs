//! The interface of the pipelines that a query's rows come from.

use std::sync::Arc;

use crate::error::Result;
use crate::query::scan::epoch_scan::EpochScan;
use crate::query::scan::read::PackedRows;

/// Plans an epoch, of which at most a number of entries are read of an index that the query requires.
pub(in crate::query) type PlanEpoch = Arc<dyn Fn(u64, u64) -> Result<EpochScan> + Send + Sync>;

/// A step of a pipeline that may start an epoch over.
#[derive(Debug)]
pub(in crate::query) enum Step<T> {
    Piece(T),
    /// The next pieces are of an epoch that may be started over.
    Begin,
    /// The pieces since [`Step::Begin`] are void: the epoch starts over.
    StartOver,
}

/// A pipeline that returns the rows of a query in its own order.
pub(in crate::query) trait Pieces: Send {
    /// Adds the row groups that will be read to the total of the request's progress.
    fn announce(&self) -> Result<()>;

    /// Returns the next rows. All of them belong to one epoch.
    fn next_piece(&mut self) -> Result<Option<PackedRows>>;

    /// Returns the next step. Most pipelines have no epochs that start over.
    fn next_step(&mut self) -> Result<Option<Step<PackedRows>>> {
        Ok(self.next_piece()?.map(Step::Piece))
    }

    /// States that rows since [`Step::Begin`] have been handed out, so that their epoch cannot start over any more.
    fn keep(&mut self) {}
}
