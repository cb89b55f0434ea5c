//! Boxes through the whole read path: rows, counts, pieces, histograms and tracks, compared with loops over the rows.

use proptest::prelude::*;

use super::distribution::{KEY_TYPES, hostile_epochs, stored_value};
use super::*;
use crate::error::{Error, UsageError};
use crate::query::{TrackRequest, Unbinned};
use crate::schema::Value;

/// A side of a test's box. All numbers are multiples of a quarter, which no type rounds.
#[derive(Debug, Clone)]
struct Side {
    column: &'static str,
    low: Option<f64>,
    high: Option<f64>,
    period: Option<f64>,
}

impl Side {
    /// Returns the side as text, and its period as text.
    fn texts(&self) -> (String, String) {
        let text = |number: Option<f64>| number.map(|number| number.to_string()).unwrap_or_default();
        (format!("{}={}:{}", self.column, text(self.low), text(self.high)), text(self.period))
    }

    fn holds(&self, record: &Record, key_type: DataType) -> bool {
        let value = stored_value(record, self.column, key_type).as_f64();
        match (self.low, self.high, self.period) {
            (Some(low), Some(high), Some(period)) => {
                // Remainders are exact, even of numbers whose distance from a bound would be rounded.
                let above = (value % period - low % period).rem_euclid(period);
                value.is_finite() && (high - low >= period || above < high - low)
            }
            (low, high, _) => {
                !value.is_nan() && low.is_none_or(|low| low <= value) && high.is_none_or(|high| value < high)
            }
        }
    }
}

fn side(column: &'static str) -> impl Strategy<Value = Side> {
    let quarters = (-20i32..40).prop_map(|count| f64::from(count) / 4.0);
    let width = (1i32..40).prop_map(|count| f64::from(count) / 4.0);
    let period = prop::sample::select(vec![None, None, Some(2.5), Some(4.0), Some(16.0)]);
    (quarters, width, period, 0..8).prop_map(move |(low, width, period, open)| {
        let is_closed = period.is_some() && open < 2;
        Side {
            column,
            low: (open != 0 && !is_closed).then_some(low),
            high: (open != 1 && !is_closed).then_some(low + width),
            period,
        }
    })
}

fn within(query: Query, sides: &[Side]) -> Query {
    let (sides, periods): (Vec<_>, Vec<_>) = sides.iter().map(Side::texts).unzip();
    query.within(sides.join(",")).periods(periods.join(","))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn answers_equal_a_loop_over_the_rows(
        epochs in hostile_epochs(),
        key_type in prop::sample::select(KEY_TYPES.to_vec()),
        sides in prop_oneof![
            side("energy").prop_map(|one| vec![one]),
            (side("a"), side("energy")).prop_map(|(one, other)| vec![one, other]),
            (side("b"), side("energy"), side("a")).prop_map(|(one, other, last)| vec![one, other, last]),
        ],
        filter in prop::sample::select(vec![None, Some("b >= 0"), Some("energy > 2 OR a < 1")]),
        ordered in any::<bool>(),
    ) {
        // The loop computes in f64, and integers are exact.
        let is_rounded = |record: &&Record| record.key.abs() > 9e15 && key_type.is_integer();
        let records = epochs.iter().flat_map(|epoch| &epoch.parts).flat_map(|(_, runs)| runs).flat_map(|run| &run.rows);
        prop_assume!(records.filter(is_rounded).count() == 0 || sides.iter().all(|side| side.period.is_none()));
        let fixture = Fixture::new(key_type, 16, 2);
        epochs.iter().for_each(|epoch| { fixture.write(epoch); });
        let dataset = fixture.open();
        let stated = filter.map_or_else(Query::new, |filter| Query::new().filter(filter)).ordered(ordered);
        let mut expected = rows_of(&dataset, &stated);
        expected.retain(|(_, record)| sides.iter().all(|side| side.holds(record, key_type)));
        let query = within(stated, &sides);
        prop_assert_eq!(&rows_of(&dataset, &query), &expected);
        prop_assert_eq!(dataset.count(&query).unwrap().0, expected.len() as u64);

        let explained = dataset.explain(&query).unwrap();
        let least: u64 = explained.epochs.iter().map(|epoch| epoch.rows_least).sum();
        let most: u64 = explained.epochs.iter().map(|epoch| epoch.rows_most).sum();
        prop_assert!(least <= expected.len() as u64 && expected.len() as u64 <= most);

        let pieces = dataset.pieces(&query, 1).unwrap();
        let of_pieces: usize = pieces.into_iter().map(|piece| rows_of(&dataset, &query.clone().piece(piece)).len()).sum();
        prop_assert_eq!(of_pieces, expected.len());

        let bins = Bins { range: Some((Value::Int(-4), Value::Int(4))), ..Bins::new(5) };
        let found = dataset.histogram(&of_column(&query, "a", &bins, Source::Exact)).unwrap();
        let inside = |record: &Record, from: f64, to: f64, last: bool| {
            let a = f64::from(record.a);
            from <= a && (a < to || last && a == to)
        };
        let counts = &found.rows;
        for (bin, edges) in found.axes[0].edges.windows(2).enumerate() {
            let [from, to] = [edges[0].as_f64(), edges[1].as_f64()];
            let rows = expected.iter().filter(|(_, record)| inside(record, from, to, bin == 4)).count() as u64;
            prop_assert_eq!((counts.bins.at(bin).least, counts.bins.at(bin).most), (rows, rows), "bin {}", bin);
        }
        let count = |held: fn(f32) -> bool| expected.iter().filter(|(_, record)| held(record.a)).count() as u64;
        let nan = counts.at(Unbinned::Nan).estimate;
        prop_assert_eq!((counts.all.estimate, nan), (expected.len() as u64, count(f32::is_nan)));
        prop_assert_eq!(counts.at(Unbinned::Below).most, count(|a| a < -4.0 && a.is_finite()));
        prop_assert_eq!(counts.at(Unbinned::Above).most, count(|a| a > 4.0 && a.is_finite()));
        let infinite = counts.at(Unbinned::NegativeInfinity).most + counts.at(Unbinned::PositiveInfinity).most;
        prop_assert_eq!(infinite, count(f32::is_infinite));
    }
}

