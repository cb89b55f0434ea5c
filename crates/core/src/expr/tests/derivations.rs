//! Tests of derived columns.

use super::super::{Derivation, DerivationSet, ExpressionError};
use crate::schema::{Column, ColumnView, DataType, OutOfRange};

fn vpic_columns() -> Vec<Column> {
    let float = |name| Column::new(name, DataType::F32);
    let cell = Column::new("i", DataType::I32);
    vec![float("dx"), float("dy"), float("dz"), cell, float("ux"), float("uy"), float("uz"), float("w")]
}

fn header(name: &str) -> Option<f64> {
    match name {
        "header.x0" => Some(-10.0),
        "header.dx" => Some(0.25),
        "header.nx" => Some(8.0),
        _ => None,
    }
}

/// Returns records of 32 bytes in VPIC's layout.
fn records(count: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for row in 0..count {
        let part = row as f32 / count as f32;
        for value in [part - 0.5, 0.0, 0.0] {
            bytes.extend(value.to_le_bytes());
        }
        bytes.extend((row as i32 * 7 % 1000).to_le_bytes());
        for value in [part * 3.0, -part, 0.25] {
            bytes.extend(value.to_le_bytes());
        }
        bytes.extend((1_024_608_549 + row as u32).to_le_bytes());
    }
    bytes
}

/// Returns views of the records' fields.
fn views(bytes: &[u8], rows: usize) -> Vec<ColumnView<'_>> {
    let columns = vpic_columns();
    let view =
        |(index, column): (usize, &Column)| ColumnView::new(&bytes[4 * index..], 32, rows, column.data_type).unwrap();
    columns.iter().enumerate().map(view).collect()
}

fn derive(text: &str, rows: usize) -> Result<Vec<u8>, ExpressionError> {
    let bytes = records(rows.max(1));
    let derivation = Derivation::parse(text, &vpic_columns(), &header)?;
    let mut out = vec![0xee];
    let result = derivation.evaluate(&views(&bytes, rows), rows, &header, &mut out);
    assert_eq!(out[0], 0xee);
    if result.is_err() {
        assert_eq!(out.len(), 1, "what was there stays, and nothing else");
    }
    result.map(|_| out.split_off(1))
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|raw| f32::from_le_bytes(raw.try_into().unwrap())).collect()
}

