//! Rows sorted by columns and expressions, over all epochs and epoch by epoch, against a sort of all records.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use arrow_array::types::Float64Type;
use proptest::prelude::*;

use super::paths::{EPOCHS, ROWS, record, write_by};
use super::*;
use crate::query::{QueryMetrics, Use};

/// A row of an answer: epoch, id, key, small, and the expression.
type Row = (u64, u64, u32, u8, f64);

const COLUMNS: [&str; 5] = ["epoch", "id", "value", "small", "d = x - 2 * y"];

/// Names of what orders rows.
const NAMES: [&str; 6] = ["value", "id", "small", "d", "abs(x - 80)", "y"];

fn row(epoch: u64, id: u64) -> Row {
    let (value, id, x, y, small) = record(epoch, id);
    (epoch, id, value, small, f64::from(x) - 2.0 * f64::from(y))
}

/// Returns the number that orders a row by a name.
fn number(name: &str, row: &Row) -> f64 {
    let (_, _, x, y, _) = record(row.0, row.1);
    match name {
        "value" => f64::from(row.2),
        "id" => row.1 as f64,
        "small" => f64::from(row.3),
        "d" => row.4,
        "y" => f64::from(y),
        _ => (f64::from(x) - 80.0).abs(),
    }
}

fn compare(order: &[(&str, bool)], one: &Row, other: &Row) -> Ordering {
    let by = |(name, is_descending): &(&str, bool)| {
        let ordering = number(name, one).total_cmp(&number(name, other));
        if *is_descending { ordering.reverse() } else { ordering }
    };
    order.iter().map(by).find(|ordering| ordering.is_ne()).unwrap_or(Ordering::Equal)
}

fn text(order: &[(&str, bool)]) -> String {
    let column = |(name, is_descending): &(&str, bool)| format!("{name}{}", if *is_descending { " DESC" } else { "" });
    order.iter().map(column).collect::<Vec<_>>().join(", ")
}

fn run(dataset: &Dataset, query: &Query) -> crate::Result<(Vec<Row>, QueryMetrics)> {
    let mut stream = dataset.run(&query.clone().columns(COLUMNS))?;
    let mut rows = Vec::new();
    for batch in &mut stream {
        let batch = batch?;
        let epochs = batch.column(0).as_primitive::<Int64Type>();
        let ids = batch.column(1).as_primitive::<UInt64Type>();
        let values = batch.column(2).as_primitive::<UInt32Type>();
        let small = batch.column(3).as_primitive::<UInt8Type>();
        let computed = batch.column(4).as_primitive::<Float64Type>();
        rows.extend((0..batch.num_rows()).map(|row| {
            (epochs.value(row) as u64, ids.value(row), values.value(row), small.value(row), computed.value(row))
        }));
    }
    Ok((rows, stream.metrics()))
}

/// Checks that an answer has the first rows of a sort, whichever of equal ones.
fn check(rows: &[Row], order: &[(&str, bool)], (is_per_epoch, limit): (bool, usize), matches: impl Fn(&Row) -> bool) {
    let mut expected: Vec<Row> =
        (0..EPOCHS).flat_map(|epoch| (0..ROWS).map(move |id| row(epoch, id))).filter(|row| matches(row)).collect();
    let by_epoch = |one: &Row, other: &Row| if is_per_epoch { one.0.cmp(&other.0) } else { Ordering::Equal };
    expected.sort_by(|one, other| by_epoch(one, other).then_with(|| compare(order, one, other)));
    expected.truncate(limit);
    assert_eq!(rows.len(), expected.len());
    let mut seen = BTreeSet::new();
    for (found, wanted) in rows.iter().zip(&expected) {
        assert_eq!(compare(order, found, wanted), Ordering::Equal, "{found:?} where {wanted:?} was expected");
        assert!(!is_per_epoch || found.0 == wanted.0, "{found:?} where {wanted:?} was expected");
        assert_eq!(*found, row(found.0, found.1));
        assert!(matches(found) && seen.insert((found.0, found.1)), "{found:?}");
    }
}

