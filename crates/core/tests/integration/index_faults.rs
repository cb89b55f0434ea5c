//! Tests of indexes that cannot be read, and of calls on indexes while another process changes them.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use turbidite::format::EpochManifest;
use turbidite::query::{QueryMetrics, Source, Use};
use turbidite::storage::{Fault, FaultStorage, MemoryStorage, Storage};
use turbidite::store::{
    DatasetDescriptor, DatasetPaths, IfExists, Truncation, WriterLock, list_epochs, load_manifest, truncate_after,
    verify_on,
};
use turbidite::{
    Column, ColumnView, DataType, Dataset, ErrorClass, FindingKind, IndexBuild, IndexOptions, LocalJob, Query, Schema,
    VerifyOptions, VerifyReport, WriteOptions, drop_index_with,
};

use crate::support::wrapped::WrappedStorage;

const ROWS: u32 = 3_000;

fn schema() -> Schema {
    Schema::new(vec![Column::new("energy", DataType::F32), Column::new("id", DataType::U32)], "energy").unwrap()
}

fn paths() -> DatasetPaths {
    DatasetPaths::new("/ds")
}

/// Writes epochs of the same records.
fn write(storage: &Arc<dyn Storage>, epochs: &[u64]) {
    let job = LocalJob::open_with(storage.clone(), "/ds", schema(), WriteOptions::new(2)).unwrap();
    let ids: Vec<u32> = (0..ROWS).collect();
    let energies: Vec<f32> = ids.iter().map(|id| (id * 7 % 1_000) as f32).collect();
    for epoch in epochs {
        job.begin_epoch(*epoch).unwrap();
        job.append(0, &[ColumnView::from(&energies), ColumnView::from(&ids)]).unwrap();
        job.end_epoch().unwrap();
    }
    job.close().unwrap();
}

/// Adds what an index lacks. Returns the epochs that it lacked.
fn add(storage: &Arc<dyn Storage>, definition: &str) -> Vec<u64> {
    let (definition, options) = (definition.parse().unwrap(), IndexOptions::default());
    let mut build = IndexBuild::open_with(storage.clone(), "/ds", &definition, &options).unwrap();
    let missing = build.missing().unwrap();
    for epoch in &missing {
        build.build_epoch(*epoch, &|_| ()).unwrap();
    }
    build.close().unwrap();
    missing
}

/// Creates a dataset with some epochs and indexes.
fn dataset(epochs: &[u64], indexes: &[&str]) -> Arc<dyn Storage> {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    write(&storage, epochs);
    indexes.iter().for_each(|definition| drop(add(&storage, definition)));
    storage
}

/// Returns a storage on which every operation on a path and below it fails.
fn refusing(storage: &Arc<dyn Storage>, path: &Path) -> Arc<dyn Storage> {
    let fault = Fault::Refuse { path: path.to_owned(), kind: ErrorKind::PermissionDenied };
    Arc::new(FaultStorage::with_fault(storage.clone(), fault))
}

fn verify(storage: &Arc<dyn Storage>) -> VerifyReport {
    verify_on(storage, &paths(), &VerifyOptions::default(), &|_| ()).unwrap()
}

/// Returns the findings of some kind as text.
fn found(report: &VerifyReport, kind: FindingKind) -> Vec<String> {
    report.findings.iter().filter(|finding| finding.kind == kind).map(ToString::to_string).collect()
}

/// Replaces the content of a file.
fn overwrite(storage: &dyn Storage, path: &Path, change: impl FnOnce(Vec<u8>) -> Vec<u8>) {
    let file = storage.open(path).unwrap();
    let mut content = vec![0; file.bytes() as usize];
    file.read_at(0, &mut content).unwrap();
    storage.remove_file(path).unwrap();
    storage.create(path).unwrap().write_at(0, &change(content)).unwrap();
}

/// Flips a byte in the middle of a part of an epoch of the records.
fn corrupt(storage: &dyn Storage, epoch: u64) {
    let folder = paths().epoch(epoch);
    let part = folder.join(&storage.list(&folder).unwrap()[0].name);
    overwrite(storage, &part, |mut content| {
        let middle = content.len() / 2;
        content[middle] ^= 1;
        content
    });
}

