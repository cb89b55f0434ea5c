//! Plans: which access path finds the rows of an epoch, and which rows of a row group have to be tested.
//!
//! `epoch_plan` chooses the path of an unordered query (`alternative`). `lookup` finds the rows of few keys and values
//! by caches, `spatial` chooses a copy of the records, `covering` an index that has all columns of a query,
//! `value_indexes` indexes that find rows (`candidate`) by the cost of their entries, and `bitmap` row groups whose
//! rows bitmaps select. `order` plans the ascending order of a column, `intervals` where the first values of other
//! orders lie, and `sort` what is sorted in memory. `detail` finds a copy with levels of detail. `explain` describes
//! plans, and `pieces` cuts queries for other processes.

pub(super) mod alternative;
pub(super) mod bitmap;
mod candidate;
pub(super) mod covering;
pub(super) mod detail;
pub(super) mod epoch_plan;
pub(super) mod explain;
pub(super) mod intervals;
pub(super) mod lookup;
pub(super) mod order;
pub(super) mod pieces;
pub(super) mod sort;
mod spatial;
pub(super) mod value_indexes;
