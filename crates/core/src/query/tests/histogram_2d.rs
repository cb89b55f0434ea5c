//! Histograms of two columns, and sums of one, compared with a loop over the rows of the same query.

use std::cmp::Ordering;

use proptest::prelude::*;

use super::distribution::{KEY_TYPES, hostile_epochs, stored_value};
use super::*;
use crate::error::Error;
use crate::query::{BinScale, Histogram, Unbinned};
use crate::schema::Value;

const COLUMNS: [&str; 4] = ["energy", "a", "b", "id"];

/// Returns the bin that contains a finite value: the last one whose lower edge is not above it.
fn bin(value: Value, edges: &[Value]) -> Option<usize> {
    let last = edges.last()?;
    let at_or_below = edges.iter().filter(|edge| edge.compare(value).is_some_and(Ordering::is_le)).count();
    match value.compare(*last)? {
        Ordering::Greater => None,
        // Edges are repeated if the last bin of integers contains only its upper edge.
        Ordering::Equal => Some(edges.len() - 2),
        Ordering::Less => at_or_below.checked_sub(1),
    }
}

/// Returns the smallest and the largest of the values that a default range covers.
pub(super) fn default_range(values: &[Value], scale: BinScale) -> Option<(Value, Value)> {
    let usable = |value: &&Value| value.as_f64().is_finite() && (scale == BinScale::Linear || value.as_f64() > 0.0);
    let mut values: Vec<Value> = values.iter().filter(usable).copied().collect();
    values.sort_by(|one, other| one.compare(*other).unwrap());
    Some((*values.first()?, *values.last()?))
}

type AxisBins<'a> = (&'a str, &'a Bins);

/// Requests an exact histogram of two columns, and sums of a third one.
fn of_pairs(query: &Query, x: AxisBins<'_>, y: AxisBins<'_>, summed: Option<&str>) -> HistogramRequest {
    let request = of_column(query, x.0, x.1, Source::Exact).by(y.0, y.1.clone());
    summed.into_iter().fold(request, HistogramRequest::weights)
}

/// Compares a histogram with a loop over the matching records, which are in the order of the query's rows.
fn check(found: &Histogram, records: &[Record], key_type: DataType, summed: Option<&str>) {
    let columns = [0, 1].map(|axis| found.axes[axis].column.as_str());
    let [x_edges, y_edges] = [0, 1].map(|axis| found.axes[axis].edges.as_slice());
    let y_bins = y_edges.len().saturating_sub(1);
    let mut bins = vec![0u64; x_edges.len().saturating_sub(1) * y_bins];
    // Each with the sum of magnitudes.
    let mut sums = vec![(0.0, 0.0); bins.len()];
    let (mut nan, mut infinite, mut outside) = (0, 0, 0);
    for record in records {
        let [x, y] = columns.map(|column| stored_value(record, column, key_type));
        if x.as_f64().is_nan() || y.as_f64().is_nan() {
            nan += 1;
        } else if x.as_f64().is_infinite() || y.as_f64().is_infinite() {
            infinite += 1;
        } else if let (Some(x), Some(y)) = (bin(x, x_edges), bin(y, y_edges)) {
            bins[x * y_bins + y] += 1;
            let value = summed.map_or(0.0, |column| stored_value(record, column, key_type).as_f64());
            let (sum, size) = sums[x * y_bins + y];
            sums[x * y_bins + y] = (sum + value, size + value.abs());
        } else {
            outside += 1;
        }
    }
    assert_eq!(found.rows.bins.estimates(), bins);
    let rows = [Unbinned::Nan, Unbinned::Infinite, Unbinned::Outside].map(|reason| found.rows.at(reason));
    assert_eq!(
        (found.rows.all, rows),
        (Estimate::exactly(records.len() as u64), [nan, infinite, outside].map(Estimate::exactly))
    );
    assert_eq!(found.sums.is_some(), summed.is_some());
    for (stated, sum) in found.sums.iter().flat_map(|sums| sums.bins.estimates()).zip(sums) {
        assert!(is_close(*stated, sum), "{stated} for {sum:?}");
    }
}

/// Returns whether a number equals a sum of values, of which the sum of magnitudes is given, up to rounding.
fn is_close(stated: f64, (sum, size): (f64, f64)) -> bool {
    stated == sum || stated.is_nan() && sum.is_nan() || (stated - sum).abs() <= 1e-12 * size
}

/// Returns the records of a query, in order.
fn matching(dataset: &Dataset, query: &Query) -> Vec<Record> {
    rows_of(dataset, query).into_iter().map(|(_, record)| record).collect()
}

