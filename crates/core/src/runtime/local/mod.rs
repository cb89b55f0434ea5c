//! Runs all ranks in one process. The command line uses this runtime, and it is the default for embedding.
//!
//! Every rank is an engine and a writer behind a lock. The caller of [`LocalJob::append`] drives its rank, then the
//! ranks with unread control messages. If the rank is out of credit, the caller drives the other ranks too. One calling
//! thread is therefore enough; no rank needs its own. Background threads sort, encode and write.
//!
//! `stage` runs the ranks of one dataset, `indexes` those of the indexes that are made of its records, and `job` all of
//! them.
//!
//! Invariant: a thread holds at most one rank's lock at a time, so locks cannot deadlock.

mod indexes;
mod job;
pub(super) mod mailbox;
mod stage;

pub use job::LocalJob;

#[cfg(test)]
mod tests;
