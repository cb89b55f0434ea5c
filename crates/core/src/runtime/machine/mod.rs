//! A job on a modelled machine: the real engines of up to hundreds of thousands of virtual ranks, in the model's time.
//!
//! [`super::sim`] is an adversary: it delays and reorders at random to find defects. This driver is a planner: a stated
//! model of processors, network and storage defines the time ([`Machine`]), a rank acts when a message arrives or its
//! program has more to append, and the outcome forecasts that machine. Partitioner, renegotiation, routing and
//! quiescence are the real code; of the writer only the costs are modelled (`store`), since no data is stored.
//!
//! One seed and one machine give one history. Events wait in a heap by time; a busy rank acts when it is done. Data
//! that is identical on all ranks of a real job is stored once: partition tables, and the messages that carry them.
//! [`RankBytes`] counts them for each rank.
//!
//! Map: `job` runs an epoch, `network` carries messages, `processors` schedules computation, `store` models storage,
//! `manifest` estimates the size of the manifest, `report` has the results.

mod job;
mod manifest;
mod network;
mod options;
mod processors;
mod report;
mod store;

pub use job::{MachineError, MachineJob, Program};
pub use manifest::manifest_bytes;
pub use options::{Costs, Link, Machine, MachineOptions, StorageModel};
pub use report::{MachineReport, RankBytes, Round, Traffic};
pub use store::Stored;
