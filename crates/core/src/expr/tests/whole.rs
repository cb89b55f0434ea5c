//! Integers are exact: examples of each operator, and random derivations against the naive interpreter.

use proptest::prelude::*;
use proptest::sample::select;

use super::super::{ColumnBounds, Derivation, ExpressionError, NanPresence, Predicate, TruthValue};
use super::naive::{Known, TestNumber};
use super::properties::{rows, whole};
use super::{Row, matches, schema};
use crate::schema::{Column, ColumnView, DataType, Value};

const BEYOND: u64 = (1 << 53) + 1;

fn holds(text: &str) -> bool {
    let row = Row { single: 2.5, double: 9_007_199_254_740_992.0, small: 5, int: -7, long: -3, big: BEYOND };
    matches(text, BEYOND, &[row])[0]
}

#[test]
fn integers_are_exact_beyond_53_bits() {
    for text in [
        "big % 1048576 = 1",
        "big // 2 = 4503599627370496",
        "big - 1 = 9007199254740992",
        "big + 0 = 9007199254740993",
        "big + 0 <> 9007199254740992",
        "big + 0 > 9007199254740992.0",
        "big + 0 <> \"double\"",
        "\"double\" < big * 1",
        "big > \"double\"",
        "epoch > \"double\"",
        "big + 0 > \"double\" + 0",
        "big * big = 81129638414606699710187514626049",
        "big * big > 8.1129638414606695e31",
        "(big << 10) >> 10 = big",
        "(big >> 53) & 1 = 1",
        "big & 1023 IN (0, 1)",
        "~big = -9007199254740994",
        "-big = ~big + 1",
        "(big | 2) = 9007199254740995",
        "epoch % 10 = 3",
        "big IN (9007199254740992, 9007199254740993) AND big + 0 NOT IN (9007199254740992, 1e300, 0.5)",
        "big * 2 BETWEEN 18014398509481986 AND 18014398509481986.5",
        // 2^64 and 0 have the same low bits.
        "big * 0 NOT IN (18446744073709551616, 36893488147419103232)",
        "170141183460469231731687303715884105727 + 0 > 170141183460469231731687303715884105726",
    ] {
        assert!(holds(text), "{text}");
    }
}

#[test]
fn quotients_are_truncated_and_remainders_have_the_sign_of_the_dividend() {
    for text in [
        "int // 2 = -3 AND int % 2 = -1",
        "int // -2 = 3 AND int % -2 = -1",
        "small // -2 = -2 AND small % -2 = 1",
        "-7.5 // 2 = -3 AND \"double\" // 0 = inf AND isnan((single - single) // 0)",
        "single // 2 = 1 AND -single // 2 = -1 AND single // 0.5 = 5",
        "int >> 1 = -4 AND int >> 127 = -1 AND small >> 3 = 0",
        "int / 2 = -3.5",
        "7 // 2 = 3 AND 7 % -4 = 3 AND 1 << 70 = 1180591620717411303424 AND 6 & 3 | 8 = 10",
    ] {
        assert!(holds(text), "{text}");
    }
}

#[test]
fn operators_bind_as_in_python() {
    let shown = |text: &str| Predicate::parse(text, &schema()).unwrap().to_string();
    for (text, wanted) in [
        ("small & 6 | 1 = 5", "small & 6 | 1 = 5"),
        ("small & (long | 1) = 5", "small & (long | 1) = 5"),
        ("(small | 1) & int = 5", "(small | 1) & int = 5"),
        ("small | 1 & int = 5", "small | 1 & int = 5"),
        ("(small << 1) + 2 = 1", "(small << 1) + 2 = 1"),
        ("small << 1 + int = 1", "small << 1 + int = 1"),
        ("small & int << 2 = 1", "small & int << 2 = 1"),
        ("(small & int) << 2 = 1", "(small & int) << 2 = 1"),
        ("small >> (int >> 2) = 1", "small >> (int >> 2) = 1"),
        ("~small // 2 = 1", "~small // 2 = 1"),
        ("~(small // 2) = 1", "~(small // 2) = 1"),
        ("-~small = 1", "-(~small) = 1"),
        ("small // (int // 2) * 3 % 4 = 1", "small // (int // 2) * 3 % 4 = 1"),
        ("small * -int = 1", "small * -int = 1"),
        ("NOT small & 1 = 1 AND TRUE", "NOT small & 1 = 1 AND TRUE"),
    ] {
        assert_eq!(shown(text), wanted);
    }
    let text = "1 + 2 << 1 & 7 | 8 = 14 AND 2 | 1 IN (3) AND -1 & 3 BETWEEN 2 | 1 AND 1 << 2";
    assert!(holds(text));
    // As Python evaluates it.
    assert!(holds("7 - 1 << 2 // 2 & ~4 | 1 * 64 = 72"));
}