fn any_bins() -> impl Strategy<Value = Bins> {
    let end = prop_oneof![
        (-30i32..60).prop_map(|quarters| Value::Float(f64::from(quarters) / 4.0)),
        (-5i128..20).prop_map(Value::Int),
        Just(Value::Int((1 << 63) + 4096)),
        Just(Value::Float(1e300)),
    ];
    let range = prop::option::of((end.clone(), end));
    (1usize..20, range, any::<bool>()).prop_map(|(count, range, is_log)| {
        let range = range.map(
            |(one, other)| {
                if one.compare(other) == Some(Ordering::Greater) { (other, one) } else { (one, other) }
            },
        );
        let is_positive = range.is_none_or(|(from, _)| from.as_f64() > 0.0);
        let scale = if is_log && is_positive { BinScale::Log } else { BinScale::Linear };
        Bins { range, scale, ..Bins::new(count) }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn counts_equal_a_loop_over_the_rows(
        epochs in hostile_epochs(),
        key_type in prop::sample::select(KEY_TYPES.to_vec()),
        columns in prop::sample::subsequence(COLUMNS.to_vec(), 1..3),
        bins in (any_bins(), any_bins()),
        filter in prop::sample::select(vec![None, Some("b >= 0"), Some("a < 3"), Some("energy > 2"), Some("b > 40000")]),
        summed in prop::sample::select(vec![None, Some("a"), Some("id"), Some("energy")]),
    ) {
        let fixture = Fixture::new(key_type, 16, 2);
        epochs.iter().for_each(|epoch| { fixture.write(epoch); });
        let dataset = fixture.open();
        let query = filter.map_or_else(Query::new, |filter| Query::new().filter(filter));
        let records = matching(&dataset, &query);
        let axes = [(columns[0], &bins.0), (*columns.last().unwrap(), &bins.1)];
        match dataset.histogram(&of_pairs(&query, axes[0], axes[1], summed)) {
            Ok(found) => {
                check(&found, &records, key_type, summed);
                for ((column, bins), edges) in axes.iter().zip(found.axes.iter().map(|axis| &axis.edges)) {
                    let all: Vec<Value> = records.iter().map(|record| stored_value(record, column, key_type)).collect();
                    if bins.range.is_none() {
                        let ends = edges.first().copied().zip(edges.last().copied());
                        prop_assert_eq!(ends, default_range(&all, bins.scale), "a default range is that of the rows");
                    }
                }
                let request = of_pairs(&query.clone().threads(3), axes[0], axes[1], summed);
                let threaded = dataset.histogram(&request).unwrap();
                prop_assert_eq!((threaded.rows, threaded.axes), (found.rows, found.axes));
            }
            // No integer lies in some ranges of floats.
            Err(Error::Usage(error)) => prop_assert!(error.to_string().contains("no value of type"), "{}", error),
            Err(error) => panic!("{error}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Sums need no levels. Weights change no count.
    #[test]
    fn sums_by_one_column_equal_a_loop_over_the_rows(
        epochs in hostile_epochs(),
        key_type in prop::sample::select(KEY_TYPES.to_vec()),
        (column, summed) in prop::sample::select(vec![("energy", "a"), ("a", "energy"), ("a", "id"), ("b", "b"), ("id", "a")]),
        bins in any_bins(),
        filter in prop::sample::select(vec![None, Some("b >= 0"), Some("energy > 2"), Some("b > 40000")]),
    ) {
        let fixture = Fixture::new(key_type, 16, 2);
        epochs.iter().for_each(|epoch| { fixture.write(epoch); });
        let dataset = fixture.open();
        let query = filter.map_or_else(Query::new, |filter| Query::new().filter(filter));
        let request = of_column(&query, column, &bins, Source::Exact);
        let counts = match dataset.histogram(&request) {
            Ok(counts) => counts,
            // No integer lies in some ranges of floats.
            Err(error) => {
                prop_assert!(error.to_string().contains("no value of type"), "{}", error);
                return Ok(());
            }
        };
        let found = dataset.histogram(&request.clone().weights(summed)).unwrap();
        prop_assert_eq!((&found.axes, &found.rows, found.weights.as_deref()), (&counts.axes, &counts.rows, Some(summed)));
        prop_assert!(found.sampled.is_none() && found.sample.is_none());
        let edges = &found.axes[0].edges;
        let mut sums = vec![(0.0, 0.0); edges.len().max(1) + 4];
        let last = sums.len() - 1;
        for record in matching(&dataset, &query) {
            let value = stored_value(&record, column, key_type);
            let place = match value.as_f64() {
                float if float.is_nan() => last,
                f64::INFINITY => last - 1,
                f64::NEG_INFINITY => 0,
                _ => match bin(value, edges) {
                    Some(bin) => 2 + bin,
                    None if edges.last().is_some_and(|end| end.compare(value) == Some(Ordering::Less)) => last - 2,
                    None => 1,
                },
            };
            let value = stored_value(&record, summed, key_type).as_f64();
            sums[place] = (sums[place].0 + value, sums[place].1 + value.abs());
        }
        for (stated, sum) in places(found.sums.as_ref().unwrap()).iter().zip(sums) {
            prop_assert!(is_close(stated.estimate, sum), "{:?} for {:?}", stated, sum);
        }
        let threaded = of_column(&query.threads(3), column, &bins, Source::Exact).weights(summed);
        prop_assert_eq!(format!("{:?}", dataset.histogram(&threaded).unwrap().sums), format!("{:?}", found.sums));
    }
}

#[test]
fn nothing_bounds_sums() {
    let fixture = Fixture::new(DataType::F64, 16, 2);
    fixture.write(&partitioned(1, 1, 1, 10));
    let request = of_column(&Query::new(), "a", &Bins::new(3), Source::Bounds).weights("b");
    let refused = fixture.open().histogram(&request).unwrap_err().to_string();
    assert!(refused.contains("weights") && refused.contains("exactly, or from a level"), "{refused}");
}

#[test]
fn large_epochs_are_counted_by_several_threads() {
    let fixture = Fixture::new(DataType::F64, 256, 4);
    fixture.write(&partitioned(1, 3, 2, 40_000));
    fixture.write(&partitioned(2, 3, 2, 40_000));
    let dataset = fixture.open();
    let query = Query::new().filter("a < 60");
    let records = matching(&dataset, &query);
    let (x, y) = (Bins::new(300), Bins { range: Some((Value::Int(-100), Value::Int(9_000))), ..Bins::new(200) });
    let axes = (("energy", &x), ("b", &y));
    let single = dataset.histogram(&of_pairs(&query.clone().threads(1), axes.0, axes.1, Some("a"))).unwrap();
    check(&single, &records, DataType::F64, Some("a"));
    assert!(single.rows.at(Unbinned::Outside).least > 0 && single.metrics.pages_read > 0);
    let threaded = dataset.histogram(&of_pairs(&query.threads(4), axes.0, axes.1, Some("a"))).unwrap();
    assert_eq!((single.rows, single.sums), (threaded.rows, threaded.sums));
}

#[test]
fn only_the_columns_in_use_are_read() {
    let fixture = Fixture::new(DataType::F32, 256, 4);
    fixture.write(&partitioned(7, 2, 1, 5000));
    let dataset = fixture.open();
    let bins = Bins::new(8);
    let bytes = |query: &Query, summed| {
        dataset.histogram(&of_pairs(query, ("energy", &bins), ("b", &bins), summed)).unwrap().metrics.bytes_read
    };
    // Parquet stores 16-bit integers in 4 bytes. Page headers add a little.
    let near = |bytes: u64, width: u64| (width * 10_000..width * 10_500).contains(&bytes);
    assert!(near(bytes(&Query::new(), None), 4 + 4), "one pass, since manifests state the range");
    assert!(near(bytes(&Query::new(), Some("id")), 4 + 4 + 8));
    let certain = Query::new().filter("a >= 0");
    assert!(near(bytes(&certain, None), 2 * (4 + 4)), "a pass for the range, and one for the counts");
}

#[test]
fn invalid_requests_are_refused() {
    let fixture = Fixture::new(DataType::F64, 16, 2);
    fixture.write(&partitioned(1, 1, 1, 10));
    let dataset = fixture.open();
    let (none, few, many) = (Bins::new(0), Bins::new(3), Bins::new(1 << 13));
    let wide = Bins { range: Some((Value::Float(0.0), Value::Float(1.0))), ..Bins::new(1 << 16) };
    let refused = |query: &Query, x, y, summed| match dataset.histogram(&of_pairs(query, x, y, summed)) {
        Err(Error::Usage(error)) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let all = Query::new();
    assert!(refused(&all, ("nothing", &few), ("a", &few), None).contains("nothing"));
    assert!(refused(&all, ("a", &few), ("epoch", &few), None).contains("label"));
    assert!(refused(&all, ("a", &few), ("b", &few), Some("tag")).contains("not numeric"));
    assert!(refused(&all, ("a", &few), ("b", &none), None).contains("bins"));
    let many = Bins { range: wide.range, ..many };
    assert!(refused(&all, ("energy", &wide), ("a", &many), None).contains("more than"));
    let unparsed = dataset.histogram(&of_pairs(&all.clone().filter("a >"), ("a", &few), ("b", &few), None));
    assert!(matches!(unparsed, Err(Error::Expression(_))));
    assert!(matches!(
        dataset.histogram(&of_pairs(&Query::new().epochs(9), ("a", &few), ("b", &few), None)),
        Err(Error::EpochMissing { epoch: 9, .. })
    ));
}
