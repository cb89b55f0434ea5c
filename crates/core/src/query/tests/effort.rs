//! Costs of queries: bytes read as counted by the storage, rows held, and runs opened.

use super::*;
use crate::error::Error;
use crate::expr::TruthValue;
use crate::query::request::ResolvedQuery;
use crate::query::rows::selection::RowSelection;
use crate::storage::FaultStorage;
use crate::store::EpochRange;

/// Opens a dataset on storage that counts operations, and loads its manifests and footers.
fn counted(fixture: &Fixture) -> (Dataset, Arc<FaultStorage>) {
    let storage = Arc::new(FaultStorage::new(fixture.storage.clone()));
    let dataset = Dataset::open_with(storage.clone(), ROOT).unwrap();
    dataset.run(&Query::new().limit(u64::MAX - 1)).unwrap().for_each(|batch| drop(batch.unwrap()));
    (dataset, storage)
}

/// Returns the number of rows of a query, the bytes of pages that it read as counted by the storage, and its own
/// statistics.
fn cost(dataset: &Dataset, storage: &FaultStorage, query: &Query) -> (u64, u64, crate::query::QueryMetrics) {
    // Loads the page indexes that the query uses. Pages of 256 rows are too short for their keys to be in the manifest.
    dataset.run(query).unwrap().for_each(|batch| drop(batch.unwrap()));
    let before = storage.counters().bytes_read;
    let mut stream = dataset.run(query).unwrap();
    let rows = stream.by_ref().map(|batch| batch.unwrap().num_rows() as u64).sum();
    (rows, storage.counters().bytes_read - before, stream.metrics())
}

/// Writes four parts of two runs of 30,000 rows. A row has 23 bytes in five columns. The column chunks are too far
/// apart to share reads. Returns also the number of bytes in all runs.
fn large() -> (Fixture, u64) {
    let fixture = Fixture::new(DataType::F32, 256, 1);
    let manifest = fixture.write(&partitioned(1, 4, 2, 30_000));
    let bytes = manifest.row_groups.iter().map(|run| run.bytes).sum();
    (fixture, bytes)
}

#[test]
fn a_narrow_range_reads_a_small_share() {
    let (fixture, total_bytes) = large();
    let (dataset, storage) = counted(&fixture);
    let query = Query::new().filter("energy >= 2.5 and energy < 2.502");
    let (rows, bytes, metrics) = cost(&dataset, &storage, &query);
    assert!(rows > 60 && rows < 200, "{rows}");
    assert_eq!(metrics.bytes_read, bytes, "the metrics say what was read");
    assert_eq!((metrics.runs_considered, metrics.runs_touched), (8, 2));
    // The query reads one or two pages of 256 rows, in each of two runs and five columns.
    assert!(metrics.pages_read <= 20, "{}", metrics.pages_read);
    assert!(bytes * 100 < total_bytes, "{bytes} of {total_bytes}");
    assert_eq!(metrics.rows_matched, rows);
}

#[test]
fn a_box_reads_what_its_comparisons_read() {
    let (fixture, _) = large();
    let (dataset, storage) = counted(&fixture);
    let expected = cost(&dataset, &storage, &Query::new().filter("energy >= 2.5 AND energy < 2.502")).1;
    let (_, bytes, _) = cost(&dataset, &storage, &Query::new().within("energy=2.5:2.502"));
    assert_eq!(bytes, expected);
    // The statistics of each column exclude row groups: ids up to 60,000 are those of the first part.
    let ids = format!("id={}:{}", (1u64 << 32) + 40_000, (1u64 << 32) + 40_010);
    let (rows, _, metrics) = cost(&dataset, &storage, &Query::new().within(format!("energy=0:1,{ids}")));
    assert_eq!((rows, metrics.runs_touched), (10, 1));
    let (rows, bytes, _) = cost(&dataset, &storage, &Query::new().within(format!("energy=1:2,{ids}")));
    assert_eq!((rows, bytes), (0, 0));
}

