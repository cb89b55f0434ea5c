//! Boxes: examples, messages, and random boxes over every numeric type against exact arithmetic.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, Float32Array, Float64Array, Int8Array, Int16Array, Int32Array, Int64Array, UInt8Array, UInt16Array,
    UInt32Array, UInt64Array,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::super::{ColumnBounds, ExpressionError, NanPresence, Predicate, SpaceText, TruthValue};
use crate::schema::{Column, DataType, Schema, Value};

const TYPES: [DataType; 10] = [
    DataType::F32,
    DataType::F64,
    DataType::I8,
    DataType::I16,
    DataType::I32,
    DataType::I64,
    DataType::U8,
    DataType::U16,
    DataType::U32,
    DataType::U64,
];

fn schema() -> Schema {
    let types = [("x", DataType::F32), ("y", DataType::F64), ("Cell", DataType::I32), ("tag", DataType::FixedBytes(4))];
    let odd = [("odd, \"=:\" name", DataType::F32), ("node", DataType::U8)];
    let columns = types.into_iter().chain(odd).map(|(name, data_type)| Column::new(name, data_type));
    Schema::new(columns.collect(), "x").unwrap()
}

fn within(sides: &str, periods: Option<&str>, schema: &Schema) -> Result<Predicate, ExpressionError> {
    Predicate::parse_within(None, Some(SpaceText { sides, periods, records: schema }), schema).map(Option::unwrap)
}

fn text(sides: &str, periods: Option<&str>) -> String {
    within(sides, periods, &schema()).unwrap_or_else(|error| panic!("{sides} {periods:?}: {error}")).to_string()
}

#[test]
fn a_box_is_an_expression() {
    assert_eq!(text("x=0:10", None), "x >= 0.0 AND x < 10.0");
    assert_eq!(text(" y = -5 : 5 , x=:3,Cell=7:", None), "y >= -5.0 AND y < 5.0 AND x < 3.0 AND Cell >= 7");
    assert_eq!(text("x=0.1:1e3", None), "x >= 0.1 AND x < 1000.0");
    assert_eq!(text("x=:,Cell=:", None), "x >= -inf AND TRUE");
    assert_eq!(text("cell=0:9", None), "Cell >= 0 AND Cell < 9");
    assert_eq!(
        text("\"odd, \"\"=:\"\" name\"=0:1,NODE=2:", None),
        "\"odd, \"\"=:\"\" name\" >= 0.0 AND \"odd, \"\"=:\"\" name\" < 1.0 AND node >= 2"
    );
    let joined = |filter: &str| {
        let schema = schema();
        let space = SpaceText { sides: "x=0:10", periods: None, records: &schema };
        Predicate::parse_within(Some(filter), Some(space), &schema).unwrap().unwrap().to_string()
    };
    assert_eq!(joined("y > 1 AND node = 3"), "y > 1.0 AND node = 3 AND x >= 0.0 AND x < 10.0");
    assert_eq!(joined("y > 1 OR node = 3"), "(y > 1.0 OR node = 3) AND x >= 0.0 AND x < 10.0");
}

#[test]
fn a_periodic_side_compares_remainders() {
    let wraps = "x % 128 >= 120 OR x % 128 >= -8 AND x % 128 < 10 OR x % 128 < -118";
    for sides in ["x=120:138", "x=-8:10", "x=1272:1290", "x=-1032:-1014"] {
        assert_eq!(text(sides, Some("128")), wraps, "{sides}");
    }
    assert_eq!(text("x=10:20", Some("128")), "x % 128 >= 10 AND x % 128 < 20 OR x % 128 >= -118 AND x % 128 < -108");
    // An unsigned remainder is not negative.
    assert_eq!(text("NODE=10:20", Some("128")), "node % 128 >= 10 AND node % 128 < 20");
    assert_eq!(text("NODE=0:20", Some("128")), "node % 128 < 20");
    // A whole period, and more.
    for sides in ["x=0:128", "x=-64:64", "x=-500:500"] {
        assert_eq!(text(sides, Some("128")), "x > -inf AND x < inf", "{sides}");
    }
    assert_eq!(text("Cell=0:128", Some("128")), "TRUE");
    assert_eq!(text("x=:", Some("128")), "x >= -inf");
    assert_eq!(text("x=0:1,y=0:1,Cell=:", Some(",,")), "x >= 0.0 AND x < 1.0 AND y >= 0.0 AND y < 1.0 AND TRUE");
    // The bounds are equal in f32.
    assert_eq!(text("x=1:1.00000001", Some("128")), "FALSE");
    // The bounds are a period apart, but not once they and the period are rounded to f32.
    for sides in ["x=123.4:126.7", "x=-1.234e2:-120.1", "x=.5:3.80"] {
        assert_eq!(text(sides, Some("3.3")), "x > -inf AND x < inf", "{sides}");
    }
    assert_ne!(text("x=123.4:126.69999", Some("3.3")), "x > -inf AND x < inf");
    // The width is a period only if it is rounded.
    assert_ne!(text("y=1e-20:128", Some("128")), "y > -inf AND y < inf");
}

