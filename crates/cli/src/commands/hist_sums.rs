//! Prints sums that are estimated from levels of detail, with their standard errors.

use serde_json::{Value as Json, json};
use turbidite::Value;
use turbidite::query::{Bounded, Histogram, HistogramSums, SumEstimate};

use super::answers::json_number;
use super::bar::bar;
use crate::text;

/// Significant digits of a sum.
const DIGITS: usize = 5;

/// Significant digits of an error.
const ERROR_DIGITS: usize = 2;

/// The largest sum, as a count.
const LONGEST: u64 = 1_000_000;

fn error_in_words(error: Option<f64>) -> String {
    error.map_or("unknown".to_owned(), |error| text::number(error, ERROR_DIGITS))
}

/// Returns `about 5.2e6 (error 120)`, or `5.2e6` if the sum is known.
fn estimate(of: &SumEstimate) -> String {
    match of.error {
        Some(0.0) => text::number(of.sum, DIGITS),
        error => format!("about {} (error {})", text::number(of.sum, DIGITS), error_in_words(error)),
    }
}

/// Returns the sum over all rows, in words.
pub(super) fn headline(sums: &HistogramSums) -> String {
    format!("sum of {} {}", sums.column, estimate(&sums.rows))
}

/// Returns the names of the columns that a sum fills.
pub(super) fn heads(sums: &HistogramSums) -> [String; 3] {
    [format!("sum of {}", sums.column), "error".to_owned(), "sampled".to_owned()]
}

/// Returns the columns of a sum.
pub(super) fn cells(of: &SumEstimate) -> [String; 3] {
    [text::number(of.sum, DIGITS), error_in_words(of.error), text::count(of.sampled)]
}

/// Returns a bar of each sum with its error. Sums that are negative or not finite have none.
pub(super) fn bars(sums: &HistogramSums) -> Vec<String> {
    let drawn = |sum: f64| if sum.is_finite() { sum.max(0.0) } else { 0.0 };
    let longest = sums.bins.iter().map(|bin| drawn(bin.sum)).fold(0.0, f64::max);
    // Conversions saturate, and 0 / 0 becomes 0.
    let scaled = |sum: f64| (drawn(sum) / longest * LONGEST as f64).ceil() as u64;
    let one = |of: &SumEstimate| {
        let estimate = scaled(of.sum);
        bar(Bounded { least: 0, estimate, most: scaled(of.sum + of.error.unwrap_or(0.0)).max(estimate) }, LONGEST)
    };
    sums.bins.iter().map(one).collect()
}

/// Returns the sums over rows that are in no bin, in words.
pub(super) fn apart(sums: &HistogramSums) -> Vec<String> {
    let apart = [
        ("NaN", sums.nan),
        ("-inf", sums.negative_infinity),
        ("below the range", sums.below),
        ("above the range", sums.above),
        ("inf", sums.positive_infinity),
    ];
    let present = apart.into_iter().filter(|(_, of)| of.sampled > 0);
    present.map(|(name, of)| format!("sum of {} {name}: {}", sums.column, estimate(&of))).collect()
}

fn number(of: &SumEstimate) -> Json {
    json!({"sum": json_number(Value::Float(of.sum)), "error": of.error, "sampled": of.sampled})
}

/// Adds the sums to a histogram as JSON.
pub(super) fn add_to(document: &mut Json, histogram: &Histogram) {
    let Some(sums) = &histogram.sums else { return };
    document["sums"] = json!({
        "column": sums.column,
        "rows": number(&sums.rows),
        "nan": number(&sums.nan),
        "negative_infinity": number(&sums.negative_infinity),
        "below": number(&sums.below),
        "bins": sums.bins.iter().map(number).collect::<Vec<_>>(),
        "above": number(&sums.above),
        "positive_infinity": number(&sums.positive_infinity),
    });
}