#[test]
fn energy_is_computed_in_f64_and_stored_as_f32() {
    // The rows fill more than two chunks.
    let rows = 2_500;
    let found = floats(&derive("energy=sqrt(1+ux*ux+uy*uy+uz*uz)-1", rows).unwrap());
    let expected: Vec<f32> = (0..rows)
        .map(|row| {
            let part = row as f32 / rows as f32;
            let (ux, uy, uz) = (f64::from(part * 3.0), f64::from(-part), 0.25f64);
            ((1.0 + ux * ux + uy * uy + uz * uz).sqrt() - 1.0) as f32
        })
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn identity_comes_from_the_bits() {
    let found = derive("id:i32 = bits_i32(w) - 1024608549", 1_500).unwrap();
    let expected: Vec<u8> = (0..1_500i32).flat_map(i32::to_le_bytes).collect();
    assert_eq!(found, expected);
}

#[test]
fn position_uses_constants_of_the_source() {
    let text = "x = header.x0 + ((i % (header.nx+2)) - 1 + (dx+1)/2) * header.dx";
    let derivation = Derivation::parse(text, &vpic_columns(), &header).unwrap();
    assert_eq!(derivation.inputs(), [0, 3]);
    assert_eq!(derivation.constants().collect::<Vec<_>>(), ["header.x0", "header.nx", "header.dx"]);
    let found = floats(&derive(text, 50).unwrap());
    for (row, found) in found.into_iter().enumerate() {
        let cell = f64::from(row as i32 * 7 % 1000 % 10);
        let within = f64::from(row as f32 / 50.0 - 0.5);
        assert_eq!(found, (-10.0 + (cell - 1.0 + (within + 1.0) / 2.0) * 0.25) as f32);
    }
    // The constants' values may differ from file to file.
    let bytes = records(1);
    let mut out = Vec::new();
    derivation.evaluate(&views(&bytes, 1), 1, &|_| Some(2.0), &mut out).unwrap();
    assert_eq!(floats(&out), [(2.0 + (-1.0 + 0.5 / 2.0) * 2.0) as f32]);
    let error = derivation.evaluate(&views(&bytes, 1), 1, &|_| None, &mut out).unwrap_err();
    assert_eq!(error.to_string(), "derived column 'x': the source has no header.x0");
}

#[test]
fn integers_are_rounded_to_nearest_and_checked() {
    let one = |text: &str| derive(text, 1);
    assert_eq!(one("a:u8 = 2.5").unwrap(), [2]);
    assert_eq!(one("a:u8 = 3.5").unwrap(), [4]);
    assert_eq!(one("a:u8 = 255.4").unwrap(), [255]);
    assert_eq!(one("a:u8 = -0.5").unwrap(), [0]);
    assert_eq!(one("a:i8 = -128.5").unwrap(), [0x80]);
    assert_eq!(one("a:i64 = -9223372036854775808").unwrap(), i64::MIN.to_le_bytes());
    assert_eq!(one("a:u64 = 18446744073709549568.0").unwrap(), 18_446_744_073_709_549_568u64.to_le_bytes());
    assert_eq!(one("a:f64 = 0.1").unwrap(), 0.1f64.to_le_bytes());
    for text in [
        "a:u8 = 255.5",
        "a:u8 = -0.51",
        "a:i8 = 127.5",
        "a:i8 = -129.0",
        "a:u16 = 65536.0",
        "a:i16 = 32768.0",
        "a:i32 = 2147483648.0",
        "a:u32 = -1.0",
        "a:i64 = 9223372036854775807.0",
        "a:u64 = 18446744073709551615.0",
        "a:i32 = 0 / 0",
        "a:i64 = 1 / 0",
    ] {
        assert!(matches!(one(text), Err(ExpressionError::ValueRange { row: 0, .. })), "{text}");
    }
    // The row number is counted over all chunks.
    let error = derive("a:u16 = (bits_i32(w) - 1024608549) * 32", 3_000).unwrap_err();
    assert_eq!(
        error.to_string(),
        "derived column 'a', row 2048: 65536.0 does not fit u16; derive it as f32 or f64, or fix the expression"
    );
}

#[test]
fn later_derivations_read_earlier_ones_as_stored() {
    let texts = ["third = 1 / 3.0", "scaled:f64 = third * 3", "n:u16 = scaled + dx * 0"];
    let set = DerivationSet::parse(&texts, &vpic_columns(), &header).unwrap();
    let names: Vec<&str> = set.columns().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["third", "scaled", "n"]);
    let bytes = records(5);
    let derived = set.evaluate(&views(&bytes, 5), 5, &header).unwrap();
    assert_eq!(derived.len(), 3);
    let expected = f64::from(1.0f32 / 3.0) * 3.0;
    assert_eq!(derived.view(1).value(4), expected.to_le_bytes());
    assert_eq!(derived.view(2).value(0), 1u16.to_le_bytes());
    assert_eq!(derived.into_values()[0], (1.0f32 / 3.0).to_le_bytes().repeat(5));

    let refused = |texts: &[&str]| DerivationSet::parse(texts, &vpic_columns(), &header).unwrap_err().to_string();
    assert!(refused(&["a = b", "b = 1"]).starts_with("at character 5: there is no column 'b'"));
    assert!(
        refused(&["a = 1", "A = 2"]).starts_with("'A' cannot name a derived column: a source column or an earlier")
    );
    assert!(refused(&["ux = 2"]).starts_with("'ux' cannot name a derived column"));
    assert!(set.evaluate(&views(&bytes, 5)[1..], 5, &header).is_err());
}

