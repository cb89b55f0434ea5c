//! Compaction writes a fully sorted copy of a dataset, epoch by epoch.
//!
//! The rows of a row group are already sorted, so an epoch consists of as many sorted sequences as row groups. The
//! merge order of the whole epoch is cut into *slabs* at exact positions. With slabs of 1,000,000 rows, the third slab
//! begins after the 2,000,000 rows with the smallest keys. `cuts` finds the position of a cut in every sequence, from
//! the page indexes and a few pages of keys. A slab is thus a range of rows in each row group. `slab` reads the pages
//! of a slab column by column, and sorts its rows by key. `epoch` writes the sorted rows as runs. Slabs are
//! independent, so several threads process them. Consecutive slabs are written to one part, and parts are numbered in
//! key order.
//!
//! ```text
//! page indexes ─► cuts at places n, 2n, 3n … ─► slab: rows a..b of each row group ─► sort ─► runs ─► part ─► commit
//! ```
//!
//! # Invariants
//!
//! - The copy contains every row of the source exactly once. A cut assigns every row to one side, and is shared by the
//!   slabs on both sides. Rows with equal keys are ordered by their position, so one key may fill any number of slabs.
//! - Runs do not overlap, except for equal keys at their ends. Runs of NaN keys are in separate parts, after all
//!   others.
//! - The number of rows in a slab does not depend on the keys, so memory does not depend on the data. The exceptions
//!   are page indexes and manifest entries of one epoch ([`Compaction::memory_bound_bytes`]).
//! - Reading verifies the assumptions of the cuts: keys ascend, and lie between the keys of the cuts.
//! - Compaction only reads the source. The copied epoch is one commit of the source, even if a writer replaces it
//!   meanwhile.
//! - The copy is an ordinary dataset, written under its lock and with the store's commit protocol. A failed attempt
//!   removes its parts. The next attempt removes the parts of a killed one, since the source has all of the data.
//!
//! Two slabs read each page that contains a cut. If `k` row groups overlap at a key, each slab reads `k` additional
//! pages of each column. [`CompactedEpoch::bytes_read`] includes these pages.

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
