//! Expressions are parsed, bound, evaluated and pruned, and the results are compared. Pruning must never drop a
//! matching row, and the printed form of an expression must have the same meaning.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float32Array, Float64Array, Int64Array, UInt8Array, UInt64Array};
use turbidite::expr::{ColumnBounds, DerivationSet, NanPresence, Predicate, TruthValue};
use turbidite::{Column, ColumnView, DataType, Schema, Value};

use super::script::Script;

/// One row of input.
#[derive(Debug, Clone, Copy)]
struct Row {
    single: f32,
    double: f64,
    small: u8,
    long: i64,
    big: u64,
}

/// Tokens from which a fuzzer builds expressions, besides single characters.
const TOKENS: [&str; 70] = [
    "single",
    "double",
    "small",
    "long",
    "big",
    "epoch",
    "payload",
    "(",
    ")",
    "+",
    "-",
    "*",
    "/",
    "%",
    "=",
    "<>",
    "<",
    "<=",
    ">",
    ">=",
    "and",
    "or",
    "not",
    "between",
    "in",
    ",",
    "isnan(",
    "abs(",
    "sqrt(",
    "floor(",
    "bits_i32(",
    "true",
    "0",
    "1",
    "0.1",
    "-1",
    "255",
    "1e308",
    "inf",
    "nan",
    "9223372036854775808",
    "18446744073709551615",
    "5e-324",
    "9007199254740993",
    "1e-45",
    "3.4028235e38",
    "BIG",
    "\"single\"",
    "//",
    "&",
    "|",
    "~",
    "<<",
    ">>",
    "**",
    "if(",
    "least(",
    "greatest(",
    "pow(",
    "atan2(",
    "sign(",
    "round(",
    "exp(",
    "log(",
    "log10(",
    "sin(",
    "cos(",
    "2",
    "0.5",
    "-3",
];

const SPECIAL: [f64; 12] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.1,
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::MAX,
    5e-324,
    9_007_199_254_740_992.0,
    1.844_674_407_370_955_2e19,
];

fn columns() -> Vec<Column> {
    vec![
        Column::new("single", DataType::F32),
        Column::new("double", DataType::F64),
        Column::new("small", DataType::U8),
        Column::new("long", DataType::I64),
        Column::new("big", DataType::U64),
        Column::new("payload", DataType::FixedBytes(3)),
    ]
}

/// Returns the seeds of the corpus.
pub fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        "single > 0.1 and big <= 9007199254740993",
        "not (double between -1 and 1) or isnan(single / double)",
        "long in (0, -1, 9223372036854775807) and sqrt(abs(single)) < 2",
        "bits_i32(single) % 7 = 3",
        "epoch = 7 and small <> 255",
        "(big >> 20) & 1023 in (1, 2) or not long // (small - 1) % ~7 <> big | 1",
        "if(small > 3 and not isnan(single), 10 // small, long ** 2) < 9 or log10(double) + exp(-single) > 0.5",
        "least(single, double ** -3, 2) = round(greatest(long, 0.5)) or atan2(sin(double), cos(double)) <> sign(single)",
    ];
    let text_seeds = texts.iter().map(|text| [&[2, 1, 5, 9, 3, 200, 7, 7, 7, 7, 1, 0][..], text.as_bytes()].concat());
    let token_seeds =
        [b"\x03\x01\x00\x12\x21\x14\x04\x10\x29".to_vec(), b"\x03\x02\x1a\x00\x08\x15\x07\x01\x0e\x21\x08".to_vec()];
    let derivations = [
        "x:i16 = floor(single * 7) + small",
        "x:u64 = big % 1048576 << small",
        "x:i8 = if(small = 0, 0, 7 // small) ** 2",
    ];
    let derivations = derivations.iter().map(|text| [&[2, 3, 5, 9][..], text.as_bytes()].concat());
    text_seeds.chain(token_seeds).chain(derivations).collect()
}

fn number(script: &mut Script<'_>) -> f64 {
    match script.byte() {
        choice @ 0..200 => SPECIAL[usize::from(choice) % SPECIAL.len()],
        200..220 => f64::from_bits(script.long()),
        small => f64::from(small) - 230.0,
    }
}

fn row(script: &mut Script<'_>) -> Row {
    let whole = |script: &mut Script<'_>| match script.byte() {
        choice @ 0..100 => i128::from(choice) - 50,
        100..150 => i128::from(script.long() as i64),
        150..200 => i128::from(script.long()),
        choice => (1 << 53) + i128::from(choice),
    };
    Row {
        single: number(script) as f32,
        double: number(script),
        small: script.byte(),
        long: whole(script).clamp(i64::MIN.into(), i64::MAX.into()) as i64,
        big: whole(script).clamp(0, u64::MAX.into()) as u64,
    }
}

/// Builds an expression from characters or from tokens.
fn text(script: &mut Script<'_>, tokens: bool) -> String {
    let bytes = script.rest();
    let token = |byte: &u8| TOKENS[usize::from(*byte) % TOKENS.len()];
    if tokens {
        bytes.iter().map(token).collect::<Vec<_>>().join(" ")
    } else {
        String::from_utf8_lossy(bytes).into_owned()
    }
}

