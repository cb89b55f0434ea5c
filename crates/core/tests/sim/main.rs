//! Simulates the whole job from a seed. The ranks use the product's engines, writers, store and commit protocol, and
//! are driven by the product's [`RankJob`](turbidite::RankJob). The network has delays, the storage has faults, and one
//! crash follows another.
//!
//! `history` runs one job from its first launch to its last. `job` is the program of each rank. `world` is the
//! scheduler. `network` carries messages. `disk` executes file operations, with the faults of `faults`. `model` has the
//! expected contents. `reader` queries at any moment. `audit` checks a committed epoch byte for byte, `audit_hash` its
//! partitions and filters if it is clustered by hash, `audit_index` the entries of its indexes, and `audit_bitmap` the
//! sidecars of its bitmap indexes. `coverage` counts the covered situations. `workload` generates the records.
//!
//! Invariant: all events follow from the seed. The product draws identities at random, so no decision here may depend
//! on them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod audit;
mod audit_bitmap;
mod audit_hash;
mod audit_index;
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
