//! One rank's engine: routes records to receivers, negotiates the partition table, and detects when all records have
//! arrived.
//!
//! A state machine: records and messages in; messages, delivered records and [`Event`]s out. It has no clock, no
//! threads and does no I/O, so the same code runs in one process, over MPI and in the simulator. A runtime calls
//! [`Engine::exchange`] with the rank's [`Transport`] and [`Receiver`], and [`Engine::idle`] when nothing moved.
//!
//! An epoch (a *session* here, counted from 1) passes through these phases on every rank:
//!
//! ```text
//! Idle -begin-> Opening -Go-> Open -end-> Ending -all records sent-> Settled -Closed-> Sealing -Outcome-> Idle
//! ```
//!
//! Invariants
//! - [`Engine::advance`] never waits for another rank: it takes as many rows as its bounded buffers hold, and `Append`
//!   keeps the position.
//! - Every record taken by an `advance` is passed to exactly one `deliver` call on exactly one rank (on this one, for
//!   spills).
//! - `Closed` is sent only when the number of records delivered on all ranks equals the number originated on all ranks.
//! - A rank routes with its current table while a newer one is negotiated; receivers judge strays by their own table,
//!   and buffer batches routed by a newer table until that table arrives.
//!
//! Map: `engine` holds the state and drives it, with its submodules `append` (routing), `forward` (records of other
//! ranks), `negotiation` (tables), `quiescence` (the end of an epoch), `order` (valid control messages per phase),
//! `session` (the state of one epoch), `state` (queries of runtimes). `backpressure` decides when an append waits and
//! when it spills. `receiver` is where records arrive. `round` and `counts` hold sums over a subtree. `message` and
//! `wire` define the messages, `outbox` the batches, `options` the job's parameters, `topology` and `tree` the routes
//! of records and of control messages, and `peers` counts the ranks that records were exchanged with.

mod backpressure;
mod counts;
mod engine;
mod message;
mod options;
mod outbox;
mod peers;
mod receiver;
mod round;
mod statistics;
mod topology;
mod transport;
mod tree;
mod wire;

pub use backpressure::{Action, Backpressure, Pressure, Progress, Spill, Timeouts};
pub use engine::{Append, Engine, Event, Payloads};
pub use message::{ControlPurpose, Failure, control_name};
pub use options::{EngineOptions, Renegotiation, Routing};
pub use outbox::BatchMemory;
pub use peers::Peers;
pub use receiver::Receiver;
pub use statistics::EngineStatistics;
pub use topology::Topology;
pub use transport::{Channel, Sent, Transport};
pub use wire::MessageError;
