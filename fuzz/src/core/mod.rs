//! Targets for the core's code that reads bytes, through its public interface. Each target is one function, which
//! returns for any input. A panic is a finding. Checksums would stop a fuzzer, so targets recompute them first, unless
//! a choice of the script disables this.
//!
//! The same functions replay the corpora as ordinary tests (`crates/core/tests/integration/corpora.rs`).

pub mod corruption;
pub mod dataset;
pub mod descriptor;
pub mod engine;
pub mod expression;
pub mod levels;
pub mod manifest;
pub mod part;
pub mod partition;
pub mod rank;
pub mod recovery;
pub mod sample;
pub mod script;
pub mod sidecar;
pub mod space_sample;
pub mod wire;
