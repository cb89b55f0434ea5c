//! Random queries of random datasets: every result equals that of a full scan.

use proptest::prelude::*;

use super::*;
use crate::store::EpochRange;

const KEY_TYPES: [DataType; 5] = [DataType::F32, DataType::F64, DataType::I32, DataType::I64, DataType::U32];

/// A predicate of the test. The query receives its text, and the test evaluates it row by row.
#[derive(Debug, Clone)]
enum Judge {
    Compare(&'static str, &'static str, f64),
    Between(&'static str, f64, f64),
    IsNan(&'static str),
    SumAbove(f64),
    And(Box<Judge>, Box<Judge>),
    Or(Box<Judge>, Box<Judge>),
    Not(Box<Judge>),
}

fn number(value: f64) -> String {
    if value.is_infinite() { if value > 0.0 { "inf" } else { "-inf" }.to_owned() } else { format!("{value:?}") }
}

impl Judge {
    fn text(&self) -> String {
        match self {
            Self::Compare(column, operator, literal) => format!("{column} {operator} {}", number(*literal)),
            Self::Between(column, low, high) => format!("{column} BETWEEN {} AND {}", number(*low), number(*high)),
            Self::IsNan(column) => format!("isnan({column})"),
            Self::SumAbove(literal) => format!("a + b > {}", number(*literal)),
            Self::And(one, other) => format!("({}) AND ({})", one.text(), other.text()),
            Self::Or(one, other) => format!("({}) OR ({})", one.text(), other.text()),
            Self::Not(inner) => format!("NOT ({})", inner.text()),
        }
    }

    fn value(column: &str, epoch: u64, row: &Record) -> f64 {
        match column {
            "energy" => row.key,
            "a" => f64::from(row.a),
            "b" => f64::from(row.b),
            "id" => row.id as f64,
            "epoch" => epoch as f64,
            other => panic!("no column {other}"),
        }
    }

    fn holds(&self, epoch: u64, row: &Record) -> bool {
        match self {
            Self::Compare(column, operator, literal) => {
                let value = Self::value(column, epoch, row);
                match *operator {
                    "<" => value < *literal,
                    "<=" => value <= *literal,
                    ">" => value > *literal,
                    ">=" => value >= *literal,
                    "=" => value == *literal,
                    "<>" => value != *literal,
                    other => panic!("no operator {other}"),
                }
            }
            Self::Between(column, low, high) => (*low..=*high).contains(&Self::value(column, epoch, row)),
            Self::IsNan(column) => Self::value(column, epoch, row).is_nan(),
            Self::SumAbove(literal) => f64::from(row.a) + f64::from(row.b) > *literal,
            Self::And(one, other) => one.holds(epoch, row) && other.holds(epoch, row),
            Self::Or(one, other) => one.holds(epoch, row) || other.holds(epoch, row),
            Self::Not(inner) => !inner.holds(epoch, row),
        }
    }
}

/// Generates numbers that f32 represents exactly, so that the rounding of literals has no effect.
fn quarters() -> impl Strategy<Value = f64> {
    prop_oneof![
        12 => (-24i32..100).prop_map(|number| f64::from(number) / 4.0),
        1 => Just(f64::INFINITY),
        1 => Just(f64::NEG_INFINITY),
        1 => Just(-0.0),
    ]
}

fn judges() -> impl Strategy<Value = Judge> {
    let columns = prop_oneof![4 => Just("energy"), 2 => Just("a"), 1 => Just("b"), 1 => Just("epoch")];
    let operators = prop::sample::select(vec!["<", "<=", ">", ">=", "=", "<>"]);
    let leaf = prop_oneof![
        6 => (columns.clone(), operators, quarters())
            .prop_map(|(column, operator, literal)| Judge::Compare(column, operator, literal)),
        4 => (columns, quarters(), quarters())
            .prop_map(|(column, one, other)| Judge::Between(column, one.min(other), one.max(other))),
        1 => prop_oneof![Just("a"), Just("energy")].prop_map(Judge::IsNan),
        1 => quarters().prop_map(Judge::SumAbove),
    ];
    leaf.prop_recursive(2, 6, 2, |inner| {
        let pair = (inner.clone(), inner.clone());
        prop_oneof![
            pair.clone().prop_map(|(one, other)| Judge::And(Box::new(one), Box::new(other))),
            pair.prop_map(|(one, other)| Judge::Or(Box::new(one), Box::new(other))),
            inner.prop_map(|inner| Judge::Not(Box::new(inner))),
        ]
    })
}

/// Generates runs of every kind, with scattered, equal, extreme or NaN keys.
fn runs(key_type: DataType) -> impl Strategy<Value = TestRun> {
    let float = key_type.is_float();
    let kinds = prop::sample::select(vec![RunKind::Regular, RunKind::Stray, RunKind::Unordered, RunKind::NanKey]);
    let values = (0u32..200, prop_oneof![20 => -8i32..60, 1 => Just(i32::MAX)], -6i16..20);
    (kinds, 0i32..60, 1i32..80, prop::collection::vec(values, 1..60)).prop_map(move |(kind, from, span, values)| {
        let row = |(key, a, b): (u32, i32, i16)| {
            let key = f64::from(from + key as i32 % span) / 4.0;
            let key = match kind {
                RunKind::NanKey if float => f64::NAN,
                _ if float => key - 5.0,
                // Keys are integral, so that integer keys equal the values that the predicate compares.
                _ => key.floor(),
            };
            // Float keys include zeros of both signs and infinities. Column `a` includes NaN.
            let key = if key == 0.0 && b % 2 == 0 && float { -0.0 } else { key };
            let key = if b == 19 && float && kind != RunKind::NanKey { f64::INFINITY } else { key };
            let a = if a == i32::MAX { f32::NAN } else { a as f32 / 4.0 };
            Record { key, a, b, id: 0 }
        };
        TestRun { kind, rows: values.into_iter().map(row).collect() }
    })
}

fn epochs(key_type: DataType) -> impl Strategy<Value = Vec<TestEpoch>> {
    let part = (0u32..4, 0u32..3, prop::collection::vec(runs(key_type), 1..5));
    let one = (0u64..20, prop::collection::vec(part, 1..5));
    prop::collection::vec(one, 1..4).prop_map(|epochs| {
        let mut written: Vec<TestEpoch> = Vec::new();
        let mut id = 0;
        for (epoch, parts) in epochs {
            let mut distinct: Vec<(PartId, Vec<TestRun>)> = Vec::new();
            for (rank, roll, mut runs) in parts {
                let part = PartId { rank, roll };
                if distinct.iter().any(|(other, _)| *other == part) {
                    continue;
                }
                for row in runs.iter_mut().flat_map(|run| &mut run.rows) {
                    row.id = id;
                    id += 1;
                }
                distinct.push((part, runs));
            }
            if written.iter().all(|other| other.epoch != epoch) {
                written.push(TestEpoch { epoch, parts: distinct });
            }
        }
        written
    })
}

#[derive(Debug, Clone)]
struct Asked {
    judge: Option<Judge>,
    ordered: bool,
    limit: Option<u64>,
    threads: usize,
    batch_rows: usize,
    first: u64,
    last: u64,
}

fn questions() -> impl Strategy<Value = Asked> {
    (
        prop::option::weighted(0.9, judges()),
        any::<bool>(),
        prop::option::weighted(0.3, 0u64..80),
        1usize..4,
        prop_oneof![Just(1usize), 2usize..40, Just(1 << 16)],
        0u64..20,
        0u64..20,
    )
        .prop_map(|(judge, ordered, limit, threads, batch_rows, one, other)| Asked {
            judge,
            ordered,
            limit,
            threads,
            batch_rows,
            first: one.min(other),
            last: one.max(other),
        })
}

/// Returns the result of a full scan.
fn scan(epochs: &[TestEpoch], asked: &Asked) -> Vec<(u64, Record)> {
    let mut chosen: Vec<&TestEpoch> =
        epochs.iter().filter(|epoch| (asked.first..=asked.last).contains(&epoch.epoch)).collect();
    chosen.sort_by_key(|epoch| epoch.epoch);
    let mut answer = Vec::new();
    for epoch in chosen {
        let mut rows = epoch.stored();
        rows.retain(|row| asked.judge.as_ref().is_none_or(|judge| judge.holds(epoch.epoch, row)));
        if asked.ordered {
            rows.sort_by(|one, other| key_order(one.key, other.key));
        }
        answer.extend(rows.into_iter().map(|row| (epoch.epoch, row)));
    }
    answer
}

fn check(dataset: &Dataset, epochs: &[TestEpoch], asked: &Asked) {
    let mut expected = scan(epochs, asked);
    let mut query = Query::new().ordered(asked.ordered).threads(asked.threads).batch_rows(asked.batch_rows);
    if asked.first < asked.last {
        query = query.epochs(EpochRange { first: asked.first, last: asked.last });
    } else {
        let there = epochs.iter().map(|epoch| epoch.epoch).filter(|epoch| *epoch == asked.first).collect::<Vec<_>>();
        query = query.epochs(there);
    }
    if let Some(judge) = &asked.judge {
        query = query.filter(judge.text());
    }
    let (count, _) = dataset.count(&query).unwrap();
    assert_eq!(count, expected.len() as u64, "count of {asked:?}");
    let explained = dataset.explain(&query).unwrap();
    let least: u64 = explained.epochs.iter().map(|epoch| epoch.rows_least).sum();
    let most: u64 = explained.epochs.iter().map(|epoch| epoch.rows_most).sum();
    assert!(least <= count && count <= most, "{count} rows, explained as {least} to {most}: {asked:?}");
    if let Some(limit) = asked.limit {
        query = query.limit(limit);
        expected.truncate(limit as usize);
    }
    let mut stream = dataset.run(&query).unwrap();
    let mut answer = Vec::new();
    for batch in &mut stream {
        let batch = batch.unwrap();
        assert!(batch.num_rows() > 0 && batch.num_rows() <= asked.batch_rows);
        answer.extend(records(&batch));
    }
    assert_eq!(answer, expected, "{asked:?}");
    let read_bytes = stream.metrics().bytes_read;
    let most: u64 = explained.epochs.iter().map(|epoch| epoch.bytes_most).sum();
    assert!(read_bytes <= most, "{read_bytes} bytes were read, explained as {most} at most: {asked:?}");
    let least: u64 = explained.epochs.iter().map(|epoch| epoch.bytes_least).sum();
    assert!(
        asked.limit.is_some() || least <= read_bytes,
        "{read_bytes} bytes, explained as {least} at least: {asked:?}"
    );
    // A projection without the key returns the same rows.
    let narrow = dataset.run(&query.clone().columns(["epoch", "id"])).unwrap();
    let ids: Vec<(u64, u64)> = narrow
        .flat_map(|batch| {
            let batch = batch.unwrap();
            assert_eq!(batch.num_columns(), 2);
            let epochs = batch.column(0).as_primitive::<Int64Type>().values().iter().map(|epoch| *epoch as u64);
            epochs.zip(batch.column(1).as_primitive::<UInt64Type>().values().iter().copied()).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(ids, expected.iter().map(|(epoch, row)| (*epoch, row.id)).collect::<Vec<_>>());
    let bare: usize =
        dataset.run(&query.columns::<[String; 0]>([])).unwrap().map(|batch| batch.unwrap().num_rows()).sum();
    assert_eq!(bare, expected.len(), "no columns are still that many rows");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]
    #[test]
    fn answers_equal_those_of_a_scan(
        (key_type, epochs) in prop::sample::select(KEY_TYPES.to_vec()).prop_flat_map(|key_type| (Just(key_type), epochs(key_type))),
        page_rows in prop_oneof![Just(7u32), 1u32..20],
        row_groups_per_run in 1u32..4,
        questions in prop::collection::vec(questions(), 8),
    ) {
        let fixture = Fixture::new(key_type, page_rows, row_groups_per_run);
        for epoch in &epochs {
            fixture.write(epoch);
        }
        let dataset = fixture.open();
        for asked in &questions {
            check(&dataset, &epochs, asked);
        }
    }
}

#[test]
fn epochs_are_chosen_by_range_list_or_all() {
    let fixture = Fixture::new(DataType::F32, 7, 1);
    for epoch in [20, 3, 100] {
        fixture.write(&partitioned(epoch, 1, 1, 10));
    }
    let dataset = fixture.open();
    assert_eq!(dataset.epochs().unwrap(), [3, 20, 100]);
    let epochs = |query: Query| {
        let mut epochs: Vec<u64> = rows_of(&dataset, &query).into_iter().map(|(epoch, _)| epoch).collect();
        epochs.dedup();
        epochs
    };
    assert_eq!(epochs(Query::new()), [3, 20, 100], "as numbers, not as text");
    assert_eq!(epochs(Query::new().epochs(vec![100, 3, 3])), [3, 100]);
    assert_eq!(epochs(Query::new().epochs(EpochRange { first: 4, last: 100 })), [20, 100]);
    assert_eq!(epochs(Query::new().filter("epoch % 10 = 0 and epoch < 50")), [20]);
    let missing = |query: Query| dataset.run(&query).map(|_| ()).unwrap_err().to_string();
    assert!(missing(Query::new().epochs(7)).contains("epoch 7 does not exist"));
    assert!(missing(Query::new().epochs(EpochRange { first: 7, last: 7 })).contains("epoch 7 does not exist"));
    assert_eq!(epochs(Query::new().epochs(EpochRange { first: 5, last: 7 })), [0u64; 0]);
}

#[test]
fn epochs_without_a_match_do_not_end_the_search() {
    let fixture = Fixture::new(DataType::F32, 7, 1);
    for epoch in 0..9 {
        // Keys of part `p` lie between `p` and `p + 1`.
        let mut written = partitioned(epoch, 5, 1, 10);
        written.parts.retain(|(part, _)| (part.rank == 4) == (epoch == 8));
        fixture.write(&written);
    }
    let dataset = fixture.open();
    for threads in [1, 4] {
        for ordered in [false, true] {
            let query = Query::new().filter("energy >= 4").threads(threads).ordered(ordered);
            assert_eq!(rows_of(&dataset, &query).len(), 10);
            assert_eq!(dataset.count(&query).unwrap().0, 10);
        }
    }
}

#[test]
fn wrong_requests_are_usage_errors() {
    let fixture = Fixture::new(DataType::F32, 7, 1);
    fixture.write(&partitioned(1, 1, 1, 10));
    let dataset = fixture.open();
    for (query, stated) in [
        (Query::new().columns(["energy", "mass"]), "no column 'mass'"),
        (Query::new().columns(["energy", "ENERGY"]), "listed twice"),
        (Query::new().threads(0), "threads"),
        (Query::new().batch_rows(0), "batch_rows"),
        (Query::new().filter("mass > 1"), "mass"),
    ] {
        let error = dataset.run(&query).map(|_| ()).unwrap_err();
        assert_eq!(error.class(), crate::ErrorClass::Usage);
        assert!(error.to_string().contains(stated), "{error}");
    }
    let schema = dataset.run(&Query::new()).unwrap().schema();
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names, ["b", "energy", "a", "id", "tag", "epoch"]);
}

#[test]
fn an_epoch_without_rows_answers_nothing() {
    let fixture = Fixture::new(DataType::F32, 7, 1);
    fixture.write(&TestEpoch { epoch: 5, parts: vec![(PartId { rank: 0, roll: 0 }, Vec::new())] });
    let dataset = fixture.open();
    assert_eq!(rows_of(&dataset, &Query::new().ordered(true)), []);
    assert_eq!(dataset.count(&Query::new()).unwrap().0, 0);
    assert!(dataset.explain(&Query::new().filter("energy > 1")).unwrap().to_string().contains("epoch 5"));
}

/// An open dataset that is removed does not turn into an empty one.
#[test]
fn a_removed_dataset_is_not_empty() {
    let fixture = Fixture::new(DataType::F32, 64, 1);
    fixture.write(&TestEpoch { epoch: 1, parts: vec![(PartId { rank: 0, roll: 0 }, Vec::new())] });
    let dataset = fixture.open();
    fixture.storage.remove_dir_all(&fixture.paths.data()).unwrap();
    assert_eq!(dataset.epochs().unwrap(), Vec::<u64>::new(), "its epochs may be removed");
    fixture.storage.remove_dir_all(fixture.paths.root()).unwrap();
    let error = dataset.count(&Query::new()).unwrap_err();
    assert!(matches!(error, crate::Error::NotADataset { .. }) && error.to_string().contains("removed"), "{error}");
}
