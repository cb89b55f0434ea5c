//! Tests kills, failures of storage and corruption of the source. No data is lost, no wrong data is committed, and no
//! files remain.

use std::io::ErrorKind;

use super::*;
use crate::error::{Error, ErrorClass};
use crate::storage::{Fault, FaultStorage};

/// Creates two durable epochs of `f32` keys.
fn source() -> (MemoryStorage, TestEpoch) {
    let memory = MemoryStorage::new();
    let storage: Arc<dyn Storage> = Arc::new(memory.clone());
    let epoch = mixed_epoch(3, 60);
    let part = PartOptions { page_rows: 16, row_groups_per_run: 2, ..PartOptions::default() };
    for label in [1, 2] {
        write_source(&storage, DataType::F32, part, (label, &epoch, label), |_| ());
    }
    (memory.crash(), epoch)
}

fn copied_epochs(storage: &dyn Storage) -> Vec<u64> {
    list_epochs(storage, &DatasetPaths::new(COPY)).unwrap()
}

fn unfinished(storage: &dyn Storage) -> usize {
    storage.list(&DatasetPaths::new(COPY).unfinished()).map_or(0, |names| names.len())
}

/// Checks that every epoch of the copy is complete and the source is unchanged. Then checks that the next attempt
/// completes the copy without leftovers.
fn check_and_complete(storage: &Arc<dyn Storage>, epoch: &TestEpoch, story: &str) {
    let schema = schema(DataType::F32);
    let report = verify_on(storage, &DatasetPaths::new(SOURCE), &VerifyOptions::default(), &|_| ()).unwrap();
    assert!(report.is_clean(), "{story}: {:?}", report.findings);
    for label in copied_epochs(&**storage) {
        check_copy(storage, DataType::F32, label, rows_of(&schema, epoch, label));
    }
    let options = CompactOptions { if_exists: IfExists::Skip, ..small_options() };
    compact(storage, options).unwrap_or_else(|error| panic!("{story}: {error}"));
    for label in [1, 2] {
        check_copy(storage, DataType::F32, label, rows_of(&schema, epoch, label));
    }
    assert_eq!(unfinished(&**storage), 0, "{story}");
}

fn operations(memory: &MemoryStorage) -> u64 {
    let counted = FaultStorage::new(Arc::new(memory.crash()));
    compact(&(Arc::new(counted.clone()) as Arc<dyn Storage>), small_options()).unwrap();
    counted.counters().operations
}

#[test]
fn killed_before_every_storage_operation() {
    let (memory, epoch) = source();
    let operations = operations(&memory);
    let mut seen = [0; 3];
    let mut left = 0;
    for at in 0..operations {
        let survivor = memory.crash();
        let fault = Fault::Kill { at, torn: at % 2 == 1 };
        let storage: Arc<dyn Storage> = Arc::new(FaultStorage::with_fault(Arc::new(survivor.clone()), fault));
        compact(&storage, small_options()).unwrap_err();
        seen[copied_epochs(&survivor).len()] += 1;
        left += usize::from(unfinished(&survivor) > 0);
        for (what, survivor) in [("power failure", survivor.crash()), ("kill", survivor)] {
            check_and_complete(&(Arc::new(survivor) as Arc<dyn Storage>), &epoch, &format!("{what} at {at}"));
        }
    }
    println!("killed before each of {operations} operations; epochs copied: {seen:?}; {left} left an attempt");
    assert!(seen.iter().all(|count| *count > 0) && left > 50);
}

#[test]
fn one_failed_operation_commits_all_or_nothing_and_leaves_nothing() {
    let (memory, epoch) = source();
    let operations = operations(&memory);
    let mut failures = 0;
    for first in 0..operations {
        let survivor = memory.crash();
        let fault = Fault::Fail { first, count: 1, kind: ErrorKind::StorageFull };
        let storage: Arc<dyn Storage> = Arc::new(FaultStorage::with_fault(Arc::new(survivor.clone()), fault));
        let result = compact(&storage, small_options());
        let copied = copied_epochs(&survivor);
        assert!(result.is_err() || copied == [1, 2], "failed at {first}: success without the epochs");
        failures += usize::from(result.is_err());
        assert_eq!(unfinished(&survivor), 0, "failed at {first}: {result:?}");
        check_and_complete(&(Arc::new(survivor) as Arc<dyn Storage>), &epoch, &format!("failed at {first}"));
    }
    assert!(failures > 100, "{failures}");
}

