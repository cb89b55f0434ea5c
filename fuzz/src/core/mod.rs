//! What reads bytes in the core, over its public interface: one function a target. Each ends quietly whatever the bytes, or
//! panics, which is a finding. Checksums stand in a fuzzer's way: targets repair them first, unless a choice says not to.
//!
//! The same functions replay the corpora as ordinary tests (`crates/core/tests/corpora.rs`).

pub mod damage;
pub mod dataset;
pub mod descriptor;
pub mod engine;
pub mod expression;
pub mod manifest;
pub mod part;
pub mod partition;
pub mod rank;
pub mod recovery;
pub mod sample;
pub mod script;
pub mod wire;
