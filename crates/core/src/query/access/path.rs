//! The interface between the planner and the indexes.

use std::fmt::Debug;

use crate::error::Result;
use crate::expr::Predicate;
use crate::format::EpochManifest;
use crate::index::RecordPlace;
use crate::query::access::cost::FindingCost;
use crate::query::metrics::Counters;

/// Records that may match a predicate, as an index has them.
#[derive(Debug, Default)]
pub(in crate::query) struct IndexedRecords {
    /// Their places, in any order.
    pub(in crate::query) places: Vec<RecordPlace>,
    /// Packed stored values of each requested column, in the order of the places.
    pub(in crate::query) values: Vec<Vec<u8>>,
}

/// Records of an epoch in the order of an index.
pub(in crate::query) trait OrderedRecords: Send {
    /// Returns the next records in order, or `None` at the end.
    ///
    /// # Errors
    /// Corruption of the index; I/O errors.
    fn next(&mut self, counters: &Counters) -> Result<Option<IndexedRecords>>;
}

/// An index of a dataset: finds the records of an epoch that may match a predicate.
///
/// The places that it returns are a superset of the matching records' places. The records are tested, so an index never
/// adds a row to an answer.
pub(in crate::query) trait AccessPath: Debug + Send + Sync {
    /// Returns the name of the index.
    fn name(&self) -> &str;

    /// Returns the number of values that a predicate lists of what is indexed. `None` if it lists none.
    fn listed(&self, predicate: &Predicate) -> Option<u64>;

    /// Returns whether what the index has of an epoch is in memory, so that an estimate reads nothing.
    fn is_known(&self, manifest: &EpochManifest) -> bool;

    /// Returns the cost of finding the records of a predicate. `None` if it cannot answer the predicate, or has no
    /// entries of this commit of the epoch.
    ///
    /// # Errors
    /// Corruption of the index; I/O errors.
    fn estimate(&self, predicate: &Predicate, manifest: &EpochManifest) -> Result<Option<FindingCost>>;

    /// Returns the places of all records that may match, in any order. `None` as for [`AccessPath::estimate`], and if
    /// there are more than `most` of them.
    ///
    /// # Errors
    /// Corruption of the index; I/O errors.
    fn places(
        &self,
        predicate: &Predicate,
        manifest: &EpochManifest,
        most: u64,
        counters: &Counters,
    ) -> Result<Option<Vec<RecordPlace>>>;

    /// Returns whether the index has the values of these columns of the records.
    fn has_columns(&self, _columns: &[usize]) -> bool {
        false
    }

    /// Returns the places of all records that may match, and their values of `columns`. `None` as for
    /// [`AccessPath::places`], and if the index does not have these columns.
    ///
    /// # Errors
    /// Corruption of the index; I/O errors.
    fn records(
        &self,
        _predicate: &Predicate,
        _columns: &[usize],
        _manifest: &EpochManifest,
        _most: u64,
        _counters: &Counters,
    ) -> Result<Option<IndexedRecords>> {
        Ok(None)
    }

    /// Returns the size of the index's pages of an epoch, if the index has all of its records in the order of a column.
    ///
    /// # Errors
    /// Corruption of the index; I/O errors.
    fn order_bytes(&self, _column: usize, _manifest: &EpochManifest) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Returns the records that may match, with their values of `columns`, in the order of the indexed column. At most
    /// `most` are wanted. `None` if the index does not have this commit of the epoch, or these columns.
    ///
    /// # Errors
    /// Corruption of the index; I/O errors.
    fn in_order(
        &self,
        _predicate: Option<&Predicate>,
        _columns: &[usize],
        _manifest: &EpochManifest,
        _most: u64,
    ) -> Result<Option<Box<dyn OrderedRecords>>> {
        Ok(None)
    }
}
