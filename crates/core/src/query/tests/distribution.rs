//! Histograms and quantiles compared with a sort of all values: bounds hold for any data, and exact results are equal.

use std::cmp::Ordering;

use proptest::prelude::*;

use super::histogram_2d::default_range;
use super::*;
use crate::error::Error;
use crate::query::{BinScale, Quantiles, QuantilesRequest};
use crate::schema::Value;
use crate::storage::FaultStorage;

pub(super) const KEY_TYPES: [DataType; 6] =
    [DataType::F32, DataType::F64, DataType::I32, DataType::I64, DataType::U32, DataType::U64];

/// Generates keys that stress order and width: zeros of both signs, infinities, NaN, extremes of the types, and both
/// frequent and rare values.
fn hostile_key() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => (-40i32..40).prop_map(|quarters| f64::from(quarters) / 4.0),
        2 => -1e3f64..1e3,
        1 => Just(7.0),
        1 => prop::sample::select(vec![0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300, -1e300, 1e-300]),
        1 => (0u64..100).prop_map(|step| 2f64.powi(63) + (step * 4096) as f64),
    ]
}

fn hostile_float() -> impl Strategy<Value = f32> {
    prop_oneof![
        6 => -10f32..10.0,
        1 => prop::sample::select(vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, 0.0, -0.0, 1e-45]),
    ]
}

fn records() -> impl Strategy<Value = Vec<Record>> {
    let record = (hostile_key(), hostile_float(), any::<i16>(), any::<u64>()).prop_map(|(key, a, b, id)| Record {
        key,
        a,
        b,
        id,
    });
    prop::collection::vec(record, 0..60)
}

/// Generates epochs of up to three parts of up to two runs. Some are empty. Rows are partitioned by key or arbitrarily.
pub(super) fn hostile_epochs() -> impl Strategy<Value = Vec<TestEpoch>> {
    let part = prop::collection::vec(records(), 0..3);
    let epoch = (prop::collection::vec(part, 1..4), any::<bool>());
    prop::collection::vec(epoch, 1..3).prop_map(|epochs| {
        let mut number = 0;
        let mut build = |(mut parts, is_partitioned): (Vec<Vec<Vec<Record>>>, bool)| {
            number += 1;
            if is_partitioned {
                let mut rows: Vec<Record> = parts.iter().flatten().flatten().copied().collect();
                rows.sort_by(|one, other| key_order(one.key, other.key));
                let mut rows = rows.into_iter();
                for run in parts.iter_mut().flatten() {
                    run.iter_mut().for_each(|slot| *slot = rows.next().unwrap());
                }
            }
            let run = |rows: Vec<Record>| TestRun { kind: RunKind::Regular, rows };
            let filled = |runs: Vec<Vec<Record>>| runs.into_iter().filter(|run| !run.is_empty()).map(run).collect();
            let part = |(rank, runs)| (PartId { rank, roll: 0 }, filled(runs));
            TestEpoch { epoch: number, parts: (0..).zip(parts).map(part).collect() }
        };
        epochs.into_iter().map(&mut build).collect()
    })
}

/// Returns the value of a column of a record as stored.
pub(super) fn stored_value(record: &Record, column: &str, key_type: DataType) -> Value {
    match column {
        "a" => Value::Float(f64::from(record.a)),
        "b" => Value::Int(record.b.into()),
        "id" => Value::Int(record.id.into()),
        _ => {
            let mut row = Vec::new();
            record.pack(key_type, &mut row);
            Value::from_stored(key_type, &row[2..])
        }
    }
}

/// Returns the values of a column as stored.
fn values(epochs: &[TestEpoch], column: &str, key_type: DataType) -> Vec<Value> {
    epochs.iter().flat_map(TestEpoch::stored).map(|record| stored_value(&record, column, key_type)).collect()
}

fn is(one: Value, relation: fn(Ordering) -> bool, other: Value) -> bool {
    one.compare(other).is_some_and(relation)
}

/// Returns the exact counts for these edges, in the order: minus infinity, below, the bins, above, infinity, NaN.
fn counted(values: &[Value], edges: &[Value]) -> Vec<u64> {
    let mut counts = vec![0; edges.len().max(1) + 4];
    let last = counts.len() - 1;
    for value in values {
        let float = value.as_f64();
        let place = match edges {
            _ if float.is_nan() => last,
            _ if float == f64::INFINITY => last - 1,
            _ if float == f64::NEG_INFINITY => 0,
            [] => 1,
            [first, ..] if is(*value, Ordering::is_lt, *first) => 1,
            [.., end] if is(*value, Ordering::is_gt, *end) => last - 2,
            [.., end] if is(*value, Ordering::is_eq, *end) => last - 3,
            _ => 1 + edges.iter().filter(|edge| is(*value, Ordering::is_ge, **edge)).count(),
        };
        counts[place] += 1;
    }
    counts
}

