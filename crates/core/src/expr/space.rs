//! Boxes: half-open ranges of several columns, such as `x=0:10,y=-5:5`. A column may be periodic. If records are
//! clustered by space, sides without names are those of its coordinates: `0:10,-5:5,:`, and the dataset's periods hold
//! where the box states none.
//!
//! A box becomes comparisons of the language. `x=0:10` is `x >= 0 AND x < 10`, with bounds rounded like any literal. A
//! periodic side compares the remainder of the column by the period, which IEEE 754 computes exactly. The remainder
//! lies between minus the period and the period, and has the coordinate's sign. There it meets at most three images of
//! the side, so `x=120:138` with the period 128 is
//! `x % 128 >= 120 OR x % 128 >= -8 AND x % 128 < 10 OR x % 128 < -118`.
//!
//! # Invariants
//! * Boxes that divide a range divide its rows, periodic or not: each bound of a column rounds alike wherever it
//!   stands. Only a range that is stated as a whole period contains more, if it is less than one once it is rounded.
//! * Nothing but a bound less its period is computed with rounding, and that in `f64`, once. Remainders are exact, but
//!   those of integers beyond 2^53 by a period with a fraction are those of the nearest `f64`.

use std::cmp::Ordering;

use crate::schema::{Clustering, Column, DataType, EPOCH_COLUMN, Schema, Value};

use super::bind::{compare, find_column};
use super::error::ExpressionError;
use super::tree::{BinaryOp, ColumnRef, CompareOp, Condition, Number, rounded};

/// Maximum length of a box's text, in bytes.
const MAX_BYTES: usize = 1 << 16;

/// Magnitude above which integers of a box are converted to `f64`. Sums and products of smaller ones fit 128 bits.
const MAX_WHOLE: i128 = 1 << 100;

type Result<T> = std::result::Result<T, ExpressionError>;

/// A box as stated, with the periods of its sides and of the dataset.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SpaceText<'a> {
    /// Sides, separated by commas: `x=0:10,y=-5:5`.
    pub(crate) sides: &'a str,
    /// A period for each side, separated by commas, `none` where a side is not periodic, and nothing where the dataset
    /// decides: `128,,none`.
    pub(crate) periods: Option<&'a str>,
    /// The schema of the records. Its periods hold where none is stated. A copy of records has the same columns, and
    /// may have fewer coordinates.
    pub(crate) records: &'a Schema,
}

/// The period of a side as stated.
#[derive(Debug, Clone, Copy, PartialEq)]
enum StatedPeriod {
    /// That of the dataset, if it has one for the column.
    OfDataset,
    /// None: the side is not periodic.
    Without,
    Number(Value),
}

/// The period of a side.
#[derive(Debug, Clone, Copy, PartialEq)]
struct SidePeriod {
    value: Value,
    /// Whether the dataset states it, and not the query.
    is_of_dataset: bool,
}

/// The word for a side that is not periodic.
const WITHOUT: &str = "none";

/// A side of a box: a half-open range of a column.
#[derive(Debug, Clone, PartialEq)]
struct Side<'a> {
    text: &'a str,
    column: String,
    low: Option<Value>,
    high: Option<Value>,
    /// The bounds as stated.
    stated: [&'a str; 2],
}

impl Side<'_> {
    fn wrong(&self, what: impl Into<String>) -> ExpressionError {
        wrong(self.text, what)
    }
}

fn wrong(text: &str, what: impl Into<String>) -> ExpressionError {
    ExpressionError::Box { text: text.to_owned(), what: what.into() }
}

fn wrong_period(text: &str, what: impl Into<String>) -> ExpressionError {
    ExpressionError::Period { text: text.to_owned(), what: what.into() }
}