#[test]
fn a_box_has_the_periods_of_the_dataset_unless_it_states_others() {
    let columns = [("x", DataType::F32), ("y", DataType::F64), ("z", DataType::I32), ("ux", DataType::F32)];
    let columns = columns.map(|(name, data_type)| Column::new(name, data_type)).to_vec();
    let flat = Schema::new(columns, "space:z,x,y").unwrap();
    let periodic = flat.clone().with_periods("64,0.1,".parse().unwrap()).unwrap();
    let asked = |sides, periods, schema| within(sides, periods, schema).unwrap().to_string();
    for (sides, stated, explicit) in [
        ("60:70,0.05:0.12,0:1", None, "64,0.1,"),
        ("60:70,0.05:0.12,0:1", Some(",,"), "64,0.1,"),
        ("x=0.05:0.12,ux=0:1,z=60:70", None, "0.1,,64"),
        ("x=0.05:0.12,ux=0:1,z=60:70", Some(",2,"), "0.1,2,64"),
        ("60:70,0.05:0.12,0:1", Some("none,,8"), ",0.1,8"),
        ("60:70,0.05:0.12,0:1", Some("32, none ,none"), "32,,"),
        ("60:70,0.05:0.12,0:1", Some("none,none,none"), ",,"),
        (":,-1:1,0:", None, "64,0.1,"),
    ] {
        assert_eq!(asked(sides, stated, &periodic), asked(sides, Some(explicit), &flat), "{sides} {stated:?}");
    }
    let refused = |sides, periods| within(sides, periods, &periodic).unwrap_err().to_string();
    let open = refused("60:,:,:", None);
    assert!(open.contains("at most 64 apart, or the period 'none': the dataset states that of 'z'"), "{open}");
    let inverted = refused("60:6,:,:", None);
    assert!(inverted.contains("to cross the period, write z=60:70"), "{inverted}");
    assert_eq!(asked("60:,:,:", Some("none,,"), &periodic), "z >= 60 AND x >= -inf AND y >= -inf");
    // A copy of these records has other coordinates. Sides without names are those of the records, as are periods.
    let copy = Schema::new(periodic.columns().to_vec(), "space:ux,x").unwrap();
    let space = SpaceText { sides: "60:70,0.05:0.12,ux=0:1", periods: None, records: &periodic };
    let found = Predicate::parse_within(None, Some(space), &copy).unwrap().unwrap().to_string();
    assert_eq!(found, asked("z=60:70,x=0.05:0.12,ux=0:1", Some("64,0.1,"), &flat));
    // Records without coordinates have those of the copy.
    let by_value = Schema::new(periodic.columns().to_vec(), "ux").unwrap();
    let space = SpaceText { sides: "0:1,0.05:0.12", periods: None, records: &by_value };
    let found = Predicate::parse_within(None, Some(space), &copy).unwrap().unwrap().to_string();
    assert_eq!(found, asked("ux=0:1,x=0.05:0.12", None, &flat));
}

