//! All ranks in one process: the embedded default, also used by the command line.
//!
//! Every rank is an engine and a writer behind a lock. The caller of [`LocalJob::append`] drives its rank, then the
//! ranks with control messages waiting. When the rank is out of credit, the caller drives the other ranks too, so no
//! thread per rank is needed and one calling thread suffices. Sorting, encoding and writing run on background threads.
//!
//! Invariant: a thread holds one rank's lock at a time, so lock order cannot cause a deadlock.

mod job;
pub(super) mod mailbox;

pub use job::LocalJob;
