//! Stand-in for the core's `engine`: the real seam, without the engine.

#[path = "../../../crates/core/src/engine/transport.rs"]
mod transport;

pub(crate) use transport::{Channel, Sent, Transport};