#[test]
fn each_mistake_has_its_message() {
    for (sides, periods, expected) in [
        ("", None, "box '': the side is empty; write a side as COLUMN=LOW:HIGH, such as x=0:10"),
        ("x=0:1,", None, "box '': the side is empty"),
        ("0:10", None, "box '0:10': a column and '=' are missing; write a side as COLUMN=LOW:HIGH"),
        ("=0:10", None, "box '=0:10': a column and '=' are missing"),
        ("\"x=0:10", None, "box '\"x=0:10': a column and '=' are missing"),
        ("x=5", None, "box 'x=5': '5' is not a range; write"),
        ("x=0:5:9", None, "box 'x=0:5:9': '0:5:9' is not a range"),
        ("x=a:5", None, "box 'x=a:5': 'a' is not a number"),
        ("x=nan:5", None, "box 'x=nan:5': a bound is NaN"),
        ("x=0:inf", None, "box 'x=0:inf': the bound 'inf' is infinite; leave it out"),
        ("x=-1e999:1", None, "box 'x=-1e999:1': the bound '-1e999' is infinite"),
        ("x=5:5", None, "box 'x=5:5': the side is empty, since the upper bound is not part of it"),
        ("x=0.0:-0", None, "box 'x=0.0:-0': the side is empty"),
        ("x=0:1,y=10:0", None, "box 'y=10:0': the bounds are in descending order; write y=0:10"),
        (
            "x=120:10",
            Some("128"),
            "box 'x=120:10': the bounds are in descending order; to cross the period, write x=120:138",
        ),
        (
            "x=120:10.5",
            Some("128"),
            "box 'x=120:10.5': the bounds are in descending order; to cross the period, write x=120:138.5",
        ),
        ("x=300:10", Some("128"), "to cross the period, write x=300:394"),
        ("y=-1.5:-140", Some("128"), "to cross the period, write y=-1.5:116.0"),
        ("x=266:10", Some("128"), "to cross the period, write x=266:394"),
        ("x=0:1,z=0:1", None, "box 'z=0:1': there is no column 'z'; the columns are x, y, Cell, tag"),
        ("epoch=0:1", None, "box 'epoch=0:1': 'epoch' is a label, not a coordinate"),
        ("tag=0:1", None, "box 'tag=0:1': column 'tag' is fixed_bytes(4), which is not numeric"),
        ("x=0:1,X=2:3", None, "box 'X=2:3': the box has two sides of 'x'"),
        ("x=0:1,y=0:1", Some("128"), "period '128': the box has 2 sides, not 1"),
        ("x=0:1", Some("128,"), "period '128,': the box has 1 side, not 2"),
        ("x=0:1", Some("0"), "period '0': a period is finite and above zero, not 0"),
        ("x=0:1", Some("-3"), "period '-3': a period is finite and above zero"),
        ("x=0:1", Some("nan"), "period 'nan': a period is finite and above zero"),
        ("x=0:1", Some("inf"), "period 'inf': a period is finite and above zero"),
        ("x=0:1", Some("L"), "period 'L': 'L' is neither a number nor 'none'"),
        ("x=0:1", Some("None"), "period 'None': 'None' is neither a number nor 'none'"),
        ("x=0:1", Some("1e-60"), "period '1e-60': the period of 'x' is 0 when rounded to f32"),
        ("x=0:1", Some("1e60"), "the period of 'x' is inf when rounded to f32"),
        ("x=0:1e60", Some("8"), "box 'x=0:1e60': a bound is infinite when rounded to f32"),
        ("x=120:", Some("128"), "box 'x=120:': a periodic side has two bounds or none; write both, at most 128 apart"),
    ] {
        let error = within(sides, periods, &schema()).map(|found| found.to_string()).unwrap_err().to_string();
        assert!(error.contains(expected), "{sides} {periods:?}: {error}");
    }
}

/// A random box of one column, and its rows.
#[derive(Debug, Clone)]
struct Case {
    data_type: DataType,
    low: Option<f64>,
    high: Option<f64>,
    period: Option<f64>,
    values: Vec<f64>,
}

impl Case {
    /// Converts a number to the column's type, as a row has it. Integers saturate, and NaN becomes 0.
    fn stored(&self, value: f64) -> f64 {
        let (least, greatest) = match self.data_type {
            DataType::F32 => return f64::from(value as f32),
            DataType::F64 => return value,
            DataType::I8 => (i8::MIN.into(), i8::MAX.into()),
            DataType::I16 => (i16::MIN.into(), i16::MAX.into()),
            DataType::I32 => (i32::MIN.into(), i32::MAX.into()),
            DataType::U8 => (0.0, u8::MAX.into()),
            DataType::U16 => (0.0, u16::MAX.into()),
            DataType::U32 => (0.0, u32::MAX.into()),
            DataType::U64 => (0.0, 1e15),
            _ => (-1e15, 1e15),
        };
        if value.is_nan() { 0.0 } else { value.round().clamp(least, greatest) }
    }

    fn array(&self) -> ArrayRef {
        macro_rules! array {
            ($array:ty, $native:ty) => {
                Arc::new(<$array>::from_iter_values(self.values.iter().map(|value| *value as $native)))
            };
        }
        match self.data_type {
            DataType::F32 => array!(Float32Array, f32),
            DataType::F64 => array!(Float64Array, f64),
            DataType::I8 => array!(Int8Array, i8),
            DataType::I16 => array!(Int16Array, i16),
            DataType::I32 => array!(Int32Array, i32),
            DataType::I64 => array!(Int64Array, i64),
            DataType::U8 => array!(UInt8Array, u8),
            DataType::U16 => array!(UInt16Array, u16),
            DataType::U32 => array!(UInt32Array, u32),
            _ => array!(UInt64Array, u64),
        }
    }