/// Returns the counts of a derivation over values of an `f64` column `x`, as overflows and underflows.
fn counted(text: &str, values: &[f64]) -> (u64, u64) {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let view = ColumnView::new(&bytes, 8, values.len(), DataType::F64).unwrap();
    let set = DerivationSet::parse(&[text], &[Column::new("x", DataType::F64)], &|_| None).unwrap();
    let derived = set.evaluate(&[view], values.len(), &|_| None).unwrap();
    match derived.out_of_range() {
        [] => (0, 0),
        [OutOfRange { column, overflows, underflows }] if column == "a" => (*overflows, *underflows),
        other => panic!("{other:?}"),
    }
}

#[test]
fn values_that_f32_represents_are_not_counted() {
    let (least, most) = (f64::from(f32::MIN_POSITIVE), f64::from(f32::MAX));
    let mut values = vec![0.0, 1.0, 0.1, least, least * 1.1, most, f64::NAN, f64::INFINITY];
    // Rounded down to the largest value.
    values.push(most * (1.0 + 2f64.powi(-26)));
    // Subnormal, and exact.
    values.extend([f64::from(f32::from_bits(1)), f64::from(f32::from_bits(12_345))]);
    // Rounded up to the smallest normal value, with more than the usual relative error.
    values.push(least * (1.0 - 0.9999 * 2f64.powi(-24)));
    // Half way between two values.
    values.extend([1.0 + 2f64.powi(-24), 1.0 + 3.0 * 2f64.powi(-24)]);
    let values: Vec<f64> = values.iter().flat_map(|value| [*value, -value]).collect();
    assert_eq!(counted("a = x", &values), (0, 0));
}

#[test]
fn values_out_of_the_range_of_f32_are_counted() {
    let most = f64::from(f32::MAX);
    for (value, expected) in [
        (1e39, (1, 0)),
        (f64::MAX, (1, 0)),
        (most * (1.0 + 2f64.powi(-24)), (1, 0)),
        (1e-46, (0, 1)),
        (f64::from_bits(1), (0, 1)),
        // The momentum of an electron in kg m/s, squared.
        (1e-44, (0, 1)),
        // Subnormal, and rounded.
        (1e-40, (0, 1)),
        (f64::from(f32::MIN_POSITIVE) * (0.5 + 2f64.powi(-24)), (0, 1)),
    ] {
        assert_eq!(counted("a = x", &[value]), expected, "{value:e}");
        assert_eq!(counted("a = -x", &[value]), expected, "{value:e}");
        assert_eq!(counted("a:f64 = x", &[value]), (0, 0), "{value:e}");
    }
}

#[test]
fn counts_are_those_of_all_chunks() {
    let values: Vec<f64> = (0..5_000).map(|row| if row % 5 == 0 { 1e30 } else { 1e-5 * f64::from(row % 2) }).collect();
    assert_eq!(counted("a = x*x", &values), (1_000, 0));
    assert_eq!(counted("a = x*x*x*x*x*x*x*x*x*x", &values), (1_000, 2_000));
}

/// Another derivation reads the stored value, which is what the count is about.
#[test]
fn each_column_has_its_own_counts() {
    let texts = ["square = ux*ux", "cube:f64 = square*ux", "small = square / 1e40"];
    let source = [Column::new("ux", DataType::F32)];
    let set = DerivationSet::parse(&texts, &source, &|_| None).unwrap();
    let bytes: Vec<u8> = [1e30f32, 1.0, -1e25].iter().flat_map(|value| value.to_le_bytes()).collect();
    let view = ColumnView::new(&bytes, 4, 3, DataType::F32).unwrap();
    let derived = set.evaluate(&[view], 3, &|_| None).unwrap();
    let of = |column: &str, overflows, underflows| OutOfRange { column: column.to_owned(), overflows, underflows };
    assert_eq!(derived.out_of_range(), [of("square", 2, 0), of("small", 0, 1)]);
    assert_eq!(derived.view(1).value(0), f64::INFINITY.to_le_bytes());
}

