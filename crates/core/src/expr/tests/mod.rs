//! Tests of the expression language: each operator, each message, and random expressions against a naive interpreter.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod boxes;
mod derivations;
mod hostile;
mod messages;
mod naive;
mod operators;
mod properties;
mod whole;

use std::sync::Arc;

use arrow_array::{ArrayRef, Float32Array, Float64Array, Int32Array, Int64Array, UInt8Array, UInt64Array};

use crate::schema::{Column, DataType, Schema, Value};

use super::{ColumnBounds, NanPresence, Predicate};

/// One row of [`schema`].
#[derive(Debug, Clone, Copy, PartialEq)]
struct Row {
    single: f32,
    double: f64,
    small: u8,
    int: i32,
    long: i64,
    big: u64,
}

impl Row {
    const ZERO: Self = Self { single: 0.0, double: 0.0, small: 0, int: 0, long: 0, big: 0 };
}

/// Returns a schema with a column of each kind that is evaluated differently, and a column that cannot be compared.
fn schema() -> Schema {
    let columns = vec![
        Column::new("single", DataType::F32),
        Column::new("double", DataType::F64),
        Column::new("small", DataType::U8),
        Column::new("int", DataType::I32),
        Column::new("long", DataType::I64),
        Column::new("big", DataType::U64),
        Column::new("payload", DataType::FixedBytes(3)),
        Column::new("time", DataType::F32),
    ];
    Schema::new(columns, "single").unwrap()
}

fn array(rows: &[Row], index: usize) -> ArrayRef {
    match index {
        0 => Arc::new(Float32Array::from_iter_values(rows.iter().map(|row| row.single))),
        1 => Arc::new(Float64Array::from_iter_values(rows.iter().map(|row| row.double))),
        2 => Arc::new(UInt8Array::from_iter_values(rows.iter().map(|row| row.small))),
        3 => Arc::new(Int32Array::from_iter_values(rows.iter().map(|row| row.int))),
        4 => Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.long))),
        5 => Arc::new(UInt64Array::from_iter_values(rows.iter().map(|row| row.big))),
        7 => Arc::new(Float32Array::from_iter_values(rows.iter().map(|_| 7.0))),
        _ => unreachable!("no predicate reads column {index}"),
    }
}

fn evaluate(predicate: &Predicate, epoch: u64, rows: &[Row]) -> Vec<bool> {
    let arrays: Vec<ArrayRef> = predicate.columns().iter().map(|index| array(rows, *index)).collect();
    let input = predicate.input(epoch, rows.len(), &arrays).unwrap();
    predicate.evaluate(&input).iter().collect()
}

fn matches(text: &str, epoch: u64, rows: &[Row]) -> Vec<bool> {
    let predicate = Predicate::parse(text, &schema()).unwrap_or_else(|error| panic!("{text}: {error}"));
    evaluate(&predicate, epoch, rows)
}

/// Returns the exact statistics of one column.
fn summary(rows: &[Row], index: usize) -> Option<ColumnBounds> {
    let value = |row: &Row| match index {
        0 => Value::Float(row.single.into()),
        1 => Value::Float(row.double),
        2 => Value::Int(row.small.into()),
        3 => Value::Int(row.int.into()),
        4 => Value::Int(row.long.into()),
        5 => Value::Int(row.big.into()),
        _ => Value::Float(7.0),
    };
    let is_nan = |value: &Value| value.compare(Value::Int(0)).is_none();
    let (nans, values): (Vec<Value>, Vec<Value>) = rows.iter().map(value).partition(is_nan);
    let least = values.iter().copied().reduce(|a, b| if a.compare(b).unwrap().is_le() { a } else { b });
    let greatest = values.iter().copied().reduce(|a, b| if a.compare(b).unwrap().is_ge() { a } else { b });
    let nan = match (nans.is_empty(), values.is_empty()) {
        (true, _) => NanPresence::None,
        (false, true) => NanPresence::All,
        (false, false) => NanPresence::Some,
    };
    Some(ColumnBounds { range: least.zip(greatest), nan })
}