#[test]
fn rows_without_a_result_match_neither_a_condition_nor_its_negation() {
    let none = [
        "big // (small - 5) = 1",
        "big % (small - 5) <> 1",
        "big << 200 > 0",
        "big >> long IN (0, 1)",
        "big * big * big * big BETWEEN -1 AND 1",
        "big % 0 NOT IN (7, 8)",
        "isnan(5 % 0)",
        "isnan(big // 0)",
        "sqrt(small // 0) <> 3",
        "isnan(single + small // 0)",
        "single < small % 0",
        "small // 0 = small // 0",
        "(small // 0) / 2 NOT BETWEEN 1 AND 2",
        "small // 0 = 1 AND small // 0 = 5",
        "small // 0 = 1e300",
    ];
    for text in none {
        assert!(!holds(text), "{text}");
        assert!(!holds(&format!("NOT ({text})")), "NOT ({text})");
        assert!(!holds(&format!("NOT NOT ({text})")), "NOT NOT ({text})");
        assert!(holds(&format!("small = 5 OR {text}")), "small = 5 OR {text}");
        assert!(!holds(&format!("NOT (small = 5 AND {text})")), "NOT (small = 5 AND {text})");
        assert!(holds(&format!("NOT (small = 4 AND {text})")), "NOT (small = 4 AND {text})");
    }
}

#[test]
fn operators_of_bits_refuse_floats_and_conditions() {
    for (text, beginning) in [
        ("single & 1 = 1", "at character 1, near 'single & 1 = 1': '&' takes integers, and single is a float; join"),
        ("small << 1.5 = 1", "at character 10, near '1.5 = 1': '<<' takes integers, and 1.5 is a float"),
        ("small | sqrt(int) = 1", "at character 9, near 'sqrt(int) = 1': '|' takes integers, and sqrt(int) is a float"),
        ("~(small / 2) = 1", "at character 3, near 'small / 2) = 1': '~' takes integers, and small / 2 is a float"),
        (
            "~(small > 2)",
            "at character 3, near 'small > 2)': '~' takes integers, not conditions; negate conditions by NOT",
        ),
        (
            "(small > 2) & (int < 1)",
            "at character 2, near 'small > 2) & (int < 1)': '&' takes integers, not conditions; join conditions by AND",
        ),
        (
            "(small > 2) | TRUE",
            "at character 2, near 'small > 2) | TRUE': '|' takes integers, not conditions; join conditions by OR",
        ),
        (
            "small > 2 & int < 1",
            "at character 9, near '2 & int < 1': '&' binds more tightly than comparisons; join conditions by AND",
        ),
        (
            "small = 2 | int = 1",
            "at character 9, near '2 | int = 1': '|' binds more tightly than comparisons; join conditions by OR",
        ),
        ("small > 2 & int IN (1)", "at character 9, near '2 & int IN (1)': '&' binds"),
        ("small BETWEEN 1 AND 2 & int > 1", "at character 21, near '2 & int > 1': '&' binds"),
        (
            "single > 0.5 & small < 1",
            "at character 10, near '0.5 & small < 1': '&' takes integers, and 0.5 is a float; join conditions by AND",
        ),
        (
            "single > 2 & single < 1",
            "at character 14, near 'single < 1': '&' takes integers, and single is a float; join conditions by AND",
        ),
        ("single > 2 && small < 1", "at character 12, near '&& small < 1': not supported in an expression; write AND"),
        ("single > 2 || small < 1", "at character 12, near '|| small < 1': not supported in an expression; write OR"),
        ("(small > 2) + 1 = 1", "at character 2, near 'small > 2) + 1 = 1': expected a number"),
    ] {
        let error = Predicate::parse(text, &schema()).unwrap_err().to_string();
        assert!(error.starts_with(beginning), "{text:?} gives {error:?}");
    }
}

