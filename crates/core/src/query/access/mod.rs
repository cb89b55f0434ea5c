//! Access paths besides statistics: indexes, which state the places of the records with certain values.
//!
//! `path` is the interface that the planner uses, and `choice` decides which paths a query takes, by their `cost`.
//! `covering` answers queries from an index that has all columns of a query. `entries` implements the interface for
//! indexes of entries. `bitmap` selects rows of row groups by bitmap indexes. `space` chooses a copy of the records
//! that is read instead of them, and `detail` one whose levels of detail are read. `index_handle` opens the datasets of
//! indexes, of which `space_copy` is one.

pub(super) mod bitmap;
pub(super) mod candidate;
pub(super) mod choice;
pub(super) mod cost;
pub(super) mod covering;
pub(super) mod detail;
pub(super) mod entries;
pub(super) mod index_handle;
pub(super) mod path;
pub(super) mod space;
pub(super) mod space_copy;
