//! Kills a whole job before every one of its storage operations in turn.
//!
//! After each kill, committed epochs are complete, uncommitted epochs do not exist, and the next writer continues. Each
//! kill is tested with the storage as the process leaves it, and with the storage after a power failure.

use std::sync::Arc;

use turbidite::storage::{Fault, FaultStorage, MemoryStorage, Storage};
use turbidite::store::{DatasetPaths, VerifyOptions, verify_on};
use turbidite::{
    Column, ColumnView, DataType, Dataset, Error, IfExists, Levels, LocalJob, Query, Schema, WriteOptions,
};

const RANKS: u32 = 3;
const ROWS: usize = 400;

/// The key of a dataset, and its number of levels of detail.
type Kind = (&'static str, u8);

const PLAIN: Kind = ("key", 0);

fn open(storage: Arc<dyn Storage>, (key, levels): Kind, if_exists: IfExists) -> Result<LocalJob, Error> {
    let mut schema = Schema::new(vec![Column::new("key", DataType::F32), Column::new("id", DataType::U32)], key)?;
    if levels > 0 {
        // With one seed, all jobs have the same operations.
        schema = schema.with_levels(Levels { count: levels, seed: 5 })?;
    }
    let mut options = WriteOptions::new(RANKS);
    options.memtable_bytes = 2048;
    options.page_rows = 32;
    options.threads = 1;
    options.if_exists = if_exists;
    options.break_lock = true;
    LocalJob::open_with(storage, "/ds", schema, options)
}

/// Returns the ID of a record in one write of an epoch.
fn id(epoch: u64, writing: u32, rank: u32, row: usize) -> u32 {
    epoch as u32 * 1_000_000 + writing * 100_000 + rank * 10_000 + row as u32
}

fn write_epoch(job: &LocalJob, epoch: u64, writing: u32) -> Result<(), Error> {
    job.begin_epoch(epoch)?;
    for rank in 0..RANKS {
        let keys: Vec<u8> = (0..ROWS).flat_map(|row| ((row * 37 % 101) as f32).to_le_bytes()).collect();
        let ids: Vec<u8> = (0..ROWS).flat_map(|row| id(epoch, writing, rank, row).to_le_bytes()).collect();
        let columns = [ColumnView::new(&keys, 4, ROWS, DataType::F32)?, ColumnView::new(&ids, 4, ROWS, DataType::U32)?];
        job.append(rank, &columns)?;
    }
    job.end_epoch().map(drop)
}

/// Writes epochs 10 and 20, then 10 again. Returns how many of the three commits were acknowledged.
fn job(storage: Arc<dyn Storage>, kind: Kind) -> usize {
    let mut acknowledged = 0;
    let run = || -> Result<(), Error> {
        let job = open(storage, kind, IfExists::Replace)?;
        for (epoch, writing) in [(10, 0), (20, 0), (10, 1)] {
            write_epoch(&job, epoch, writing)?;
            acknowledged += 1;
        }
        job.close()
    };
    // A killed job ends with an error. Only the acknowledged epochs count.
    drop(run());
    acknowledged
}

/// Returns all IDs of an epoch, sorted, or `None` if the epoch does not exist.
fn read(dataset: &Dataset, epoch: u64) -> Option<Vec<u32>> {
    dataset.epochs().unwrap().contains(&epoch).then(|| {
        let mut ids = Vec::new();
        for batch in dataset.run(&Query::new().epochs(epoch).columns(["id"])).unwrap() {
            let batch = batch.unwrap();
            let column = arrow_array::cast::AsArray::as_primitive::<arrow_array::types::UInt32Type>(batch.column(0));
            ids.extend_from_slice(column.values());
        }
        ids.sort_unstable();
        ids
    })
}

fn written(epoch: u64, writing: u32) -> Vec<u32> {
    let mut ids: Vec<u32> =
        (0..RANKS).flat_map(|rank| (0..ROWS).map(move |row| id(epoch, writing, rank, row))).collect();
    ids.sort_unstable();
    ids
}

fn check(storage: Arc<dyn Storage>, kind: Kind, acknowledged: usize, story: &str) {
    // The next writer recovers the dataset and continues.
    let next = open(Arc::clone(&storage), kind, IfExists::Error).unwrap();
    let dataset = Dataset::open_with(Arc::clone(&storage), "/ds").unwrap();
    let (ten, twenty) = (read(&dataset, 10), read(&dataset, 20));
    match acknowledged {
        0 => assert!(ten.is_none() || ten == Some(written(10, 0)), "{story}"),
        1 => assert_eq!(ten, Some(written(10, 0)), "{story}"),
        2 => assert!(ten == Some(written(10, 0)) || ten == Some(written(10, 1)), "{story}"),
        _ => assert_eq!(ten, Some(written(10, 1)), "{story}"),
    }
    match acknowledged {
        0 => assert_eq!(twenty, None, "{story}"),
        1 => assert!(twenty.is_none() || twenty == Some(written(20, 0)), "{story}"),
        _ => assert_eq!(twenty, Some(written(20, 0)), "{story}"),
    }
    write_epoch(&next, 30, 0).unwrap();
    next.close().unwrap();
    assert_eq!(read(&Dataset::open_with(Arc::clone(&storage), "/ds").unwrap(), 30), Some(written(30, 0)), "{story}");
    let report = verify_on(&storage, &DatasetPaths::new("/ds"), &VerifyOptions::default(), &|_| ()).unwrap();
    assert!(report.is_clean(), "{story}: {:?}", report.findings);
}

fn sweep(fresh: impl Fn() -> MemoryStorage, kind: Kind, name: &str) {
    let counted = FaultStorage::new(Arc::new(fresh()));
    assert_eq!(job(Arc::new(counted.clone()), kind), 3);
    let operations = counted.counters().operations;
    let mut acknowledged_counts = [0; 4];
    for at in 0..operations {
        let memory = fresh();
        let fault = Fault::Kill { at, torn: at % 2 == 1 };
        let acknowledged = job(Arc::new(FaultStorage::with_fault(Arc::new(memory.clone()), fault)), kind);
        acknowledged_counts[acknowledged] += 1;
        check(Arc::new(memory.crash()), kind, acknowledged, &format!("{name}, power failure at operation {at}"));
        check(
            Arc::new(memory.crash_keeping(at)),
            kind,
            acknowledged,
            &format!("{name}, partial loss at operation {at}"),
        );
        check(Arc::new(memory), kind, acknowledged, &format!("{name}, killed at operation {at}"));
    }
    println!(
        "{name}: killed before each of {operations} storage operations; epochs acknowledged: {acknowledged_counts:?}"
    );
    assert!(acknowledged_counts[..3].iter().all(|&count| count > 0));
}

#[test]
fn killed_before_every_storage_operation() {
    sweep(MemoryStorage::new, PLAIN, "with exchange");
}

#[test]
fn killed_before_every_storage_operation_where_folders_cannot_be_exchanged() {
    sweep(MemoryStorage::without_exchange, PLAIN, "with two renames");
}

#[test]
fn killed_before_every_storage_operation_with_levels_of_detail() {
    sweep(MemoryStorage::new, ("space:key,id", 2), "with levels of detail");
}