    /// Rounds a bound or a period, as the column's type does.
    fn rounded(&self, value: f64) -> f64 {
        if self.data_type == DataType::F32 { f64::from(value as f32) } else { value }
    }

    /// Returns whether a value lies in the box, in exact arithmetic.
    fn holds(&self, value: f64) -> bool {
        let bounds = [self.low, self.high].map(|bound| bound.map(|bound| self.rounded(bound)));
        let Some(period) = self.period.map(|period| self.rounded(period)) else {
            return !value.is_nan()
                && bounds[0].is_none_or(|low| low <= value)
                && bounds[1].is_none_or(|high| value < high);
        };
        let [Some(low), Some(high)] = bounds else { return !value.is_nan() };
        if !value.is_finite() {
            return false;
        }
        let [value, low, high, period] = [value, low, high, period].map(exact);
        (value - low).rem_euclid(period) < high - low
    }

    fn sides(&self) -> String {
        let bound = |bound: Option<f64>| bound.map(|bound| bound.to_string()).unwrap_or_default();
        format!("x={}:{}", bound(self.low), bound(self.high))
    }

    fn bounds(&self) -> ColumnBounds {
        let (nan, numbers): (Vec<f64>, Vec<f64>) = self.values.iter().partition(|value| value.is_nan());
        let value = |value: f64| match self.data_type.is_float() {
            true => Value::Float(value),
            false => Value::Int(value as i128),
        };
        let least = numbers.iter().copied().reduce(f64::min);
        let most = numbers.iter().copied().reduce(f64::max);
        let nan = match (nan.is_empty(), numbers.is_empty()) {
            (true, _) => NanPresence::None,
            (false, true) => NanPresence::All,
            (false, false) => NanPresence::Some,
        };
        ColumnBounds { range: least.map(value).zip(most.map(value)), nan }
    }
}

/// Returns a number as a multiple of 2^-60.
fn exact(value: f64) -> i128 {
    let scaled = value * (1u64 << 60) as f64;
    assert!(scaled.fract() == 0.0 && scaled.abs() < 1e37, "{value} cannot be judged");
    scaled as i128
}