#[test]
fn a_periodic_box_reads_the_pages_of_its_images() {
    let (fixture, total_bytes) = large();
    let (dataset, storage) = counted(&fixture);
    // Keys lie between 0 and 4. Each place of the box is one or two pages of 256 rows in each of two runs, as in
    // `a_narrow_range_reads_a_small_share`.
    for (sides, period, places, image) in [
        ("energy=3.999:4.001", "4", 2, "energy >= 3.999 OR energy < 0.001"),
        ("energy=-0.001:0.001", "4", 2, "energy >= 3.999 OR energy < 0.001"),
        ("energy=400.5:400.502", "100", 1, "energy >= 0.5 AND energy < 0.502"),
        ("energy=0.5:0.502", "2", 2, "energy >= 0.5 AND energy < 0.502 OR energy >= 2.5 AND energy < 2.502"),
    ] {
        let (rows, bytes, metrics) = cost(&dataset, &storage, &Query::new().within(sides).periods(period));
        assert_eq!(metrics.runs_touched, 2 * places, "{sides} of {period}");
        assert!(bytes * 100 < total_bytes * places, "{sides} of {period}: {bytes} of {total_bytes}");
        let expected = dataset.count(&Query::new().filter(image)).unwrap().0;
        assert!(rows > 60 && rows == expected, "{sides} of {period}: {rows} rows, {expected} in the images");
    }
}

#[test]
fn nothing_is_read_where_the_manifest_rules_all_out() {
    let (fixture, _) = large();
    let (dataset, storage) = counted(&fixture);
    for filter in ["energy > 4", "energy < 0", "epoch > 1", "isnan(energy)", "energy > 1 and energy < 0.5"] {
        let (rows, bytes, metrics) = cost(&dataset, &storage, &Query::new().filter(filter));
        assert_eq!((rows, bytes, metrics.runs_touched), (0, 0, 0), "{filter}");
    }
}

/// A dataset may have thousands of epochs, and listing them takes longer than a small query.
#[test]
fn an_epoch_that_is_named_is_looked_up_alone() {
    let (fixture, _) = large();
    let (dataset, storage) = counted(&fixture);
    // Counts all operations, and the operations that list a folder.
    let operations = |query: &Query| {
        let before = storage.counters();
        assert_eq!(rows_of(&dataset, query).len(), 0);
        let after = storage.counters();
        (after.operations - before.operations, after.lists - before.lists)
    };
    let nothing = Query::new().filter("energy > 4");
    assert_eq!(operations(&nothing.clone().epochs(1)), (1, 0), "the folder of the epoch, or its known manifest");
    assert_eq!(operations(&nothing.clone().epochs(EpochRange::one(1))), (1, 0));
    let backwards = nothing.clone().epochs(EpochRange { first: 2, last: 1 });
    assert_eq!(operations(&backwards), (1, 1), "the folder above; a range that ends before it begins holds none");
    for missing in [vec![2], vec![1, 2], (1..100).collect()] {
        let error = dataset.run(&nothing.clone().epochs(missing)).unwrap_err();
        assert!(matches!(error, Error::EpochMissing { epoch: 2, .. }), "{error}");
    }
    let error = dataset.run(&nothing.epochs(EpochRange::one(2))).unwrap_err();
    assert!(matches!(error, Error::EpochMissing { epoch: 2, .. }), "{error}");
}

/// Checks the estimate of the bytes to read, which decides whether threads are started. The estimate assumes that half
/// of the tested rows match at the ends of a key range.
#[test]
fn rows_that_must_be_tested_count_for_less() {
    let (fixture, _) = large();
    let dataset = fixture.open();
    let resolved = |query: &Query| ResolvedQuery::resolve(query, dataset.schema()).unwrap();
    let mut selection = RowSelection::all(100);
    selection.push(100..300, TruthValue::Maybe);
    // A row has 23 bytes, and its key has 4 of them.
    assert_eq!(selection.read_bytes(&resolved(&Query::new().filter("energy > 1"))), 100 * 23 + 200 * 13);
    assert_eq!(selection.read_bytes(&resolved(&Query::new().filter("energy > b"))), 300 * 23);
    let key = Query::new().filter("energy > 1").columns(["energy"]);
    assert_eq!(selection.read_bytes(&resolved(&key)), 300 * 4);
}

