//! Indexes: which records may have certain values.
//!
//! An index is a dataset whose entries name records (`value`), a copy of the records that is clustered by space
//! (`spatial`), or sidecars with the bins of values (`bitmap`). `indexes` lists those of a dataset, and `handle` opens
//! their datasets. `cost` is that of finding records by entries. Answers never depend on an index: `unreadable` decides
//! whether a request does without one.

pub(super) mod bitmap;
pub(super) mod cost;
pub(super) mod handle;
pub(super) mod indexes;
pub(super) mod spatial;
pub(super) mod unreadable;
pub(super) mod value;
