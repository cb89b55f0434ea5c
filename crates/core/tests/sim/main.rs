//! The whole job, simulated from a seed: ranks with the real engines, writers, store and commit protocol, driven by the
//! real [`RankJob`](turbidite::RankJob), over a network with delays and a storage with faults, crash after crash.
//!
//! Map: `history` is one job from its first launch to its last; `job` the program on each rank; `world` the scheduler;
//! `network` messages; `disk` files, `faults` their faults; `model` the expected contents; `reader` queries at any
//! moment; `audit` a committed epoch byte for byte; `coverage` the situations covered; `workload` the records.
//!
//! Invariant: all events follow from the seed. Identities are drawn at random by the product, so no decision here may
//! depend on them.

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
