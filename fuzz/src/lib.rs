//! Targets for libFuzzer, of everything in Turbidite that reads bytes.
//!
//! `core` and `sources` go through the public interfaces of the crates. `preload` needs the preload library's
//! configuration, which is private to a library that has no interface in Rust: it is compiled here by path, as it stands.
//! `docs/reliability.md` says what is fuzzed and what is not.

pub mod core;
pub mod preload;
pub mod sources;

#[allow(dead_code, unreachable_pub, reason = "as it stands in the preload library")]
#[path = "../../crates/preload/src/config.rs"]
mod config;

/// Takes back libFuzzer's hook, which ends the process on every panic: some libraries panic on damage, and what catches
/// that is part of what is judged. A panic that gets out of a target ends the process all the same.
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
