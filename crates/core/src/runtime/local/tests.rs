//! Tests of a job whose ranks share a process: the end of an epoch beside appends of other threads, and aborts.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::query::{Dataset, Query};
use crate::runtime::WriteOptions;
use crate::runtime::local::LocalJob;
use crate::schema::{Column, ColumnView, DataType, Schema};
use crate::storage::{MemoryStorage, Storage};
use crate::store::DatasetPaths;

const ROWS: usize = 300_000;

fn open(storage: &Arc<dyn Storage>) -> LocalJob {
    let schema = Schema::new(vec![Column::new("id", DataType::U64)], "id").unwrap();
    let mut options = WriteOptions::new(2);
    options.memtable_bytes = 64 << 10;
    LocalJob::open_with(Arc::clone(storage), "ds", schema, options).unwrap()
}

fn count(storage: &Arc<dyn Storage>) -> u64 {
    Dataset::open_with(Arc::clone(storage), "ds").unwrap().count(&Query::new()).unwrap().0
}

/// The end of the epoch may come before an append or after it, but not in the middle of its rows.
#[test]
fn an_epoch_does_not_end_within_an_append() {
    for epoch in 0..24u64 {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let job = open(&storage);
        job.begin_epoch(epoch).unwrap();
        let ids: Vec<u64> = (0..ROWS as u64).collect();
        let (appended, ended) = std::thread::scope(|scope| {
            let append = scope.spawn(|| job.append(1, &[ColumnView::from(&ids)]));
            // Any moment is right: with some epochs the append has begun by then, with others it has not.
            (0..epoch * 400_000).for_each(|step| {
                std::hint::black_box(step);
            });
            let ended = job.end_epoch();
            (append.join().unwrap(), ended)
        });
        let rows = if appended.is_ok() { ROWS as u64 } else { 0 };
        assert_eq!(ended.unwrap().rows, rows);
        assert_eq!(count(&storage), rows);
        job.close().unwrap();
    }
}

#[test]
fn an_abort_removes_the_parts_of_its_own_epoch_only() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let job = open(&storage);
    let ids: Vec<u64> = (0..ROWS as u64).collect();
    let unfinished = || storage.list(&DatasetPaths::new("ds").unfinished()).map_or(0, |entries| entries.len());
    assert!(job.abort_epoch("nothing to abort".into()).is_err());

    job.begin_epoch(1).unwrap();
    job.append(0, &[ColumnView::from(&ids)]).unwrap();
    job.refuse("left for salvage".into()).unwrap();
    job.end_epoch().unwrap_err();
    assert_eq!(unfinished(), 1);

    job.begin_epoch(2).unwrap();
    job.append(0, &[ColumnView::from(&ids)]).unwrap();
    job.abort_epoch("a user's exception".into()).unwrap();
    assert_eq!(unfinished(), 1, "the parts of epoch 1 stay");

    job.begin_epoch(3).unwrap();
    job.append(0, &[ColumnView::from(&ids)]).unwrap();
    assert_eq!(job.end_epoch().unwrap().rows, ROWS as u64);
    job.close().unwrap();
    assert_eq!(count(&storage), ROWS as u64);
}

/// The rank may have lost records, which must not be missing from a committed epoch.
#[test]
fn a_panic_while_a_rank_is_driven_fails_the_epoch() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let job = open(&storage);
    let ids: Vec<u64> = (0..ROWS as u64).collect();
    job.begin_epoch(0).unwrap();
    job.append(0, &[ColumnView::from(&ids)]).unwrap();
    let driven = || job.ranks.with(1, |_| -> () { panic!("in the middle of a message") });
    assert!(catch_unwind(AssertUnwindSafe(driven)).is_err());
    job.append(0, &[ColumnView::from(&ids)]).unwrap();
    let error = job.end_epoch().unwrap_err().to_string();
    let expected = "epoch 0 failed on rank 1: internal error: a thread panicked while it drove rank 1;";
    assert!(error.starts_with(expected), "{error}");
    job.begin_epoch(0).unwrap();
    job.append(1, &[ColumnView::from(&ids)]).unwrap();
    assert_eq!(job.end_epoch().unwrap().rows, ROWS as u64);
    job.close().unwrap();
}

/// Both jobs are in an epoch at the same time, and share the lock until the last of them is closed.
#[test]
fn jobs_beside_each_other_write_different_epochs() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let first = open(&storage);
    let second = first.beside().unwrap().unwrap();
    let ids: Vec<u64> = (0..ROWS as u64).collect();
    for epoch in [0, 2] {
        first.begin_epoch(epoch).unwrap();
        first.append(0, &[ColumnView::from(&ids)]).unwrap();
        second.begin_epoch(epoch + 1).unwrap();
        second.append(1, &[ColumnView::from(&ids[..7])]).unwrap();
        assert_eq!(first.end_epoch().unwrap().rows, ROWS as u64);
        assert_eq!(second.end_epoch().unwrap().rows, 7);
    }
    assert_eq!(count(&storage), 2 * (ROWS as u64 + 7));

    second.begin_epoch(4).unwrap();
    second.append(0, &[ColumnView::from(&ids)]).unwrap();
    second.refuse("an earlier epoch failed".into()).unwrap();
    second.end_epoch().unwrap_err();
    assert!(first.begin_epoch(3).is_err(), "the other job has written it");
    assert!(second.discard_failed().unwrap() > 0);

    let lock = DatasetPaths::new("ds").lock();
    first.close().unwrap();
    assert!(storage.kind(&lock).unwrap().is_some(), "the second job holds it");
    second.close().unwrap();
    assert!(storage.kind(&lock).unwrap().is_none());
    assert_eq!(count(&storage), 2 * (ROWS as u64 + 7));
}

#[test]
fn a_job_with_indexes_has_no_other_beside_it() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let schema = Schema::new(vec![Column::new("id", DataType::U64)], "id").unwrap();
    let mut options = WriteOptions::new(2);
    options.indexes = vec!["hash:id".parse().unwrap()];
    let job = LocalJob::open_with(Arc::clone(&storage), "ds", schema, options).unwrap();
    assert!(job.beside().unwrap().is_none());
    job.close().unwrap();
}
