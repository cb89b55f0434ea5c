//! Tests of indexes that are replaced, removed, corrupt or locked, and of builds and removals that are killed.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use crate::support::files::{files, overwrite};
use crate::support::indexed::{EPOCHS, Record, add, expected, read, records, threads, write};
use turbidite::query::Use;
use turbidite::storage::{Fault, FaultStorage, FileKind, MemoryStorage, Storage};
use turbidite::store::{DatasetPaths, WriterLock, truncate_after, verify_on};
use turbidite::{Dataset, IndexBuild, IndexOptions, VerifyOptions, drop_index_with};

/// Entries of replaced data are not used, and are made again by the next build.
#[test]
fn a_replaced_epoch_has_no_index_until_it_is_built_again() {
    let storage = Arc::new(MemoryStorage::new());
    let old: Vec<(u64, Vec<Record>)> = EPOCHS.iter().map(|epoch| (*epoch, records(*epoch, 50_000))).collect();
    write(&storage, "energy", &old);
    add(&storage, "id");
    let (unchanged, id) = (format!("id = {}", old[0].1[10].1), format!("id = {}", old[1].1[10].1));
    let opened_before = Dataset::open_with(storage.clone(), "/ds").unwrap();
    assert_eq!(read(&opened_before, 20, &id, Use::Automatic, false).1.entries, 1);
    let new = records(99, 50_000);
    write(&storage, "energy", &[(20, new.clone())]);
    let reopened = Dataset::open_with(storage.clone(), "/ds").unwrap();
    for dataset in [&reopened, &opened_before] {
        for id in [4, 7, 1_000, 30_001] {
            let (numbers, read_of) = read(dataset, 20, &format!("id = {id}"), Use::Index("id".into()), false);
            assert_eq!(numbers.into_iter().collect::<BTreeSet<_>>(), expected(&new, |record| record.1 == id));
            // The other dataset has read an entry of the old data before it noticed the replacement.
            assert!(read_of.entries == 0 || std::ptr::eq(dataset, &opened_before));
        }
        assert_eq!(
            read(dataset, 10, &unchanged, Use::Automatic, false).1.entries,
            1,
            "the other epoch has its entries"
        );
    }
    assert_eq!(add(&storage, "id"), [20]);
    for dataset in [&reopened, &opened_before] {
        let (numbers, read_of) = read(dataset, 20, &format!("id = {}", new[10].1), Use::Automatic, false);
        assert_eq!(numbers, [10]);
        assert_eq!(read_of.entries, 1);
    }
    assert_eq!(add(&storage, "id"), Vec::<u64>::new(), "nothing is missing");
}

/// An index of another dataset, or of other columns, is not used.
#[test]
fn a_foreign_index_is_ignored_and_reported() {
    let storage = Arc::new(MemoryStorage::new());
    let epochs = [(10, records(5, 60_000))];
    write(&storage, "energy", &epochs);
    add(&storage, "id");
    // The same records again, as another dataset at the same path.
    let path = Path::new("/ds/_turbidite/dataset.json");
    storage.remove_file(path).unwrap();
    storage.remove_dir_all(Path::new("/ds/data/epoch=10")).unwrap();
    write(&storage, "energy", &epochs);
    let dataset = Dataset::open_with(storage.clone(), "/ds").unwrap();
    let (numbers, read_of) = read(&dataset, 10, "id = 40000", Use::Automatic, false);
    assert_eq!((numbers.len(), read_of.entries, read_of.corrupt), (1, 0, 1));
    let error = IndexBuild::open_with(storage, "/ds", &"id".parse().unwrap(), &threads(1)).unwrap_err();
    assert!(error.to_string().contains("index"), "{error}");
}