fn case() -> impl Strategy<Value = Case> {
    let data_type = select(&TYPES[..]);
    // Dyadic numbers for all types, and decimals, which f32 rounds.
    let sixteenths = (-4000i32..4000).prop_map(|count| f64::from(count) / 16.0);
    let decimals = (-4000i32..4000).prop_map(|count| f64::from(count) / 100.0);
    let numbers = prop_oneof![sixteenths.clone(), decimals, (-250i32..250).prop_map(f64::from)];
    let period = select(&[0.25, 1.0, 3.0, 10.0, 12.5, 128.0, 100.0, 0.7, 0.1, 33.3][..]);
    let special = select(&[f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1e9, -1e9][..]);
    // A place among the values of a case: relative to a bound, by periods and by neighbours of the type.
    let near = (any::<bool>(), -3i32..4, -1i32..2);
    let rows =
        vec(prop_oneof![4 => near.prop_map(Ok), 1 => special.prop_map(Err), 2 => numbers.clone().prop_map(Err)], 1..24);
    let is_open = || prop_oneof![6 => Just(false), 1 => Just(true)];
    let bounds = (numbers.clone(), numbers, is_open(), is_open());
    (data_type, bounds, proptest::option::of(period), rows).prop_map(
        |(data_type, (one, other, no_low, no_high), period, rows)| {
            // Only f32 rounds its bounds so coarsely that differences of decimals are exact.
            let coarse = |value: f64| if data_type == DataType::F32 { value } else { (value * 16.0).round() / 16.0 };
            let period = period.map(|period| coarse(period).max(0.0625));
            let (low, high) = (coarse(one.min(other)), coarse(one.max(other)));
            let high = if low < high { high } else { low + 0.5 };
            let both_or_none = period.is_some() && (no_low || no_high);
            let mut case = Case {
                data_type,
                low: (!no_low && !both_or_none).then_some(low),
                high: (!no_high && !both_or_none).then_some(high),
                period,
                values: Vec::new(),
            };
            let place = |row: Result<(bool, i32, i32), f64>| match row {
                Err(value) => value,
                Ok((is_low, turns, step)) => {
                    let bound = case.rounded(if is_low { low } else { high });
                    let place = case.stored(bound + f64::from(turns) * case.rounded(period.unwrap_or(7.0)));
                    match (data_type, step) {
                        (DataType::F32, 1) => f64::from((place as f32).next_up()),
                        (DataType::F32, -1) => f64::from((place as f32).next_down()),
                        // The neighbours of an f64 are too near for the judge.
                        (_, step) => place + f64::from(step) / 1024.0,
                    }
                }
            };
            case.values = rows.into_iter().map(place).map(|value| case.stored(value)).collect();
            if data_type == DataType::F32 {
                // Numbers next to zero are too small for the judge.
                case.values.iter_mut().filter(|value| value.abs() < 1e-9).for_each(|value| *value = 0.0);
            }
            case
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6_000))]

    #[test]
    fn boxes_agree_with_exact_arithmetic_and_pruning_with_boxes(case in case()) {
        let key = Column::new("key", DataType::U8);
        let schema = Schema::new(vec![key, Column::new("x", case.data_type)], "key").unwrap();
        let periods = case.period.map(|period| period.to_string());
        let predicate = within(&case.sides(), periods.as_deref(), &schema)
            .map_err(|error| TestCaseError::fail(error.to_string()))?;
        let found = |predicate: &Predicate| -> Vec<bool> {
            let arrays: Vec<ArrayRef> = predicate.columns().iter().map(|_| case.array()).collect();
            let input = predicate.input(0, case.values.len(), &arrays).unwrap();
            predicate.evaluate(&input).iter().collect()
        };
        let expected: Vec<bool> = case.values.iter().map(|value| case.holds(*value)).collect();
        prop_assert_eq!(&found(&predicate), &expected, "{}", predicate);
        let again = Predicate::parse(&predicate.to_string(), &schema).unwrap();
        prop_assert_eq!(&found(&again), &expected, "{} parsed again", predicate);

        let truth = predicate.prune(0, &|_| Some(case.bounds()));
        let agrees = match truth {
            TruthValue::Never => !expected.contains(&true),
            TruthValue::Maybe => true,
            TruthValue::Always => !expected.contains(&false),
        };
        prop_assert!(agrees, "{predicate}: {truth:?}, but {expected:?}");
    }
}

/// Returns what the statistics of `x` tell about a box with the period 128.
fn pruned(sides: &str, low: f64, high: f64) -> TruthValue {
    let range = Some((Value::Float(low), Value::Float(high)));
    let bounds = move |_: usize| Some(ColumnBounds { range, nan: NanPresence::None });
    within(sides, Some("128"), &schema()).unwrap().prune(0, &bounds)
}

#[test]
fn periodic_sides_prune() {
    use TruthValue::{Always, Maybe, Never};
    for (low, high, expected) in [
        (0.0, 9.0, Always),
        (121.0, 127.5, Always),
        (12.0, 119.0, Never),
        (11.0, 130.0, Maybe),
        (-7.0, 9.0, Always),
        (-100.0, -9.0, Never),
        (-1280.0 - 100.0, -1280.0 - 9.0, Never),
        (1280.0 + 11.0, 1280.0 + 100.0, Never),
        (1280.0 + 1.0, 1280.0 + 9.0, Always),
        (0.0, 1000.0, Maybe),
        (f64::NEG_INFINITY, 5.0, Maybe),
    ] {
        assert_eq!(pruned("x=120:138", low, high), expected, "{low} to {high}");
    }
    // Rows on both sides of a multiple of the period, none of which lies in the middle.
    for turns in [-3.0, -1.0, 1.0, 7.0] {
        let seam = turns * 128.0;
        assert_eq!(pruned("x=50:60", seam - 5.0, seam + 5.0), Never, "{turns} periods");
        assert_eq!(pruned("x=50:60", seam + 51.0, seam + 59.0), Always, "{turns} periods");
    }
}

