//! Replaces the core's `shuffle`: the core's transport interface, without the engine.

#[path = "../../../crates/core/src/shuffle/transport.rs"]
mod transport;

pub(crate) use transport::{Channel, Sent, Transport};