#[test]
fn pruning_does_not_round() {
    use TruthValue::{Always, Maybe, Never};
    let truth = |text: &str, low: i128, high: i128| {
        let range = Some((Value::Int(low), Value::Int(high)));
        let predicate = Predicate::parse(text, &schema()).unwrap_or_else(|error| panic!("{text}: {error}"));
        predicate.prune(0, &|_| Some(ColumnBounds { range, nan: NanPresence::None }))
    };
    let id = i128::from(BEYOND);
    for (text, low, high, wanted) in [
        ("big + 0 = 9007199254740992", id, id, Never),
        ("big + 0 = 9007199254740993", id, id, Always),
        ("big + 0 > \"double\" + 9007199254740992.0", id, id, Never),
        ("big % 1048576 = 5", id, id + 3, Never),
        ("big % 1048576 = 5", id, id + 4, Maybe),
        ("big % 1048576 BETWEEN 1 AND 4", id, id + 3, Always),
        // The remainders are 8, 9, 0 and 1.
        ("big % 10 IN (4, 5)", 18, 21, Maybe),
        ("big % 10 = 4", 18, 21, Never),
        ("big % 10 < 2 OR big % 10 > 7", 18, 21, Maybe),
        ("long % 10 = -4", -21, -18, Never),
        ("long % -10 = -8", -21, -18, Maybe),
        ("long % 10 > 9", -100, 100, Never),
        ("long % 10 < -9", -100, 100, Never),
        ("big >> 20 = 8589934592", id, id + 1000, Always),
        ("big >> 20 = 8589934593", id, id + 1000, Never),
        ("big & 1023 < 4", id, id + 1, Always),
        ("big & 1023 > 100", id, id + 20, Never),
        ("big & 1023 > 1023", 0, u64::MAX.into(), Never),
        ("big & ~1023 = 9007199254740992", id, id + 1000, Always),
        ("big | 1 < 8", 4, 6, Always),
        ("long & -1 < 0", -5, -3, Always),
        ("big // 2 = 4503599627370496", id - 1, id, Always),
        ("long // -2 BETWEEN 1 AND 2", -5, -2, Always),
        ("long // 2 = 0", -1, 1, Always),
        ("10 // long = 100", -1, 1, Never),
        ("10 // long <> 100", -1, 1, Maybe),
        ("NOT 10 // long = 100", -1, 1, Maybe),
        ("10 // (long - 1) <> 100", 2, 3, Always),
        ("10 // long IN (100, 101)", -3, 3, Never),
        ("sqrt(10 // long) <> 100", -1, 1, Maybe),
        ("sqrt(10 // long) <> 100", 1, 2, Always),
        ("big * big > 81129638414606699710187514626048", id, id + 9, Always),
        ("big << 10 = 9223372036854776832", id, id, Always),
        ("big << 100 > 0", id, id, Maybe),
        ("-big < -9007199254740992", id, id + 1, Always),
        ("~big = -9007199254740994", id, id, Always),
        ("big = \"double\" OR big > 5", id, id, Always),
        ("big <> \"double\" + 0.5", id, id, Always),
    ] {
        assert_eq!(truth(text, low, high), wanted, "{text} of {low} to {high}");
    }
    // Nothing is known of the columns but their types.
    for (text, wanted) in [
        ("small + int < 2147483903", Always),
        ("big + 1 > 0", Always),
        ("long // 0 = 1", Never),
        ("small << 120 < 0", Never),
        ("small << 119 > -1", Always),
    ] {
        assert_eq!(Predicate::parse(text, &schema()).unwrap().prune(0, &|_| None), wanted, "{text}");
    }
}

