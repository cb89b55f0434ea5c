//! Tests of a job whose ranks share a process: the end of an epoch beside appends of other threads, and aborts.

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
