//! Prints numbers that are known, bounded or estimated, for people and as JSON.

use serde_json::{Value as Json, json};
use turbidite::Value;
use turbidite::query::{Count, Estimate, SampledRows, Source};

use super::answers::json_number;
use crate::text;

/// Significant digits of a sum.
const DIGITS: usize = 5;

/// Significant digits of an error.
const ERROR_DIGITS: usize = 2;

/// Returns where numbers come from.
pub(super) fn source_in_words(source: Source, sample: Option<&SampledRows>) -> String {
    match (source, sample) {
        (Source::Exact, _) => "counted".to_owned(),
        (Source::Bounds, _) => "estimated from manifests and bitmap indexes".to_owned(),
        (Source::Level(level), sample) => {
            let sampled = text::counted(sample.map_or(0, |sample| sample.matched), "row", "rows");
            format!("estimated from {sampled} of level {level} and above")
        }
    }
}

/// Returns the name of a source.
pub(super) fn source_name(source: Source) -> &'static str {
    match source {
        Source::Bounds => "bounds",
        Source::Exact => "exact",
        Source::Level(_) => "levels",
    }
}

/// Returns `12`, `about 12 (3 to 40)` if only bounds are known, or `about 12 (error 3)`.
pub(super) fn rows_text(rows: Estimate<u64>, source: Source) -> String {
    let number = text::count(rows.estimate);
    match (rows.is_exact(), source, rows.error) {
        (true, ..) => number,
        (_, Source::Level(_), Some(error)) => format!("about {number} (error {})", text::count(error.ceil() as u64)),
        _ => format!("about {number} ({} to {})", text::count(rows.least), text::count(rows.most)),
    }
}

/// Returns [`rows_text`] followed by "rows".
pub(super) fn rows_in_words(number: Estimate<u64>, source: Source) -> String {
    match number.is_exact() {
        true => text::counted(number.estimate, "row", "rows"),
        false => format!("{} rows", rows_text(number, source)),
    }
}

/// Returns a sum.
pub(super) fn sum_text(sum: f64) -> String {
    text::number(sum, DIGITS)
}

/// Returns the error of a sum.
pub(super) fn error_in_words(error: Option<f64>) -> String {
    error.map_or("unknown".to_owned(), |error| text::number(error, ERROR_DIGITS))
}

/// Returns `about 5.2e6 (error 120)`, or `5.2e6` if the sum is known.
pub(super) fn sum_in_words(sum: Estimate<f64>) -> String {
    match sum.error {
        Some(0.0) => sum_text(sum.estimate),
        error => format!("about {} (error {})", sum_text(sum.estimate), error_in_words(error)),
    }
}

/// Returns the rows that no estimate counts, in words.
pub(super) fn unplaced(sample: &SampledRows) -> Option<String> {
    let Estimate { least, most, .. } = sample.unplaced;
    match (least, most) {
        (_, 0) => None,
        (least, most) if least == most => Some(format!("with a NaN coordinate, in no sample: {}", text::count(most))),
        (_, most) => Some(format!("with a NaN coordinate, in no sample: up to {}", text::count(most))),
    }
}

/// Returns a number of rows in words, and which rows it leaves out.
pub(super) fn count_in_words(found: &Count) -> (String, Option<String>) {
    let rows = found.rows;
    match (found.source, rows.error) {
        _ if rows.is_exact() => (rows.estimate.to_string(), None),
        (Source::Level(_), Some(error)) => {
            (format!("{} ± {}", rows.estimate, error.ceil()), found.sample.as_ref().and_then(unplaced))
        }
        _ => (format!("{} to {}", rows.least, rows.most), None),
    }
}

/// Returns bounds as JSON.
fn bounds_json(rows: &Estimate<u64>) -> Json {
    json!({"least": rows.least, "estimate": rows.estimate, "most": rows.most})
}

/// Returns a number of rows as JSON: with its error, if it is an estimate from a level.
pub(super) fn rows_json(rows: &Estimate<u64>, source: Source) -> Json {
    let mut document = bounds_json(rows);
    if let Source::Level(_) = source {
        document["error"] = json!(rows.error);
    }
    document
}

/// Returns a sum as JSON, with the number of sampled rows, if it is an estimate from a level.
pub(super) fn sum_json(sum: &Estimate<f64>, sampled: Option<u64>) -> Json {
    let mut document = json!({"sum": json_number(Value::Float(sum.estimate)), "error": sum.error});
    if let Some(sampled) = sampled {
        document["sampled"] = json!(sampled);
    }
    document
}

/// Returns a sample as JSON.
pub(super) fn sample_json(sample: &SampledRows) -> Json {
    json!({
        "level": sample.level,
        "stands_for": sample.stands_for(),
        "matched": sample.matched,
        "unplaced": bounds_json(&sample.unplaced),
    })
}

/// Returns a number of rows as JSON, without its cost.
pub(super) fn count_json(found: &Count) -> Json {
    let mut document = rows_json(&found.rows, found.source);
    if let Some(sample) = &found.sample {
        document["sample"] = sample_json(sample);
    }
    document
}