/// Returns the conditions of a box. A row is in the box if it satisfies all of them.
pub(super) fn conditions(space: SpaceText<'_>, schema: &Schema) -> Result<Vec<Condition>> {
    if space.sides.len() > MAX_BYTES {
        return Err(wrong("…", format!("the box has {} bytes; the maximum is {MAX_BYTES}", space.sides.len())));
    }
    let sides = split(space.sides).into_iter().enumerate();
    // A spatial index may have the coordinates in another order.
    let named_by = if space.records.clustering() == Clustering::Space { space.records } else { schema };
    let sides = sides.map(|(place, text)| parse_side(text, place, named_by)).collect::<Result<Vec<_>>>()?;
    let periods = match space.periods {
        Some(text) => parse_periods(text, sides.len())?,
        None => vec![StatedPeriod::OfDataset; sides.len()],
    };
    let mut columns = Vec::with_capacity(sides.len());
    let mut conditions = Vec::new();
    for (side, period) in sides.iter().zip(periods) {
        let column = column_of(side, schema.columns())?;
        if columns.contains(&column.index) {
            return Err(side.wrong(format!("the box has two sides of '{}'; give each column one", column.name)));
        }
        columns.push(column.index);
        let period = match period {
            StatedPeriod::Without => None,
            StatedPeriod::Number(value) => Some(SidePeriod { value, is_of_dataset: false }),
            StatedPeriod::OfDataset => space
                .records
                .stated_period(column.index)
                .map(|period| SidePeriod { value: literal(period), is_of_dataset: true }),
        };
        match condition(side, period, column)? {
            Condition::And(all) => conditions.extend(all),
            condition => conditions.push(condition),
        }
    }
    Ok(conditions)
}

/// Returns whether a side of a box has no name.
pub(crate) fn has_side_without_name(sides: &str) -> bool {
    split(sides).into_iter().any(|side| name_and_rest(side).is_none())
}

/// Splits a text at its commas, except for those within double quotes.
fn split(text: &str) -> Vec<&str> {
    let mut is_quoted = false;
    let is_separator = |letter: char| {
        is_quoted ^= letter == '"';
        letter == ',' && !is_quoted
    };
    text.split(is_separator).map(str::trim).collect()
}

/// Returns the coordinate that a side without a name stands for, if the records are clustered by space.
fn coordinate<'a>(text: &str, place: usize, schema: &'a Schema) -> Result<Option<&'a str>> {
    let coordinates = schema.key_columns();
    if schema.clustering() != Clustering::Space {
        return Ok(None);
    }
    let column = coordinates.get(place).ok_or_else(|| {
        wrong(text, format!("the dataset has {} coordinates; name the column of a further side", coordinates.len()))
    })?;
    Ok(Some(&schema.columns()[*column].name))
}

/// Parses `x=0:10`, or `0:10` at a place among the sides of a dataset's coordinates.
fn parse_side<'a>(text: &'a str, place: usize, schema: &Schema) -> Result<Side<'a>> {
    const FORM: &str = "write a side as COLUMN=LOW:HIGH, such as x=0:10, and leave out a bound that it lacks";
    if text.is_empty() {
        return Err(wrong(text, format!("the side is empty; {FORM}")));
    }
    let (column, range) = match name_and_rest(text) {
        Some(named) => named,
        None => match coordinate(text, place, schema)? {
            Some(name) => (name.to_owned(), text),
            None => return Err(wrong(text, format!("a column and '=' are missing; {FORM}"))),
        },
    };
    let bounds: Vec<&str> = range.split(':').map(str::trim).collect();
    let [low, high] = bounds[..] else {
        return Err(wrong(text, format!("'{}' is not a range; {FORM}", range.trim())));
    };
    let stated = [low, high];
    let low = parse_bound(text, low)?;
    let high = parse_bound(text, high)?;
    Ok(Side { text, column, low, high, stated })
}