fn check_histogram(dataset: &Dataset, epochs: &[TestEpoch], column: &str, bins: &Bins, key_type: DataType) {
    let all = values(epochs, column, key_type);
    let ask = |source| dataset.histogram(&of_column(&Query::new(), column, bins, source));
    let bounded = match ask(Source::Bounds) {
        Ok(bounded) => bounded,
        Err(cause) => {
            assert!(matches!(cause, Error::Usage(_)), "{cause}");
            assert!(ask(Source::Exact).is_err());
            return;
        }
    };
    let exact = ask(Source::Exact).unwrap();
    let known = Estimate::exactly(all.len() as u64);
    assert_eq!((bounded.rows.all, exact.rows.all), (known, known));
    let [bounded_edges, exact_edges] = [&bounded, &exact].map(|found| found.axes[0].edges.as_slice());
    let ends = exact_edges.first().map(|first| (*first, exact_edges[exact_edges.len() - 1]));
    match bins.range {
        Some(_) => assert_eq!(bounded_edges, exact_edges),
        None => assert_eq!(ends, default_range(&all, bins.scale), "{column}"),
    }
    let expected = counted(&all, exact_edges);
    let exactly: Vec<u64> = places(&exact.rows).iter().map(|bin| bin.estimate).collect();
    assert_eq!(exactly, expected, "{column} by {exact_edges:?}");
    assert!(places(&exact.rows).iter().all(|bin| bin.least == bin.most));
    for (bin, truth) in places(&bounded.rows).iter().zip(counted(&all, bounded_edges)) {
        assert!(bin.least <= truth && truth <= bin.most, "{column}: {bin:?} for {truth} by {bounded_edges:?}");
        assert!(bin.least <= bin.estimate && bin.estimate <= bin.most, "{bin:?}");
    }
}

fn check_quantiles(dataset: &Dataset, epochs: &[TestEpoch], column: &str, shares: &[f64], key_type: DataType) {
    let mut sorted = values(epochs, column, key_type);
    let rows = sorted.len() as u64;
    sorted.retain(|value| !value.as_f64().is_nan());
    sorted.sort_by(|one, other| one.compare(*other).unwrap());
    let ask = |source| dataset.quantiles(&QuantilesRequest::new(Query::new(), column, shares).source(source)).unwrap();
    let (bounded, exact): (Quantiles, Quantiles) = (ask(Source::Bounds), ask(Source::Exact));
    assert_eq!((bounded.rows, bounded.nan), (rows, rows - sorted.len() as u64));
    assert_eq!(bounded.quantiles.len(), if sorted.is_empty() { 0 } else { shares.len() });
    for (about, exact) in bounded.quantiles.iter().zip(&exact.quantiles) {
        let truth = sorted[exact.position as usize - 1];
        let same = |value: Value| is(value, Ordering::is_eq, truth);
        let (value, about) = (exact.value, about.value);
        assert!(same(value.least) && same(value.estimate) && same(value.most), "{column}: {exact:?} for {truth}");
        assert!(is(about.least, Ordering::is_le, truth) && is(about.most, Ordering::is_ge, truth), "{about:?} {truth}");
        assert!(is(about.least, Ordering::is_le, about.estimate) && is(about.most, Ordering::is_ge, about.estimate));
        // A quantile is the smallest value such that at least the share of the values is not larger.
        let share_below = (exact.position - 1) as f64 / sorted.len() as f64;
        assert!(share_below <= exact.share && exact.share <= (share_below + 1.0 / sorted.len() as f64) + 1e-12);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, ..ProptestConfig::default() })]
    #[test]
    fn bounds_hold_and_exact_answers_are_those_of_a_sort(
        key_type in prop::sample::select(KEY_TYPES.to_vec()),
        epochs in hostile_epochs(),
        page_rows in 1u32..20,
        row_groups_per_run in 1u32..4,
        count in 1usize..12,
        range in prop::option::of((hostile_key(), hostile_key())),
        is_log in any::<bool>(),
        shares in prop::collection::vec(prop_oneof![0f64..=1.0, Just(0.0), Just(0.5), Just(1.0)], 1..4),
    ) {
        let fixture = Fixture::new(key_type, page_rows, row_groups_per_run);
        epochs.iter().for_each(|epoch| drop(fixture.write(epoch)));
        let dataset = fixture.open();
        let range = range.map(|(from, to)| (Value::Float(from.min(to)), Value::Float(from.max(to))));
        let scale = if is_log { BinScale::Log } else { BinScale::Linear };
        for column in ["energy", "a", "b", "id"] {
            check_histogram(&dataset, &epochs, column, &Bins { range, scale, ..Bins::new(count) }, key_type);
            check_quantiles(&dataset, &epochs, column, &shares, key_type);
        }
    }
}

