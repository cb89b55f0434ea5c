//! Every access path is forced, returns the same rows, and reads what its plan states.

use std::collections::BTreeSet;

use super::*;
use crate::index_build::{IndexBuild, IndexOptions};
use crate::query::execute::unordered_scan::Scan;
use crate::query::index::indexes::IndexedCatalog;
use crate::query::metrics::Counters;
use crate::query::plan::epoch_plan::{AccessPath, Planner, Sources};
use crate::query::plan::explain::explain_epoch;
use crate::query::request::ResolvedQuery;
use crate::query::scan::entry_limit::MAX_ENTRIES;
use crate::query::{AggregateRequest, Bins, QueryMetrics, Use};
use crate::schema::{ColumnView, Value};
use crate::storage::{Fault, FaultStorage};
use crate::store::EpochRange;
use crate::{LocalJob, WriteOptions};

pub(super) const EPOCHS: u64 = 2;
pub(super) const ROWS: u64 = 30_000;
pub(super) const SPATIAL: &str = "space:x,y";
pub(super) const BITMAP: &str = "bitmap:small";

/// The columns of a record, in the order of the schema.
pub(super) fn record(epoch: u64, id: u64) -> (u32, u64, f32, f32, u8) {
    let value = (id.wrapping_mul(0x9E37_79B9).wrapping_add(epoch)) as u32;
    (value, id, (id % 173) as f32, (id / 173) as f32, (id % 40) as u8)
}

/// Writes records in no order of their ids and places, with an index of each kind.
fn write() -> Arc<dyn Storage> {
    write_by("value")
}

/// Does the same with any key.
pub(super) fn write_by(key: &str) -> Arc<dyn Storage> {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let columns = [
        ("value", DataType::U32),
        ("id", DataType::U64),
        ("x", DataType::F32),
        ("y", DataType::F32),
        ("small", DataType::U8),
    ];
    let schema = Schema::new(columns.map(|(name, data_type)| Column::new(name, data_type)).to_vec(), key).unwrap();
    let mut options = WriteOptions::new(2);
    (options.memtable_bytes, options.page_rows) = (128 << 10, 256);
    options.indexes = vec!["id,with=small".parse().unwrap(), BITMAP.parse().unwrap()];
    let job = LocalJob::open_with(storage.clone(), ROOT, schema, options).unwrap();
    for epoch in 0..EPOCHS {
        job.begin_epoch(epoch).unwrap();
        let records: Vec<_> = (0..ROWS).map(|id| record(epoch, id)).collect();
        let values: Vec<u32> = records.iter().map(|record| record.0).collect();
        let ids: Vec<u64> = records.iter().map(|record| record.1).collect();
        let [x, y]: [Vec<f32>; 2] =
            [records.iter().map(|record| record.2).collect(), records.iter().map(|record| record.3).collect()];
        let small: Vec<u8> = records.iter().map(|record| record.4).collect();
        let small = ColumnView::new(&small, 1, small.len(), DataType::U8).unwrap();
        let (values, ids) = (ColumnView::from(&values), ColumnView::from(&ids));
        job.append(0, &[values, ids, ColumnView::from(&x), ColumnView::from(&y), small]).unwrap();
        job.end_epoch().unwrap();
    }
    job.close().unwrap();
    let mut build =
        IndexBuild::open_with(storage.clone(), ROOT, &SPATIAL.parse().unwrap(), &IndexOptions::default()).unwrap();
    for epoch in 0..EPOCHS {
        build.build_epoch(epoch, &|_| ()).unwrap();
    }
    build.close().unwrap();
    storage
}

/// A way to answer a query, and what its plan has to be.
struct Case {
    filter: &'static str,
    columns: &'static [&'static str],
    access: Use,
    sources: Sources,
    /// Whether the epoch is planned from caches.
    is_cached: bool,
    is_planned: fn(&AccessPath) -> bool,
}

impl Case {
    fn new(filter: &'static str, access: &str, is_planned: fn(&AccessPath) -> bool) -> Self {
        let (columns, access): (&[_], _) = (&["id", "value", "small"], Use::named(access));
        Self { filter, columns, access, sources: Sources::ALL, is_cached: false, is_planned }
    }
}