/// Splits `x=0:10` or `"x"=0:10` into the column's name and the range. Returns `None` without a name or `=`.
fn name_and_rest(text: &str) -> Option<(String, &str)> {
    let (name, range) = match text.strip_prefix('"') {
        None => {
            let (name, range) = text.split_once('=')?;
            (name.trim().to_owned(), range)
        }
        Some(quoted) => {
            // A quotation mark in a name is written twice.
            let mut letters = quoted.char_indices().peekable();
            let mut name = String::new();
            let end = loop {
                let (place, letter) = letters.next()?;
                if letter != '"' {
                    name.push(letter);
                } else if letters.next_if(|(_, next)| *next == '"').is_some() {
                    name.push('"');
                } else {
                    break place + 1;
                }
            };
            (name, quoted[end..].trim_start().strip_prefix('=')?)
        }
    };
    (!name.is_empty()).then_some((name, range))
}

fn parse_bound(side: &str, text: &str) -> Result<Option<Value>> {
    if text.is_empty() {
        return Ok(None);
    }
    let value = parse_number(text).ok_or_else(|| wrong(side, format!("'{text}' is not a number")))?;
    if value.as_f64().is_nan() {
        return Err(wrong(side, "a bound is NaN, which no coordinate is above or below"));
    }
    if value.as_f64().is_infinite() {
        return Err(wrong(side, format!("the bound '{text}' is infinite; leave it out, as in 'x=0:'")));
    }
    Ok(Some(value))
}

fn parse_number(text: &str) -> Option<Value> {
    match text.parse::<i128>() {
        Ok(whole) if (-MAX_WHOLE..=MAX_WHOLE).contains(&whole) => Some(Value::Int(whole)),
        _ => text.parse().ok().map(Value::Float),
    }
}

/// Returns a number as an error states it: a short text that parses to the same number.
fn shown(value: Value) -> String {
    match value {
        Value::Int(whole) => whole.to_string(),
        Value::Float(number) => format!("{number:?}"),
    }
}

/// Parses one period for each of the sides.
fn parse_periods(text: &str, sides: usize) -> Result<Vec<StatedPeriod>> {
    let stated: Vec<&str> = text.split(',').map(str::trim).collect();
    if stated.len() != sides {
        let what = format!(
            "the box has {sides} side{}, not {}; give a period for each side, or nothing between the commas",
            if sides == 1 { "" } else { "s" },
            stated.len()
        );
        return Err(wrong_period(text, what));
    }
    let period = |stated: &str| {
        if stated.is_empty() {
            return Ok(StatedPeriod::OfDataset);
        }
        if stated == WITHOUT {
            return Ok(StatedPeriod::Without);
        }
        let value = parse_number(stated)
            .ok_or_else(|| wrong_period(text, format!("'{stated}' is neither a number nor '{WITHOUT}'")))?;
        match value.as_f64() {
            period if period.is_finite() && period > 0.0 => Ok(StatedPeriod::Number(value)),
            _ => Err(wrong_period(text, format!("a period is finite and above zero, not {stated}"))),
        }
    };
    stated.into_iter().map(period).collect()
}

/// Returns the column of a side.
fn column_of(side: &Side<'_>, columns: &[Column]) -> Result<ColumnRef> {
    let index = match find_column(columns, &side.column) {
        Ok(index) => index,
        Err(_) if side.column.eq_ignore_ascii_case(EPOCH_COLUMN) => {
            return Err(side.wrong(format!("'{EPOCH_COLUMN}' is a label, not a coordinate; select epochs instead")));
        }
        // No two columns of a schema differ in case only.
        Err(_) => {
            let known: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
            let what = format!("there is no column '{}'; the columns are {}", side.column, known.join(", "));
            return Err(side.wrong(what));
        }
    };
    let Column { name, data_type, .. } = &columns[index];
    if !data_type.is_numeric() {
        return Err(side.wrong(format!("column '{name}' is {data_type}, which is not numeric")));
    }
    Ok(ColumnRef { index, data_type: *data_type, name: name.as_str().into() })
}

