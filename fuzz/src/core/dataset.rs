//! A whole dataset with some modified bytes, lengths, files or statistics. Without recomputed checksums, every result
//! must be correct or an error that reports corruption. With recomputed checksums, every call must return.

use std::path::PathBuf;
use std::sync::OnceLock;

use turbidite::format::{EpochManifest, RunKind};
use turbidite::store::DatasetPaths;
use turbidite::{Schema, Value};
use xxhash_rust::xxh3::xxh3_64;

use super::corruption::{Answers, ask_everything};
use super::sample::{ROOT, Sample, schema};
use super::script::Script;

/// Returns the sample, which is built once.
pub fn sample() -> &'static Sample {
    static SAMPLE: OnceLock<Sample> = OnceLock::new();
    SAMPLE.get_or_init(Sample::new)
}

/// Returns the correct results.
fn answers() -> &'static Answers {
    static ANSWERS: OnceLock<Answers> = OnceLock::new();
    ANSWERS.get_or_init(|| Answers::of(&sample().files))
}

/// Returns the seeds of the corpus: one change of each kind, with and without recomputed checksums.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![vec![0], vec![1]];
    for repair in [0u8, 1] {
        for kind in 0..6u8 {
            for file in [0u8, 2, 4, 6] {
                seeds.push(vec![repair, kind, file, 0, 17, 3, 0, 0, 0x55, 9, 9, 9, 9, 9, 9, 9]);
            }
        }
        for field in 0..28u8 {
            seeds.push(vec![1, 6, field % 2, 1, field, 7, 0, 0, 0, 0, 0, 0, 0x80]);
        }
        seeds.push(vec![repair, 1, 1, 0, 8, 0, 0, 0, 3, 2, 0, 5, 0, 0, 0, 0xff]);
    }
    seeds
}

/// Runs all queries on a modified dataset.
pub fn target(data: &[u8]) {
    let mut script = Script::new(data);
    let repair = script.byte() & 1 == 1;
    let sample = sample();
    let mut files = sample.files.clone();
    let mut manifests = sample.manifests.clone();
    for _ in 0..12 {
        if script.is_over() {
            break;
        }
        change(&mut script, &mut files, &mut manifests);
    }
    if repair {
        self::repair(&mut files, &mut manifests, &schema());
        // The results may be wrong, but every call must return.
        let _ = ask_everything(&files, false);
        let _ = ask_everything(&files, true);
    } else {
        answers().compare(&ask_everything(&files, true));
    }
}

/// Makes one change to the files, or to the content of a manifest.
pub(super) fn change(script: &mut Script<'_>, files: &mut Vec<(PathBuf, Vec<u8>)>, manifests: &mut [EpochManifest]) {
    let kind = script.byte() % 7;
    if kind == 6 {
        let which = script.one_of(manifests.len());
        return restate(script, &mut manifests[which]);
    }
    if files.is_empty() {
        return;
    }
    let which = usize::from(script.byte()) % files.len();
    let content = &mut files[which].1;
    let at = script.word() as usize % (content.len() + 1);
    match kind {
        0 if at < content.len() => content[at] ^= script.byte().max(1),
        1 => content.truncate(at),
        2 => {
            let new = script.chunk();
            let end = (at + new.len()).min(content.len());
            content[at..end].copy_from_slice(&new[..end - at]);
        }
        3 => drop(content.splice(at..at, script.chunk().iter().copied())),
        4 => drop(files.remove(which)),
        5 => {
            let other = script.one_of(files.len());
            files[which].1 = files[other].1.clone();
        }
        _ => {}
    }
}

/// Changes a statistic of a manifest.
fn restate(script: &mut Script<'_>, manifest: &mut EpochManifest) {
    let field = script.byte() % 28;
    let which = usize::from(script.byte());
    let value = script.long();
    let parts = manifest.parts.len().max(1);
    if let Some(part) = manifest.parts.get_mut(which % parts) {
        match field {
            0 => part.footer_offset = value,
            1 => part.part.rank = value as u32,
            2 => part.part.roll = value as u32,
            _ => {}
        }
    }
    let float = f64::from_bits(script.long());
    let runs = manifest.row_groups.len().max(1);
    let Some(run) = manifest.row_groups.to_mut().get_mut(which % runs) else { return };
    let column = script.one_of(run.columns.len());
    match field {
        3 => run.rows = value,
        4 => run.offset = value,
        5 => run.bytes = value,
        6 => run.row_group = value as u32,
        7 => run.run = value as u32,
        8 => run.part.rank = value as u32,
        9 => run.kind = [RunKind::Regular, RunKind::Stray, RunKind::Unordered, RunKind::NanKey][value as usize % 4],
        10 => run.bounds = Some((Value::Float(float), Value::Float(value as f64))),
        11 => run.columns[column].nan_count = value,
        12 => run.columns[column].range = None,
        13 => run.columns[column].range = Some((Value::Float(float), Value::Float(value as f64))),
        14 => run.columns[column].range = Some((Value::Int(value.into()), Value::Int(value.into()))),
        15 => run.table_version = value as u32,
        16 => manifest.metrics.rows = value,
        17 => manifest.metrics.rows_per_receiver = vec![value, 1, u64::MAX],
        18 => drop(manifest.row_groups.to_mut().remove(which % runs)),
        19 => {
            let again = run.clone();
            manifest.row_groups.to_mut().push(again);
        }
        20 => manifest.row_groups.to_mut().reverse(),
        21 => manifest.row_groups.to_mut().iter_mut().for_each(|run| run.rows = value),
        22 => (manifest.metrics.strays, manifest.metrics.nan_keys) = (value, value),
        23 => run.pages = Default::default(),
        24 => run.pages.page_rows = value as u32,
        25 => (run.pages.index_offset, run.pages.index_bytes) = (value, value as u32),
        26 => run.pages.first_keys = Some(vec![value; column]),
        27 => (run.pages.page_rows, run.pages.first_keys) = (0, None),
        _ => manifest.metrics.receivers = value as u32,
    }
}

/// Recomputes the checksums of manifests and dataset.json.
pub(super) fn repair(files: &mut [(PathBuf, Vec<u8>)], manifests: &mut [EpochManifest], schema: &Schema) {
    let layout = DatasetPaths::new(ROOT);
    for manifest in manifests {
        for entry in &mut manifest.parts {
            let path = layout.part(manifest.epoch, entry, schema);
            let Some((_, content)) = files.iter().find(|file| file.0 == path) else { continue };
            entry.bytes = content.len() as u64;
            let tail = content.get(entry.footer_offset as usize..).unwrap_or_default();
            entry.footer_checksum = xxh3_64(tail);
        }
        let path = layout.manifest(manifest.epoch, manifest.commit);
        if let Some((_, content)) = files.iter_mut().find(|file| file.0 == path) {
            *content = manifest.encode(schema).expect("the columns fit");
        }
    }
    if let Some((_, content)) = files.iter_mut().find(|file| file.0 == layout.descriptor()) {
        let closing = |checksum: u64| format!(",\n  \"checksum\": \"{checksum:016x}\"\n}}\n").into_bytes();
        content.truncate(content.len().saturating_sub(closing(0).len()));
        let closing = closing(xxh3_64(content));
        content.extend_from_slice(&closing);
    }
}