fn cases() -> Vec<Case> {
    let is_records = |path: &AccessPath| matches!(path, AccessPath::Records(plan) if !plan.scan.has_selections());
    let by_entries = |path: &AccessPath| matches!(path, AccessPath::Records(plan) if plan.scan.has_selections());
    let is_spatial = |path: &AccessPath| matches!(path, AccessPath::Spatial(plan) if plan.index == SPATIAL);
    let is_covering = |path: &AccessPath| matches!(path, AccessPath::Covering(plan) if plan.index == "id");
    let is_lookup = |path: &AccessPath| matches!(path, AccessPath::Lookup(_));
    let carried: &[&str] = &["id", "small"];
    let (key, ids) = ("value = 2654435769", "id IN (40, 4711, 29999)");
    vec![
        Case::new("x < 20 AND y < 50", "scan", is_records),
        Case::new("x < 20 AND y < 50", SPATIAL, is_spatial),
        Case { sources: Sources { spatial: false, ..Sources::ALL }, ..Case::new("x < 20", SPATIAL, is_records) },
        Case::new("small < 3 AND x < 20", BITMAP, is_records),
        Case::new(ids, "scan", is_records),
        Case::new(ids, "id", by_entries),
        Case { columns: carried, ..Case::new(ids, "id", is_covering) },
        Case {
            columns: carried,
            sources: Sources { covering: false, ..Sources::ALL },
            ..Case::new(ids, "id", by_entries)
        },
        Case { is_cached: true, ..Case::new(ids, "id", is_lookup) },
        Case::new(key, "scan", is_records),
        Case { access: Use::Automatic, is_cached: true, ..Case::new(key, "scan", is_lookup) },
        Case { columns: &[], ..Case::new("x < 20 AND y < 50", SPATIAL, is_spatial) },
        Case { columns: &[], ..Case::new("small < 3", BITMAP, is_records) },
    ]
}

/// Returns the ids of the records of an epoch that satisfy a condition of [`cases`].
fn expected(filter: &str, epoch: u64) -> BTreeSet<u64> {
    let is_wanted = |(value, id, x, y, small): (u32, u64, f32, f32, u8)| match filter {
        "x < 20 AND y < 50" => x < 20.0 && y < 50.0,
        "x < 20" => x < 20.0,
        "small < 3 AND x < 20" => small < 3 && x < 20.0,
        "small < 3" => small < 3,
        "value = 2654435769" => value == 2_654_435_769,
        _ => [40, 4711, 29_999].contains(&id),
    };
    (0..ROWS).filter(|id| is_wanted(record(epoch, *id))).collect()
}

