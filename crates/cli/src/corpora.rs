//! Replays the fuzz corpora of the command's input.

#[path = "../../../fuzz/src/replay.rs"]
mod replay;
#[allow(dead_code, unreachable_pub, reason = "the fuzzers' crate offers them")]
#[path = "../../../fuzz/src/sources.rs"]
mod targets;

#[test]
fn vpic() {
    replay::replay("vpic", targets::vpic, targets::vpic_seeds());
}

#[test]
fn layout() {
    replay::replay("layout", targets::layout, targets::layout_seeds());
}

#[test]
fn parquet() {
    replay::replay("parquet", targets::parquet, targets::parquet_seeds());
}
