//! Stand-in for the core's `shuffle`: the real seam, without the engine.

#[path = "../../../crates/core/src/shuffle/transport.rs"]
mod transport;

pub(crate) use transport::{Channel, Sent, Transport};