fn columns() -> Vec<Column> {
    schema().columns()[..6].to_vec()
}

/// Derives a column of rows. Returns the stored bytes.
fn derive(text: &str, columns: &[Column], rows: &[Row]) -> Result<Vec<u8>, ExpressionError> {
    let bytes: [Vec<u8>; 6] = [
        rows.iter().flat_map(|row| row.single.to_le_bytes()).collect(),
        rows.iter().flat_map(|row| row.double.to_le_bytes()).collect(),
        rows.iter().map(|row| row.small).collect(),
        rows.iter().flat_map(|row| row.int.to_le_bytes()).collect(),
        rows.iter().flat_map(|row| row.long.to_le_bytes()).collect(),
        rows.iter().flat_map(|row| row.big.to_le_bytes()).collect(),
    ];
    let views: Vec<_> = columns
        .iter()
        .zip(&bytes)
        .map(|(column, bytes)| ColumnView::new(bytes, column.data_type.width(), rows.len(), column.data_type).unwrap())
        .collect();
    let mut out = Vec::new();
    Derivation::parse(text, columns, &|_| Some(2.5))?.evaluate(&views, rows.len(), &|_| Some(2.5), &mut out)?;
    Ok(out)
}

fn of_big(values: &[u64]) -> Vec<Row> {
    values.iter().map(|big| Row { big: *big, ..Row::ZERO }).collect()
}

#[test]
fn derived_integers_are_exact() {
    let rows = of_big(&[BEYOND, u64::MAX, (1 << 62) + 3]);
    let whole = |text: &str| -> Vec<u64> {
        let bytes = derive(text, &columns(), &rows).unwrap_or_else(|error| panic!("{text}: {error}"));
        bytes.chunks_exact(8).map(|raw| u64::from_le_bytes(raw.try_into().unwrap())).collect()
    };
    assert_eq!(whole("a:u64 = big"), [BEYOND, u64::MAX, (1 << 62) + 3]);
    assert_eq!(whole("a:u64 = big % 1048576"), [1, 1_048_575, 3]);
    let products = [4398046511104, 18446744073709551611, 1152921504606846976];
    assert_eq!(whole("a:u64 = big * (big >> 2) >> 62"), products);
    assert_eq!(whole("a:u64 = 18446744073709551615"), [u64::MAX; 3]);
    // Floats, constants and `/` are computed in f64.
    let float = derive("a:u64 = big - header.x + 2.5", &columns(), &rows[..1]).unwrap();
    assert_eq!(float, (BEYOND - 1).to_le_bytes());
    let halves = derive("a:f64 = big / 2", &columns(), &rows).unwrap();
    assert_eq!(halves[..8], (BEYOND as f64 / 2.0).to_le_bytes());
    // The integer is rounded once, where it becomes a float.
    let rounded = derive("a:f64 = big + 1 + 2", &columns(), &rows).unwrap();
    assert_eq!(rounded[..8], ((BEYOND + 3) as f64).to_le_bytes());
}