#[test]
fn every_path_returns_the_same_rows_and_reads_what_its_plan_states() {
    let storage = write();
    for (number, case) in cases().iter().enumerate() {
        let story = format!("case {number}: {} by {:?}", case.filter, case.access);
        let catalog = Arc::new(IndexedCatalog::open(&storage, ROOT.as_ref()).unwrap());
        let query = Query::new().filter(case.filter).columns(case.columns.iter().copied()).using(case.access.clone());
        for (epoch, threads) in [(0, 1), (1, 3)] {
            let resolve =
                || Arc::new(ResolvedQuery::resolve(&query.clone().threads(threads), &catalog.schema).unwrap());
            let counters = Arc::new(Counters::default());
            let planner = Planner::new(catalog.clone(), resolve(), counters.clone(), 1).in_any_order();
            // Caches have what queries have used.
            let warm = Scan::in_any_order(catalog.clone(), resolve(), counters.clone(), vec![epoch], |rows| rows.rows);
            let (mut warm, mut rows) = (warm.with_sources(case.sources), 0);
            while let Some(piece) = warm.next_piece().unwrap() {
                rows += piece;
            }
            assert_eq!(rows, expected(case.filter, epoch).len(), "{story}");
            let plan = match case.is_cached {
                true => planner.plan_cached(epoch).unwrap_or_else(|| panic!("{story}: it is not planned from caches")),
                false => planner.plan(epoch, MAX_ENTRIES, case.sources).unwrap(),
            };
            assert!((case.is_planned)(&plan.path), "{story}: {plan:?}");
            let explained = explain_epoch(&catalog, &planner, epoch, &counters, case.sources).unwrap();

            let counters = Arc::new(Counters::default());
            let scan = Scan::in_any_order(catalog.clone(), resolve(), counters.clone(), vec![epoch], |rows| {
                let ids = rows.columns.first().map(|ids| ids.typed_data::<u64>().to_vec()).unwrap_or_default();
                (rows.rows, ids)
            });
            let (mut scan, mut rows, mut ids) = (scan.with_sources(case.sources), 0, BTreeSet::new());
            while let Some((count, some)) = scan.next_piece().unwrap() {
                rows += count;
                ids.extend(some);
            }
            assert_eq!(rows, expected(case.filter, epoch).len(), "{story}");
            if !case.columns.is_empty() {
                assert_eq!(ids, expected(case.filter, epoch), "{story}");
            }
            let metrics = counters.metrics();
            assert_eq!((metrics.rows_matched, metrics.corrupt_indexes), (rows as u64, 0), "{story}");
            assert!(
                explained.rows_least <= rows as u64 && rows as u64 <= explained.rows_most,
                "{story}: {explained:?}"
            );
            let bytes = metrics.bytes_read;
            let least = if case.is_cached || case.columns.is_empty() { 0 } else { explained.bytes_least };
            assert!(least <= bytes && bytes <= explained.bytes_most, "{story}: {bytes} bytes, {explained:?}");
        }
    }
}

/// Returns the storage with a changed byte of the copy of an epoch: in its first row group, or in its last.
fn corrupted(storage: &Arc<dyn Storage>, epoch: u64, is_first: bool) -> Arc<dyn Storage> {
    corrupted_in(storage, &DatasetPaths::new(ROOT).index(SPATIAL), epoch, is_first)
}

/// Does the same with an epoch of any dataset.
fn corrupted_in(storage: &Arc<dyn Storage>, paths: &DatasetPaths, epoch: u64, is_first: bool) -> Arc<dyn Storage> {
    let (path, offset) = page_of(storage, paths, epoch, is_first);
    let faults = FaultStorage::new(storage.clone());
    faults.add_fault(Fault::Flip { path, offset, mask: 4 });
    Arc::new(faults)
}

/// Returns the part and the offset of a byte in the first row group of an epoch, or in its last.
pub(super) fn page_of(storage: &Arc<dyn Storage>, paths: &DatasetPaths, epoch: u64, is_first: bool) -> (PathBuf, u64) {
    let copy = Dataset::open_with(storage.clone(), paths.root()).unwrap();
    let manifest = copy.manifest(epoch).unwrap();
    let groups = &manifest.row_groups;
    let (group, offset) = match is_first {
        true => (&groups[0], groups[0].offset + 100),
        false => (&groups[groups.len() - 1], groups[groups.len() - 1].offset + groups[groups.len() - 1].bytes - 10),
    };
    let entry = manifest.parts.iter().find(|entry| entry.part == group.part).unwrap();
    let path = paths.part(epoch, entry, copy.schema());
    let offset = checked_byte(storage, paths, &path, offset);
    (path, offset)
}

/// Returns the offset of a byte whose corruption a read of a copy or an index finds: this one, or one before. A page of
/// few rows ends with more bytes of its header than of values, and not all of these matter.
pub(super) fn checked_byte(storage: &Arc<dyn Storage>, paths: &DatasetPaths, path: &Path, offset: u64) -> u64 {
    let is_found = |offset: &u64| {
        let fault = Fault::Flip { path: path.to_owned(), offset: *offset, mask: 4 };
        let faults = Arc::new(FaultStorage::with_fault(storage.clone(), fault));
        let copy = Dataset::open_with(faults, paths.root()).unwrap();
        copy.run(&Query::new()).unwrap().any(|batch| batch.is_err())
    };
    (0..=offset).rev().step_by(8).find(is_found).unwrap()
}

