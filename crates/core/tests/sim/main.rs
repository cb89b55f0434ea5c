//! The whole job, simulated from a seed: ranks with the real engines, writers, store and commit protocol, driven by the real
//! [`RankJob`](turbidite::RankJob), over a network that delays and a storage that fails, crash after crash.
//!
//! Map: `history` is one job from its first launch to its last; `job` what the program on each rank does; `world` whose
//! turn it is; `network` messages; `disk` files, `faults` what goes wrong with them; `model` what must be there; `reader`
//! queries at any moment; `audit` a committed epoch byte for byte; `coverage` what was met; `workload` the records.
//!
//! Invariant: everything that happens follows from the seed. Identities are drawn at random by the product, so nothing
//! here may depend on them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod audit;
mod coverage;
mod disk;
mod faults;
mod history;
mod job;
mod model;
mod network;
mod random;
mod reader;
mod sweep;
mod trace;
mod workload;
mod world;