#[test]
fn an_index_that_cannot_be_read_hides_no_finding_about_the_records() {
    for index in ["id", "bitmap:id"] {
        let storage = dataset(&[1, 2], &[index]);
        corrupt(&*storage, 2);
        let whole = verify(&storage);
        let of_records = found(&whole, FindingKind::Corruption);
        assert!(!of_records.is_empty() && of_records[0].contains("epoch=2"), "{of_records:?}");
        assert_eq!(whole.indexes, 1);
        for path in [paths().index(index).root().to_owned(), paths().index(index).control(), paths().indexes()] {
            let report = verify(&refusing(&storage, &path));
            let story = format!("{}: {:?}", path.display(), report.findings);
            assert_eq!(found(&report, FindingKind::Corruption), of_records, "{story}");
            assert_eq!((report.epochs, report.rows), (whole.epochs, whole.rows), "{story}");
            let unreadable = found(&report, FindingKind::Unreadable);
            assert!(!unreadable.is_empty(), "{story}");
            assert!(unreadable.iter().all(|finding| finding.contains(path.to_str().unwrap())), "{story}");
        }
    }
}

#[test]
fn an_index_of_a_newer_release_is_a_finding() {
    let storage = dataset(&[1], &["id"]);
    let description = paths().index("id").descriptor();
    overwrite(&*storage, &description, |content| {
        let text = String::from_utf8(content).unwrap().replace("\"format_version\": 2", "\"format_version\": 9");
        let covered = text.split(",\n  \"checksum\"").next().unwrap();
        let checksum = xxhash_rust::xxh3::xxh3_64(covered.as_bytes());
        format!("{covered},\n  \"checksum\": \"{checksum:016x}\"\n}}\n").into_bytes()
    });
    let report = verify(&storage);
    let [finding] = report.findings.as_slice() else { panic!("{:?}", report.findings) };
    assert_eq!((finding.kind, finding.path.as_path()), (FindingKind::Unreadable, paths().index("id").root()));
    assert!(finding.what.contains("has format version 9"), "{finding}");
    assert_eq!((report.epochs, report.indexes, report.rows), (1, 1, u64::from(ROWS)));
}

#[test]
fn an_index_that_is_dropped_during_a_verification_is_no_finding() {
    for index in ["id", "bitmap:id"] {
        let storage = dataset(&[1, 2], &[index]);
        let counted = AtomicU64::new(0);
        let count = |_| {
            counted.fetch_add(1, Ordering::Relaxed);
        };
        let mut options = VerifyOptions::default();
        options.threads = 1;
        verify_on(&storage, &paths(), &options, &count).unwrap();
        let calls = counted.into_inner();
        for at in 0..calls {
            let storage = dataset(&[1, 2], &[index]);
            let called = AtomicU64::new(0);
            let drop_then = |_| {
                if called.fetch_add(1, Ordering::Relaxed) == at {
                    drop_index_with(&storage, "/ds", index, &IndexOptions::default()).unwrap();
                }
            };
            let report = verify_on(&storage, &paths(), &options, &drop_then).unwrap();
            assert!(report.findings.is_empty(), "{index}, {at} of {calls}: {:?}", report.findings);
            assert_eq!((report.rows, report.indexes), (2 * u64::from(ROWS), 0), "{index}, {at} of {calls}");
        }
    }
}

