//! Bounds that hold for any data: bytes read per byte returned, rows held in memory, and the order of large results.

use proptest::prelude::*;

use super::*;
use crate::storage::FaultStorage;

/// An upper bound of a page header's size.
const HEADER_BYTES: u64 = 40;

/// Size of one row in the pages of all columns, in bytes. The pages store a two-byte value as four bytes.
const ROW_BYTES: u64 = 4 + 4 + 4 + 8 + 5;
/// Size of one key in the pages of the key column, in bytes.
const KEY_BYTES: u64 = 4;

/// Checks the bytes that a range query reads: at most the matching bytes, a quarter of these for gaps, the page
/// headers, and two pages of each column chunk that the query touches. This is less than 1.3 times the matching bytes
/// if pages have at least 256 rows.
fn check_bytes(page_rows: u32, dataset: &Dataset, storage: &FaultStorage, query: Query) {
    for (query, row_bytes, columns) in [(query.clone(), ROW_BYTES, 5), (query.columns(["energy"]), KEY_BYTES, 1)] {
        // Loads the page indexes that the query uses.
        dataset.explain(&query).unwrap();
        let before = storage.counters().bytes_read;
        let mut stream = dataset.run(&query).unwrap();
        let rows: u64 = stream.by_ref().map(|batch| batch.unwrap().num_rows() as u64).sum();
        let read_bytes = storage.counters().bytes_read - before;
        let metrics = stream.metrics();
        assert_eq!(metrics.bytes_read, read_bytes);
        let page_rows = u64::from(page_rows);
        let end_pages = 2 * metrics.runs_touched;
        let headers = (rows / page_rows + end_pages) * columns;
        let most = rows * row_bytes * 5 / 4 + headers * HEADER_BYTES + end_pages * page_rows * row_bytes;
        assert!(read_bytes <= most, "{read_bytes} bytes for {rows} rows of {} runs: {query:?}", metrics.runs_touched);
        let explained = dataset.explain(&query).unwrap();
        assert!(read_bytes <= explained.epochs[0].bytes_most, "{read_bytes} {explained:?}");
        assert!(read_bytes >= explained.epochs[0].bytes_least, "{read_bytes} {explained:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
    #[test]
    fn range_queries_read_little_more_than_what_matches(
        page_rows in prop::sample::select(vec![64u32, 256, 1024]),
        (ranks, runs, rows) in prop::sample::select(vec![(1u32, 1u32, 40_000u32), (4, 2, 6_000), (2, 5, 3_000), (8, 3, 700)]),
        row_groups in 1u32..4,
        ranges in prop::collection::vec((0.0f64..1.0, prop::sample::select(vec![0.0001, 0.001, 0.01, 0.1, 0.5, 1.0])), 8),
        threads in 1usize..3,
    ) {
        let fixture = Fixture::new(DataType::F32, page_rows, row_groups);
        fixture.write(&partitioned(1, ranks, runs, rows));
        let storage = Arc::new(FaultStorage::new(fixture.storage.clone()));
        let dataset = Dataset::open_with(storage.clone(), ROOT).unwrap();
        dataset.run(&Query::new()).unwrap().for_each(|batch| drop(batch.unwrap()));
        for (from, share) in ranges {
            let (from, to) = (from * f64::from(ranks), (from + share) * f64::from(ranks));
            let query = Query::new().filter(format!("energy BETWEEN {from} AND {to}")).threads(threads);
            check_bytes(page_rows, &dataset, &storage, query.clone());
            check_bytes(page_rows, &dataset, &storage, query.ordered(true));
        }
    }
}

#[test]
fn pages_of_unlike_length_are_explained_too() {
    // Pages end at 1 MiB. Pages of 8-byte columns have fewer rows than pages of 4-byte columns, and pages of the 5-byte
    // column cross the boundaries of both.
    let fixture = Fixture::new(DataType::F32, 1 << 20, 1);
    fixture.write(&partitioned(1, 1, 1, 220_000));
    let dataset = fixture.open();
    for (filter, ordered) in [("energy >= 0", false), ("energy > 0.55", true), ("a > 50 and b > 0", false)] {
        let query = Query::new().filter(filter).ordered(ordered).batch_rows(1_000).threads(1);
        let explained = dataset.explain(&query).unwrap();
        let mut stream = dataset.run(&query).unwrap();
        let rows: usize = stream.by_ref().map(|batch| batch.unwrap().num_rows()).sum();
        assert_eq!(rows as u64, dataset.count(&query).unwrap().0);
        let epoch = &explained.epochs[0];
        let read_bytes = stream.metrics().bytes_read;
        assert!(epoch.bytes_least <= read_bytes && read_bytes <= epoch.bytes_most, "{filter}: {read_bytes} {epoch:?}");
    }
}

/// Returns an epoch whose keys are `key` of a random number, with many pages, many windows and several slabs.
fn range_count(runs: u32, rows: u32, key: impl Fn(u64) -> f64) -> TestEpoch {
    let record = |id: u64| Record { key: key(mix(id)), a: 0.0, b: 0, id };
    let run = |number: u32| {
        let first = u64::from(number) * u64::from(rows);
        TestRun { kind: RunKind::Regular, rows: (first..first + u64::from(rows)).map(record).collect() }
    };
    let parts = (0..runs).map(|number| (PartId { rank: number, roll: 0 }, vec![run(number)])).collect();
    TestEpoch { epoch: 1, parts }
}

#[test]
fn slabs_join_to_the_order_of_a_sort() {
    let wide = |random: u64| (random % 4096) as f64 * 1e300 - 2e303;
    let close = |random: u64| 1.0 + (random % 65_536) as f64 * f64::EPSILON;
    let few = |random: u64| (random % 7) as f64;
    let nan = |random: u64| if random.is_multiple_of(3) { f64::NAN } else { (random % 50) as f64 - 25.0 };
    let cases: [(DataType, &dyn Fn(u64) -> f64); 6] = [
        (DataType::F64, &wide),
        (DataType::F64, &close),
        (DataType::F32, &few),
        (DataType::F32, &nan),
        (DataType::I64, &few),
        (DataType::U32, &|random| (random >> 32) as f64),
    ];
    for (number, (key_type, key)) in cases.into_iter().enumerate() {
        let fixture = Fixture::new(key_type, 512, 2);
        let epoch = range_count(5, 9_000, key);
        fixture.write(&epoch);
        let mut expected = epoch.stored();
        // The sort is stable: ties stay in the order of part, run and row.
        expected.sort_by(|one, other| key_order(one.key, other.key));
        let expected: Vec<u64> = expected.iter().map(|record| record.id).collect();
        for threads in [1, 3] {
            let query = Query::new().ordered(true).columns(["id"]).threads(threads);
            let batches = fixture.open().run(&query).unwrap().map(|batch| batch.unwrap());
            let found = batches.flat_map(|batch| batch.column(0).as_primitive::<UInt64Type>().values().to_vec());
            assert!(found.eq(expected.iter().copied()), "case {number} with {threads} threads");
        }
    }
}

#[test]
fn a_key_that_all_rows_have_does_not_pile_up() {
    let fixture = Fixture::new(DataType::F32, 256, 1);
    fixture.write(&range_count(4, 60_000, |_| 0.0));
    let dataset = fixture.open();
    let mut stream = dataset.run(&Query::new().ordered(true).threads(1)).unwrap();
    let mut next = 0;
    for batch in &mut stream {
        for id in batch.unwrap().column_by_name("id").unwrap().as_primitive::<UInt64Type>().values() {
            assert_eq!(*id, next, "ties come in stored order");
            next += 1;
        }
    }
    assert_eq!(next, 240_000);
    // The rows of one window, its merged rows, and a pending batch are resident.
    assert!(stream.peak_resident_rows() <= 4 * (1 << 14), "{} rows", stream.peak_resident_rows());
}
