//! Examples of each operator and rule of the language. The expected results are those of NumPy, derived by hand.

use std::sync::Arc;

use super::super::{ColumnBounds, NanPresence, Predicate, TruthValue};
use super::{Row, evaluate, matches, schema};
use crate::schema::Value;

const NAN: f32 = f32::NAN;
const INF: f32 = f32::INFINITY;

fn singles(values: &[f32]) -> Vec<Row> {
    values.iter().map(|single| Row { single: *single, ..Row::ZERO }).collect()
}

/// Returns the values of the f32 column that match.
fn of_singles(text: &str, values: &[f32]) -> Vec<f32> {
    let found = matches(text, 0, &singles(values));
    values.iter().zip(found).filter(|(_, held)| *held).map(|(value, _)| *value).collect()
}

fn of_longs(text: &str, values: &[i64]) -> Vec<i64> {
    let rows: Vec<Row> = values.iter().map(|long| Row { long: *long, ..Row::ZERO }).collect();
    let found = matches(text, 0, &rows);
    values.iter().zip(found).filter(|(_, held)| *held).map(|(value, _)| *value).collect()
}

fn holds(text: &str) -> bool {
    let row = Row { single: 2.0, double: -7.5, small: 3, int: -4, long: 9, big: 11 };
    matches(text, 200, &[row])[0]
}

#[test]
fn comparisons_with_a_literal() {
    let values = [1.0, 2.0, 3.0];
    assert_eq!(of_singles("single = 2", &values), [2.0]);
    assert_eq!(of_singles("single == 2", &values), [2.0]);
    assert_eq!(of_singles("single <> 2", &values), [1.0, 3.0]);
    assert_eq!(of_singles("single != 2", &values), [1.0, 3.0]);
    assert_eq!(of_singles("single < 2", &values), [1.0]);
    assert_eq!(of_singles("single <= 2", &values), [1.0, 2.0]);
    assert_eq!(of_singles("single > 2", &values), [3.0]);
    assert_eq!(of_singles("single >= 2", &values), [2.0, 3.0]);
    assert_eq!(of_singles("2 > single", &values), [1.0]);
    assert_eq!(of_singles("2 <= single", &values), [2.0, 3.0]);
    assert_eq!(of_singles("single BETWEEN 2 AND 3", &values), [2.0, 3.0]);
    assert_eq!(of_singles("single NOT BETWEEN 2 AND 3", &values), [1.0]);
    assert!(of_singles("single between 3 and 2", &values).is_empty());
    assert_eq!(of_singles("single IN (3, 1, 7)", &values), [1.0, 3.0]);
    assert_eq!(of_singles("single NOT IN (3, 1, 7)", &values), [2.0]);
    assert_eq!(of_singles("2 IN (single, 5)", &values), [2.0]);
}

#[test]
fn nan_is_in_no_relation() {
    let found = |text: &str| of_singles(text, &[NAN]).len() == 1;
    for text in [
        "single = 1",
        "single < 1",
        "single <= inf",
        "single > -inf",
        "single >= 1",
        "single = nan",
        "single < nan",
        "single BETWEEN -inf AND inf",
        "single IN (1, nan)",
        "single = single",
        "single + 1 > 0",
        "single * 0 IN (0)",
        "NOT (single <> 1)",
        "NOT isnan(single)",
    ] {
        assert!(!found(text), "{text}");
    }
    for text in [
        "single <> 1",
        "single <> nan",
        "single <> single",
        "NOT (single > 1)",
        "single NOT IN (1, nan)",
        "isnan(single)",
        "single NOT BETWEEN 0 AND 1",
        "isnan(single + 1)",
        "single + 1 <> 0",
        "isnan(nan)",
        "single + 1 NOT IN (2)",
    ] {
        assert!(found(text), "{text}");
    }
}