/// All rows, each of which has to be tested: statistics do not tell that both products are the same.
fn everything() -> Query {
    let query = Query::new().filter("x * y + small >= x * y").columns(["id", "value", "small"]);
    query.batch_rows(1000).using(Use::named(SPATIAL))
}

#[test]
fn records_answer_for_a_spatial_index_that_is_corrupt_before_its_first_row() {
    let storage = write();
    let corrupted = corrupted(&storage, 0, true);
    for threads in [1, 4] {
        let query = everything().threads(threads);
        let of_scan = Dataset::open_with(storage.clone(), ROOT).unwrap();
        let mut of_scan = of_scan.run(&query.clone().epochs(0).using(Use::Scan)).unwrap();
        assert_eq!(of_scan.by_ref().map(|batch| batch.unwrap().num_rows() as u64).sum::<u64>(), ROWS);
        let dataset = Dataset::open_with(corrupted.clone(), ROOT).unwrap();
        let mut stream = dataset.run(&query.clone().epochs(0)).unwrap();
        assert_eq!(stream.by_ref().map(|batch| batch.unwrap().num_rows() as u64).sum::<u64>(), ROWS);
        let metrics = stream.metrics();
        // The abandoned attempt counts as nothing else than a corrupt index.
        assert_eq!(
            QueryMetrics { corrupt_indexes: 0, read_s: 0.0, filter_s: 0.0, merge_s: 0.0, ..metrics },
            QueryMetrics { read_s: 0.0, filter_s: 0.0, merge_s: 0.0, ..of_scan.metrics() }
        );
        assert_eq!((metrics.corrupt_indexes, dataset.ignored_corruption()), (1, 1));
        let mut stream = dataset.run(&query).unwrap();
        assert_eq!(stream.by_ref().map(|batch| batch.unwrap().num_rows() as u64).sum::<u64>(), EPOCHS * ROWS);
        assert_eq!((stream.metrics().rows_matched, stream.metrics().corrupt_indexes), (EPOCHS * ROWS, 1));
    }
}

#[test]
fn a_spatial_index_that_is_corrupt_after_its_first_row_is_an_error_but_counts_start_over() {
    let storage = write();
    let corrupted = corrupted(&storage, 0, false);
    for threads in [1, 4] {
        let query = everything().threads(threads);
        let dataset = Dataset::open_with(corrupted.clone(), ROOT).unwrap();
        let mut stream = dataset.run(&query).unwrap();
        let mut rows = 0;
        let error = loop {
            match stream.next().expect("the last rows are corrupt") {
                Ok(batch) => rows += batch.num_rows() as u64,
                Err(error) => break error.to_string(),
            }
        };
        assert!((1..ROWS).contains(&rows), "{rows} rows");
        assert!(error.contains(SPATIAL) && error.contains("--use scan"), "{error}");
        assert!(stream.next().is_none());

        let (counted, metrics) = dataset.count(&query).unwrap();
        assert_eq!((counted, metrics.rows_matched, metrics.corrupt_indexes), (EPOCHS * ROWS, EPOCHS * ROWS, 1));
        let mut bins = Bins::new(7);
        bins.range = Some((Value::Int(0), Value::Int(30_000)));
        let whole = Dataset::open_with(storage.clone(), ROOT).unwrap();
        let expected =
            whole.histogram(&of_column(&query.clone().using(Use::Scan), "id", &bins, Source::Exact)).unwrap();
        let found = dataset.histogram(&of_column(&query, "id", &bins, Source::Exact)).unwrap();
        assert_eq!((found.axes, found.rows), (expected.axes, expected.rows));
        assert_eq!(found.metrics.corrupt_indexes, 1);
        let aggregates = |query: Query| {
            let request = AggregateRequest::new(query).by("epoch").by("bins(id, 0, 30000, 7)");
            request.aggregate("n = count()").aggregate("s = sum(id)").aggregate("m = quantile(id, 0.5)")
        };
        let expected = whole.aggregate(&aggregates(query.clone().using(Use::Scan))).unwrap();
        let found = dataset.aggregate(&aggregates(query.clone())).unwrap();
        assert_eq!((found.table, found.rows, found.outside), (expected.table, expected.rows, expected.outside));
        assert_eq!(found.metrics.corrupt_indexes, 1);
    }
}

