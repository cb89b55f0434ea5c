//! A manifest: Arrow streams with our metadata and checksums at the end.

use std::path::Path;

use turbidite::Schema;
use turbidite::format::EpochManifest;
use xxhash_rust::xxh3::xxh3_64;

use super::levels;
use super::sample::{Sample, schema};
use super::script::Script;
use super::space_sample::SpaceSample;

/// Number of bytes that share a checksum (FORMAT.md).
const BLOCK_BYTES: usize = 1 << 16;

/// The choice of the schema of a dataset by space.
const OF_SPACE: u8 = 2;

/// Encodes a target's input: a choice, the offset of the directory, and the bytes that checksums cover.
fn input(manifest: &EpochManifest, schema: &Schema) -> Vec<u8> {
    let bytes = manifest.encode(schema).expect("the columns fit");
    let number = |from_end: usize| {
        let raw = bytes[bytes.len() - from_end..].first_chunk().expect("it has a trailer");
        u64::from_le_bytes(*raw) as usize
    };
    let (directory_offset, covered) = (number(32) as u32, number(24));
    let choice = if schema.levels().is_some() { OF_SPACE } else { 0 };
    [&[choice], &directory_offset.to_le_bytes()[..], &bytes[..covered]].concat()
}

/// Returns the seeds of the corpus.
pub fn seeds() -> Vec<Vec<u8>> {
    let SpaceSample { manifest: of_space, schema: schema_of_space, .. } = levels::sample();
    let plain = Sample::new().manifests.into_iter().map(|manifest| input(&manifest, &schema()));
    plain.chain([input(of_space, schema_of_space)]).collect()
}

/// Appends the checksums and the trailer.
fn seal(bytes: &mut Vec<u8>, directory_offset: u64) {
    let covered = bytes.len() as u64;
    let checksums = bytes.chunks(BLOCK_BYTES).map(xxh3_64).chain([directory_offset, covered]);
    let mut closing: Vec<u8> = checksums.flat_map(u64::to_le_bytes).collect();
    closing.extend_from_slice(&xxh3_64(&closing).to_le_bytes());
    bytes.extend(closing);
    bytes.extend_from_slice(b"TBDTMAN2");
}

/// Reads a manifest, writes the decoded manifest and reads it again.
pub fn target(data: &[u8]) {
    let mut script = Script::new(data);
    let choice = script.byte();
    let directory_offset = script.word();
    let mut bytes = script.rest().to_vec();
    if choice & 1 == 0 {
        seal(&mut bytes, directory_offset.into());
    }
    let path = Path::new("1.arrow");
    let schema = if choice & OF_SPACE == 0 { schema() } else { levels::sample().schema.clone() };
    let Ok(mut manifest) = EpochManifest::decode(bytes, path, &schema) else { return };
    let _ = manifest.rows();
    let again = manifest.encode(&schema).expect("what was read can be written");
    let mut again = EpochManifest::decode(again, path, &schema).expect("what was written can be read");
    // First keys are written only if they take a small share of the pages, and filters only by hash.
    for manifest in [&mut manifest, &mut again] {
        manifest.row_groups.to_mut().iter_mut().for_each(|run| run.pages = Default::default());
    }
    // The manifests are compared as text, since NaN differs from itself.
    assert_eq!(format!("{manifest:?}"), format!("{again:?}"));
}
