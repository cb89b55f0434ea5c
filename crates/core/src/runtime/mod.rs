//! Runtimes: drivers that provide the state machines of shuffle and writer with threads, messages, time and files.
//!
//! - [`local`]: all ranks in one process, the default for embedding.
//! - [`rank`]: one rank of a parallel program. A transport such as MPI carries its messages.
//! - [`sim`]: thousands of virtual ranks on one thread, reproducible from a seed, over an adversarial network. Used for
//!   tests.
//!
//! Other modules: `process` contains the resources shared by the ranks and datasets of a process, such as background
//! threads. `endpoint` combines one rank's engine and writer. `opening` opens a dataset, `dataset` begins and ends its
//! epochs, and `epoch_report` creates an epoch's manifest, for all runtimes. `listener` tells programs of errors while
//! their calls run. `sidecars` makes bitmap indexes. `verdict` commits an epoch and its indexes together, or neither.

mod dataset;
mod endpoint;
mod epoch_report;
mod exchange_metrics;
mod listener;
pub mod local;
mod opening;
mod options;
mod process;
pub mod rank;
mod sidecars;
pub mod sim;
mod verdict;

pub use exchange_metrics::ExchangeMetrics;
pub use listener::Listener;
pub(crate) use opening::{Opened, clear_index, open_dataset};
pub use options::{ENTRY_OUTBOX_BYTES, EpochStart, LevelForecast, MEMTABLES_PER_PART, WriteOptions};
pub use process::host::{Host, Process};
pub use process::resources::{Background, Enrolment, ProcessResources};
pub use rank::c_transport::{ABI_VERSION, ForeignTransport, TransportTable};
