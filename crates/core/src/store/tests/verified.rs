//! Tests that verification finds every kind of corruption, and reports none on a correct dataset.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use xxhash_rust::xxh3::xxh3_64;

use super::super::{
    DatasetDescriptor, EpochCommit, Finding, FindingKind, IfExists, VerifyOptions, VerifyReport, load_manifest,
    verify_on,
};
use super::{PARTS, RUN_ROWS, contents, dataset, ids, open, paths, schema, write_parts};
use crate::error::Error;
use crate::format::{EpochManifest, RunKind};
use crate::schema::{Column, ColumnView, DataType, Schema, Value};
use crate::storage::{Fault, FaultStorage, MemoryStorage, Storage, read_all};
use crate::{LocalJob, WriteOptions};

fn check(storage: &Arc<dyn Storage>) -> VerifyReport {
    verify_on(storage, &paths(), &VerifyOptions { threads: 1, ..VerifyOptions::default() }, &|_| ()).unwrap()
}

fn check_with(memory: &MemoryStorage, fault: Fault) -> VerifyReport {
    check(&(Arc::new(FaultStorage::with_fault(Arc::new(memory.clone()), fault)) as Arc<dyn Storage>))
}

fn texts(findings: &[Finding]) -> String {
    findings.iter().map(|finding| format!("{finding}\n")).collect()
}

#[test]
fn a_whole_dataset_is_clean_and_fully_counted() {
    let memory = dataset(true, &[(1, 1), (2, 2), (30, 3)]);
    let storage: Arc<dyn Storage> = Arc::new(memory);
    let (done, total) = (AtomicU64::new(0), AtomicU64::new(0));
    let progress = |progress: super::super::VerifyProgress| {
        done.fetch_max(progress.done_bytes, Ordering::SeqCst);
        total.store(progress.total_bytes, Ordering::SeqCst);
    };
    let report = verify_on(&storage, &paths(), &VerifyOptions { threads: 3, ..VerifyOptions::default() }, &progress);
    let report = report.unwrap();
    assert!(report.findings.is_empty(), "{}", texts(&report.findings));
    let rows = 3 * u64::from(PARTS) * 2 * RUN_ROWS;
    // The 40 rows of a run are in row groups of 32 and 8 rows. Each of three columns has three pages with 16, 16 and 8
    // rows.
    let pages = 3 * u64::from(PARTS) * 2 * 3 * 3;
    assert_eq!((report.epochs, report.parts, report.rows, report.pages), (3, 6, rows, pages));
    assert_eq!(done.into_inner(), report.bytes);
    assert_eq!(total.into_inner(), report.bytes);
    let one = VerifyOptions { epochs: Some("2..29".parse().unwrap()), threads: 1 };
    assert_eq!(verify_on(&storage, &paths(), &one, &|_| ()).unwrap().rows, rows / 3);
}

/// Returns all files below a folder.
fn files(storage: &dyn Storage, folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in storage.list(folder).unwrap() {
        let path = folder.join(&entry.name);
        match entry.kind {
            crate::storage::FileKind::Directory => found.extend(files(storage, &path)),
            crate::storage::FileKind::File => found.push(path),
        }
    }
    found
}

#[test]
fn flipped_bytes_are_found_in_every_file_but_for_padding() {
    let memory = dataset(true, &[(1, 1)]);
    let descriptor = DatasetDescriptor::read(&memory, &paths()).unwrap();
    let manifest = load_manifest(&memory, &paths(), &descriptor, 1).unwrap();
    let mut checked = 0;
    for path in files(&memory, paths().root()) {
        let content = read_all(&memory, &path, 1 << 20).unwrap();
        let padding = |offset: usize| {
            let group = |run: &&crate::format::RowGroupEntry| paths().epoch(1).join(run.part.file_name()) == path;
            let inside =
                |run: &crate::format::RowGroupEntry| (run.offset..run.offset + run.bytes).contains(&(offset as u64));
            let part = manifest.parts.iter().find(|entry| paths().part(1, entry, &schema()) == path);
            let tail = part.is_none_or(|part| offset as u64 >= part.footer_offset);
            !tail && offset >= 4 && content[offset] == 0 && !manifest.row_groups.iter().filter(group).any(inside)
        };
        // Tests every byte near the ends of the file, and every seventh elsewhere.
        let near = |offset: usize| offset < 300 || offset + 300 > content.len();
        for offset in (0..content.len()).filter(|offset| near(*offset) || offset % 7 == 0) {
            let mask = [1, 0x80, 0xff][offset % 3];
            let report = check_with(&memory, Fault::Flip { path: path.clone(), offset: offset as u64, mask });
            let found = report.findings.iter().any(|finding| finding.kind == FindingKind::Corruption);
            assert!(found || padding(offset), "{} byte {offset}: {}", path.display(), texts(&report.findings));
            checked += u32::from(found);
        }
    }
    assert!(checked > 2000, "{checked}");
}

