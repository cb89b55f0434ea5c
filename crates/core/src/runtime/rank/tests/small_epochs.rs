//! Tests of indexes that are made of many small epochs, several at a time.

use std::sync::Mutex;

use super::indexes::check_files;
use super::*;
use crate::index_build::{IndexBuild, IndexOptions, IndexedRows};
use crate::query::Use;

const EPOCHS: u64 = 40;
/// The number of an epoch that is not small.
const LARGE: u64 = 17;
const INDEXES: [&str; 3] = ["origin", "bitmap:origin", "space:key,origin"];

fn rows(epoch: u64) -> u32 {
    if epoch == LARGE { 600_000 } else { 100 + epoch as u32 }
}

fn records() -> MemoryStorage {
    let storage = MemoryStorage::new();
    let job = LocalJob::open_with(Arc::new(storage.clone()), "ds", schema(), options(1)).unwrap();
    for epoch in 0..EPOCHS {
        job.begin_epoch(epoch).unwrap();
        let keys: Vec<u32> = (0..rows(epoch)).map(|row| row.wrapping_mul(0x9E37_79B9) >> 8).collect();
        let origins: Vec<u32> = keys.iter().map(|key| key % 97 + epoch as u32).collect();
        job.append(0, &[ColumnView::from(&keys), ColumnView::from(&origins)]).unwrap();
        job.end_epoch().unwrap();
    }
    job.close().unwrap();
    storage
}

fn open_build(storage: &Arc<dyn Storage>, index: &str) -> IndexBuild {
    IndexBuild::open_with(storage.clone(), "ds", &index.parse().unwrap(), &IndexOptions::default()).unwrap()
}

fn check_answers(storage: &Arc<dyn Storage>, index: &str) {
    let dataset = Dataset::open_with(storage.clone(), "ds").unwrap();
    for epoch in 0..EPOCHS {
        let query = Query::new().filter("origin = 50 AND key > 1000").epochs(EpochRange::one(epoch));
        let count = |access| dataset.count(&query.clone().using(access)).unwrap().0;
        assert_eq!(count(Use::named(index)), count(Use::Scan), "{index}, epoch {epoch}");
    }
}

#[test]
fn epochs_that_are_built_side_by_side_are_those_built_one_by_one() {
    let records = records();
    for index in INDEXES {
        let storage: Arc<dyn Storage> = Arc::new(records.crash());
        let copy: Arc<dyn Storage> = Arc::new(records.crash());
        let mut build = open_build(&storage, index);
        let epochs = build.missing().unwrap();
        assert_eq!(epochs, (0..EPOCHS).collect::<Vec<_>>());
        for wrong in [&[1, 1], &[2, 1]] {
            let error = build.build_epochs(wrong, &|_, _| ()).unwrap_err().to_string();
            assert_eq!(error, "epochs: must ascend, each once");
        }
        let progress = Mutex::new(vec![0; EPOCHS as usize]);
        let written = build.build_epochs(&epochs, &|epoch, rows| progress.lock().unwrap()[epoch as usize] += rows);
        assert_eq!(progress.into_inner().unwrap(), epochs.iter().map(|e| u64::from(rows(*e))).collect::<Vec<_>>());
        assert!(build.missing().unwrap().is_empty());
        build.close().unwrap();
        check_files(&storage);
        check_answers(&storage, index);

        let mut one_by_one = open_build(&copy, index);
        let each = epochs.iter().map(|epoch| one_by_one.build_epoch(*epoch, &|_| ()).unwrap());
        let sum = each.fold((0, 0), |sum, of_epoch| (sum.0 + of_epoch.rows, sum.1 + of_epoch.bytes));
        assert_eq!(written.unwrap(), IndexedRows { rows: sum.0, bytes: sum.1 });
    }
}

#[test]
fn a_corrupt_epoch_among_small_ones_leaves_the_others_whole() {
    let records = records();
    for index in INDEXES {
        let storage: Arc<dyn Storage> = Arc::new(records.crash());
        let dataset = Dataset::open_with(storage.clone(), "ds").unwrap();
        let manifest = dataset.manifest(5).unwrap();
        let path = DatasetPaths::new("ds").part(5, &manifest.parts[0], dataset.schema());
        let faults = FaultStorage::new(storage.clone());
        let group = &manifest.row_groups[0];
        // In the last column, which all indexes have.
        faults.add_fault(Fault::Flip { path, offset: group.offset + group.bytes - 10, mask: 4 });
        let faulty: Arc<dyn Storage> = Arc::new(faults);
        let mut build = open_build(&faulty, index);
        let epochs = build.missing().unwrap();
        let error = build.build_epochs(&epochs, &|_, _| ()).unwrap_err().to_string();
        assert!(error.contains("epoch=5"), "{error}");
        assert!(!build.missing().unwrap().contains(&0) && build.missing().unwrap().contains(&5));
        build.close().unwrap();
        let unfinished = DatasetPaths::new("ds").index(index).unfinished();
        assert!(storage.list(&unfinished).unwrap_or_default().is_empty(), "{index}");

        let mut build = open_build(&storage, index);
        let missing = build.missing().unwrap();
        build.build_epochs(&missing, &|_, _| ()).unwrap();
        build.close().unwrap();
        check_files(&storage);
        check_answers(&storage, index);
    }
}