/// A changed byte of an index changes no answer, and is found by verification.
#[test]
fn corruption_of_an_index_is_reported_and_changes_no_answer() {
    let storage = Arc::new(MemoryStorage::new());
    let records = records(5, 30_000);
    write(&storage, "energy", &[(10, records.clone())]);
    add(&storage, "id");
    let of_index = files(&storage, Path::new("/ds/_turbidite/index/id"));
    assert!(of_index.len() >= 3, "{of_index:?}");
    let wanted = expected(&records, |record| (3_000..3_090).contains(&record.1));
    let (mut corrupt, mut places) = (0, 0);
    for (path, bytes) in of_index {
        for at in (0..bytes.len()).step_by(bytes.len().div_ceil(60)) {
            let mut corrupted = bytes.clone();
            corrupted[at] ^= 0x41;
            overwrite(&storage, &path, &corrupted);
            places += 1;
            let dataset = Dataset::open_with(storage.clone(), "/ds").unwrap();
            for access in [Use::Automatic, Use::Index("id".into())] {
                let (numbers, read_of) = read(&dataset, 10, "id >= 3000 AND id < 3090", access, false);
                assert_eq!(numbers.into_iter().collect::<BTreeSet<_>>(), wanted, "{} at {at}", path.display());
                corrupt += read_of.corrupt;
            }
            let shared: Arc<dyn Storage> = storage.clone();
            let report = verify_on(&shared, &DatasetPaths::new("/ds"), &VerifyOptions::default(), &|_| ()).unwrap();
            let named = |path: &Path| path.starts_with("/ds/_turbidite/index/id");
            assert!(report.findings.iter().any(|finding| named(&finding.path)), "{} at {at}", path.display());
        }
        overwrite(&storage, &path, &bytes);
    }
    assert!(corrupt > 20 && places > 100, "{corrupt} of {places}");
    // A lost index is a missing one.
    storage.remove_dir_all(Path::new("/ds/_turbidite/index/id/data/epoch=10")).unwrap();
    let dataset = Dataset::open_with(storage.clone(), "/ds").unwrap();
    assert_eq!(read(&dataset, 10, "id = 4", Use::Automatic, false).0.len(), 1);
    assert_eq!(add(&storage, "id"), [10]);
}

/// An index whose manifest is lost or corrupt is made again, and gives the rows of its own entries.
#[test]
fn an_index_without_a_readable_manifest_is_made_again() {
    let records = records(5, 50_000);
    for is_lost in [true, false] {
        let storage = Arc::new(MemoryStorage::new());
        write(&storage, "energy", &[(10, records.clone())]);
        add(&storage, "id");
        let paths = DatasetPaths::new("/ds").index("id");
        for (path, content) in files(&storage, &paths.manifests()) {
            match is_lost {
                true => storage.remove_file(&path).unwrap(),
                false => overwrite(&storage, &path, &content[..content.len() / 2]),
            }
        }
        // Parts of another number of ranks have other contents under the same names.
        let mut build =
            IndexBuild::open_with(storage.clone(), "/ds", &"id".parse().unwrap(), &IndexOptions::default()).unwrap();
        assert_eq!(build.missing().unwrap(), [10]);
        for _ in 0..2 {
            build.build_epoch(10, &|_| ()).unwrap();
        }
        assert_eq!(build.missing().unwrap(), Vec::<u64>::new());
        build.close().unwrap();
        let dataset = Dataset::open_with(storage.clone(), "/ds").unwrap();
        for id in (1..150_000).step_by(1_371) {
            let (numbers, read_of) = read(&dataset, 10, &format!("id = {id}"), Use::Index("id".into()), false);
            assert_eq!(numbers.into_iter().collect::<BTreeSet<_>>(), expected(&records, |record| record.1 == id));
            assert_eq!(read_of.corrupt, 0);
        }
        let shared: Arc<dyn Storage> = storage;
        let report = verify_on(&shared, &DatasetPaths::new("/ds"), &VerifyOptions::default(), &|_| ()).unwrap();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
    }
}

/// A dataset that is open while its index is removed, and made again in another way, goes on without it and with it.
#[test]
fn an_open_dataset_follows_an_index_that_is_removed_and_made_again() {
    let storage = Arc::new(MemoryStorage::new());
    let records = records(5, 50_000);
    write(&storage, "energy", &[(10, records.clone())]);
    add(&storage, "id");
    let dataset = Dataset::open_with(storage.clone(), "/ds").unwrap();
    let shared: Arc<dyn Storage> = storage.clone();
    let check = |access: &Use, is_used: bool| {
        for id in (1..150_000).step_by(9_371) {
            let (numbers, read_of) = read(&dataset, 10, &format!("id = {id}"), access.clone(), false);
            assert_eq!(numbers.into_iter().collect::<BTreeSet<_>>(), expected(&records, |record| record.1 == id));
            assert_eq!((read_of.corrupt, read_of.entries > 0 || !is_used), (0, true), "id {id}");
        }
    };
    check(&Use::Automatic, false);
    check(&Use::Index("id".into()), false);
    for definition in ["hash:id", "id", "hash:id"] {
        drop_index_with(&shared, "/ds", "id", &IndexOptions::default()).unwrap();
        check(&Use::Automatic, false);
        add(&storage, definition);
        check(&Use::Automatic, false);
        let (_, read_of) = read(&dataset, 10, &format!("id = {}", records[7].1), Use::Automatic, false);
        assert!(read_of.entries > 0, "{definition} is used");
    }
}