#[test]
fn integers_without_a_result_are_errors() {
    let rows = of_big(&[vec![1; 2_000], vec![0, 0]].concat());
    let error = |text: &str| derive(text, &columns(), &rows).unwrap_err().to_string();
    for (text, wanted) in [
        ("a:u8 = 1 // big", "row 2000: 1 // big divides by zero"),
        ("a:f64 = sqrt(1 % big)", "row 2000: sqrt(1 % big) divides by zero"),
        ("a:f32 = 1 << big - 1", "row 2000: 1 << big - 1 shifts by a distance that is not 0 to 127"),
        ("a:u8 = big << 130", "row 0: big << 130 shifts by a distance that is not 0 to 127"),
        ("a:u8 = (big << 126) * 2", "row 0: (big << 126) * 2 exceeds 128 bits"),
        ("a:u8 = 256 * big", "row 0: 256 * big is 256, which does not fit u8; use a wider type"),
        ("a:u64 = big - 1", "row 2000: big - 1 is -1, which does not fit u64; use a wider type"),
        // Row 0 has a result that does not fit, row 2000 none.
        ("a:u8 = big * 300 // big", "row 0: big * 300 // big is 300, which does not fit u8; use a wider type"),
    ] {
        assert_eq!(error(text), format!("derived column 'a', {wanted}"), "{text}");
    }
    assert!(derive("a:u8 = ~(big / 2)", &columns(), &rows).is_err());
}

/// An integer that is multiplied by the factor of its unit is a float.
#[test]
fn integers_with_a_factor_are_floats() {
    use super::super::DerivationSet;
    let columns =
        [Column::new("n", DataType::I32).with_unit("1e-3 m"), Column::new("id", DataType::I64).with_unit("m")];
    let set =
        DerivationSet::parse_in_si_units(&["a = n * 3", "b:i64 = id % 4", "c:i32 = n * 1000"], &columns, &|_| None);
    let set = set.unwrap();
    let (n, id) = (7i32.to_le_bytes(), (i64::MAX - 1).to_le_bytes());
    let views = [(&n[..], DataType::I32), (&id[..], DataType::I64)]
        .map(|(bytes, data_type)| ColumnView::new(bytes, data_type.width(), 1, data_type).unwrap());
    let derived = set.evaluate(&views, 1, &|_| None).unwrap();
    assert_eq!(derived.view(0).value(0), (7.0 * 1e-3 * 3.0f64).to_le_bytes());
    assert_eq!(derived.view(1).value(0), 2i64.to_le_bytes());
    assert_eq!(derived.view(2).value(0), 7i32.to_le_bytes());
    assert!(DerivationSet::parse_in_si_units(&["a = n & 1"], &columns, &|_| None).is_err());
}

/// The naive result of a derivation: the stored bytes, or the first row with an error.
fn naive(number: &TestNumber, data_type: DataType, rows: &[Row]) -> Result<Vec<u8>, usize> {
    let mut out = Vec::new();
    for (row, values) in rows.iter().enumerate() {
        let Some(Known::Whole(value)) = number.value(0, values) else { return Err(row) };
        match data_type {
            DataType::I8 => out.extend(i8::try_from(value).map_err(|_| row)?.to_le_bytes()),
            DataType::U32 => out.extend(u32::try_from(value).map_err(|_| row)?.to_le_bytes()),
            DataType::I64 => out.extend(i64::try_from(value).map_err(|_| row)?.to_le_bytes()),
            DataType::U64 => out.extend(u64::try_from(value).map_err(|_| row)?.to_le_bytes()),
            DataType::F32 => out.extend((value as f64 as f32).to_le_bytes()),
            _ => out.extend((value as f64).to_le_bytes()),
        }
    }
    Ok(out)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn derivations_agree_with_the_naive_interpreter(
        number in whole().prop_filter("derivations have no epoch", |number| !number.text().contains("epoch")),
        rows in rows(),
        data_type in select(&[DataType::I8, DataType::U32, DataType::I64, DataType::U64, DataType::F32, DataType::F64][..]),
    ) {
        let text = format!("a:{data_type} = {}", number.text());
        let found = derive(&text, &columns(), &rows);
        match (naive(&number, data_type, &rows), found) {
            (Ok(wanted), Ok(found)) => prop_assert_eq!(found, wanted, "{}", text),
            (Err(wanted), Err(ExpressionError::Whole { row, .. })) => prop_assert_eq!(row, wanted, "{}", text),
            (wanted, found) => prop_assert!(false, "{text}: {found:?}, not {wanted:?}"),
        }
    }
}
