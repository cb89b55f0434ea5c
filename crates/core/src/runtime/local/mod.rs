//! Runs all ranks in one process. The command line uses this runtime, and it is the default for embedding.
//!
//! Every rank is an engine and a writer behind a lock. The caller of [`LocalJob::append`] drives its rank, then the
//! ranks with unread control messages. If the rank is out of credit, the caller drives the other ranks too. One calling
//! thread is therefore enough; no rank needs its own. Background threads sort, encode and write.
//!
//! `ranks` drives the ranks of one dataset, and `job` begins and ends its epochs. `indexes` does so for the indexes
//! that are made of its records, each of which is a job, too.
//!
//! Invariant: a thread holds at most one rank's lock at a time, so locks cannot deadlock.

mod indexes;
mod job;
pub(super) mod mailbox;
mod ranks;

pub use job::LocalJob;

#[cfg(test)]
mod tests;
