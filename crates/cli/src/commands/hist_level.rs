//! Prints estimates from levels of detail, with their standard errors.

use serde_json::{Value as Json, json};
use turbidite::query::{Bounded, CountEstimate, Histogram, HistogramErrors, SampledRows};

use super::answers::json_number;
use super::hist_sums;
use crate::text;

/// Returns `about 640 (error 71)`, or `640` if the number is known.
fn estimate(rows: Bounded, error: f64) -> String {
    match rows.is_exact() {
        true => text::count(rows.estimate),
        false => format!("about {} (error {})", text::count(rows.estimate), text::count(error.ceil() as u64)),
    }
}

fn number(rows: Bounded, error: f64) -> Json {
    json!({"estimate": rows.estimate, "error": error, "least": rows.least, "most": rows.most})
}

fn sample(sample: &SampledRows) -> Json {
    json!({
        "level": sample.level,
        "stands_for": sample.stands_for(),
        "matched": sample.matched,
        "unplaced": sample.unplaced,
    })
}

/// Returns the number of rows of a histogram, and where it comes from.
pub(super) fn headline(rows: Bounded, errors: &HistogramErrors) -> (String, String) {
    let SampledRows { level, matched, .. } = errors.sample;
    let sampled = text::counted(matched, "row", "rows");
    let rows = match rows.is_exact() {
        true => text::counted(rows.estimate, "row", "rows"),
        false => format!("{} rows", estimate(rows, errors.rows)),
    };
    (rows, format!("estimated from {sampled} of level {level} and above; 'error' is the standard error"))
}

/// Returns the rows that are in no bin, in words.
pub(super) fn apart(histogram: &Histogram, errors: &HistogramErrors) -> Vec<String> {
    let apart = [
        ("NaN", histogram.nan, errors.nan),
        ("-inf", histogram.negative_infinity, errors.negative_infinity),
        ("below the range", histogram.below, errors.below),
        ("above the range", histogram.above, errors.above),
        ("inf", histogram.positive_infinity, errors.positive_infinity),
    ];
    let present = apart.into_iter().filter(|(_, rows, _)| rows.estimate > 0);
    let stated = present.map(|(name, rows, error)| format!("{name}: {}", estimate(rows, error)));
    stated.chain(unplaced(&errors.sample)).collect()
}

/// Returns the rows that no estimate counts, in words.
fn unplaced(sample: &SampledRows) -> Option<String> {
    let Bounded { least, most, .. } = sample.unplaced;
    match (least, most) {
        (_, 0) => None,
        (least, most) if least == most => Some(format!("with a NaN coordinate, in no sample: {}", text::count(most))),
        (_, most) => Some(format!("with a NaN coordinate, in no sample: up to {}", text::count(most))),
    }
}

/// Returns a histogram as JSON.
pub(super) fn document(histogram: &Histogram, errors: &HistogramErrors) -> Json {
    let bins = histogram.edges.windows(2).zip(histogram.bins.iter().zip(&errors.bins)).map(|(edges, (rows, error))| {
        let mut bin = number(*rows, *error);
        bin["from"] = json_number(edges[0]);
        bin["to"] = json_number(edges[1]);
        bin
    });
    let mut document = json!({
        "column": histogram.column,
        "epochs": histogram.epochs,
        "exact": false,
        "sample": sample(&errors.sample),
        "rows": number(histogram.rows, errors.rows),
        "nan": number(histogram.nan, errors.nan),
        "negative_infinity": number(histogram.negative_infinity, errors.negative_infinity),
        "below": number(histogram.below, errors.below),
        "bins": bins.collect::<Vec<_>>(),
        "above": number(histogram.above, errors.above),
        "positive_infinity": number(histogram.positive_infinity, errors.positive_infinity),
        "cost": histogram.metrics,
    });
    hist_sums::add_to(&mut document, histogram);
    document
}

/// Returns a number of rows as JSON, without its cost.
pub(super) fn count_document(found: &CountEstimate) -> Json {
    let mut document = number(found.rows, found.error);
    document["sample"] = sample(&found.sample);
    document
}

/// Returns a number of rows in words, and which rows it leaves out.
pub(super) fn count_in_words(found: &CountEstimate) -> (String, Option<String>) {
    match found.rows.is_exact() {
        true => (found.rows.estimate.to_string(), None),
        false => (format!("{} ± {}", found.rows.estimate, found.error.ceil()), unplaced(&found.sample)),
    }
}