/// A removal that is killed leaves the index whole or gone. It can be removed and made again in either case.
#[test]
fn removals_are_killed_before_every_storage_operation() {
    let records = records(5, 1_500);
    let prepared = || {
        let storage = Arc::new(MemoryStorage::new());
        write(&storage, "energy", &[(10, records.clone())]);
        add(&storage, "id");
        storage
    };
    let remove = |storage: Arc<dyn Storage>| drop_index_with(&storage, "/ds", "id", &IndexOptions::default());
    let counted = FaultStorage::new(prepared());
    remove(Arc::new(counted.clone())).unwrap();
    let operations = counted.counters().operations;
    assert!(operations > 5, "{operations}");
    let wanted = expected(&records, |record| (300..330).contains(&record.1));
    let (mut failed, mut whole) = (0, 0);
    for at in 0..operations {
        let storage = prepared();
        let fault = Fault::Kill { at, torn: at % 2 == 1 };
        failed += u64::from(remove(Arc::new(FaultStorage::with_fault(storage.clone(), fault))).is_err());
        for after in [Arc::new(storage.crash()), Arc::new(storage.crash_keeping(at)), storage] {
            let story = format!("killed at operation {at} of {operations}");
            let dataset = Dataset::open_with(after.clone(), "/ds").unwrap();
            let (numbers, read_of) = read(&dataset, 10, "id >= 300 AND id < 330", Use::Automatic, false);
            assert_eq!(numbers.into_iter().collect::<BTreeSet<_>>(), wanted, "{story}");
            assert_eq!(read_of.corrupt, 0, "{story}");
            break_lock(&after);
            whole += u64::from(remove(after.clone()).is_ok());
            assert_eq!(add(&after, "id"), [10], "{story}");
            let index = Path::new("/ds/_turbidite/index");
            let names: Vec<_> = after.list(index).unwrap().into_iter().map(|entry| entry.name).collect();
            assert_eq!(names, ["id"], "{story}");
            remove(after.clone()).unwrap_or_else(|error| panic!("{story}: {error}"));
            assert!(after.list(index).unwrap().is_empty(), "{story}");
        }
    }
    assert!(failed > operations / 2 && whole > 0, "{failed} of {operations}, {whole} whole");
}

/// Folders of indexes that cannot be read do not keep a dataset from being opened, read and truncated.
#[test]
fn indexes_that_cannot_be_read_are_ignored() {
    let records = records(5, 60_000);
    let (paths, index) = (DatasetPaths::new("/ds"), DatasetPaths::new("/ds").index("id"));
    for path in [paths.indexes(), index.descriptor(), index.data(), index.manifests()] {
        let place = path.display();
        let storage = Arc::new(MemoryStorage::new());
        write(&storage, "energy", &[(10, records.clone()), (20, records.clone())]);
        add(&storage, "id");
        match storage.kind(&path).unwrap().unwrap() {
            FileKind::Directory => {
                storage.remove_dir_all(&path).unwrap();
                storage.create(&path).unwrap();
            }
            FileKind::File => {
                storage.remove_file(&path).unwrap();
                storage.create_dir_all(&path).unwrap();
            }
        }
        let dataset = Dataset::open_with(storage.clone(), "/ds").unwrap();
        let (numbers, read_of) = read(&dataset, 10, "id = 40000", Use::Automatic, false);
        assert_eq!((numbers.len(), read_of.entries), (1, 0), "{place}");
        // A list that cannot be read may have named indexes. An index without one of its files is none.
        let is_warned = read_of.corrupt + dataset.ignored_corruption() > 0;
        assert_eq!(is_warned, path == paths.indexes(), "{place}");
        let shared: Arc<dyn Storage> = storage;
        let (lock, _) = WriterLock::acquire(&shared, &paths, false).unwrap();
        assert_eq!(truncate_after(&shared, &paths, dataset.descriptor(), 10, false).unwrap().removed, [20], "{place}");
        lock.release().unwrap();
    }
}