#[test]
fn only_asked_for_columns_are_read() {
    let (fixture, total_bytes) = large();
    let (dataset, storage) = counted(&fixture);
    let (rows, all, _) = cost(&dataset, &storage, &Query::new());
    assert_eq!(rows, 240_000);
    assert!(all >= total_bytes && all < total_bytes + total_bytes / 100, "{all} of {total_bytes}");
    let (_, one, _) = cost(&dataset, &storage, &Query::new().columns(["b"]));
    // Pages store a two-byte value as four bytes.
    assert!(one < total_bytes / 4, "{one} of {total_bytes}");
}

#[test]
fn the_other_columns_are_read_only_where_rows_match() {
    let (fixture, total_bytes) = large();
    let (dataset, storage) = counted(&fixture);
    // The predicate matches one row of the whole dataset, by a column that is not the key.
    let id = (1u64 << 32) + 100_000;
    let query = Query::new().filter(format!("id = {id}"));
    let (rows, bytes, _) = cost(&dataset, &storage, &query);
    assert_eq!(rows, 1);
    // The manifest excludes all but one run, with 30,000 ids of eight bytes each. In the other columns, one page each
    // is read.
    assert!(bytes < 30_000 * 9 + 5 * 4096, "{bytes} of {total_bytes}");
}

#[test]
fn counts_read_only_what_summaries_leave_open() {
    let (fixture, _) = large();
    let (dataset, storage) = counted(&fixture);
    let count = |filter: &str| {
        dataset.explain(&Query::new().filter(filter)).unwrap();
        let before = storage.counters().bytes_read;
        let (rows, _) = dataset.count(&Query::new().filter(filter)).unwrap();
        (rows, storage.counters().bytes_read - before)
    };
    assert_eq!(count("energy >= 1 and energy < 3"), (120_000, 0), "whole runs are counted from the manifest");
    let (rows, bytes) = count("energy >= 1.5 and energy < 3");
    assert!(rows > 85_000 && rows < 95_000);
    // In each of two runs, the query reads the one page that contains 1.5, at four bytes per row.
    assert!(bytes <= 4 * 256 * 5, "{bytes}");
    let fresh = Dataset::open_with(storage.clone(), ROOT).unwrap();
    fresh.manifest(1).unwrap();
    let before = storage.counters().bytes_read;
    assert_eq!(fresh.count(&Query::new()).unwrap().0, 240_000);
    assert_eq!(storage.counters().bytes_read, before, "not even footers are opened");
}

#[test]
fn a_limit_ends_reading() {
    let (fixture, total_bytes) = large();
    let (dataset, storage) = counted(&fixture);
    let page_bytes = 256 * 26;
    let (rows, bytes, _) = cost(&dataset, &storage, &Query::new().limit(5));
    assert!(rows == 5 && bytes < 2 * page_bytes, "{bytes}");
    let (rows, bytes, _) = cost(&dataset, &storage, &Query::new().filter("b > 0").limit(5));
    assert!(rows == 5 && bytes < 8 * page_bytes, "{bytes}");
    let (rows, bytes, metrics) = cost(&dataset, &storage, &Query::new().limit(5).ordered(true));
    assert!(rows == 5 && bytes < 4 * page_bytes, "{bytes}");
    assert_eq!(
        metrics.runs_touched, 1,
        "the run with the smallest key has five of it, and it comes first among equals"
    );
    let (rows, bytes, _) = cost(&dataset, &storage, &Query::new().limit(30_000));
    assert!(rows == 30_000 && bytes < total_bytes / 4, "{bytes} of {total_bytes}");
    assert_eq!(cost(&dataset, &storage, &Query::new().limit(0)), (0, 0, Default::default()));
}

