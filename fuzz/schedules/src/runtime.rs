//! Replaces the core's `runtime`.

#[path = "../../../crates/core/src/runtime/local/mailbox.rs"]
pub(super) mod mailbox;
#[path = "process.rs"]
pub(super) mod process;
#[cfg(test)]
#[path = "tests.rs"]
mod tests;
