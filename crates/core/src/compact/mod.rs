//! Compaction: a fully sorted copy of a dataset, epoch by epoch.
//!
//! The rows of a row group are already sorted, so an epoch is as many sorted sequences of keys as it has row groups.
//! The order of the whole epoch is cut into *slabs* at exact places: of slabs of 1,000,000 rows, the third begins where
//! 2,000,000 rows are before it by key. The position of a cut in every sequence is found from the page indexes and a
//! few pages of keys (`cuts`). A slab is then a range of rows of each row group; its pages are read, column by column,
//! its rows sorted by key and written as runs (`slab`). Slabs are independent, so threads work on them in parallel;
//! consecutive slabs go to one part, and parts are numbered in the order of the key (`epoch`).
//!
//! ```text
//! page indexes ─► cuts at places n, 2n, 3n … ─► slab: rows a..b of each row group ─► sort ─► runs ─► part ─► commit
//! ```
//!
//! # Invariants
//!
//! - Every row of the source is in the copy once: a cut has every row on one side, and the slabs of its two sides share
//!   the cut. Equal keys are distinguished by their position, so one key may fill any number of slabs.
//! - Runs do not overlap, except for equal keys at their ends; runs of NaN keys come last, in a part of their own.
//! - A slab has a fixed number of rows, whatever the keys are: memory does not depend on the data. Page indexes and run
//!   entries of one epoch come on top ([`Compaction::memory_bound_bytes`]).
//! - The input that cuts rely on is checked when rows are read: keys ascend, and lie between the keys of the cuts.
//! - The source is only read. Its epoch is one commit, even if a writer replaces it meanwhile.
//! - The copy is an ordinary dataset, written under its lock and by the store's commit. The parts of a failed attempt
//!   are removed, and those of a killed one by the next attempt: the source has all of the data.
//!
//! A page that contains a cut is read by two slabs. With `k` row groups at a key that is `k` pages of each column per
//! slab; [`CompactedEpoch::bytes_read`] reports it.

mod cuts;
mod epoch;
mod job;
mod options;
mod reads;
mod slab;
#[cfg(test)]
mod tests;

pub use epoch::CompactedEpoch;
pub use job::Compaction;
pub use options::CompactOptions;
