//! Integration tests of the core, through its public interface. They are one program, since each program would be
//! linked with the whole core. The simulation is a program of its own, which `tools/sim_variants.py` builds alone.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bitmap;
mod bitmap_histograms;
mod bitmap_in_situ;
mod copied_histograms;
mod corpora;
mod corruption;
mod cursors;
mod even_samples;
mod formats;
mod hash;
mod hash_keys;
mod hops;
mod hostile;
mod index;
mod index_bounds;
mod index_carried;
mod index_corruption;
mod index_faults;
mod index_in_situ;
mod index_order;
mod kills;
mod levels;
mod many_epochs;
mod periods;
mod simulation;
mod space;
mod support;

#[allow(dead_code, unreachable_pub, reason = "the fuzzers use all of it")]
#[path = "../../../../fuzz/src/core/mod.rs"]
mod fuzz_targets;