/// Returns the condition that a column lies within a side.
fn condition(side: &Side<'_>, period: Option<SidePeriod>, column: ColumnRef) -> Result<Condition> {
    check_order(side, period)?;
    let (low, high) = match (side.low, side.high, period) {
        (None, None, _) => return Ok(any_number(column)),
        (Some(low), Some(high), Some(period)) => return periodic(side, (low, high), period.value, column),
        (_, _, Some(SidePeriod { value, is_of_dataset })) => {
            let period = shown(value);
            let what = format!("a periodic side has two bounds or none; write both, at most {period} apart");
            return Err(side.wrong(match is_of_dataset {
                false => what,
                true => format!("{what}, or the period '{WITHOUT}': the dataset states that of '{}'", column.name),
            }));
        }
        (low, high, None) => (low, high),
    };
    let bound = |op, value| compare(op, Number::Column(column.clone()), Number::Literal(value));
    let low = low.map(|low| bound(CompareOp::GreaterOrEqual, low));
    let high = high.map(|high| bound(CompareOp::Less, high));
    Ok(Condition::And(low.into_iter().chain(high).collect()))
}

/// Refuses a side whose bounds are equal, or in descending order.
fn check_order(side: &Side<'_>, period: Option<SidePeriod>) -> Result<()> {
    let (Some(low), Some(high)) = (side.low, side.high) else { return Ok(()) };
    match (low.compare(high), period) {
        (Some(Ordering::Less), _) => Ok(()),
        (Some(Ordering::Equal), _) => {
            Err(side.wrong("the side is empty, since the upper bound is not part of it; write a higher upper bound"))
        }
        (_, Some(period)) => {
            let above = next_image(low, high, period.value);
            let advice = format!("to cross the period, write {}={}:{}", side.column, shown(low), shown(above));
            Err(side.wrong(format!("the bounds are in descending order; {advice}")))
        }
        (_, None) => {
            let advice = format!("write {}={}:{}", side.column, shown(high), shown(low));
            Err(side.wrong(format!("the bounds are in descending order; {advice}")))
        }
    }
}

/// Returns the first number above `low` that differs from `high`, which is below, by whole periods.
fn next_image(low: Value, high: Value, period: Value) -> Value {
    match (low, high, period) {
        (Value::Int(low), Value::Int(high), Value::Int(period)) => {
            Value::Int(high + ((low - high) / period + 1) * period)
        }
        _ => {
            let (low, high, period) = (low.as_f64(), high.as_f64(), period.as_f64());
            Value::Float(high + (((low - high) / period).floor() + 1.0) * period)
        }
    }
}

/// Returns the condition that a column is not NaN.
fn any_number(column: ColumnRef) -> Condition {
    match column.data_type.is_float() {
        true => above(column, CompareOp::GreaterOrEqual),
        false => Condition::Constant(true),
    }
}

/// Compares a column with minus infinity.
fn above(column: ColumnRef, op: CompareOp) -> Condition {
    compare(op, Number::Column(column), Number::Literal(Value::Float(f64::NEG_INFINITY)))
}

/// Returns the condition that a column is finite.
fn any_finite(column: ColumnRef) -> Condition {
    if !column.data_type.is_float() {
        return Condition::Constant(true);
    }
    let infinity = Number::Literal(Value::Float(f64::INFINITY));
    let below = compare(CompareOp::Less, Number::Column(column.clone()), infinity);
    Condition::And(vec![above(column, CompareOp::Greater), below])
}