type Condition = (&'static str, fn(&Row) -> bool);

const CONDITIONS: [Condition; 5] = [
    ("true", |_| true),
    ("small = 7", |row| row.3 == 7),
    ("value < 1000000000", |row| row.2 < 1_000_000_000),
    ("id < 5000 AND value > 3000000000", |row| row.1 < 5000 && row.2 > 3_000_000_000),
    ("small > 200 OR x - 2 * y < 0", |row| row.4 < 0.0),
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn sorted_rows_are_those_of_a_sort(
        (is_hashed, threads, access) in (any::<bool>(), 1usize..4, 0usize..3),
        columns in prop::sample::subsequence(NAMES.to_vec(), 1..4).prop_shuffle(),
        directions in any::<[bool; 3]>(),
        (condition, is_per_epoch) in (0..CONDITIONS.len(), any::<bool>()),
        limit in prop::sample::select(vec![0u64, 1, 9, 300, 3_000]),
    ) {
        static DATASETS: std::sync::LazyLock<[Dataset; 2]> = std::sync::LazyLock::new(|| {
            ["value", "hash:id"].map(|key| Dataset::open_with(write_by(key), ROOT).unwrap())
        });
        let order: Vec<(&str, bool)> = columns.into_iter().zip(directions).collect();
        let access = [Use::Automatic, Use::Scan, Use::Index("id".to_owned())][access].clone();
        let (filter, matches) = CONDITIONS[condition];
        let query = Query::new().ordered_by(text(&order)).per_epoch(is_per_epoch).limit(limit).filter(filter);
        let dataset = &DATASETS[usize::from(is_hashed)];
        let (rows, _) = run(dataset, &query.threads(threads).using(access)).unwrap();
        check(&rows, &order, (is_per_epoch, limit as usize), matches);
    }
}

/// Statistics separate the values of the key and of an indexed column, so that any number of rows is sorted in bounded
/// memory. Unit tests sort some 5,000 rows at once.
#[test]
fn any_number_of_rows_is_sorted_where_statistics_separate_them() {
    let dataset = Dataset::open_with(write_by("value"), ROOT).unwrap();
    for order in
        [&[("value", true)][..], &[("id", true)], &[("value", false), ("id", true)], &[("id", false), ("y", true)]]
    {
        for is_per_epoch in [true, false] {
            let query = Query::new().ordered_by(text(order)).per_epoch(is_per_epoch);
            check(&run(&dataset, &query).unwrap().0, order, (is_per_epoch, usize::MAX), |_| true);
            let (rows, _) = run(&dataset, &query.filter("small < 20").limit(25_000)).unwrap();
            check(&rows, order, (is_per_epoch, 25_000), |row| row.3 < 20);
        }
    }
    let refused = |query: Query| run(&dataset, &query).unwrap_err().to_string();
    let error = refused(Query::new().ordered_by("y DESC"));
    assert!(error.contains("rows cannot be sorted by 'y desc' in memory; limit the query to"), "{error}");
    assert!(error.ends_with("or sort each epoch by itself"), "{error}");
    assert!(refused(Query::new().epochs(1).ordered_by("small, y")).ends_with(" rows"));
    let (rows, _) = run(&dataset, &Query::new().ordered_by("y DESC").filter("small = 3")).unwrap();
    check(&rows, &[("y", true)], (false, usize::MAX), |row| row.3 == 3);
}

/// The first rows of any order of a column with statistics or an index are read without most of the others.
#[test]
fn first_rows_are_read_from_the_end_that_matters() {
    let dataset = Dataset::open_with(write_by("value"), ROOT).unwrap();
    let (_, all) = run(&dataset, &Query::new()).unwrap();
    for (order, share) in [("value desc", 20), ("value", 20), ("value desc, y", 20), ("id desc", 5), ("id, y desc", 5)]
    {
        let query = Query::new().ordered_by(order).limit(20);
        let (rows, read) = run(&dataset, &query).unwrap();
        assert_eq!(rows.len(), 20);
        assert!(read.bytes_read * share < all.bytes_read, "{order}: {} of {}", read.bytes_read, all.bytes_read);
        let explanation = dataset.explain(&query.columns(COLUMNS)).unwrap();
        let most: u64 = explanation.epochs.iter().map(|epoch| epoch.bytes_most).sum();
        assert!(read.bytes_read <= most, "{order}: {} of {most}", read.bytes_read);
        assert!(explanation.to_string().contains("ordered by a scan of the rows with"), "{explanation}");
        assert_eq!(explanation.ordered_by.as_deref(), Some(order));
    }
}

/// A predicate of the column itself ends intervals within its range, so that little else is read.
#[test]
fn predicates_of_the_column_bound_intervals() {
    let dataset = Dataset::open_with(write_by("value"), ROOT).unwrap();
    let (_, all) = run(&dataset, &Query::new()).unwrap();
    for (order, filter) in [("value", "value >= 2000000000"), ("\"value\" DESC", "value < 2000000000")] {
        let (rows, read) =
            run(&dataset, &Query::new().ordered_by(order).filter(filter).limit(9).per_epoch(false)).unwrap();
        let matches = |row: &Row| (row.2 >= 2_000_000_000) == (order == "value");
        check(&rows, &[("value", order != "value")], (false, 9), matches);
        assert!(read.bytes_read * 15 < all.bytes_read, "{order}: {} of {}", read.bytes_read, all.bytes_read);
    }
}

/// Intervals are of one commit of each epoch.
#[test]
fn an_epoch_that_is_replaced_between_intervals_is_an_error() {
    let storage = write_by("value");
    let dataset = Dataset::open_with(storage.clone(), ROOT).unwrap();
    let query = Query::new().ordered_by("value DESC").columns(COLUMNS).batch_rows(1000);
    let mut stream = dataset.run(&query).unwrap();
    stream.next().unwrap().unwrap();
    let mut options = crate::WriteOptions::new(1);
    options.if_exists = IfExists::Replace;
    let job = crate::LocalJob::open_with(storage, ROOT, Schema::clone(dataset.schema()), options).unwrap();
    job.begin_epoch(1).unwrap();
    job.end_epoch().unwrap();
    job.close().unwrap();
    assert_eq!(dataset.count(&Query::new()).unwrap().0, ROWS, "another request reads the new epoch");
    let error = stream.find_map(Result::err).unwrap();
    assert!(error.to_string().contains("epoch 1 was replaced"), "{error}");
}

#[test]
fn orders_that_make_no_sense_are_refused() {
    let dataset = Dataset::open_with(write_by("value"), ROOT).unwrap();
    for (order, words) in [
        ("value, id desc, value desc", "'value' is listed twice"),
        ("epoch desc", "'epoch' orders no rows"),
        ("value down", "'value down'"),
        ("speed desc", "no column 'speed'"),
        ("desc", "no column 'desc'"),
        ("value,", "''"),
    ] {
        let error = run(&dataset, &Query::new().ordered_by(order)).unwrap_err();
        assert!(error.to_string().contains(words), "{order}: {error}");
    }
}