#[test]
fn derivations_in_si_units_are_f64_unless_they_state_a_type() {
    let source = [Column::new("p", DataType::F32).with_unit("1e-20 kg m s^-1"), Column::new("q", DataType::F32)];
    let texts = ["square = p*p", "root = sqrt(square)", "short:f32 = p*p", "n:u8 = q"];
    let set = DerivationSet::parse_in_si_units(&texts, &source, &|_| None).unwrap();
    let types: Vec<DataType> = set.columns().map(|column| column.data_type).collect();
    assert_eq!(types, [DataType::F64, DataType::F64, DataType::F32, DataType::U8]);
    let bytes = 0.125f32.to_le_bytes();
    let view = ColumnView::new(&bytes, 4, 1, DataType::F32).unwrap();
    let derived = set.evaluate(&[view, view], 1, &|_| None).unwrap();
    let momentum = 0.125 * 1e-20f64;
    assert_eq!(derived.view(0).value(0), (momentum * momentum).to_le_bytes());
    assert_eq!(derived.view(1).value(0), (momentum * momentum).sqrt().to_le_bytes());
    assert_eq!(derived.out_of_range(), [OutOfRange { column: "short".to_owned(), overflows: 0, underflows: 1 }]);
    let refused =
        DerivationSet::parse_in_si_units(&["a = x"], &[Column::new("x", DataType::F32).with_unit("MeV")], &|_| None);
    assert!(matches!(refused, Err(ExpressionError::Unit { .. })));
}

#[test]
fn no_rows_give_no_values() {
    assert!(derive("a = ux", 0).unwrap().is_empty());
}

#[test]
fn each_mistake_has_its_message() {
    for (text, beginning) in [
        ("sqrt(ux)", "'sqrt(ux)' is not a derivation; write name = expression"),
        ("a == 1", "'a == 1' is not a derivation"),
        (" = 1", "' = 1' is not a derivation"),
        ("a >= 1", "'a >' cannot name a derived column: use letters, digits and _"),
        ("epoch = 1", "'epoch' cannot name a derived column: the name is reserved for the timestep"),
        ("a.b = 1", "'a.b' cannot name a derived column"),
        ("a:i31 = 1", "derived column 'a': 'i31' is not a number type; use i8 to i64"),
        ("a:fixed_bytes(4) = 1", "derived column 'a': 'fixed_bytes(4)' is not a number type"),
        ("a =", "the expression is empty"),
        ("a = header.y0", "at character 5: the source has no constant 'header.y0'"),
        ("a = ux > 1", "at character 5, near 'ux > 1': expected a number"),
        ("a = epoch + 1", "at character 5: there is no column 'epoch'"),
        (
            "energy:f32 = vx + 1",
            "at character 14: there is no column 'vx'; the columns are dx, dy, dz, i, ux, uy, uz, w",
        ),
        ("a = 1 +", "at character 8, near 'the end': "),
    ] {
        let error = Derivation::parse(text, &vpic_columns(), &header).unwrap_err().to_string();
        assert!(error.starts_with(beginning), "{text:?} gives {error:?}");
    }
}

#[test]
fn the_shown_text_is_normal() {
    let shown = |text: &str| Derivation::parse(text, &vpic_columns(), &header).unwrap().to_string();
    assert_eq!(shown("energy=sqrt(1+UX*ux)-1"), "energy:f32 = sqrt(1 + ux * ux) - 1");
    assert_eq!(shown("id : i32=bits_i32(w)-(1-header.x0)"), "id:i32 = bits_i32(w) - (1 - header.x0)");
}

#[test]
fn inputs_that_do_not_fit_are_refused() {
    let derivation = Derivation::parse("a = w + dx", &vpic_columns(), &header).unwrap();
    let bytes = records(3);
    let views = views(&bytes, 3);
    let refused = |views: &[ColumnView<'_>], rows| {
        derivation.evaluate(views, rows, &header, &mut Vec::new()).unwrap_err().to_string()
    };
    assert_eq!(refused(&views[..2], 3), "derived column 'a': input 7 is missing, not f32 with 3 rows");
    assert_eq!(refused(&views, 4), "derived column 'a': input 0 is f32 with 3 rows, not f32 with 4 rows");
    let mut wrong = views.clone();
    wrong[7] = wrong[3];
    assert_eq!(refused(&wrong, 3), "derived column 'a': input 7 is i32 with 3 rows, not f32 with 3 rows");
}
