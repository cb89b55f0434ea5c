//! Replays the fuzzers' corpora against the targets that read the core's formats.

#[path = "../../../fuzz/src/replay.rs"]
mod replay;
#[allow(dead_code, unreachable_pub, reason = "the fuzzers' crate offers them")]
#[path = "../../../fuzz/src/core/mod.rs"]
mod targets;

macro_rules! replays {
    ($($name:ident),*) => {$(
        #[test]
        fn $name() {
            replay::replay(stringify!($name), targets::$name::target, targets::$name::seeds());
        }
    )*};
}

replays!(dataset, descriptor, engine, expression, levels, manifest, part, partition, rank, recovery, sidecar);
