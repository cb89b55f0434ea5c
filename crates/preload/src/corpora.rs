//! Replays the fuzz corpora of the preload library's input.

#[path = "../../../fuzz/src/replay.rs"]
mod replay;
#[allow(dead_code, unreachable_pub, reason = "the fuzzers' crate offers them")]
#[path = "../../../fuzz/src/preload.rs"]
mod targets;

#[test]
fn preload() {
    replay::replay("preload", targets::target, targets::seeds());
}
