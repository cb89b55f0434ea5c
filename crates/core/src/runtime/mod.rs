//! Runtimes: drivers that give the state machines of shuffle and writer threads, messages, time and files.
//!
//! - [`local`]: all ranks in one process, the embedded default.
//! - [`rank`]: one rank of a parallel program, its messages carried by a transport such as MPI.
//! - [`sim`]: thousands of virtual ranks on one thread, repeatable from a seed; its network is an adversary.
//! - [`machine`]: hundreds of thousands of virtual ranks in the time of a modelled machine; a planner.
//!
//! Map: `process` has the resources shared by the ranks and datasets of a process, such as background threads;
//! `endpoint` joins one rank's engine and writer; `opening` opens a dataset and `epoch_report` makes an epoch's
//! manifest for all runtimes.

mod endpoint;
mod epoch_report;
mod exchange_statistics;
pub mod local;
pub mod machine;
mod opening;
mod options;
mod process;
pub mod rank;
pub mod sim;

pub use exchange_statistics::ExchangeStatistics;
pub use options::{EpochStart, WriteOptions};
pub use process::host::{Host, Process};
pub use process::resources::{Background, ProcessResources};
pub use rank::foreign::{ABI_VERSION, ForeignTransport, TransportTable};
