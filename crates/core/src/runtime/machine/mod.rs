//! Discrete-event simulation of a job on a modelled machine: the real engines of up to hundreds of thousands of virtual
//! ranks, in simulated time.
//!
//! [`super::sim`] is for testing: it delays and reorders messages at random to find defects. This driver is for
//! forecasts. [`Machine`] models processors, network and storage, and the model determines time. A rank acts when a
//! message arrives or when its program has more to append. Partitioner, renegotiation, routing and quiescence are the
//! real code. The writer is replaced by a cost model (`storage_model`): no data is stored.
//!
//! Runs are deterministic: the same seed, machine and program give the same events. A heap orders events by time; an
//! event for a busy rank is deferred until the rank is free. Partition tables, and the messages that carry them, are
//! identical on all ranks and are stored once here. [`RankBytes`] still charges them to every rank, as in a real job.
//!
//! Map: `options` defines the machine and the job, `job` runs an epoch, `network` carries messages, `processors`
//! schedules computation, `storage_model` models storage, `manifest` estimates the size of the manifest, `report` has
//! the results.

mod job;
mod manifest;
mod network;
mod options;
mod processors;
mod report;
mod storage_model;

pub use job::{MachineError, MachineJob, Program};
pub use manifest::manifest_bytes;
pub use options::{Costs, Link, Machine, MachineOptions, StorageModel};
pub use report::{MachineReport, MessageTotals, RankBytes, Round};
pub use storage_model::Stored;