#[test]
fn explanations_tell_what_is_read() {
    let (fixture, _) = large();
    let (dataset, storage) = counted(&fixture);
    for filter in ["energy >= 2.5 and energy < 2.502", "a > 99.9", "energy > 1.25 and b > 100", "energy < 2"] {
        let query = Query::new().filter(filter);
        dataset.explain(&query).unwrap();
        let before = storage.counters().bytes_read;
        let explained = dataset.explain(&query).unwrap();
        assert_eq!(storage.counters().bytes_read, before, "explaining reads no page");
        let (rows, bytes, metrics) = cost(&dataset, &storage, &query.threads(1));
        let [epoch] = explained.epochs.as_slice() else { panic!("one epoch") };
        assert!(epoch.rows_least <= rows && rows <= epoch.rows_most, "{rows} {epoch:?}");
        assert!(epoch.bytes_least <= bytes, "{bytes} {epoch:?}");
        assert!(bytes <= epoch.bytes_most, "{bytes} {epoch:?}");
        let looked: u64 = epoch.runs.iter().map(|kind| kind.whole + kind.tested).sum();
        assert!(metrics.runs_touched <= looked);
        let text = explained.to_string();
        assert!(text.contains("row groups") && text.contains("bytes to read"), "{text}");
    }
    let narrow = dataset.explain(&Query::new().filter("energy > 2.5 and energy < 2.6 and b > -40000")).unwrap();
    let skipped = &narrow.epochs[0].runs_skipped_by;
    assert_eq!((skipped.len(), skipped[0].by.as_str(), skipped[0].runs), (1, "energy", 6), "{skipped:?}");
    assert_eq!(narrow.epochs[0].rows_skipped_by[0].by, "energy");
}

#[test]
fn an_ordered_query_holds_only_overlapping_runs() {
    // Each of 24 parts has 3 runs of 2,000 rows. The runs of one part overlap, but the parts do not.
    let fixture = Fixture::new(DataType::F64, 16, 1);
    fixture.write(&partitioned(1, 24, 3, 2_000));
    let dataset = fixture.open();
    for threads in [1, 3] {
        let mut stream =
            dataset.run(&Query::new().ordered(true).threads(threads).batch_rows(100).limit(100_000)).unwrap();
        let mut last = f64::NEG_INFINITY;
        let mut rows = 0;
        for batch in &mut stream {
            for (_, record) in records(&batch.unwrap()) {
                assert!(record.key >= last);
                last = record.key;
                rows += 1;
            }
        }
        assert_eq!(rows, 100_000);
        // At a boundary, the runs of two parts are open, and each has at most 2,000 rows. With three threads, each of
        // eight slabs in flight adds a run. If threads are ahead of the caller, slabs have been merged whose rows are
        // also in runs that are still open, and one slab is being returned. Otherwise the pending batch has few rows.
        let open = 2 * 3;
        let ahead = if threads > 1 { 2 * (threads as u64 + 1) + open + 1 } else { 0 };
        let most = (open + ahead) * 2_000 + 300;
        assert!(stream.peak_resident_rows() <= most, "{} rows with {threads} threads", stream.peak_resident_rows());
    }
}

#[test]
fn windows_shrink_when_many_runs_overlap() {
    // All 200 runs cover the whole key range.
    let fixture = Fixture::new(DataType::F32, 8, 1);
    let epoch = partitioned(1, 1, 200, 300);
    fixture.write(&epoch);
    let mut expected = epoch.stored();
    expected.sort_by(|one, other| key_order(one.key, other.key));
    let answer: Vec<Record> =
        rows_of(&fixture.open(), &Query::new().ordered(true)).into_iter().map(|(_, record)| record).collect();
    assert_eq!(answer, expected);
}

