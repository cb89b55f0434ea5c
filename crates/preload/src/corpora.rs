//! The fuzzers' target over what the preload library reads, replayed.

#[path = "../../../fuzz/src/replay.rs"]
mod replay;
#[allow(dead_code, unreachable_pub, reason = "the fuzzers' crate offers them")]
#[path = "../../../fuzz/src/preload.rs"]
mod targets;

#[test]
fn preload() {
    replay::replay("preload", targets::target, targets::seeds());
}