#[test]
fn missing_short_and_foreign_files_are_named() {
    let base = dataset(true, &[(1, 1), (2, 2)]);
    let part = paths().epoch(1).join("part-00001.parquet");
    let manifest = files(&base, &paths().manifests()).remove(0);
    let assert_corrupt = |report: &VerifyReport, path: &Path, text: &str| {
        let mut corrupt = report.findings.iter().filter(|finding| finding.kind == FindingKind::Corruption);
        let found = corrupt.any(|finding| finding.path == path && finding.to_string().contains(text));
        assert!(found, "{} {text}: {}", path.display(), texts(&report.findings));
        assert!(!report.is_clean());
    };
    for (path, text) in [(&part, "missing"), (&manifest, "missing")] {
        let memory = base.crash();
        memory.remove_file(path).unwrap();
        let report = check(&(Arc::new(memory) as Arc<dyn Storage>));
        assert_corrupt(&report, path, text);
        assert!(report.rows >= 160, "the rest is still read");
    }
    for bytes in [0, 3, 100, 5000] {
        assert_corrupt(&check_with(&base, Fault::Cut { path: part.clone(), bytes }), &part, "");
        assert_corrupt(&check_with(&base, Fault::Cut { path: manifest.clone(), bytes: bytes / 2 }), &manifest, "");
    }
    let memory = base.crash();
    let foreign = paths().epoch(2).join("part-00007.parquet");
    memory.create(&foreign).unwrap();
    assert_corrupt(&check(&(Arc::new(memory) as Arc<dyn Storage>)), &foreign, "not part of the epoch");
    let descriptor = paths().descriptor();
    assert_corrupt(
        &check_with(&base, Fault::Flip { path: descriptor.clone(), offset: 9, mask: 1 }),
        &descriptor,
        "checksum",
    );
    let memory = base.crash();
    memory.remove_file(&descriptor).unwrap();
    assert_corrupt(&check(&(Arc::new(memory) as Arc<dyn Storage>)), &descriptor, "missing");

    let kind = std::io::ErrorKind::PermissionDenied;
    let report = check_with(&base, Fault::Refuse { path: part.clone(), kind });
    assert!(report.findings.iter().any(|finding| finding.kind == FindingKind::Unreadable && finding.path == part));
    let nowhere = verify_on(&(Arc::new(MemoryStorage::new()) as _), &paths(), &VerifyOptions::default(), &|_| ());
    assert!(matches!(nowhere, Err(Error::NotADataset { .. })));
}

#[test]
fn leftovers_are_notices_only() {
    let memory = dataset(true, &[(1, 1)]);
    let storage: Arc<dyn Storage> = Arc::new(memory.clone());
    let (_lock, descriptor) = open(&storage).unwrap();
    let _attempt = EpochCommit::begin(&storage, &paths(), &descriptor, 7, IfExists::Error).unwrap();
    memory.create(&paths().manifest(8, uuid::Uuid::from_u128(8))).unwrap();
    memory.create(&paths().data().join("notes.txt")).unwrap();
    let aside = paths().leftover(9, uuid::Uuid::from_u128(9), super::super::paths::Leftover::SetAside);
    memory.create_dir_all(&aside).unwrap();
    let report = check(&storage);
    let said = texts(&report.findings);
    assert_eq!(report.findings.len(), 4, "{said}");
    assert!(report.is_clean(), "{said}");
    for text in ["unfinished epoch", "no data", "notes.txt", "interrupted"] {
        assert!(said.contains(text), "{text}: {said}");
    }
}

/// Returns the findings of a verification if `change` modifies the manifest before the commit.
fn with_manifest(change: impl Fn(&mut EpochManifest)) -> String {
    let memory = dataset(true, &[]);
    let storage: Arc<dyn Storage> = Arc::new(memory.clone());
    let (lock, descriptor) = open(&storage).unwrap();
    let commit = EpochCommit::begin(&storage, &paths(), &descriptor, 1, IfExists::Error).unwrap().unwrap();
    let mut manifest = write_parts(&storage, &commit, 1).unwrap();
    change(&mut manifest);
    commit.commit(manifest).unwrap();
    lock.release().unwrap();
    let report = check(&storage);
    assert!(!report.is_clean());
    texts(&report.findings)
}