#[test]
fn an_unordered_query_holds_a_bounded_number_of_chunks() {
    let (fixture, _) = large();
    let dataset = fixture.open();
    for threads in [1, 2, 4] {
        let mut stream = dataset.run(&Query::new().threads(threads).batch_rows(1_000)).unwrap();
        let rows: usize = (&mut stream).map(|batch| batch.unwrap().num_rows()).sum();
        assert_eq!(rows, 240_000);
        // A chunk has 1,000 rows, rounded up to pages of 256 rows. The chunks in flight, one that is being collected,
        // and one that is pending are resident.
        let most = (threads as u64 + 4) * 1_024;
        assert!(stream.peak_resident_rows() <= most, "{} rows with {threads} threads", stream.peak_resident_rows());
    }
}

#[test]
fn threads_change_nothing_but_the_time() {
    let (fixture, _) = large();
    let dataset = fixture.open();
    for ordered in [false, true] {
        let query = Query::new().filter("b > 0 and energy > 0.7").ordered(ordered);
        let batches = |threads: usize| -> Vec<RecordBatch> {
            dataset.run(&query.clone().threads(threads)).unwrap().map(|batch| batch.unwrap()).collect()
        };
        assert_eq!(batches(1), batches(4), "the same batches, cut at the same rows");
    }
}

#[test]
fn dropping_a_stream_stops_its_work() {
    let fixture = Fixture::new(DataType::F32, 256, 1);
    let manifest = fixture.write(&partitioned(1, 24, 2, 5_000));
    let total_bytes: u64 = manifest.row_groups.iter().map(|run| run.bytes).sum();
    let (dataset, storage) = counted(&fixture);
    for ordered in [false, true] {
        let before = storage.counters().bytes_read;
        let mut stream = dataset.run(&Query::new().ordered(ordered).threads(2).batch_rows(256)).unwrap();
        stream.next().unwrap().unwrap();
        drop(stream);
        let after = storage.counters().bytes_read;
        assert!(after - before < total_bytes / 2, "{} of {total_bytes}", after - before);
        std::thread::yield_now();
        assert_eq!(storage.counters().bytes_read, after, "nobody reads on");
    }
}

/// Checks the planning of an epoch with very many parts, of which only one file exists. Planning opens the manifest and
/// one footer, lists no folder, and evaluates the predicate only for the row groups within the key range.
#[test]
fn planning_over_131072_parts_touches_few_of_them() {
    const PARTS: u32 = 1 << 17;
    let fixture = Fixture::new(DataType::F32, 256, 1);
    let mut manifest = fixture.write(&partitioned(1, 1, 1, 1000));
    let (part, run) = (manifest.parts[0], manifest.row_groups[0].clone());
    for rank in 1..PARTS {
        let mut part = part;
        part.part.rank = rank;
        manifest.parts.push(part);
        let mut run = run.clone();
        run.part.rank = rank;
        let low = f64::from(rank) * 8.0;
        run.columns[1].range = Some((crate::schema::Value::Float(low), crate::schema::Value::Float(low + 8.0)));
        manifest.row_groups.to_mut().push(run);
    }
    fixture.put_manifest(&manifest);
    let storage = Arc::new(FaultStorage::new(fixture.storage.clone()));
    let dataset = Dataset::open_with(storage.clone(), ROOT).unwrap();
    let manifest = dataset.manifest(1).unwrap();
    assert_eq!(manifest.row_groups.len(), PARTS as usize);
    let opened = storage.counters();
    // The descriptor, the manifest, and the trailer and footer of the first part are read. Look-ups and listings are
    // not reads.
    assert!(opened.reads <= 12, "{} reads", opened.reads);
    assert_eq!(manifest.row_groups.made(), 0);
    for (filter, touched) in [("energy < -5", 0), ("energy >= 0 and energy < 2", 1), ("energy > 2000000", 0)] {
        let (_, _, metrics) = cost(&dataset, &storage, &Query::new().filter(filter));
        assert_eq!((metrics.runs_considered, metrics.runs_touched), (u64::from(PARTS), touched), "{filter}");
    }
    // Entries are decoded together with some of their neighbours.
    assert!((1..=64).contains(&manifest.row_groups.made()), "{} entries were made", manifest.row_groups.made());
}