#[test]
fn a_full_disk_leaves_its_space() {
    let (memory, epoch) = source();
    let storage: Arc<dyn Storage> =
        Arc::new(FaultStorage::with_fault(Arc::new(memory.clone()), Fault::Full { bytes: 20_000 }));
    compact(&storage, CompactOptions { threads: 3, ..small_options() }).unwrap_err();
    assert_eq!((copied_epochs(&memory), unfinished(&memory)), (Vec::new(), 0));
    check_and_complete(&(Arc::new(memory) as Arc<dyn Storage>), &epoch, "full disk");
}

#[test]
fn no_flipped_byte_of_the_source_gets_into_the_copy() {
    let (memory, epoch) = source();
    let schema = schema(DataType::F32);
    let part = DatasetPaths::new(SOURCE).epoch(2).join(PartId { rank: 0, roll: 0 }.file_name());
    let bytes = memory.open(&part).unwrap().bytes();
    let (mut tried, mut corrupted) = (0, 0);
    for offset in (0..bytes).filter(|offset| mix(!*offset).is_multiple_of(7)) {
        tried += 1;
        let survivor = memory.crash();
        let flip = Fault::Flip { path: part.clone(), offset, mask: 1 << (mix(offset) % 8) };
        let storage: Arc<dyn Storage> = Arc::new(FaultStorage::with_fault(Arc::new(survivor.clone()), flip));
        let result = compact(&storage, small_options());
        let clean: Arc<dyn Storage> = Arc::new(survivor);
        match result {
            Ok(_) => check_copy(&clean, DataType::F32, 2, rows_of(&schema, &epoch, 2)),
            Err(error) => {
                corrupted += 1;
                let stated = error.class() == ErrorClass::Corruption || matches!(error, Error::Version { .. });
                // A flipped bit in the footer's commit makes the reader look for that commit's manifest, which is
                // missing.
                let text = error.to_string();
                let named = text.contains(&*part.to_string_lossy()) || text.contains("/_turbidite/manifest/2.");
                assert!(stated && named, "byte {offset}: {error}");
                assert_eq!((copied_epochs(&*clean), unfinished(&*clean)), (vec![1], 0), "byte {offset}");
            }
        }
    }
    // Compaction reads everything except for padding and seals.
    assert!(corrupted > tried / 4, "{corrupted} of {tried}");
}

#[test]
fn rows_that_are_not_where_the_manifest_says_are_corruption() {
    let epoch = mixed_epoch(2, 60);
    let lies: [fn(&mut EpochManifest); 2] = [
        // NaN keys in a regular run
        |manifest| manifest.row_groups.to_mut().iter_mut().for_each(|run| run.kind = RunKind::Regular),
        // Other keys in a run of NaN keys
        |manifest| manifest.row_groups.to_mut()[0].kind = RunKind::NanKey,
    ];
    for lie in lies {
        let memory = MemoryStorage::new();
        let storage: Arc<dyn Storage> = Arc::new(memory.clone());
        write_source(&storage, DataType::F32, PartOptions::default(), (1, &epoch, 1), lie);
        let error = compact(&storage, small_options()).unwrap_err();
        assert_eq!(error.class(), ErrorClass::Corruption, "{error}");
        assert_eq!((copied_epochs(&memory), unfinished(&memory)), (Vec::new(), 0));
    }
}

#[test]
fn attempts_of_others_are_kept() {
    let (memory, _) = source();
    let storage: Arc<dyn Storage> = Arc::new(memory.clone());
    // The dataset was not created as a copy. Its writer died with a sealed run of epoch 1.
    let paths = DatasetPaths::new(COPY);
    let descriptor = DatasetDescriptor::open_or_create(&memory, &paths, &describe(DataType::F32)).unwrap();
    let commit = EpochCommit::begin(&storage, &paths, &descriptor, 1, IfExists::Error).unwrap().unwrap();
    let (part, schema) = (PartId { rank: 0, roll: 0 }, &descriptor.schema);
    let (folder, identity) = (commit.directory(), commit.identity());
    let options = PartOptions::default();
    let mut writer =
        PartWriter::create(Arc::clone(&storage), &folder, part, Arc::clone(schema), options, identity).unwrap();
    let mut memtable = Memtable::new(Arc::clone(schema), 64);
    memtable.push(&row(schema, 1, 1));
    let context = RunContext { run: 0, kind: RunKind::Regular, table_version: 1, bounds: None };
    writer.append_run(&memtable, context).unwrap();
    drop(writer);
    compact(&storage, small_options()).unwrap();
    assert_eq!((copied_epochs(&memory), unfinished(&memory)), (vec![1, 2], 1));
}