#[test]
fn boxes_that_divide_a_period_divide_its_rows() {
    // 0.7 is rounded down in f32, and 0.1 up.
    for period in [0.7f64, 0.1, 12.8] {
        let cuts: Vec<f64> = (0..=7).map(|cut| period * f64::from(cut) / 7.0).collect();
        let ends = cuts.iter().flat_map(|cut| {
            let cut = *cut as f32;
            [cut, cut.next_up(), cut.next_down(), cut + period as f32, cut - period as f32, -cut, cut * 1e3]
        });
        let values: Vec<f32> = ends.collect();
        let mut times = vec![0; values.len()];
        let array: [ArrayRef; 1] = [Arc::new(Float32Array::from(values.clone()))];
        for cuts in cuts.windows(2) {
            let sides = format!("x={}:{}", cuts[0], cuts[1]);
            let predicate = within(&sides, Some(&period.to_string()), &schema()).unwrap();
            let input = predicate.input(0, values.len(), &array).unwrap();
            predicate.evaluate(&input).iter().zip(&mut times).for_each(|(held, times)| *times += usize::from(held));
        }
        assert!(times.iter().all(|times| *times == 1), "{period}: {times:?} of {values:?}");
    }
}

/// Returns texts of boxes or periods: pieces of the grammar in any order, which are often a box, and any characters.
fn hostile_text() -> impl Strategy<Value = String> {
    const PIECES: [&str; 40] = [
        "x",
        "y",
        "Cell",
        "node",
        "tag",
        "epoch",
        "\"x\"",
        "\"odd, \"\"=:\"\" name\"",
        "\"",
        "\"\"",
        "=",
        "=",
        ":",
        ":",
        ",",
        ",",
        " ",
        "-",
        "+",
        "0",
        "-0",
        "1",
        "5",
        "10",
        "128",
        "0.1",
        "1e30",
        "1e-320",
        "1e308",
        "1e999",
        "nan",
        "-inf",
        "18446744073709551615",
        "18446744073709551616",
        "-9223372036854775809",
        "9007199254740993",
        "é",
        "∞",
        "\0",
        "x=0:1",
    ];
    let numbers = select(&PIECES[19..36]);
    let side = (select(&PIECES[..8]), proptest::option::of(numbers.clone()), proptest::option::of(numbers.clone()));
    let side = side.prop_map(|(name, low, high)| format!("{name}={}:{}", low.unwrap_or(""), high.unwrap_or("")));
    let pieces = vec(select(&PIECES[..]), 0..12).prop_map(|pieces| pieces.concat());
    let periods = vec(proptest::option::of(numbers), 0..5)
        .prop_map(|all| all.iter().map(|one| one.unwrap_or("")).collect::<Vec<_>>().join(","));
    prop_oneof![
        4 => vec(side, 1..4).prop_map(|sides| sides.join(",")),
        2 => pieces,
        2 => periods,
        1 => any::<String>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn texts_are_refused_by_name_or_keep_their_meaning(sides in hostile_text(), periods in proptest::option::of(hostile_text())) {
        let schema = schema();
        let predicate = match within(&sides, periods.as_deref(), &schema) {
            Err(error) => {
                prop_assert!(
                    matches!(error, ExpressionError::Box { .. } | ExpressionError::Period { .. }),
                    "{sides} {periods:?}: {error:?}"
                );
                return Ok(());
            }
            Ok(predicate) => predicate,
        };
        let shown = predicate.to_string();
        let again = Predicate::parse(&shown, &schema);
        let again = again.map_err(|error| TestCaseError::fail(format!("{sides} {periods:?} is {shown}: {error}")))?;
        prop_assert_eq!(&again.to_string(), &shown);
        let found = |predicate: &Predicate| -> Vec<bool> {
            let arrays: Vec<ArrayRef> = predicate.columns().iter().map(|column| extremes(&schema, *column)).collect();
            let input = predicate.input(0, EXTREMES.len(), &arrays).unwrap();
            predicate.evaluate(&input).iter().collect()
        };
        prop_assert_eq!(found(&again), found(&predicate), "{} {:?} is {}", sides, periods, shown);
    }
}

const EXTREMES: [f64; 12] =
    [0.0, -0.0, 0.1, 1.0, -1.0, 127.9, 1e30, -1e300, 5e-324, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];

/// Returns extreme values in the type of a column.
fn extremes(schema: &Schema, column: usize) -> ArrayRef {
    match schema.columns()[column].data_type {
        DataType::F32 => Arc::new(Float32Array::from_iter_values(EXTREMES.iter().map(|value| *value as f32))),
        DataType::F64 => Arc::new(Float64Array::from_iter_values(EXTREMES)),
        DataType::I32 => Arc::new(Int32Array::from_iter_values(EXTREMES.iter().map(|value| *value as i32))),
        _ => Arc::new(UInt8Array::from_iter_values(EXTREMES.iter().map(|value| *value as u8))),
    }
}
