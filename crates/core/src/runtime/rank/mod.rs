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
//! `job` is one rank of a dataset, `open` opens it together with the other ranks, and `indexes` begins and ends the
//! epochs of its indexes, each of which is a job, too. `driver` exchanges the messages of a rank, `announcement` is
//! rank 0's message to all ranks, and `waiting` defines how a call waits. `steps` are agreements on work without
//! records.

mod announcement;
pub(super) mod c_transport;
mod driver;
mod indexes;
mod job;
mod open;
mod steps;
#[cfg(test)]
mod tests;
mod waiting;

pub use job::RankJob;
pub(crate) use steps::RankSteps;