/// Opens a dataset on storage that counts operations.
fn counting(fixture: &Fixture) -> (Dataset, Arc<FaultStorage>) {
    let storage = Arc::new(FaultStorage::new(fixture.storage.clone()));
    (Dataset::open_with(storage.clone(), ROOT).unwrap(), storage)
}

#[test]
fn manifests_are_all_that_is_read() {
    let fixture = Fixture::new(DataType::F64, 64, 2);
    (0..3).for_each(|epoch| drop(fixture.write(&partitioned(epoch, 4, 3, 500))));
    let (dataset, storage) = counting(&fixture);
    (0..3).for_each(|epoch| drop(dataset.manifest(epoch).unwrap()));
    let before = storage.counters();
    for column in ["energy", "b"] {
        dataset.histogram(&of_column(&Query::new(), column, &Bins::new(20), Source::Bounds)).unwrap();
        dataset.quantiles(&QuantilesRequest::new(Query::new(), column, &[0.1, 0.5]).source(Source::Bounds)).unwrap();
    }
    let after = storage.counters();
    assert_eq!((after.reads, after.bytes_read), (before.reads, before.bytes_read));
    // Each of the four requests lists the epochs and the manifests. No file is opened.
    assert_eq!((after.lists - before.lists, after.operations - before.operations), (4 * 2, 4 * 2));
}

#[test]
fn the_key_is_counted_by_pages_that_reach_over_an_edge() {
    let fixture = Fixture::new(DataType::F64, 64, 1);
    fixture.write(&partitioned(1, 4, 2, 6_400));
    let (dataset, _) = counting(&fixture);
    let bins = Bins { range: Some((Value::Float(0.0), Value::Float(4.0))), ..Bins::new(8) };
    let first = Query::new().epochs(1);
    let exact = dataset.histogram(&of_column(&first, "energy", &bins, Source::Exact)).unwrap();
    // In each of the 8 runs, the middle edge cuts one page. The outer edges cut no page.
    assert_eq!((exact.metrics.pages_read, exact.metrics.runs_touched), (8, 8));
    assert_eq!(exact.rows.bins.estimates().iter().sum::<u64>(), 51_200);
    let bounds = of_column(&first, "energy", &bins, Source::Bounds);
    let bounded = dataset.histogram(&bounds).unwrap();
    for (bounded, exact) in bounded.rows.bins.iter().zip(exact.rows.bins.iter()) {
        assert!(bounded.least <= exact.estimate && exact.estimate <= bounded.most, "{bounded:?} {exact:?}");
        assert!(bounded.most - bounded.least <= 4 * 64, "a page at each end of each of two runs: {bounded:?}");
        assert!(bounded.estimate.abs_diff(exact.estimate) < 64, "keys lie evenly: {bounded:?} {exact:?}");
    }
    // Without range counts of the key, its row groups bound the bins.
    let fixture = Fixture::new(DataType::F64, 64, 1);
    fixture.write_with(&partitioned(1, 4, 2, 6_400), |manifest| manifest.keys = Default::default());
    for bounded in fixture.open().histogram(&bounds).unwrap().rows.bins.iter() {
        assert_eq!((bounded.least, bounded.most), (0, 12_800), "two runs of 6,400 rows reach into each bin");
    }
    let median = dataset.quantiles(&QuantilesRequest::new(first.clone(), "energy", &[0.5])).unwrap();
    // The bounds from the manifest exclude all but two of the eight runs, and all but a few of the hundred pages of
    // each.
    assert!(median.metrics.runs_touched <= 2 && median.metrics.pages_read <= 6, "{:?}", median.metrics);
}

/// Regression test: `stats` and the report used a separate estimate, which was wrong by orders of magnitude in the
/// tails.
#[test]
fn profiles_say_what_quantiles_say() {
    let fixture = Fixture::new(DataType::F64, 64, 3);
    let manifest = fixture.write(&partitioned(1, 4, 3, 1_000));
    let dataset = fixture.open();
    let profile = dataset.key_profile(manifest.epoch).unwrap();
    let shares: Vec<f64> = profile.points.iter().map(|point| point.percentile / 100.0).collect();
    let stated = dataset
        .quantiles(&QuantilesRequest::new(Query::new().epochs(1), "energy", &shares).source(Source::Bounds))
        .unwrap()
        .quantiles;
    assert_eq!(stated.len(), 9);
    for (point, quantile) in profile.points.iter().zip(&stated) {
        let stated = [quantile.value.least, quantile.value.estimate, quantile.value.most].map(Value::as_f64);
        assert_eq!([point.key_least, point.key, point.key_most], stated);
    }
}