#[test]
fn zeros_are_equal_and_infinities_ordinary() {
    let values = [-INF, -0.0, 0.0, INF];
    assert_eq!(of_singles("single = 0", &values).len(), 2);
    assert_eq!(of_singles("single = -0.0", &values).len(), 2);
    assert_eq!(of_singles("single IN (-0.0, 5)", &values).len(), 2);
    assert_eq!(of_singles("single < 0", &values), [-INF]);
    assert_eq!(of_singles("single > -0.0", &values), [INF]);
    assert_eq!(of_singles("single >= -0.0", &values).len(), 3);
    assert_eq!(of_singles("single = inf", &values), [INF]);
    assert_eq!(of_singles("single = -inf", &values), [-INF]);
    assert_eq!(of_singles("single < inf", &values).len(), 3);
    assert!(of_singles("single > Infinity", &values).is_empty());
    assert!(of_singles("single < -inf", &values).is_empty());
    assert_eq!(of_singles("single <= -INF", &values), [-INF]);
}

#[test]
fn literals_are_rounded_to_a_float_column() {
    // The f32 nearest to 0.1 is above 0.1.
    let values = [0.1f32.next_down(), 0.1, 0.1f32.next_up()];
    assert_eq!(of_singles("single = 0.1", &values), [0.1]);
    assert_eq!(of_singles("single > 0.1", &values), [values[2]]);
    assert_eq!(of_singles("single >= 0.1", &values), [0.1, values[2]]);
    assert_eq!(of_singles("single = 2*0.05", &values), [0.1]);
    assert_eq!(of_singles("0.1 BETWEEN single AND 1", &values), [values[0], 0.1]);
    assert_eq!(of_singles("single = -1/3.0", &[-1.0 / 3.0]), [-1.0 / 3.0]);
    // 2^24 + 1 and 2^64 + 2^40 + 1 round once.
    assert_eq!(of_singles("single = 16777217", &[16_777_216.0]), [16_777_216.0]);
    assert_eq!(of_singles("single = 18446745173221179393", &[18_446_746_272_732_807_168.0]).len(), 1);
    // A literal beyond the type's range rounds to infinity. A literal too small for the type rounds to zero.
    assert_eq!(of_singles("single >= 1e39", &[f32::MAX, INF]), [INF]);
    assert_eq!(of_singles("single > 1e-60", &[0.0, 1e-45]), [1e-45]);
    // Literals are rounded only for bare columns.
    assert!(of_singles("single + 0 = 0.1", &[0.1]).is_empty());
    assert!(!matches("\"double\" = 0.1", 0, &[Row { double: f64::from(0.1f32), ..Row::ZERO }])[0]);
}

#[test]
fn integers_compare_exactly() {
    let values = [i64::MIN, -3, -2, 9_007_199_254_740_992, 9_007_199_254_740_993, i64::MAX];
    assert_eq!(of_longs("long = 9007199254740993", &values), [9_007_199_254_740_993]);
    assert_eq!(of_longs("long > 9007199254740992.0", &values), [9_007_199_254_740_993, i64::MAX]);
    assert_eq!(of_longs("long = 9007199254740992 + 1", &values), [9_007_199_254_740_993]);
    assert_eq!(of_longs("long < -2.5", &values), [i64::MIN, -3]);
    assert_eq!(of_longs("long <= -2.5", &values), [i64::MIN, -3]);
    assert_eq!(of_longs("long >= -2.5 AND long < 0", &values), [-2]);
    assert_eq!(of_longs("long > -2.5 AND long < 0.5", &values), [-2]);
    assert!(of_longs("long = -2.5", &values).is_empty());
    assert_eq!(of_longs("long <> -2.5", &values).len(), 6);
    assert_eq!(of_longs("long < inf", &values).len(), 6);
    assert!(of_longs("long = nan OR long > inf", &values).is_empty());
    assert_eq!(of_longs("long > 9223372036854775806", &values), [i64::MAX]);
    assert!(of_longs("long > 9223372036854775807", &values).is_empty());
    assert_eq!(of_longs("long < 99999999999999999999999999999999999999999999", &values).len(), 6);
    assert_eq!(of_longs("long < -9223372036854775807", &values), [i64::MIN]);
    assert_eq!(of_longs("long IN (-3.0, -2.5, 9007199254740993)", &values), [-3, 9_007_199_254_740_993]);

    let rows = [(-1, u64::MAX), (i64::MAX, i64::MAX as u64), (i64::MAX, i64::MAX as u64 + 1)].map(|(long, big)| Row {
        long,
        big,
        ..Row::ZERO
    });
    assert_eq!(matches("long = big", 0, &rows), [false, true, false]);
    assert_eq!(matches("long < big", 0, &rows), [true, false, true]);
    assert_eq!(matches("big > 18446744073709551614", 0, &rows), [true, false, false]);
    assert_eq!(matches("small < 256 AND small > -1", 0, &rows), [true; 3]);
    assert_eq!(matches("small >= 255.5 OR small < -0.5", 0, &rows), [false; 3]);
}

