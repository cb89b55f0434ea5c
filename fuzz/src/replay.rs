//! Replays the fuzz targets without a fuzzer: every input of the corpora, the seeds, and some modified copies of each,
//! derived from a fixed seed. The tests of three crates include this module. `make fuzz` searches for new inputs.

use std::path::Path;

/// Number of modified copies per input. A few are enough, since they only show that the targets still reach deep code.
const CHANGES: u64 = 8;

/// Returns a pseudo-random number for a seed.
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Returns the inputs of a target: those of its corpus, followed by its seeds.
fn inputs(name: &str, seeds: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let mut paths: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("the folder can be listed").path())
        .collect();
    paths.sort();
    assert!(!paths.is_empty() && !seeds.is_empty(), "{} has no inputs", folder.display());
    let kept = paths.iter().map(|path| std::fs::read(path).expect("it can be read"));
    kept.chain(seeds).collect()
}

/// Returns a copy with up to four changes: the copy is truncated, or bytes are inserted, overwritten or flipped.
fn changed(input: &[u8], seed: u64) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for step in 0..=mix(seed) % 4 {
        let random = mix(seed ^ step << 32);
        let at = (random >> 8) as usize % bytes.len().max(1);
        match random % 5 {
            0 => bytes.truncate(at),
            1 => drop(bytes.splice(at..at, [random as u8; 3])),
            2 if at + 8 <= bytes.len() => bytes[at..at + 8].copy_from_slice(&random.to_le_bytes()),
            _ if at < bytes.len() => bytes[at] ^= (random >> 40) as u8,
            _ => {}
        }
    }
    bytes
}

/// Runs a target on all of its inputs.
pub(crate) fn replay(name: &str, target: fn(&[u8]), seeds: Vec<Vec<u8>>) {
    for (number, input) in inputs(name, seeds).iter().enumerate() {
        target(input);
        for change in 0..CHANGES {
            let seed = mix(number as u64) ^ change;
            let bytes = changed(input, seed);
            let judged = std::panic::catch_unwind(|| target(&bytes));
            assert!(judged.is_ok(), "{name}: input {number}, changed by {seed}, is a finding: {bytes:02x?}");
        }
    }
}
