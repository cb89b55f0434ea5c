//! Drivers: they give the state machines of engine and writer threads, messages, time and files.
//!
//! - [`local`]: all ranks in one process, the embedded default.
//! - [`rank`]: one rank of a parallel program, its messages carried by a transport such as MPI.
//! - [`sim`]: thousands of virtual ranks on one thread, repeatable from a seed; its network is an adversary.
//! - [`machine`]: hundreds of thousands of virtual ranks in the time of a modelled machine; a planner.
//!
//! Map: `mailbox` carries messages within a process, `foreign` those of a transport written in C, `station` joins one
//! rank's engine and writer, `pool` has the threads that do what writers ask for, `commons` is what the datasets of a process
//! share, `host` is what a rank asks of its machine, `opening` and `gather` are what all drivers do to open a dataset and to make an epoch's manifest.

mod commons;
mod foreign;
mod gather;
mod host;
pub mod local;
pub mod machine;
mod mailbox;
mod opening;
mod options;
mod pool;
pub mod rank;
pub mod sim;
mod station;
mod sync;

pub use commons::Commons;
pub use foreign::{ABI_VERSION, ForeignTransport, TransportTable};
pub use host::{Background, Host, Process};
pub use options::WriteOptions;
pub use station::RankTraffic;

/// What beginning an epoch did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EpochStart {
    /// Records may be appended.
    Started,
    /// The epoch exists and was asked to be skipped: append nothing, do not end it.
    Skipped,
}