#[test]
fn every_number_of_the_manifest_is_compared_with_the_data() {
    assert_eq!(contents(&dataset(true, &[(1, 1)]))[&1], ids(1));
    type Change = fn(&mut EpochManifest);
    let changes: [(Change, &str); 16] = [
        (|manifest| manifest.metrics.rows += 1, "states 161 records"),
        (|manifest| manifest.metrics.strays = 3, "3 strays"),
        (|manifest| manifest.metrics.spills = 3, "3 spilled"),
        (|manifest| manifest.metrics.nan_keys = 1, "1 records with a NaN key"),
        (|manifest| manifest.row_groups.to_mut()[2].rows += 1, "number of records differs"),
        (|manifest| manifest.row_groups.to_mut()[2].checksum ^= 1, "checksum mismatch with the manifest"),
        (|manifest| manifest.row_groups.to_mut()[2].bytes -= 1, "checksum mismatch with the manifest"),
        (|manifest| manifest.row_groups.to_mut()[2].offset += 1, "begins at byte"),
        (|manifest| manifest.row_groups.to_mut()[2].row_group = 9, "row group 9"),
        (|manifest| drop(manifest.row_groups.to_mut().remove(2)), "4 row groups, the manifest has 3"),
        (
            |manifest| manifest.row_groups.to_mut()[2].columns[0].range = Some((Value::Float(0.0), Value::Float(1e9))),
            "'energy'",
        ),
        (|manifest| manifest.row_groups.to_mut()[2].columns[1].range = Some((Value::Int(7), Value::Int(2000))), "'id'"),
        (|manifest| manifest.row_groups.to_mut()[2].columns[0].nan_count = 1, "1 NaN"),
        (
            |manifest| manifest.row_groups.to_mut()[2].bounds = Some((Value::Float(1000.0), Value::Float(2000.0))),
            "outside its partition",
        ),
        (|manifest| manifest.row_groups.to_mut()[2].kind = RunKind::NanKey, "run of NaN keys, but has other keys"),
        (|manifest| manifest.row_groups.to_mut()[2].table_version = 5, "seal of run"),
    ];
    for (change, text) in changes {
        let said = with_manifest(change);
        assert!(said.contains(text), "{text}: {said}");
    }
    // Two runs are listed as one. Each of them is sorted, but their concatenation is not.
    let said = with_manifest(|manifest| manifest.row_groups.to_mut().iter_mut().for_each(|run| run.run = 0));
    assert!(said.contains("do not ascend"), "{said}");
}

/// Returns the bytes of a Thrift integer, as in a footer.
fn thrift_integer(number: u64) -> Vec<u8> {
    let (mut left, mut bytes) = (number << 1, Vec::new());
    while left >= 0x80 {
        bytes.push(left as u8 | 0x80);
        left >>= 7;
    }
    bytes.push(left as u8);
    bytes
}

/// The footer and the manifest state where filters are. Queries use the manifest, and other engines the footer.
#[test]
fn filters_that_the_footer_misplaces_are_found() {
    let memory = Arc::new(MemoryStorage::new());
    let schema = Schema::new(vec![Column::new("id", DataType::U32)], "hash:id").unwrap();
    let job = LocalJob::open_with(memory.clone(), paths().root(), schema.clone(), WriteOptions::new(1)).unwrap();
    job.begin_epoch(1).unwrap();
    job.append(0, &[ColumnView::from(&(0..1_000u32).collect::<Vec<_>>())]).unwrap();
    job.end_epoch().unwrap();
    job.close().unwrap();
    let storage: Arc<dyn Storage> = memory.clone();
    assert!(check(&storage).findings.is_empty());
    let descriptor = DatasetDescriptor::read(&*storage, &paths()).unwrap();
    let mut manifest = load_manifest(&*storage, &paths(), &descriptor, 1).unwrap();
    let entry = &mut manifest.parts[0];
    let path = paths().part(1, entry, &descriptor.schema);
    let mut content = read_all(&*storage, &path, 1 << 20).unwrap();
    // Field 14 of a chunk's metadata, an i64 that follows field 12.
    let stated = [vec![0x26], thrift_integer(entry.filter_offset.unwrap())].concat();
    let footer = entry.footer_offset as usize;
    let places: Vec<usize> = content
        .windows(stated.len())
        .enumerate()
        .skip(footer)
        .filter(|(_, bytes)| *bytes == stated)
        .map(|(at, _)| at)
        .collect();
    assert_eq!(places.len(), 1);
    content[places[0] + 1] ^= 0x04;
    entry.footer_checksum = xxh3_64(&content[footer..]);
    let encoded = manifest.encode(&schema).unwrap();
    for (path, content) in [(path, content), (paths().manifest(1, manifest.commit), encoded)] {
        memory.remove_file(&path).unwrap();
        memory.create(&path).unwrap().write_at(0, &content).unwrap();
    }
    let found = check(&storage).findings;
    assert!(texts(&found).contains("the footer states a filter in bytes"), "{}", texts(&found));
    assert_eq!(found.len(), 1, "{}", texts(&found));
}

/// Nothing but the dataset's description tells how many levels there are.
#[test]
fn a_manifest_with_levels_that_the_dataset_lacks_is_corrupt() {
    let memory = dataset(true, &[(1, 1)]);
    let storage: Arc<dyn Storage> = Arc::new(memory.clone());
    let descriptor = DatasetDescriptor::read(&*storage, &paths()).unwrap();
    let mut manifest = load_manifest(&*storage, &paths(), &descriptor, 1).unwrap();
    let part = manifest.parts[1].part;
    manifest.parts[1].level = 2;
    manifest.row_groups.to_mut().iter_mut().filter(|group| group.part == part).for_each(|group| group.level = 2);
    let encoded = manifest.encode(&schema()).unwrap();
    let path = paths().manifest(1, manifest.commit);
    memory.remove_file(&path).unwrap();
    memory.create(&path).unwrap().write_at(0, &encoded).unwrap();
    let error = load_manifest(&*storage, &paths(), &descriptor, 1).unwrap_err().to_string();
    assert!(error.contains("part-00001.parquet has the level 2, but the highest is 0"), "{error}");
    assert!(texts(&check(&storage).findings).contains("has the level 2"));
}
