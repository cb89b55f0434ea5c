//! Targets for libFuzzer, for all code in Turbidite that reads bytes.
//!
//! `core` and `sources` use the public interfaces of the crates. `preload` tests the preload library's configuration.
//! That library has no Rust interface, so its private module is compiled here by path, unchanged. `docs/reliability.md`
//! lists the fuzzed and the unfuzzed code.

pub mod core;
pub mod preload;
pub mod sources;

#[allow(dead_code, unreachable_pub, reason = "as it stands in the preload library")]
#[path = "../../crates/preload/src/config.rs"]
mod config;

/// Removes libFuzzer's hook, which ends the process on every panic. Some libraries panic on corrupt input, and the code
/// that catches these panics is also under test. A panic that escapes a target still ends the process.
pub fn let_panics_be_caught() {
    std::panic::set_hook(Box::new(|_| {}));
}

/// A function that returns the seeds of a corpus.
type Seeds = fn() -> Vec<Vec<u8>>;

/// All targets by name, with their seeds.
pub const ALL: [(&str, fn(&[u8]), Seeds); 15] = [
    ("dataset", core::dataset::target, core::dataset::seeds),
    ("descriptor", core::descriptor::target, core::descriptor::seeds),
    ("engine", core::engine::target, core::engine::seeds),
    ("expression", core::expression::target, core::expression::seeds),
    ("levels", core::levels::target, core::levels::seeds),
    ("manifest", core::manifest::target, core::manifest::seeds),
    ("part", core::part::target, core::part::seeds),
    ("partition", core::partition::target, core::partition::seeds),
    ("rank", core::rank::target, core::rank::seeds),
    ("recovery", core::recovery::target, core::recovery::seeds),
    ("sidecar", core::sidecar::target, core::sidecar::seeds),
    ("vpic", sources::vpic, sources::vpic_seeds),
    ("layout", sources::layout, sources::layout_seeds),
    ("parquet", sources::parquet, sources::parquet_seeds),
    ("preload", preload::target, preload::seeds),
];
