//! Discrete-event simulation of a job on a modelled machine: the real engines of up to hundreds of thousands of virtual
//! ranks, in simulated time.
//!
//! [`turbidite::runtime::sim`] is for tests: it delays messages at random to find bugs. This driver is for forecasts.
//! [`Machine`] models processors, network and storage, and simulated time follows from these models. A rank acts when a
//! message arrives or when its program has more rows. Partitioner, renegotiation, routing and quiescence are the
//! product's code. A cost model (`storage_model`) replaces the writer: no data is stored.
//!
//! Runs are deterministic: the same seed, machine and program give the same events. A heap orders events by time. An
//! event for a busy rank is deferred until the rank is free. Partition tables and the messages that carry them are
//! identical on all ranks, so the simulator stores them once. [`RankBytes`] still counts them for every rank, as in a
//! real job.
//!
//! `options` defines the machine and the job, `job` runs an epoch of its ranks (`virtual_rank`), `network` carries
//! messages, `processors` schedules computation, `background` flushes memtables, `storage_model` models storage,
//! `manifest` estimates the size of the manifest, and `report` contains the results.

mod background;
mod job;
mod manifest;
mod network;
mod options;
mod processors;
mod report;
mod storage_model;
mod virtual_rank;

pub use job::{MachineError, MachineJob, Program};
pub use manifest::manifest_bytes;
pub use options::{Costs, Link, Machine, MachineOptions, StorageModel};
pub use report::{MachineReport, MessageTotals, RankBytes, Round};
pub use storage_model::Stored;
