//! A dead writer's part file: its seals, and the salvage of its runs.

use std::path::Path;
use std::sync::Arc;

use turbidite::storage::{ALIGNMENT, Storage};
use turbidite::store::{DatasetPaths, salvage};
use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_64;

use super::levels;
use super::sample::{ROOT, Sample, UNFINISHED, identity};
use super::script::Script;
use super::space_sample::{EPOCH, SpaceSample};

const SEAL_MAGIC: &[u8; 8] = b"TBDTSEAL";

/// Offset of the number of columns with bounds in a seal (FORMAT.md). The bounds follow, 16 bytes a column, and then
/// the number of row groups.
const BOUNDED_AT: usize = 52;

/// The choice of a part of a level of detail.
const OF_LEVEL: u8 = 2;

const GROUP_BYTES: usize = 32;
const TRAILER_BYTES: usize = 24;

/// Returns the seeds of the corpus.
pub fn seeds() -> Vec<Vec<u8>> {
    let unfinished = DatasetPaths::new(ROOT).unfinished();
    let sample = Sample::new();
    let parts = sample.files.iter().filter(|(path, _)| path.starts_with(&unfinished));
    let mut seeds: Vec<Vec<u8>> = parts.map(|(_, content)| [&[0][..], content].concat()).collect();
    let (path, _) = of_level();
    let content = levels::sample().files.iter().find(|file| layout().epoch(EPOCH).join(&path) == file.0);
    seeds.extend(content.map(|(_, content)| [&[OF_LEVEL][..], content].concat()));
    seeds
}

fn layout() -> DatasetPaths {
    DatasetPaths::new(ROOT)
}

/// Returns the path of the part of the highest level in the folder of its epoch, and the commit. The level is in
/// proportion to a column, so seals state its intervals.
fn of_level() -> (String, Uuid) {
    let SpaceSample { manifest, schema, .. } = levels::sample();
    let highest = manifest.parts.iter().max_by_key(|entry| entry.level).expect("there are parts");
    (highest.part.path_in_epoch(highest.level, schema), manifest.commit)
}

fn long_at(content: &[u8], at: usize) -> Option<u64> {
    content.get(at..)?.first_chunk().map(|raw| u64::from_le_bytes(*raw))
}

/// Recomputes the checksums of every seal.
fn repair(content: &mut [u8]) {
    for end in (ALIGNMENT..=content.len()).step_by(ALIGNMENT) {
        if !content[..end].ends_with(SEAL_MAGIC) {
            continue;
        }
        let Some(length) = long_at(content, end - TRAILER_BYTES) else { continue };
        let Some(start) = end.checked_sub(length as usize).filter(|_| length as usize >= 96) else { continue };
        let count_at = BOUNDED_AT + 4 + 16 * usize::from(content[start + BOUNDED_AT] & 1);
        let count = long_at(content, start + count_at).unwrap_or(0).min(64) as usize;
        for group in 0..count {
            let at = start + count_at + 8 + group * GROUP_BYTES;
            let place = long_at(content, at).zip(long_at(content, at + 8));
            let Some((offset, bytes)) = place.filter(|_| at + GROUP_BYTES <= end) else { break };
            let pages = offset.checked_add(bytes).and_then(|end| content.get(offset as usize..end as usize));
            let Some(checksum) = pages.map(xxh3_64) else { continue };
            content[at + 24..at + 32].copy_from_slice(&checksum.to_le_bytes());
        }
        let checksum = xxh3_64(&content[start..end - 16]);
        content[end - 16..end - 8].copy_from_slice(&checksum.to_le_bytes());
    }
}

/// Salvages a file.
pub fn target(data: &[u8]) {
    let mut script = Script::new(data);
    let choice = script.byte();
    let mut content = script.rest().to_vec();
    if choice & 1 == 0 {
        repair(&mut content);
    }
    let layout = layout();
    let (path, descriptor) = if choice & OF_LEVEL == 0 {
        let path = layout.attempt(UNFINISHED, identity(UNFINISHED).commit).join("part-00000.parquet");
        (path, super::dataset::sample().descriptor.clone())
    } else {
        let (path, commit) = of_level();
        (layout.attempt(EPOCH, commit).join(path), levels::sample().descriptor.clone())
    };
    let storage: Arc<dyn Storage> = Arc::new(Sample::storage(&[(path, content)]));
    let Ok(unfinished) = salvage::list(&*storage, &layout, &descriptor) else { return };
    for epoch in unfinished {
        let runs = epoch.runs();
        let salvaged = salvage::recover_into(&storage, &layout, &descriptor, &epoch, Path::new("/out"));
        let salvaged = salvaged.expect("corruption is no reason to give up");
        assert!(salvaged.runs + salvaged.corrupt.len() as u64 >= runs, "every run is copied or told of");
    }
}