/// Checks an expression over a few rows.
pub fn target(data: &[u8]) {
    let mut script = Script::new(data);
    let kind = script.byte();
    let count = script.byte();
    let rows: Vec<Row> = (0..count % 4).map(|_| row(&mut script)).collect();
    // Some inputs have more rows than a chunk.
    let rows = if count & 0x80 == 0 { rows } else { rows.repeat(180) };
    let epoch = u64::from(script.byte() % 9);
    let text = text(&mut script, kind & 1 == 1);
    if kind & 4 == 4 || text.contains(" = ") && text.contains(':') {
        derive(&text, &rows);
    }
    let schema = Schema::new(columns(), "single").expect("it is a schema");
    let Ok(predicate) = Predicate::parse(&text, &schema) else { return };
    let found = evaluate(&predicate, epoch, &rows);
    if !rows.is_empty() {
        judge(predicate.prune(epoch, &|index| summary(&rows, index)), &found, &text);
        let vague = |index| summary(&rows, index).map(|bounds| ColumnBounds { nan: NanPresence::Unknown, ..bounds });
        judge(predicate.prune(epoch, &vague), &found, &text);
        let missing = usize::from(kind >> 5) % columns().len();
        let partly = |index| if index == missing { None } else { summary(&rows, index) };
        judge(predicate.prune(epoch, &partly), &found, &text);
    }
    let shown = predicate.to_string();
    let again = Predicate::parse(&shown, &schema).unwrap_or_else(|error| panic!("{text} is shown as {shown}: {error}"));
    assert_eq!(evaluate(&again, epoch, &rows), found, "{text} is shown as {shown}");
}

fn judge(truth: TruthValue, found: &[bool], text: &str) {
    let right = match truth {
        TruthValue::Never => !found.contains(&true),
        TruthValue::Maybe => true,
        TruthValue::Always => !found.contains(&false),
    };
    assert!(right, "{text}: pruning says {truth:?}, the rows {found:?}");
}

fn evaluate(predicate: &Predicate, epoch: u64, rows: &[Row]) -> Vec<bool> {
    let arrays: Vec<ArrayRef> = predicate.columns().iter().map(|index| array(rows, *index)).collect();
    let input = predicate.input(epoch, rows.len(), &arrays).expect("the arrays fit");
    predicate.evaluate(&input).iter().collect()
}

fn array(rows: &[Row], index: usize) -> ArrayRef {
    match index {
        0 => Arc::new(Float32Array::from_iter_values(rows.iter().map(|row| row.single))),
        1 => Arc::new(Float64Array::from_iter_values(rows.iter().map(|row| row.double))),
        2 => Arc::new(UInt8Array::from_iter_values(rows.iter().map(|row| row.small))),
        3 => Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.long))),
        4 => Arc::new(UInt64Array::from_iter_values(rows.iter().map(|row| row.big))),
        _ => unreachable!("no predicate reads bytes"),
    }
}

/// Returns the exact bounds of one column.
fn summary(rows: &[Row], index: usize) -> Option<ColumnBounds> {
    let value = |row: &Row| match index {
        0 => Value::Float(row.single.into()),
        1 => Value::Float(row.double),
        2 => Value::Int(row.small.into()),
        3 => Value::Int(row.long.into()),
        _ => Value::Int(row.big.into()),
    };
    let is_nan = |value: &Value| value.compare(Value::Int(0)).is_none();
    let (nans, values): (Vec<Value>, Vec<Value>) = rows.iter().map(value).partition(is_nan);
    let extreme = |wanted: std::cmp::Ordering| {
        values.iter().copied().reduce(|a, b| if b.compare(a) == Some(wanted) { b } else { a })
    };
    let nan = match (nans.is_empty(), values.is_empty()) {
        (true, _) => NanPresence::None,
        (false, true) => NanPresence::All,
        (false, false) => NanPresence::Some,
    };
    Some(ColumnBounds { range: extreme(std::cmp::Ordering::Less).zip(extreme(std::cmp::Ordering::Greater)), nan })
}

/// Computes a derived column. The result has as many values as there are rows, or is an error.
fn derive(text: &str, rows: &[Row]) {
    let constant = |name: &str| (name == "header.x0").then_some(7.0);
    let texts: Vec<String> = text.split(';').map(str::to_owned).collect();
    let Ok(set) = DerivationSet::parse(&texts, &columns(), &constant) else { return };
    let bytes: [Vec<u8>; 6] = [
        rows.iter().flat_map(|row| row.single.to_le_bytes()).collect(),
        rows.iter().flat_map(|row| row.double.to_le_bytes()).collect(),
        rows.iter().map(|row| row.small).collect(),
        rows.iter().flat_map(|row| row.long.to_le_bytes()).collect(),
        rows.iter().flat_map(|row| row.big.to_le_bytes()).collect(),
        vec![0; 3 * rows.len()],
    ];
    let mut views = Vec::new();
    for (column, bytes) in columns().iter().zip(&bytes) {
        let view = ColumnView::new(bytes, column.data_type.width(), rows.len(), column.data_type);
        views.push(view.expect("they fit"));
    }
    if let Ok(derived) = set.evaluate(&views, rows.len(), &constant) {
        assert_eq!(derived.len(), texts.len());
        assert!((0..derived.len()).all(|index| derived.view(index).len() == rows.len()));
    }
}
