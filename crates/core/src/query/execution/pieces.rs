//! The interface of the pipelines that a query's rows come from.

use crate::error::Result;
use crate::query::execution::read::PackedRows;

/// A pipeline that returns the rows of a query in its own order.
pub(in crate::query) trait Pieces: Send {
    /// Adds the row groups that will be read to the total of the request's progress.
    fn announce(&self) -> Result<()>;

    /// Returns the next rows. All of them belong to one epoch.
    fn next_piece(&mut self) -> Result<Option<PackedRows>>;
}
