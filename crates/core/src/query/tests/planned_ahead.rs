//! Epochs of which a required index has many entries are planned one at a time, and the others ahead.

use std::collections::BTreeSet;

use super::*;
use crate::error::ErrorClass;
use crate::query::Use;
use crate::query::index::indexes::IndexedCatalog;
use crate::query::plan::epoch_plan::{Planner, Sources};
use crate::query::request::ResolvedQuery;
use crate::query::scan::entry_limit::{MAX_ENTRIES, entries_ahead};
use crate::schema::ColumnView;
use crate::{LocalJob, WriteOptions};

const EPOCHS: u64 = 7;
const ROWS: u64 = 4_000;

/// Number of threads with which an epoch that is planned ahead may have a few hundred entries.
const THREADS: usize = 5_000;

/// Returns the group of a record: one record has each, but in every second epoch thousands do.
fn group_of(epoch: u64, number: u64) -> u32 {
    (if epoch % 2 == 1 { number % 2 * 20 + 7 } else { number }) as u32
}

/// Writes records in no order of their groups, which are indexed.
fn write() -> Arc<dyn Storage> {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let columns = [("value", DataType::U32), ("group", DataType::U32), ("number", DataType::U64)];
    let schema = Schema::new(columns.map(|(name, data_type)| Column::new(name, data_type)).to_vec(), "value").unwrap();
    let mut options = WriteOptions::new(2);
    (options.memtable_bytes, options.page_rows) = (64 << 10, 128);
    options.indexes = vec!["group".parse().unwrap()];
    let job = LocalJob::open_with(storage.clone(), ROOT, schema, options).unwrap();
    for epoch in 0..EPOCHS {
        job.begin_epoch(epoch).unwrap();
        let numbers: Vec<u64> = (0..ROWS).collect();
        let values: Vec<u32> = numbers.iter().map(|number| (number * 2_654_435_761) as u32).collect();
        let groups: Vec<u32> = numbers.iter().map(|number| group_of(epoch, *number)).collect();
        let columns = [ColumnView::from(&values), ColumnView::from(&groups), ColumnView::from(&numbers)];
        job.append(0, &columns).unwrap();
        job.end_epoch().unwrap();
    }
    job.close().unwrap();
    storage
}

fn query(condition: &str) -> Query {
    Query::new().filter(condition).columns(["epoch", "number", "value"]).using(Use::Index("group".to_owned()))
}

/// Without this bound, each of the epochs in flight would have as many places in memory as one may have.
#[test]
fn only_few_entries_are_read_ahead() {
    let storage = write();
    let catalog = Arc::new(IndexedCatalog::open(&storage, ROOT.as_ref()).unwrap());
    let ahead = entries_ahead(EPOCHS as usize, THREADS);
    assert!((512..ROWS / 4).contains(&ahead) && entries_ahead(1, THREADS) == MAX_ENTRIES);
    assert!((1..64).all(|plans| entries_ahead(2, plans) * plans as u64 * 4 <= MAX_ENTRIES));
    // A value of a list has more entries than are expected of it.
    for condition in ["group < 9", "group IN (7, 9)"] {
        let resolved = Arc::new(ResolvedQuery::resolve(&query(condition), &catalog.schema).unwrap());
        let planner = Planner::new(catalog.clone(), resolved, Arc::default(), 1);
        for epoch in 0..EPOCHS {
            let plan = |most| planner.plan(epoch, most, Sources::ALL);
            assert!(plan(MAX_ENTRIES).unwrap().indexed_by().is_some(), "{condition}, epoch {epoch}");
            match plan(ahead) {
                Ok(plan) => assert!(epoch % 2 == 0 && plan.indexed_by().is_some(), "{condition}, epoch {epoch}"),
                Err(error) => assert!(epoch % 2 == 1 && error.class() == ErrorClass::Usage, "{error}"),
            }
        }
    }
}

#[test]
fn answers_do_not_depend_on_what_is_planned_ahead() {
    let dataset = Dataset::open_with(write(), ROOT).unwrap();
    for (condition, groups) in [("group < 9", (0..9).collect()), ("group IN (7, 9)", vec![7, 9])] {
        let numbers = (0..EPOCHS).flat_map(|epoch| (0..ROWS).map(move |number| (epoch, number)));
        let wanted: BTreeSet<(u64, u64)> =
            numbers.filter(|(epoch, number)| groups.contains(&group_of(*epoch, *number))).collect();
        for (threads, ordered) in [(1, false), (2, false), (THREADS, false), (2, true), (THREADS, true)] {
            let story = format!("{condition}, {threads} threads, {ordered}");
            let query = query(condition).threads(threads).ordered(ordered);
            let mut rows: Vec<(u64, u32, u64)> = Vec::new();
            let mut stream = dataset.run(&query).unwrap();
            for batch in &mut stream {
                let batch = batch.unwrap();
                let (epochs, numbers) =
                    (batch.column(0).as_primitive::<Int64Type>(), batch.column(1).as_primitive::<UInt64Type>());
                let values = batch.column(2).as_primitive::<UInt32Type>();
                rows.extend(
                    (0..batch.num_rows()).map(|row| (epochs.value(row) as u64, values.value(row), numbers.value(row))),
                );
            }
            assert!(stream.metrics().entries_read >= wanted.len() as u64, "{story}");
            assert!(rows.is_sorted_by_key(|row| (row.0, if ordered { row.1 } else { 0 })), "{story}");
            assert_eq!(rows.len(), wanted.len(), "{story}");
            assert_eq!(rows.iter().map(|row| (row.0, row.2)).collect::<BTreeSet<_>>(), wanted, "{story}");
            assert_eq!(dataset.count(&query).unwrap().0, wanted.len() as u64, "{story}");
            let limited = dataset.run(&query.limit(2_500)).unwrap();
            let limited: usize = limited.map(|batch| batch.unwrap().num_rows()).sum();
            assert_eq!(limited, wanted.len().min(2_500), "{story}");
        }
    }
}