#[test]
fn a_histogram_of_rows_has_their_range() {
    let fixture = Fixture::new(DataType::F64, 16, 2);
    fixture.write(&partitioned(1, 3, 2, 1_000));
    let dataset = fixture.open();
    let query = Query::new().within("a=20:40").filter("energy >= 1");
    let found = dataset.histogram(&of_column(&query, "a", &Bins::new(4), Source::Exact)).unwrap();
    let values: Vec<f64> = rows_of(&dataset, &query).iter().map(|(_, record)| f64::from(record.a)).collect();
    let (least, most) =
        (values.iter().copied().fold(f64::MAX, f64::min), values.iter().copied().fold(f64::MIN, f64::max));
    let edges = &found.axes[0].edges;
    assert_eq!((edges[0].as_f64(), edges[4].as_f64()), (least, most));
    assert_eq!(found.rows.bins.estimates().iter().sum::<u64>(), values.len() as u64);
    // Without a predicate, the counts are those of whole epochs.
    let all = Query::new().filter("energy = energy OR isnan(energy)");
    let [whole, exact] = [all, Query::new()]
        .map(|query| dataset.histogram(&of_column(&query, "a", &Bins::new(4), Source::Exact)).unwrap());
    assert_eq!((whole.axes, whole.rows), (exact.axes, exact.rows));
    // No row matches.
    let none = of_column(&Query::new().within("a=500:600"), "a", &Bins::new(4), Source::Exact);
    let none = dataset.histogram(&none).unwrap();
    assert_eq!((none.rows.all.most, none.rows.bins.len()), (0, 0));
}

#[test]
fn particles_of_a_box_are_followed() {
    let fixture = Fixture::new(DataType::F64, 16, 2);
    let epoch = |label: u64, shift: f64| {
        let record = |id: u64| Record { key: id as f64 + shift, a: id as f32, b: 0, id };
        let run = TestRun { kind: RunKind::Regular, rows: (0..100).map(record).collect() };
        fixture.write(&TestEpoch { epoch: label, parts: vec![(PartId { rank: 0, roll: 0 }, vec![run])] });
    };
    epoch(1, 0.0);
    epoch(2, 50.0);
    let dataset = fixture.open();
    let ids = |query: Query, at| {
        let tracks = dataset.tracks(&TrackRequest::of_query(query, at, "id"), &|_| {}).unwrap();
        let of_batch =
            |batch: crate::Result<RecordBatch>| batch.unwrap().column(0).as_primitive::<UInt64Type>().values().to_vec();
        tracks.flat_map(of_batch).collect::<Vec<u64>>()
    };
    let around = Query::new().within("energy=98:102").periods("100");
    // 98 and 99 are in the box as they are, 0 and 1 modulo the period; at epoch 2, ids are shifted by 50.
    assert_eq!(ids(around.clone(), 1), [0, 0, 1, 1, 98, 98, 99, 99]);
    assert_eq!(ids(around.clone(), 2), [48, 48, 49, 49, 50, 50, 51, 51]);
    assert_eq!(ids(around.clone().filter("a > 50"), 1), [98, 98, 99, 99]);
    // Other settings of the query do not matter.
    assert_eq!(ids(around.limit(1).columns(["a"]).ordered(true).epochs(7), 1).len(), 8);
}

#[test]
fn boxes_are_explained_and_refused() {
    let fixture = Fixture::new(DataType::F32, 16, 1);
    fixture.write(&partitioned(1, 1, 1, 10));
    let dataset = fixture.open();
    let query = Query::new().within("energy=0:0.5,b=:").filter("a < 60");
    let text = dataset.explain(&query).unwrap().to_string();
    assert!(text.starts_with("rows where a < 60.0 AND energy >= 0.0 AND energy < 0.5 AND TRUE\n"), "{text}");
    let periods = dataset.run(&Query::new().periods("8")).unwrap_err();
    assert!(matches!(periods, Error::Usage(UsageError::Option { option: "period", .. })), "{periods}");
    let error = dataset.count(&Query::new().within("energy=5:5")).unwrap_err();
    assert_eq!(error.class(), crate::ErrorClass::Usage);
    assert!(error.to_string().starts_with("box 'energy=5:5': the side is empty"), "{error}");
    let filter = dataset.count(&Query::new().within("energy=0:5").filter("a) OR (b > 0")).unwrap_err();
    assert!(filter.to_string().starts_with("at character 2, near ')"), "{filter}");
}