#[test]
fn arithmetic_in_f64() {
    // The row has single 2, double -7.5, small 3, int -4, long 9 and big 11.
    for text in [
        "single + small = 5",
        "single - small = -1",
        "single * int = -8",
        "small / single = 1.5",
        "long / 0 = inf",
        "int / 0 = -inf",
        "isnan((small - 3) / 0)",
        "isnan(single % 0)",
        "\"double\" % 2 = -1.5",
        "int % small = -1",
        "7.5 % -2 = 1.5",
        "-single = -2",
        "- -single = 2",
        "+single = 2",
        "-single * small = -6",
        "abs(int) = 4",
        "abs(-3) = 3",
        "sqrt(long) = 3",
        "isnan(sqrt(int))",
        "floor(\"double\") = -8",
        "floor(-0.5) = -1",
        "single + small * long = 29",
        "(single + small) * long = 45",
        "long - small - single = 4",
        "long - (small - single) = 8",
        "12 / small / single = 2",
        "long % 5 % 3 = 1",
        "2 * 3 + 4 = 10",
        "1 / 4 = 0.25",
        "big - long > single - 1",
        "SQRT(LONG) = 3",
        "bits_i32(single) = 1073741824",
        "1.5e-3 < .5",
        "5. = 5",
        "big + 0 = 11",
    ] {
        assert!(holds(text), "{text}");
    }
    for text in ["\"double\" % 2 = 0.5", "small / single = 1", "single + small = 6", "big - long = 3"] {
        assert!(!holds(text), "{text}");
    }
}

#[test]
fn words_bind_as_in_sql() {
    for text in [
        "TRUE OR FALSE AND FALSE",
        "NOT FALSE AND TRUE",
        "NOT (TRUE AND FALSE)",
        "NOT single = 3",
        "not not true",
        "single BETWEEN 1 AND 3 AND small = 3",
        "single NOT BETWEEN 3 AND 4 AND TRUE",
        "single IN (1, 1 + 1) OR FALSE",
        "single < small AND small < long OR FALSE",
        "1 < 2",
        "1 BETWEEN 0 AND 2",
        "3 NOT IN (1, 2)",
    ] {
        assert!(holds(text), "{text}");
    }
    for text in ["(TRUE OR FALSE) AND FALSE", "NOT TRUE AND FALSE", "NOT TRUE", "FALSE", "2 > 3 OR 1 = 2"] {
        assert!(!holds(text), "{text}");
    }
}

#[test]
fn the_epoch_is_a_column() {
    for text in [
        "epoch = 200",
        "epoch BETWEEN 100 AND 200",
        "epoch IN (1, 200)",
        "epoch + 1 = 201",
        "EPOCH > long",
        "epoch / 2 = 100",
    ] {
        assert!(holds(text), "{text}");
    }
    assert!(!holds("epoch < 200") && !holds("epoch NOT IN (200)"));
    let predicate = Predicate::parse("epoch = 18446744073709551615", &schema()).unwrap();
    assert!(predicate.uses_epoch() && predicate.columns().is_empty());
    assert_eq!(predicate.prune(u64::MAX, &|_| None), TruthValue::Always);
    assert_eq!(predicate.prune(u64::MAX - 1, &|_| None), TruthValue::Never);
    assert!(matches("epoch = 18446744073709551615", u64::MAX, &[Row::ZERO])[0]);
}

