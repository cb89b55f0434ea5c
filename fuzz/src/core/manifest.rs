//! A manifest: an Arrow stream with our metadata and a checksum at the end.

use std::path::Path;

use turbidite::format::EpochManifest;
use xxhash_rust::xxh3::xxh3_64;

use super::sample::{Sample, schema};
use super::script::Script;

/// Size of the checksum and the magic.
const TRAILER_BYTES: usize = 16;

/// Returns the seeds of the corpus.
pub fn seeds() -> Vec<Vec<u8>> {
    let encoded = |manifest: &EpochManifest| manifest.encode(&schema()).expect("the columns fit");
    let seed = |bytes: Vec<u8>| [&[0], &bytes[..bytes.len() - TRAILER_BYTES]].concat();
    Sample::new().manifests.iter().map(encoded).map(seed).collect()
}

/// Reads a manifest, writes the decoded manifest and reads it again.
pub fn target(data: &[u8]) {
    let mut script = Script::new(data);
    let repair = script.byte() & 1 == 0;
    let mut bytes = script.rest().to_vec();
    if repair {
        let checksum = xxh3_64(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes.extend_from_slice(b"TBDTMANI");
    }
    let path = Path::new("1.arrow");
    let Ok(manifest) = EpochManifest::decode(bytes, path, &schema()) else { return };
    let _ = manifest.rows();
    let again = manifest.encode(&schema()).expect("what was read can be written");
    let again = EpochManifest::decode(again, path, &schema()).expect("what was written can be read");
    // The manifests are compared as text, since NaN differs from itself.
    assert_eq!(format!("{manifest:?}"), format!("{again:?}"));
}