/// Writes the lock file of an index as a process of another host.
fn lock_elsewhere(storage: &dyn Storage, index: &str) {
    let holder = r#"{"token":"0123456789abcdef0123456789abcdef","host":"elsewhere","boot":"","namespace":"","#;
    let holder = format!("{holder}{}", r#""process":1,"started":null,"job":null}"#);
    let index = paths().index(index);
    storage.create_dir_all(&index.control()).unwrap();
    storage.create(&index.lock()).unwrap().write_at(0, holder.as_bytes()).unwrap();
}

fn truncate(storage: &Arc<dyn Storage>, last: u64, break_lock: bool) -> Truncation {
    let descriptor = DatasetDescriptor::read(&**storage, &paths()).unwrap();
    let (lock, _) = WriterLock::acquire(storage, &paths(), break_lock).unwrap();
    let truncation = truncate_after(storage, &paths(), &descriptor, last, break_lock).unwrap();
    lock.release().unwrap();
    truncation
}

#[test]
fn entries_of_removed_epochs_are_reported_and_removed_by_the_next_build() {
    let indexes = ["id", "bitmap:id"];
    let storage = dataset(&[1, 2, 3], &indexes);
    indexes.iter().for_each(|index| lock_elsewhere(&*storage, index));
    let truncation = truncate(&storage, 1, false);
    assert_eq!((truncation.removed.as_slice(), truncation.lock_notices.len()), (&[2, 3][..], 0));
    let stale: Vec<_> = truncation.stale.iter().map(|index| index.path.clone()).collect();
    assert_eq!(stale, indexes.map(|index| paths().index(index).root().to_owned()));
    for index in &truncation.stale {
        let text = index.to_string();
        assert!(text.contains("elsewhere") && text.contains("'turbidite index add'"), "{text}");
    }
    let report = verify(&storage);
    assert!(report.is_clean(), "{:?}", report.findings);
    let notices = found(&report, FindingKind::Notice);
    for (index, epochs) in [("id", ["epoch=2", "epoch=3"]), ("bitmap:id", ["/2.", "/3."])] {
        for epoch in epochs {
            let of_epoch = |notice: &&String| notice.contains(&format!("/{index}/")) && notice.contains(epoch);
            assert_eq!(notices.iter().filter(of_epoch).count(), 1, "{index}, {epoch}: {notices:?}");
        }
    }
    assert_eq!(notices.len(), 4, "{notices:?}");
    for index in indexes {
        storage.remove_file(&paths().index(index).lock()).unwrap();
        assert_eq!(add(&storage, index), Vec::<u64>::new());
    }
    assert_eq!(list_epochs(&*storage, &paths().index("id")).unwrap(), [1]);
    assert!(verify(&storage).findings.is_empty());
}

#[test]
fn a_truncation_breaks_the_locks_of_indexes_on_request() {
    let indexes = ["id", "bitmap:id"];
    let storage = dataset(&[1, 2], &indexes);
    indexes.iter().for_each(|index| lock_elsewhere(&*storage, index));
    let truncation = truncate(&storage, 2, true);
    assert!(truncation.removed.is_empty() && truncation.lock_notices.is_empty(), "nothing is to be removed");
    let truncation = truncate(&storage, 1, true);
    assert_eq!((truncation.removed.as_slice(), truncation.stale.len()), (&[2][..], 0), "{:?}", truncation.stale);
    let notices: Vec<_> = truncation.lock_notices.iter().map(ToString::to_string).collect();
    assert!(notices.len() == 2 && notices.iter().all(|notice| notice.contains("elsewhere")), "{notices:?}");
    assert!(verify(&storage).findings.is_empty());
}

#[test]
fn an_index_that_cannot_be_listed_is_reported_by_a_truncation() {
    let storage = dataset(&[1, 2], &["id"]);
    for path in [paths().indexes(), paths().index("id").data()] {
        let storage = refusing(&storage, &path);
        let truncation = truncate(&storage, 1, false);
        let [index] = truncation.stale.as_slice() else { panic!("{:?}", truncation.stale) };
        assert!(path.starts_with(&index.path) && index.to_string().contains("permission denied"), "{index}");
    }
}

/// Entries are committed before their records. A job that dies between the two leaves entries of no epoch, which the
/// next writer of the index removes.
#[test]
fn entries_whose_records_were_never_committed_are_removed() {
    let indexed = |storage: Arc<dyn Storage>| -> turbidite::Result<()> {
        let mut options = WriteOptions::new(1);
        (options.break_lock, options.indexes) = (true, vec!["id".parse()?]);
        let job = LocalJob::open_with(storage, "/ds", schema(), options)?;
        job.begin_epoch(2)?;
        job.append(0, &[ColumnView::from(&[0.5f32, 1.5][..]), ColumnView::from(&[1u32, 2][..])])?;
        job.end_epoch()?;
        job.close()
    };
    let counted = FaultStorage::new(dataset(&[1], &["id"]));
    indexed(Arc::new(counted.clone())).unwrap();
    let operations = counted.counters().operations;
    let mut stale = 0;
    for at in 0..operations {
        let storage = dataset(&[1], &["id"]);
        let killed = Arc::new(FaultStorage::with_fault(storage.clone(), Fault::Kill { at, torn: false }));
        let is_done = indexed(killed).is_ok();
        let records = list_epochs(&*storage, &paths()).unwrap();
        if list_epochs(&*storage, &paths().index("id")).unwrap() == records {
            continue;
        }
        stale += 1;
        assert!(!is_done);
        assert_eq!(records, [1], "killed at {at} of {operations}");
        let notices = found(&verify(&storage), FindingKind::Notice);
        assert!(notices.iter().any(|notice| notice.contains("/id/data/epoch=2")), "{notices:?}");
        let options = IndexOptions { break_lock: true, ..IndexOptions::default() };
        let build = IndexBuild::open_with(storage.clone(), "/ds", &"id".parse().unwrap(), &options).unwrap();
        assert_eq!(build.missing().unwrap(), Vec::<u64>::new());
        build.close().unwrap();
        assert_eq!(list_epochs(&*storage, &paths().index("id")).unwrap(), [1]);
    }
    assert!(stale > 0, "no kill was between the commits");
}

#[test]
fn a_query_without_a_list_of_the_indexes_says_so() {
    let storage = refusing(&dataset(&[1], &["id", "bitmap:id"]), &paths().indexes());
    let dataset = Dataset::open_with(storage, "/ds").unwrap();
    let cause = dataset.unlisted_indexes().unwrap().to_string();
    assert!(cause.contains("/ds/_turbidite/index") && cause.contains("permission denied"), "{cause}");
    assert_eq!(dataset.ignored_corruption(), 1);
    let query = Query::new().filter("id < 10");
    let (rows, metrics) = dataset.count(&query).unwrap();
    assert_eq!((rows, metrics.corrupt_indexes), (10, 1));
    assert_eq!(dataset.count_from(&query, Source::Bounds).unwrap().metrics.corrupt_indexes, 1);
    let mut stream = dataset.run(&query).unwrap();
    assert_eq!((&mut stream).map(|batch| batch.unwrap().num_rows()).sum::<usize>(), 10);
    assert_eq!(stream.metrics().corrupt_indexes, 1);
    for name in ["id", "bitmap:id"] {
        let error = dataset.count(&query.clone().using(Use::Index(name.into()))).unwrap_err();
        assert_eq!(
            (error.to_string(), error.class()),
            (format!("index '{name}' cannot be used: {cause}"), ErrorClass::Failed)
        );
    }
}

#[test]
fn a_dataset_whose_indexes_are_listed_has_no_such_warning() {
    for indexes in [&[][..], &["id"]] {
        let dataset = Dataset::open_with(dataset(&[1], indexes), "/ds").unwrap();
        assert!(dataset.unlisted_indexes().is_none());
        assert_eq!(dataset.count(&Query::new().filter("id < 10")).unwrap().1.corrupt_indexes, 0);
    }
}

/// Another removal of an index, or a build, removes what this one has renamed, too.
#[test]
fn two_removals_may_meet() {
    for index in ["id", "bitmap:id"] {
        let memory = Arc::new(MemoryStorage::new());
        let storage: Arc<dyn Storage> = memory.clone();
        write(&storage, &[1]);
        add(&storage, index);
        let removed = Arc::new(AtomicU64::new(0));
        let (other, counted) = (memory.clone(), removed.clone());
        let meeting: Arc<dyn Storage> = Arc::new(WrappedStorage::of_renamed(memory, move |_, to| {
            if to.to_string_lossy().contains("/.removed-") && to.parent() == Some(&paths().indexes()) {
                other.remove_dir_all(to).unwrap();
                counted.fetch_add(1, Ordering::Relaxed);
            }
        }));
        drop_index_with(&meeting, "/ds", index, &IndexOptions::default()).unwrap();
        assert_eq!(removed.load(Ordering::Relaxed), 1);
        assert!(storage.list(&paths().indexes()).unwrap().is_empty());
        assert_eq!(add(&storage, index), [1]);
    }
}

/// Returns the files below a folder that were read since the last call.
fn files_read(storage: &FaultStorage, folder: &Path) -> BTreeSet<PathBuf> {
    storage.take_events().into_iter().map(|event| event.path).filter(|path| path.starts_with(folder)).collect()
}

/// The manifest of stale entries is read by the first query, and kept until the index has entries of the records.
#[test]
fn a_stale_index_is_read_once() {
    let memory = dataset(&[1], &["id"]);
    let storage = FaultStorage::new(memory.clone());
    let mut options = WriteOptions::new(1);
    options.if_exists = IfExists::Replace;
    let job = LocalJob::open_with(memory.clone(), "/ds", schema(), options).unwrap();
    let ids: Vec<u32> = (0..100_000).collect();
    let energies: Vec<f32> = ids.iter().map(|id| (id % 1_000) as f32).collect();
    job.begin_epoch(1).unwrap();
    job.append(0, &[ColumnView::from(&energies), ColumnView::from(&ids)]).unwrap();
    job.end_epoch().unwrap();
    job.close().unwrap();

    let index = paths().index("id");
    let opened = Dataset::open_with(Arc::new(storage.clone()), "/ds").unwrap();
    let count = || opened.count(&Query::new().filter("id = 77777")).unwrap();
    let entries = |(rows, metrics): (u64, QueryMetrics)| {
        assert_eq!((rows, metrics.corrupt_indexes), (1, 0));
        metrics.entries_read
    };
    storage.take_events();
    assert_eq!(entries(count()), 0);
    let first = files_read(&storage, &index.manifests());
    assert_eq!(first.len(), 1, "{first:?}");
    for _ in 0..2 {
        assert_eq!(entries(count()), 0);
        assert_eq!(files_read(&storage, index.root()), BTreeSet::new());
    }
    assert_eq!(add(&memory, "id"), [1]);
    assert!(entries(count()) > 0);
    let second = files_read(&storage, &index.manifests());
    assert!(second.len() == 1 && second.is_disjoint(&first), "{second:?}");
}

/// A job that makes an index, and has an epoch of it.
fn job_with_index(storage: Arc<dyn Storage>) -> LocalJob {
    let mut options = WriteOptions::new(2);
    (options.break_lock, options.if_exists) = (true, IfExists::Replace);
    options.indexes = vec!["id".parse().unwrap(), "bitmap:id".parse().unwrap()];
    let job = LocalJob::open_with(storage, "/ds", schema(), options).unwrap();
    job.begin_epoch(1).unwrap();
    job.append(0, &[ColumnView::from(&[0.5f32][..]), ColumnView::from(&[1u32][..])]).unwrap();
    job.end_epoch().unwrap();
    job
}

/// The folder of an epoch that could not begin is empty, and nobody would miss it.
#[test]
fn an_epoch_that_an_index_cannot_begin_leaves_no_folder() {
    for index in ["id", "bitmap:id"] {
        let memory: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let job = job_with_index(memory.clone());
        memory.remove_file(&paths().index(index).lock()).unwrap();
        let error = job.begin_epoch(2).unwrap_err();
        assert!(error.to_string().contains(index), "{error}");
        assert_eq!(verify(&memory).unfinished, 0, "{index}");
    }
}

/// The next holder of the records' lock needs those of the indexes, too.
#[test]
fn a_job_releases_the_locks_of_its_indexes_first() {
    let memory: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let counted = FaultStorage::new(memory);
    let job = job_with_index(Arc::new(counted.clone()));
    let before = counted.counters().operations;
    job.close().unwrap();
    let operations = counted.counters().operations - before;
    let exists = |storage: &dyn Storage, paths: &DatasetPaths| storage.kind(&paths.lock()).unwrap().is_some();
    for is_closed in [true, false] {
        let mut released = 0;
        for at in 0..=operations {
            let memory: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
            let storage = FaultStorage::new(memory.clone());
            let job = job_with_index(Arc::new(storage.clone()));
            storage.add_fault(Fault::Kill { at: storage.counters().operations + at, torn: false });
            if is_closed {
                drop(job.close())
            } else {
                drop(job)
            }
            if !exists(&*memory, &paths()) {
                released += 1;
                for index in ["id", "bitmap:id"] {
                    assert!(!exists(&*memory, &paths().index(index)), "killed at {at}, closed: {is_closed}, {index}");
                }
            }
        }
        assert!(released > 0 && released <= operations, "{released} of {operations}");
    }
}

#[test]
fn a_job_reports_a_lock_of_an_index_that_it_cannot_release() {
    for index in ["id", "bitmap:id"] {
        let storage = FaultStorage::new(Arc::new(MemoryStorage::new()));
        let job = job_with_index(Arc::new(storage.clone()));
        let lock = paths().index(index).lock();
        storage.add_fault(Fault::Refuse { path: lock.clone(), kind: ErrorKind::PermissionDenied });
        let error = job.close().unwrap_err().to_string();
        assert!(error.contains(lock.to_str().unwrap()) && error.contains("permission denied"), "{error}");
        assert_eq!(storage.kind(&paths().lock()).unwrap(), None, "the other locks are released");
    }
}

/// Between the moment in which a lock file exists and the return of the call that made it, another thread of the
/// process must not take it for a leftover.
#[test]
fn a_lock_that_is_being_acquired_is_not_broken_by_its_own_process() {
    let memory = Arc::new(MemoryStorage::new());
    let inner: Arc<dyn Storage> = memory.clone();
    let tried = Arc::new(AtomicU64::new(0));
    let counted = tried.clone();
    let racing: Arc<dyn Storage> = Arc::new(WrappedStorage::of_renamed(memory, move |_, to| {
        if to == paths().lock() {
            let error = WriterLock::acquire(&inner, &paths(), true).unwrap_err().to_string();
            assert!(error.contains("of this job"), "{error}");
            counted.fetch_add(1, Ordering::Relaxed);
        }
    }));
    let (lock, notice) = WriterLock::acquire(&racing, &paths(), true).unwrap();
    assert_eq!((notice, tried.load(Ordering::Relaxed)), (None, 1));
    lock.check().unwrap();
    lock.release().unwrap();
    // A lock that could not be acquired leaves no token that protects a later one.
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    WriterLock::acquire(&refusing(&storage, &paths().lock()), &paths(), true).unwrap_err();
    WriterLock::acquire(&storage, &paths(), false).unwrap().0.release().unwrap();
}

/// Creates a dataset of one part with several row groups and an index, whose manifest then lacks a row group. A record
/// has a payload of `payload_bytes`.
fn lacking(
    definition: &str,
    payload_bytes: usize,
    row_group: impl FnOnce(&EpochManifest) -> usize,
) -> (Arc<dyn Storage>, PathBuf) {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let payload = DataType::FixedBytes(payload_bytes as u32);
    let columns =
        vec![Column::new("energy", DataType::F32), Column::new("id", DataType::U32), Column::new("payload", payload)];
    let mut options = WriteOptions::new(1);
    options.memtable_bytes = 1024 * (payload_bytes + 8);
    let job = LocalJob::open_with(storage.clone(), "/ds", Schema::new(columns, "energy").unwrap(), options).unwrap();
    let ids: Vec<u32> = (0..ROWS).collect();
    job.begin_epoch(1).unwrap();
    for ids in ids.chunks(100) {
        let energies: Vec<f32> = ids.iter().map(|id| *id as f32).collect();
        let payloads = vec![0; ids.len() * payload_bytes];
        let payloads = ColumnView::new(&payloads, payload_bytes, ids.len(), payload).unwrap();
        job.append(0, &[ColumnView::from(&energies), ColumnView::from(ids), payloads]).unwrap();
    }
    job.end_epoch().unwrap();
    job.close().unwrap();
    add(&storage, definition);
    let descriptor = DatasetDescriptor::read(&*storage, &paths()).unwrap();
    let mut manifest = load_manifest(&*storage, &paths(), &descriptor, 1).unwrap();
    assert!(manifest.parts.len() == 1 && manifest.row_groups.len() > 2, "{}", manifest.row_groups.len());
    let lost = row_group(&manifest);
    manifest.row_groups.to_mut().remove(lost);
    let path = paths().manifest(1, manifest.commit);
    overwrite(&*storage, &path, |_| manifest.encode(&descriptor.schema).unwrap());
    (storage, path)
}

#[test]
fn a_manifest_that_lacks_a_row_group_is_named() {
    let (storage, path) =
        lacking("id", 1, |manifest| manifest.row_groups.iter().position(|entry| entry.row_group == 0).unwrap());
    let (definition, options) = ("bitmap:id".parse().unwrap(), IndexOptions::default());
    let mut build = IndexBuild::open_with(storage, "/ds", &definition, &options).unwrap();
    let error = build.build_epoch(1, &|_| ()).unwrap_err().to_string();
    let (start, end) = (format!("{} is corrupt", path.display()), "does not list all row groups of part-00000.parquet");
    assert!(error.starts_with(&start) && error.contains(end), "{error}");
}

#[test]
fn an_index_that_names_records_that_do_not_exist_is_named() {
    let last = |manifest: &EpochManifest| {
        let numbers = manifest.row_groups.iter().map(|entry| entry.row_group).enumerate();
        numbers.max_by_key(|(_, number)| *number).unwrap().0
    };
    // So many rows are not kept in memory, so no scan can replace the walk.
    let (storage, _) = lacking("id", 32 << 10, last);
    let dataset = Dataset::open_with(storage, "/ds").unwrap();
    let query = Query::new().ordered_by("id").using(Use::Index("id".into()));
    let error = dataset.run(&query).unwrap().find_map(|batch| batch.err()).unwrap().to_string();
    let start = format!("{} is corrupt", paths().index("id").root().display());
    assert!(error.starts_with(&start) && error.contains("'turbidite index drop' and 'index add'"), "{error}");
}