#[test]
fn names_are_found() {
    let columns = |text: &str| Predicate::parse(text, &schema()).unwrap().columns().to_vec();
    assert_eq!(columns("big > 1 AND single < 2 AND big < 9"), [0, 5]);
    assert_eq!(columns("SINGLE > 1"), [0]);
    assert_eq!(columns("\"Single\" > 1"), [0]);
    // SQL keywords are valid column names.
    assert_eq!(columns("time > 1 AND double < 2 AND int = 1"), [1, 3, 7]);
    assert!(!Predicate::parse("time > 1", &schema()).unwrap().uses_epoch());
}

#[test]
fn the_shown_text_is_normal() {
    let shown = |text: &str| Predicate::parse(text, &schema()).unwrap().to_string();
    assert_eq!(shown("single>.1"), "single > 0.1");
    assert_eq!(shown("Single == -1/3.0"), "single = -0.33333334");
    assert_eq!(shown("-1/3.0 < single"), "-0.33333334 < single");
    assert_eq!(shown("((single + 1)) * 2 != (3 - (int - 1))"), "(single + 1) * 2 <> 3 - (int - 1)");
    assert_eq!(shown("not(single<1 or int<2)and true"), "NOT (single < 1.0 OR int < 2) AND TRUE");
    assert_eq!(shown("(int = 1 and int = 2) and (int = 3 or int = 4)"), "int = 1 AND int = 2 AND (int = 3 OR int = 4)");
    assert_eq!(
        shown("int not in (1,2) or long not between -5 and 10"),
        "int NOT IN (1, 2) OR long NOT BETWEEN -5 AND 10"
    );
    assert_eq!(shown("- (-int) < - -3"), "-(-int) < 3");
    assert_eq!(shown("isnan(sqrt(single)) or single<-inf"), "isnan(sqrt(single)) OR single < -inf");
}

/// The product of the literals is the least `i128`, which has no absolute value.
#[test]
fn products_of_literals_do_not_overflow() {
    assert_eq!(of_longs("long > -9223372036854775808 * 18446744073709551616", &[0]), [0]);
    assert!(of_longs("long < -9223372036854775808 * (18446744073709551615 - -1)", &[0]).is_empty());
}

#[test]
fn pruning_says_what_is_certain() {
    let truth = |text: &str, range: Option<(f64, f64)>, nan: NanPresence| {
        let range = range.map(|(low, high)| (Value::Float(low), Value::Float(high)));
        let predicate = Predicate::parse(text, &schema()).unwrap_or_else(|error| panic!("{text}: {error}"));
        predicate.prune(0, &|_| Some(ColumnBounds { range, nan }))
    };
    let clean = |text: &str| truth(text, Some((1.0, 4.0)), NanPresence::None);
    let some = |text: &str| truth(text, Some((1.0, 4.0)), NanPresence::Some);
    let all = |text: &str| truth(text, None, NanPresence::All);
    use TruthValue::{Always, Maybe, Never};
    for (text, of_clean, of_some, of_all) in [
        ("single > 4", Never, Never, Never),
        ("single >= 1", Always, Maybe, Never),
        ("single > 1", Maybe, Maybe, Never),
        ("single < 0.5 OR single > 5", Never, Never, Never),
        ("single <> 9", Always, Always, Always),
        ("NOT (single > 9)", Always, Always, Always),
        ("NOT (single < 9)", Never, Maybe, Always),
        ("single IN (7, 0)", Never, Never, Never),
        ("single IN (7, 2)", Maybe, Maybe, Never),
        ("single BETWEEN 0 AND 4", Always, Maybe, Never),
        ("isnan(single)", Never, Maybe, Always),
        ("single * single >= 1", Always, Maybe, Never),
        ("single * single > 16", Never, Never, Never),
        ("sqrt(single + 5) > 3", Never, Never, Never),
        ("abs(single - 2) <= 2", Always, Maybe, Never),
        ("floor(single / 2) > 2", Never, Never, Never),
        ("-single > 0", Never, Never, Never),
        ("1 / single > 0", Always, Maybe, Never),
        ("1 / (single - 1) > 0", Maybe, Maybe, Maybe),
        ("single % 2 > 5", Never, Never, Never),
        ("single % 8 >= 1", Always, Maybe, Never),
        ("single % 3 > 2.5", Maybe, Maybe, Never),
        ("single % (single - 2) > 0", Maybe, Maybe, Never),
        ("isnan(sqrt(-single))", Always, Always, Always),
        ("bits_i32(single) > 0", Always, Maybe, Maybe),
    ] {
        assert_eq!((clean(text), some(text)), (of_clean, of_some), "{text}");
        // Division prunes rows only if all of them are NaN.
        if of_all != Maybe || text.contains("bits") {
            assert_eq!(all(text), of_all, "{text}");
        }
    }
    assert_eq!(truth("single > 9", None, NanPresence::Unknown), Maybe);
    assert_eq!(Predicate::parse("small < 256", &schema()).unwrap().prune(0, &|_| None), Always);
    assert_eq!(Predicate::parse("single < 9 AND int > 3000000000", &schema()).unwrap().prune(0, &|_| None), Never);
}