/// The lock of an index whose holder cannot be checked is broken on request only.
#[test]
fn locks_of_indexes_are_broken_on_request() {
    let storage = Arc::new(MemoryStorage::new());
    write(&storage, "energy", &[(10, records(5, 1_000))]);
    add(&storage, "id");
    let shared: Arc<dyn Storage> = storage.clone();
    let held = || {
        let holder = r#"{"token":"0123456789abcdef0123456789abcdef","host":"elsewhere","boot":"","namespace":"","#;
        let holder = format!("{holder}{}", r#""process":1,"started":null,"job":null}"#);
        let lock = DatasetPaths::new("/ds").index("id").lock();
        storage.create(&lock).unwrap().write_at(0, holder.as_bytes()).unwrap();
    };
    let breaking = IndexOptions { break_lock: true, ..IndexOptions::default() };
    let open = |options: &IndexOptions| IndexBuild::open_with(shared.clone(), "/ds", &"id".parse().unwrap(), options);
    held();
    assert!(open(&IndexOptions::default()).unwrap_err().to_string().contains("elsewhere"));
    let build = open(&breaking).unwrap();
    assert!(build.lock_notice().unwrap().to_string().contains("elsewhere"));
    build.close().unwrap();
    held();
    let drop = |options: &IndexOptions| drop_index_with(&shared, "/ds", "id", options);
    assert!(drop(&IndexOptions::default()).unwrap_err().to_string().contains("elsewhere"));
    assert!(drop(&breaking).unwrap().unwrap().to_string().contains("elsewhere"));
    assert!(drop(&breaking).unwrap_err().to_string().contains("no index 'id'"));
}

/// A build that is killed before any of its storage operations leaves the index as it was or complete, and the next
/// build completes it.
#[test]
fn builds_are_killed_before_every_storage_operation() {
    let records = records(5, 1_500);
    let prepared = || {
        let storage = Arc::new(MemoryStorage::new());
        write(&storage, "energy", &[(10, records.clone()), (20, records.clone())]);
        storage
    };
    let build = |storage: Arc<dyn Storage>| -> turbidite::Result<()> {
        let mut build = IndexBuild::open_with(storage, "/ds", &"id".parse()?, &threads(1))?;
        for epoch in build.missing()? {
            build.build_epoch(epoch, &|_| ())?;
        }
        build.close()
    };
    let counted = FaultStorage::new(prepared());
    build(Arc::new(counted.clone())).unwrap();
    let operations = counted.counters().operations;
    assert!(operations > 40, "{operations}");
    let wanted = expected(&records, |record| (300..330).contains(&record.1));
    let mut failed = 0;
    for at in 0..operations {
        let storage = prepared();
        let fault = Fault::Kill { at, torn: at % 2 == 1 };
        failed += u64::from(build(Arc::new(FaultStorage::with_fault(storage.clone(), fault))).is_err());
        for after in [Arc::new(storage.crash()), Arc::new(storage.crash_keeping(at)), storage] {
            let story = format!("killed at operation {at} of {operations}");
            for completed in [false, true] {
                if completed {
                    break_lock(&after);
                    build(after.clone()).unwrap_or_else(|error| panic!("{story}: {error}"));
                }
                let dataset = Dataset::open_with(after.clone(), "/ds").unwrap();
                for epoch in EPOCHS {
                    let text = "id >= 300 AND id < 330";
                    let access = if completed { Use::Index("id".into()) } else { Use::Automatic };
                    let (numbers, read_of) = read(&dataset, epoch, text, access, false);
                    assert_eq!(numbers.into_iter().collect::<BTreeSet<_>>(), wanted, "{story}");
                    assert_eq!((read_of.corrupt, read_of.entries > 0 || !completed), (0, true), "{story}");
                }
            }
            let shared: Arc<dyn Storage> = after;
            let report = verify_on(&shared, &DatasetPaths::new("/ds"), &VerifyOptions::default(), &|_| ()).unwrap();
            assert!(report.findings.is_empty() && report.unfinished == 0, "{story}: {:?}", report.findings);
        }
    }
    assert!(failed > operations / 2, "{failed} of {operations}");
}

/// Removes the lock of a killed build, which ran in this living process.
fn break_lock(storage: &MemoryStorage) {
    let lock = DatasetPaths::new("/ds").index("id").lock();
    if storage.kind(&lock).unwrap().is_some() {
        storage.remove_file(&lock).unwrap();
    }
}
