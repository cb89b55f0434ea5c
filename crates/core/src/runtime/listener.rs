//! Notifies a program of a job's errors while its calls run.

use crate::error::Error;

/// Hears of a job's errors and waits before the calls return ([`WriteOptions::listener`]). The ranks of one process
/// ([`LocalJob`](crate::LocalJob)) have no use for it.
///
/// [`WriteOptions::listener`]: crate::WriteOptions::listener
pub trait Listener: Send + Sync + std::fmt::Debug {
    /// Hears of an error that all ranks return. Called on rank 0, before the other ranks learn of the error: the job
    /// may end as soon as one of them returns it.
    fn failed(&self, error: &Error);
    /// Hears that a collective call has waited for a while without progress. `stall` says where and for how long. The
    /// call goes on to wait.
    fn waits(&self, stall: &Error);
}
