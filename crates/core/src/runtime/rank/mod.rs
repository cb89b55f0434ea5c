//! One rank of a parallel program: its engine and writer, driven by the program's own calls.
//!
//! The transport is used only on the thread that makes these calls; sorting, encoding and writing run on one background
//! thread. The collective calls ([`RankJob::open`], [`RankJob::begin_epoch`], [`RankJob::end_epoch`],
//! [`RankJob::truncate_after`]) are sessions of the engine: rank 0 performs the operations on the whole dataset and
//! announces the result, any rank may object, and all get the same outcome. An append never waits for another rank for
//! longer than [`crate::WriteOptions::credit_timeout`]. While a call waits, messages of the process' other datasets
//! pass as well: otherwise ranks that are busy with different datasets would wait for each other.
//!
//! Map: `open` opens a dataset on all ranks, `announcement` is rank 0's message to all, `waiting` is how a call waits
//! for messages.

mod announcement;
pub(super) mod foreign;
mod job;
mod open;
#[cfg(test)]
mod tests;
mod waiting;

pub use job::RankJob;