/// Checks that range counts are ignored if they contradict the row counts of their row groups.
#[test]
fn spreads_that_fit_no_row_groups_state_nothing() {
    let fixture = Fixture::new(DataType::F64, 64, 1);
    let bounds = |change: fn(&mut EpochManifest)| {
        fixture.write_with(&partitioned(1, 4, 1, 640), change);
        let stated = fixture
            .open()
            .quantiles(&QuantilesRequest::new(Query::new().epochs(1), "energy", &[0.1, 0.5]).source(Source::Bounds))
            .unwrap();
        stated.quantiles.iter().map(|quantile| (quantile.value.least, quantile.value.most)).collect::<Vec<_>>()
    };
    let plain = bounds(|manifest| manifest.keys = Default::default());
    let pages = bounds(|_| {});
    assert!(plain != pages);
    assert_eq!(
        plain,
        bounds(|manifest| {
            let mut range_counts = manifest.keys.get().to_vec();
            range_counts.pop();
            manifest.keys = range_counts.into();
        })
    );
    assert_eq!(
        plain,
        bounds(|manifest| {
            let mut range_counts = manifest.keys.get().to_vec();
            range_counts[0].most = u64::MAX;
            manifest.keys = range_counts.into();
        }),
        "NaN is no key that has a place"
    );
}

#[test]
fn many_values_are_narrowed_down_before_they_are_collected() {
    // The epoch has more values than a quantile may collect.
    let fixture = Fixture::new(DataType::F32, 4096, 1);
    let epoch = partitioned(5, 1, 6, 200_000);
    fixture.write(&epoch);
    let dataset = fixture.open();
    let epochs = [epoch];
    for column in ["energy", "id", "a", "b"] {
        check_quantiles(&dataset, &epochs, column, &[0.0, 0.01, 0.5, 0.999, 1.0], DataType::F32);
    }
}

#[test]
fn what_has_no_distribution_is_refused() {
    let fixture = Fixture::new(DataType::F32, 64, 1);
    fixture.write(&TestEpoch { epoch: 1, parts: vec![(PartId { rank: 0, roll: 0 }, Vec::new())] });
    let dataset = fixture.open();
    let refused = |column: &str, bins: &Bins, epoch: u64| {
        let request = of_column(&Query::new().epochs(epoch), column, bins, Source::Bounds);
        dataset.histogram(&request).map(|_| ()).unwrap_err().to_string()
    };
    assert!(refused("tag", &Bins::new(3), 1).contains("fixed_bytes(5)"));
    assert!(refused("epoch", &Bins::new(3), 1).contains("label"));
    assert!(refused("other", &Bins::new(3), 1).contains("the columns are b, energy"));
    assert!(refused("energy", &Bins::new(0), 1).contains("bins"));
    assert!(refused("energy", &Bins::new(3), 2).contains("epoch 2 does not exist"));
    let first = Query::new().epochs(1);
    dataset.quantiles(&QuantilesRequest::new(first.clone(), "energy", &[1.5]).source(Source::Bounds)).unwrap_err();
    dataset.quantiles(&QuantilesRequest::new(first.clone(), "energy", &[f64::NAN]).source(Source::Bounds)).unwrap_err();
    for (query, source) in [(first.clone(), Source::Level(1)), (first.clone().filter("a > 1"), Source::Exact)] {
        dataset.quantiles(&QuantilesRequest::new(query.clone(), "energy", &[0.5]).source(source)).unwrap_err();
    }
    let empty = dataset.histogram(&of_column(&first, "energy", &Bins::new(3), Source::Exact)).unwrap();
    assert_eq!((empty.rows.all.most, empty.rows.bins.len(), empty.axes[0].edges.len()), (0, 0, 0));
    assert!(dataset.quantiles(&QuantilesRequest::new(first.clone(), "energy", &[0.5])).unwrap().quantiles.is_empty());
}

#[test]
fn a_replaced_epoch_is_not_mixed_with_the_one_before() {
    let fixture = Fixture::new(DataType::F32, 64, 1);
    fixture.write(&partitioned(1, 2, 1, 100));
    let dataset = fixture.open();
    dataset.manifest(1).unwrap();
    fixture.write(&partitioned(1, 2, 1, 300));
    for source in [Source::Bounds, Source::Exact] {
        let request = of_column(&Query::new().epochs(1), "energy", &Bins::new(7), source);
        let [now, fresh] = [&dataset, &fixture.open()].map(|dataset| dataset.histogram(&request).unwrap());
        assert_eq!(now.rows.all, Estimate::exactly(600));
        assert_eq!((now.axes, now.rows.bins), (fresh.axes, fresh.rows.bins));
    }
}
