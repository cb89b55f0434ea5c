//! One rank's engine: routes records to receivers, negotiates the partition table, and knows when all have arrived.
//!
//! A state machine: records and messages in; messages, delivered records and [`Event`]s out. It has no clock, no
//! threads and does no I/O, so the same code runs in one process, over MPI and in the simulator. A runtime calls
//! [`Engine::exchange`] with the rank's [`Transport`] and [`Receiver`], and [`Engine::idle`] when nothing moved.
//!
//! An epoch (a *session* here, counted from 1) passes through these phases on every rank:
//!
//! ```text
//! Idle -begin-> Opening -Go-> Open -end-> Ending -all handed over-> Settled -Closed-> Sealing -Outcome-> Idle
//! ```
//!
//! Invariants
//! - [`Engine::advance`] never waits for another rank: it takes what its bounded buffers hold and says what is left.
//! - Every record an `advance` took is handed to exactly one `deliver` call on exactly one rank (here, for spills).
//! - `Closed` is sent only when the records delivered on all ranks are as many as were originated on all ranks.
//! - A rank routes with the table it has while a newer one is negotiated; receivers judge strays by their own table,
//!   and put batches routed by a table they do not have yet aside until it arrives.
//!
//! Map: `engine` is the state and what drives it, with its parts `append` (routing), `forward` (passing on others' records),
//! `negotiation` (tables), `quiescence` (the end of an epoch), `order` (which message may come when), `session` (what a new
//! epoch starts without), `state` (queries of runtimes); `backpressure` decides when an append waits and when it spills;
//! `receiver` is where records arrive;
//! `round` and `counts` are what is known of a subtree meanwhile; `message` and `wire` what is sent, `outbox` batches, `options` a
//! job's figures, `topology` and `tree` who sends records and control messages to whom, `traffic` who did.

mod backpressure;
mod counts;
mod engine;
mod figures;
mod message;
mod options;
mod outbox;
mod receiver;
mod round;
mod topology;
mod traffic;
mod transport;
mod tree;
mod wire;

pub use backpressure::{Action, Backpressure, Patience, Pressure, Progress, Spill};
pub use engine::{Append, Engine, Event, Payloads};
pub use figures::EngineFigures;
pub use message::{ControlPurpose, Failure, control_name};
pub use options::{EngineOptions, Renegotiation, Routing};
pub use outbox::BatchMemory;
pub use receiver::Receiver;
pub use topology::Topology;
pub use traffic::Peers;
pub use transport::{Channel, Sent, Transport};
pub use wire::MessageError;