/// Returns the storage with another spatial index, which has only the last epoch.
fn with_half_an_index(storage: &Arc<dyn Storage>) -> DatasetPaths {
    let definition = OF_LAST.parse().unwrap();
    let mut build = IndexBuild::open_with(storage.clone(), ROOT, &definition, &IndexOptions::default()).unwrap();
    build.build_epoch(EPOCHS - 1, &|_| ()).unwrap();
    build.close().unwrap();
    DatasetPaths::new(ROOT).index(OF_LAST)
}

const OF_LAST: &str = "space:y,x";

/// While records of an epoch are read, the next epoch is begun by its index, which is not to blame.
#[test]
fn corrupt_records_before_an_epoch_of_a_spatial_index_are_an_error() {
    let storage = write();
    with_half_an_index(&storage);
    let corrupted = corrupted_in(&storage, &DatasetPaths::new(ROOT), 0, false);
    for threads in [1, 2, 4, 8] {
        let dataset = Dataset::open_with(corrupted.clone(), ROOT).unwrap();
        let query = everything().using(Use::named(OF_LAST)).threads(threads);
        let mut stream = dataset.run(&query).unwrap();
        let error = stream.by_ref().find_map(|batch| batch.err()).expect("an error").to_string();
        assert!(error.contains("epoch=0") && !error.contains("--use scan"), "{error}");
        assert!(dataset.count(&query).unwrap_err().to_string().contains("epoch=0"));
        assert_eq!((stream.metrics().corrupt_indexes, dataset.ignored_corruption()), (0, 0));
    }
}

