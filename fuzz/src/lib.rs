//! Targets for libFuzzer, of everything in Turbidite that reads bytes.
//!
//! `core` goes through the public interface of the core. `sources` and `preload` are of modules that are private to the
//! command and to the preload library; those are compiled here by path, as they stand, so that no interface has to be opened
//! and no code built differently for a fuzzer. `docs/reliability.md` says what is fuzzed and what is not.

pub mod core;
pub mod preload;
pub mod sources;

#[allow(dead_code, unused_imports, unreachable_pub, reason = "as it stands in the command, which uses all of it")]
#[path = "../../crates/cli/src/source/mod.rs"]
mod source;

#[allow(dead_code, unreachable_pub, reason = "as above")]
#[path = "../../crates/cli/src/panics.rs"]
mod panics;

#[allow(dead_code, unreachable_pub, reason = "as it stands in the preload library")]
#[path = "../../crates/preload/src/config.rs"]
mod config;

#[allow(dead_code, unreachable_pub, reason = "as above")]
#[path = "../../crates/cli/src/source/checks.rs"]
mod checks;

#[allow(dead_code, unreachable_pub, reason = "as above")]
#[path = "../../crates/preload/src/lammps.rs"]
mod lammps;

#[allow(dead_code, unreachable_pub, reason = "as above")]
#[path = "../../crates/preload/src/vpic.rs"]
mod vpic;

#[allow(dead_code, unreachable_pub, reason = "as above")]
#[path = "../../crates/preload/src/pattern.rs"]
mod pattern;

/// Takes back libFuzzer's hook, which ends the process on every panic: some libraries panic on damage, and what catches that is
/// part of what is judged. A panic that gets out of a target ends the process all the same.
pub fn let_panics_be_caught() {
    std::panic::set_hook(Box::new(|_| {}));
}

/// What a corpus begins with.
type Seeds = fn() -> Vec<Vec<u8>>;

/// Every target by name, and its seeds.
pub const ALL: [(&str, fn(&[u8]), Seeds); 13] = [
    ("dataset", core::dataset::target, core::dataset::seeds),
    ("descriptor", core::descriptor::target, core::descriptor::seeds),
    ("engine", core::engine::target, core::engine::seeds),
    ("expression", core::expression::target, core::expression::seeds),
    ("manifest", core::manifest::target, core::manifest::seeds),
    ("part", core::part::target, core::part::seeds),
    ("partition", core::partition::target, core::partition::seeds),
    ("rank", core::rank::target, core::rank::seeds),
    ("recovery", core::recovery::target, core::recovery::seeds),
    ("vpic", sources::vpic, sources::vpic_seeds),
    ("layout", sources::layout, sources::layout_seeds),
    ("parquet", sources::parquet, sources::parquet_seeds),
    ("preload", preload::target, preload::seeds),
];
