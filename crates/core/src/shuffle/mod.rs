//! One rank's engine: routes records to receivers, negotiates the partition table, and detects when all records have
//! arrived.
//!
//! The engine is a state machine: its inputs are records and messages, its outputs are messages, delivered records and
//! [`Event`]s. The engine has no clock and no threads and does no I/O, so the same code runs in one process, over MPI
//! and in the simulator. A runtime calls [`Engine::exchange`] with the rank's [`Transport`] and [`Receiver`], and
//! [`Engine::idle`] when no message moved.
//!
//! An epoch (a *session* here, counted from 1) passes through these phases on every rank:
//!
//! ```text
//! Idle -begin-> Opening -Go-> Open -end-> Ending -all records sent-> Settled -Closed-> Sealing -Outcome-> Idle
//! ```
//!
//! Invariants:
//! - [`Engine::advance`] never waits for another rank. It takes as many rows as the bounded buffers hold, and `Append`
//!   stores the position.
//! - Every record taken by an `advance` is passed to exactly one `deliver` call on exactly one rank. Spilled records
//!   are delivered on the rank that took them.
//! - `Closed` is sent only when the number of records delivered on all ranks equals the number originated on all ranks.
//! - A rank routes by its current table while a newer one is negotiated. Receivers detect strays by their own table,
//!   and buffer batches routed by a newer table until that table arrives.
//!
//! Modules: `engine` holds and drives the state. Its submodules are `append` (routing), `forward` (records of other
//! ranks), `negotiation` (tables), `prior` (the table that an epoch begins with), `receivers` (how many ranks store an
//! epoch), `quiescence` (the end of an epoch), `order` (valid control messages per phase), `session` (the state of one
//! epoch) and `state` (queries of runtimes). `backpressure` decides when an append waits and when it spills, and
//! `rebalancing` whether a table pays. `receiver` is the interface for delivered records. `last_epoch` holds what is
//! kept of an epoch, `round` and `counts` sums over a subtree. `message` and `wire` define the messages, `outbox` the
//! batches, and `options` the job's parameters. `placement` assigns partitions to ranks. `topology` computes the routes
//! of records and `tree` those of control messages. `peers` counts the ranks that records were exchanged with.

mod backpressure;
mod counts;
mod engine;
mod last_epoch;
mod message;
mod metrics;
mod options;
mod outbox;
mod peers;
mod placement;
mod rebalancing;
mod receiver;
mod round;
mod topology;
mod transport;
mod tree;
mod wire;

pub use backpressure::{Action, Backpressure, Pressure, Progress, Spill, Timeouts};
pub use engine::{Append, Engine, Event, Payloads};
pub use message::{ControlPurpose, Failure, assigned_partitions, control_name};
pub use metrics::EngineMetrics;
pub use options::{EngineOptions, Prior, Renegotiation, Routing};
pub use outbox::BatchMemory;
pub use peers::Peers;
pub use receiver::Receiver;
pub use topology::Topology;
pub use transport::{Channel, Sent, Transport};
pub use wire::MessageError;