/// Returns the condition that a column lies within a side, or within the side shifted by any number of periods.
fn periodic(side: &Side<'_>, (low, high): (Value, Value), period: Value, column: ColumnRef) -> Result<Condition> {
    let in_type = |value: Value| rounded(column.data_type, value).as_f64();
    let (low, high, span) = (in_type(low), in_type(high), in_type(period));
    if !(span.is_finite() && span > 0.0) {
        let what = format!("the period of '{}' is {span} when rounded to {}", column.name, column.data_type);
        return Err(wrong_period(&shown(period), what));
    }
    if low.is_infinite() || high.is_infinite() {
        return Err(side.wrong(format!("a bound is infinite when rounded to {}", column.data_type)));
    }
    // A whole period may be less than one once bounds and period are rounded.
    if reaches(low, high, span) || reaches_as_stated(side.stated, &shown(period)) {
        return Ok(any_finite(column));
    }
    if low == high {
        // The bounds are equal once they are rounded.
        return Ok(Condition::Constant(false));
    }
    let is_unsigned = matches!(column.data_type, DataType::U8 | DataType::U16 | DataType::U32 | DataType::U64);
    let remainder =
        Number::Binary(BinaryOp::Remainder, Box::new(Number::Column(column)), Box::new(Number::Literal(literal(span))));
    let bound = |op, value| Condition::Compare(op, remainder.clone(), Number::Literal(literal(value)));
    let least = if is_unsigned { 0.0 } else { -span };
    let images = images((low, high), span).filter(|(from, to)| *to > least && *from < span && from < to);
    let mut images: Vec<Condition> = images
        .map(|(from, to)| {
            let from = (from > least).then(|| bound(CompareOp::GreaterOrEqual, from));
            let to = (to < span).then(|| bound(CompareOp::Less, to));
            Condition::And(from.into_iter().chain(to).collect())
        })
        .collect();
    Ok(match images.len() {
        0 => Condition::Constant(false),
        1 => images.remove(0),
        _ => Condition::Or(images),
    })
}

/// Returns whether a side has at least the width of a period. The difference of the bounds is not rounded.
fn reaches(low: f64, high: f64, period: f64) -> bool {
    let width = high - low;
    // Knuth's TwoSum: `width + error` is the difference exactly, unless it overflows, and then it exceeds the period.
    let subtracted = width - high;
    let error = (high - (width - subtracted)) + (-low - subtracted);
    width > period || width == period && error >= 0.0
}

/// Returns whether the decimal numbers that state a side are at least a period apart. They may have too many digits to
/// say.
fn reaches_as_stated([low, high]: [&str; 2], period: &str) -> bool {
    let reaches = || {
        let numbers = [decimal(low)?, decimal(high)?, decimal(period)?];
        let least = numbers.iter().map(|(_, exponent)| *exponent).min()?;
        let scaled = |(digits, exponent): (i128, i32)| {
            digits.checked_mul(10i128.checked_pow(u32::try_from(exponent.checked_sub(least)?).ok()?)?)
        };
        let [low, high, period] = numbers.map(scaled);
        Some(high?.checked_sub(low?)? >= period?)
    };
    reaches().unwrap_or(false)
}

/// Returns the digits and the decimal exponent of a number such as `-12.5e3`.
fn decimal(text: &str) -> Option<(i128, i32)> {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}").parse().ok()?;
    Some((digits, exponent.parse::<i32>().ok()?.checked_sub(i32::try_from(fraction.len()).ok()?)?))
}

/// Returns the side shifted by all numbers of periods for which it may contain a remainder.
fn images((low, high): (f64, f64), period: f64) -> impl Iterator<Item = (f64, f64)> {
    // Remainders are exact, so the bounds of an image are rounded once. `high` is less than one period above `low`. If
    // both have one sign, so have their remainders, which then differ by less than a period. Otherwise, both bounds are
    // their own remainders.
    let (from, to) = (low % period, high % period);
    let turns = if to < from { 1.0 } else { 0.0 };
    [1.0, 0.0, -1.0, -2.0].into_iter().map(move |turn| (from + turn * period, to + (turn + turns) * period))
}

/// Returns a number as a literal: an integer, if it is one that is exact.
fn literal(value: f64) -> Value {
    const EXACT: f64 = (1u64 << 53) as f64;
    match value.fract() == 0.0 && value.abs() <= EXACT {
        true => Value::Int(value as i128),
        false => Value::Float(value),
    }
}
