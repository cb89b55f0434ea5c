//! Prints results on standard output: lines, JSON and aligned columns.

use std::io::Write;

use serde::Serialize;
use turbidite::Value;
use turbidite::query::{Dataset, QueryMetrics};

use crate::failure::{Failure, complain, on_stdout};
use crate::text;

/// Writes lines to standard output.
pub(super) fn say(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()).map_err(on_stdout)
}

/// Writes a value as a JSON document of one line to standard output.
pub(super) fn say_json(answer: &impl Serialize) -> Result<(), Failure> {
    say(&to_json(answer)?)
}

/// Returns a value as a JSON document of one line.
pub(super) fn to_json(answer: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(answer).map_err(|error| Failure::Internal(format!("cannot write JSON: {error}")))
}

/// Returns a value as a JSON number. JSON lacks NaN and infinities, which are returned as the strings that `query`
/// writes.
pub(super) fn json_number(value: Value) -> serde_json::Value {
    match value {
        Value::Float(float) if float.is_infinite() => if float > 0.0 { "Infinity" } else { "-Infinity" }.into(),
        Value::Float(float) if float.is_nan() => "NaN".into(),
        Value::Float(float) => float.into(),
        Value::Int(integer) => match (i64::try_from(integer), u64::try_from(integer)) {
            (Ok(integer), _) => integer.into(),
            (_, Ok(integer)) => integer.into(),
            _ => (integer as f64).into(),
        },
    }
}

fn report_filters(metrics: &QueryMetrics) {
    let parts = text::counted(metrics.corrupt_filters, "part", "parts");
    if metrics.corrupt_filters > 0 {
        complain(&format!(
            "turbidite: corrupt filters of {parts} were ignored; the rows are complete; run 'turbidite verify'"
        ));
    }
}

/// Reports on standard error if the indexes of a dataset cannot be listed. Returns whether this is so.
pub(super) fn report_unlisted(dataset: &Dataset) -> bool {
    let cause = dataset.unlisted_indexes();
    if let Some(cause) = cause {
        complain(&format!("turbidite: indexes were ignored: {cause}; the rows are complete"));
    }
    cause.is_some()
}

/// Reports corrupt filters and indexes of a dataset on standard error. The rows are complete without them.
pub(super) fn report_ignored(dataset: &Dataset, metrics: &QueryMetrics) {
    report_filters(metrics);
    if !report_unlisted(dataset) && metrics.corrupt_indexes > 0 {
        complain("turbidite: an index that cannot be read was ignored; the rows are complete; run 'turbidite verify'");
    }
}

/// Returns the rows as lines of aligned columns. Each column is as wide as its widest cell. The first column is
/// left-aligned, and the others are right-aligned.
pub(super) fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Returns an edge of a histogram for people.
pub(super) fn edge_text(edge: Value) -> String {
    match edge {
        Value::Int(integer) => integer.to_string(),
        Value::Float(float) => text::number(float, 5),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let row = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>();
        let text = aligned(&[row(&["epoch", "rows"]), row(&["1", "12345"]), row(&["µs", ""])]);
        assert_eq!(text, "epoch   rows\n1      12345\nµs");
    }
}