/// A list without a text has exactly the stated values, and -0.0 equals 0.0.
#[test]
fn listed_values_are_exact() {
    let tenth = f64::from(0.1f32);
    let extremes = [f64::MIN_POSITIVE, f64::from_bits(1), -f64::INFINITY, f64::MAX, 0.1, tenth, 0.1f64.next_up()];
    let doubles = [&extremes[..], &[-0.0, f64::NAN]].concat();
    let singles: Vec<f64> =
        [f32::MIN_POSITIVE, f32::from_bits(1), f32::INFINITY, f32::MAX, 0.1, 0.0, f32::NAN].map(f64::from).to_vec();
    let rows: Vec<Row> = doubles
        .iter()
        .chain(&singles)
        .flat_map(|value| [*value, value.next_up(), value.next_down(), -value])
        .flat_map(|value| {
            [value as f32, (value as f32).next_up()].map(|single| Row { single, double: value, ..Row::ZERO })
        })
        .collect();
    for (column, values) in [(0, &singles), (1, &doubles)] {
        let stored = |row: &Row| if column == 0 { f64::from(row.single) } else { row.double };
        for values in [&values[..], &values[..1], &[]] {
            let listed = values.iter().map(|value| Value::Float(*value));
            let predicate = Predicate::any_of(&schema(), column, listed).unwrap();
            let wanted: Vec<bool> = rows.iter().map(|row| values.contains(&stored(row))).collect();
            assert_eq!(evaluate(&predicate, 3, &rows), wanted, "{column}: {values:?}");
        }
    }
    assert!(Predicate::any_of(&schema(), 6, [].into_iter()).is_err());
}

/// A predicate is copied for each epoch and index, but its lists are not.
#[test]
fn copies_share_their_lists() {
    let schema = schema();
    let predicate = Predicate::parse("big IN (3, 1, 2, 3) AND (int = 7 OR int IN (9, 8) OR int = 8)", &schema).unwrap();
    let listed = predicate.members_of(5).unwrap();
    assert_eq!(listed.values(), [1, 2, 3].map(Value::Int));
    assert_eq!(predicate.members_of(3).unwrap().values(), [7, 8, 9].map(Value::Int));
    assert!(predicate.members_of(4).is_none());
    let made = Predicate::of_members(&schema, 5, listed.clone()).unwrap();
    for copy in [predicate.clone(), made].into_iter().chain(predicate.branches(9)) {
        assert!(Arc::ptr_eq(&copy.members_of(5).unwrap(), &listed), "{copy}");
    }
}
