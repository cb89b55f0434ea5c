//! Replays the fuzzers' corpora against the targets that read the core's formats.

#[path = "../../../../fuzz/src/replay.rs"]
mod replay;

use crate::fuzz_targets as targets;

macro_rules! replays {
    ($($name:ident),*) => {$(
        #[test]
        fn $name() {
            replay::replay(stringify!($name), targets::$name::target, targets::$name::seeds());
        }
    )*};
}

replays!(dataset, descriptor, engine, expression, levels, manifest, part, partition, rank, recovery, sidecar);
