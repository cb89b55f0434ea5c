//! One rank of a parallel program: its engine and writer, driven by the program's own calls.
//!
//! The transport is used only on the thread that makes these calls. One background thread sorts, encodes and writes.
//!
//! The collective calls ([`RankJob::open`], [`RankJob::begin_epoch`], [`RankJob::end_epoch`],
//! [`RankJob::truncate_after`]) are sessions of the engine: rank 0 performs the operations on the whole dataset and
//! announces the result, any rank may object, and all ranks get the same outcome. An append waits for another rank for
//! at most [`crate::WriteOptions::credit_timeout`]. While a call waits, it also exchanges messages of the process's
//! other datasets. Otherwise, ranks in calls on different datasets would wait for each other.
//!
//! `open` opens a dataset on all ranks. `announcement` is rank 0's message to all ranks. `waiting` defines how a call
//! waits for messages. `stage` is one rank of one dataset, `indexes` those of the indexes that are made of its records,
//! and `job` all of them. `steps` are agreements on work without records.

mod announcement;
pub(super) mod foreign;
mod indexes;
mod job;
mod open;
mod stage;
mod steps;
#[cfg(test)]
mod tests;
mod waiting;

pub use job::RankJob;
pub(crate) use steps::RankSteps;
