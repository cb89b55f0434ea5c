//! Tests of the real command.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod answers;
mod dumps;
mod refusals;
mod support;
