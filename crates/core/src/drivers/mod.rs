//! Drivers: they give the state machines of engine and writer threads, messages, time and files.
//!
//! - [`local`]: all ranks in one process, the embedded default.
//! - [`sim`]: thousands of virtual ranks on one thread, repeatable from a seed.

mod gather;
pub mod local;
mod opening;
mod options;
pub mod sim;

pub use options::WriteOptions;