/// Rows that are not in a batch yet are discarded, and neither they nor pieces without rows count.
#[test]
fn rows_that_have_not_been_handed_out_are_not_returned_rows() {
    let storage = write();
    let of_last = with_half_an_index(&storage);
    let one = "x * y + small >= x * y AND id * 3 - id - id = 29999";
    // Too few rows for a batch of their own.
    let few = "x * y + small >= x * y AND value * 2 - value < 400000000";
    for (filter, index, epochs, limit) in [
        (few, SPATIAL, 0..=0, u64::MAX),
        (one, SPATIAL, 0..=0, u64::MAX),
        (few, OF_LAST, 0..=EPOCHS - 1, u64::MAX),
        (few, SPATIAL, 0..=0, 2_000),
    ] {
        let paths = if index == OF_LAST { &of_last } else { &DatasetPaths::new(ROOT).index(SPATIAL) };
        // The page of one row is not the first.
        for is_first in [false, true].into_iter().take(if filter == one { 1 } else { 2 }) {
            let corrupted = corrupted_in(&storage, paths, *epochs.end(), is_first);
            for threads in [1, 4] {
                let selected = EpochRange { first: *epochs.start(), last: *epochs.end() };
                let query = Query::new().filter(filter).columns(["id", "value", "small"]).epochs(selected);
                let query = query.limit(limit).threads(threads);
                let of_scan = Dataset::open_with(storage.clone(), ROOT).unwrap();
                let mut of_scan = of_scan.run(&query.clone().using(Use::Scan)).unwrap();
                let scanned: usize = of_scan.by_ref().map(|batch| batch.unwrap().num_rows()).sum();
                let dataset = Dataset::open_with(corrupted.clone(), ROOT).unwrap();
                let mut stream = dataset.run(&query.using(Use::named(index))).unwrap();
                let rows: usize = stream.by_ref().map(|batch| batch.unwrap().num_rows()).sum();
                let (found, expected) = (stream.metrics(), of_scan.metrics());
                let story = format!("{filter} by {index}, first {is_first}, limit {limit}, {threads} threads");
                assert_eq!(rows, scanned, "{story}");
                // The index is read until the limit, or the records are in place of a corrupt one.
                assert!(found.rows_matched >= rows as u64, "{story}: {found:?}");
                assert!(found.pages_read > 0 && found.runs_touched > 0, "{story}: {found:?}");
                if limit == u64::MAX {
                    assert_eq!(found.corrupt_indexes, 1, "{story}");
                    assert_eq!(
                        QueryMetrics { corrupt_indexes: 0, read_s: 0.0, filter_s: 0.0, merge_s: 0.0, ..found },
                        QueryMetrics { read_s: 0.0, filter_s: 0.0, merge_s: 0.0, ..expected },
                        "{story}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_walk_does_not_blame_its_index_for_corrupt_records() {
    let storage = write();
    let dataset = Dataset::open_with(storage.clone(), ROOT).unwrap();
    let (manifest, faults) = (dataset.manifest(0).unwrap(), FaultStorage::new(storage.clone()));
    for group in &manifest.row_groups {
        let entry = manifest.parts.iter().find(|entry| entry.part == group.part).unwrap();
        let path = DatasetPaths::new(ROOT).part(0, entry, dataset.schema());
        faults.add_fault(Fault::Flip { path, offset: group.offset + group.bytes - 10, mask: 4 });
    }
    let dataset = Dataset::open_with(Arc::new(faults), ROOT).unwrap();
    let query = Query::new().epochs(0).columns(["id", "value", "x", "y", "small"]).ordered_by("id").limit(400);
    let mut stream = dataset.run(&query.using(Use::named("id"))).unwrap();
    let error = stream.next().expect("an error").unwrap_err().to_string();
    assert!(error.contains("data/epoch=0"), "{error}");
    assert_eq!((stream.metrics().corrupt_indexes, dataset.ignored_corruption()), (0, 0));
}

#[test]
fn covering_entries_beyond_the_limit_match_no_rows() {
    let dataset = Dataset::open_with(write(), ROOT).unwrap();
    let query = Query::new().filter("id IN (40, 4711, 29999)").columns(["id", "small"]).using(Use::named("id"));
    for (limit, threads) in (0..8).flat_map(|limit| [(limit, 1), (limit, 4)]) {
        let mut stream = dataset.run(&query.clone().limit(limit).threads(threads)).unwrap();
        let rows: usize = stream.by_ref().map(|batch| batch.unwrap().num_rows()).sum();
        assert_eq!((rows as u64, stream.metrics().rows_matched), (limit.min(6), limit.min(6)));
    }
}

#[test]
fn the_order_that_runs_is_explained_and_counted() {
    let dataset = Dataset::open_with(write(), ROOT).unwrap();
    let row_groups = dataset.manifest(0).unwrap().row_groups.len() as u64;
    for (columns, access, is_walk) in [
        (&["small", "value"][..], Use::named("id"), true),
        (&["id", "small"], Use::named("id"), true),
        // The column of the order is read, too.
        (&["small"], Use::Scan, false),
    ] {
        let query = Query::new().epochs(0).columns(columns.iter().copied()).ordered_by("id").limit(10).using(access);
        let mut stream = dataset.run(&query).unwrap();
        let rows: usize = stream.by_ref().map(|batch| batch.unwrap().num_rows()).sum();
        let (metrics, explained) = (stream.metrics(), dataset.explain(&query).unwrap());
        let (story, epoch) = (explained.to_string(), &explained.epochs[0]);
        assert_eq!((rows, metrics.runs_considered), (10, row_groups), "{story}");
        let read = epoch.bytes_least..=epoch.bytes_most;
        assert!(read.contains(&metrics.bytes_read), "{} bytes: {story}", metrics.bytes_read);
        assert_eq!(story.contains("ordered by the entries of index id"), is_walk, "{story}");
        assert!(epoch.alternatives.iter().all(|path| !is_walk || path.is_used == (path.path == "id")), "{story}");
        let skipped: u64 = epoch.runs.iter().map(|kind| kind.skipped).sum();
        assert_eq!(skipped, if columns == ["id", "small"] { row_groups } else { 0 }, "{story}");
    }
}
