//! Finds a predicate that selects about the largest 1 % of an epoch's keys, and estimates the number of selected rows.

use turbidite::query::{
    Bins, Dataset, Estimate, Histogram, HistogramRequest, QuantilesRequest, Query, Source, Unbinned,
};
use turbidite::{DataType, Value};

use crate::failure::Failure;
use crate::text;

/// The share of rows to select.
const SHARE: f64 = 0.01;

/// Maximum difference from the target at which the heading calls the selected share one in a hundred.
const CLOSE: f64 = 0.002;

/// Maximum difference from the target at which a literal is accepted. Otherwise, a literal with more digits is tried.
const ROUNDED: f64 = 0.0003;

/// Numbers of digits to try. The last suffices for any number.
const DIGITS: [usize; 4] = [4, 6, 9, 17];

/// A lower bound of the key, and the number of rows that it selects.
#[derive(Debug)]
pub(super) struct Largest {
    pub(super) epoch: u64,
    /// The bound, as written in the expression language and SQL.
    pub(super) literal: String,
    /// Whether rows equal to the bound are selected. Many rows may be equal to the bound, and few above it.
    is_included: bool,
    selected: Estimate<u64>,
    /// Number of rows whose key is a number.
    rows: u64,
}

impl Largest {
    /// Determines the bound for one epoch. Returns `None` if the quantile is infinite or there are no keys.
    pub(super) fn of(dataset: &Dataset, epoch: u64) -> Result<Option<Self>, Failure> {
        let key = dataset.schema().key();
        let query = Query::new().epochs(epoch);
        let request = QuantilesRequest::new(query.clone(), &key.name, &[1.0 - SHARE]).source(Source::Bounds);
        let found = dataset.quantiles(&request)?;
        let quantile = found.quantiles.first().map(|quantile| quantile.value.estimate);
        let Some(quantile) = quantile.filter(|quantile| quantile.as_f64().is_finite()) else { return Ok(None) };
        let rows = found.rows.saturating_sub(found.nan);
        let mut best: Option<(f64, Self)> = None;
        for (literal, value) in literals(quantile, key.data_type) {
            let bins = Bins { range: Some((value, value)), ..Bins::new(1) };
            let request = HistogramRequest::new(query.clone(), &key.name, bins).source(Source::Bounds);
            let stated = dataset.histogram(&request)?;
            for is_included in [false, true] {
                let selected = beyond(&stated, is_included);
                let error = (text::share(selected.estimate, rows) - SHARE).abs();
                if best.as_ref().is_none_or(|(least, _)| error < *least) {
                    best = Some((error, Self { epoch, literal: literal.clone(), is_included, selected, rows }));
                }
            }
            if best.as_ref().is_some_and(|(error, _)| *error <= ROUNDED) {
                break;
            }
        }
        Ok(best.map(|(_, largest)| largest))
    }

    /// Returns the predicate. `key` is the key's name, quoted if necessary.
    pub(super) fn predicate(&self, key: &str) -> String {
        format!("{key} {} {}", if self.is_included { ">=" } else { ">" }, self.literal)
    }

    /// Returns a heading with the selection and the number of rows.
    pub(super) fn heading(&self) -> String {
        let Estimate { least, estimate, most, .. } = self.selected;
        let is_close = (text::share(estimate, self.rows) - SHARE).abs() <= CLOSE;
        let what = if is_close { "About the top 1 % of keys" } else { "The top keys" };
        let rows = match least == most {
            true => text::counted(most, "row", "rows"),
            false => format!(
                "about {} (between {} and {})",
                text::counted(estimate, "row", "rows"),
                text::count(least),
                text::count(most)
            ),
        };
        format!("{what} of epoch {}: {rows}", self.epoch)
    }
}

/// Returns the number of rows above a histogram's only edge, with or without the rows at the edge.
fn beyond(stated: &Histogram, is_included: bool) -> Estimate<u64> {
    let rows = &stated.rows;
    let at = rows.bins.iter().next().filter(|_| is_included).unwrap_or_default();
    rows.at(Unbinned::Above).plus(rows.at(Unbinned::PositiveInfinity)).plus(at)
}

/// Returns literals of a value with increasing numbers of digits, each with the value that it has in the column's type.
fn literals(value: Value, data_type: DataType) -> Vec<(String, Value)> {
    let float = match value {
        Value::Int(integer) => return vec![(integer.to_string(), value)],
        Value::Float(float) => float,
    };
    let literal = |digits: &usize| {
        let short: f64 = format!("{float:.*e}", digits - 1).parse().unwrap_or(float);
        let (stored, plain, scientific) = match data_type {
            DataType::F32 => (f64::from(short as f32), (short as f32).to_string(), format!("{:e}", short as f32)),
            _ => (short, short.to_string(), format!("{short:e}")),
        };
        let is_plain = short == 0.0 || (1e-4..1e9).contains(&short.abs());
        (if is_plain { plain } else { scientific }, Value::Float(stored))
    };
    let finite = DIGITS.iter().map(literal).filter(|(_, stored)| stored.as_f64().is_finite());
    finite.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_short_and_stand_for_what_is_stored() {
        let found = literals(Value::Float(f64::from(43.912_34_f32)), DataType::F32);
        assert_eq!(found[0], ("43.91".to_owned(), Value::Float(f64::from(43.91_f32))));
        assert_eq!(found[3].1, Value::Float(f64::from(43.912_34_f32)));
        assert_eq!(literals(Value::Float(1.5e-20), DataType::F64)[0].0, "1.5e-20");
        assert_eq!(literals(Value::Float(-0.0), DataType::F64)[0].0, "-0");
        assert_eq!(literals(Value::Int(i128::from(u64::MAX)), DataType::U64)[0].0, u64::MAX.to_string());
        assert!(literals(Value::Float(f64::from(f32::MAX)), DataType::F32).iter().all(|(_, v)| v.as_f64().is_finite()));
    }

    #[test]
    fn headings_call_one_in_a_hundred_only_what_is() {
        let heading = |least, estimate, most| {
            let selected = Estimate::within(least, estimate, most);
            Largest { epoch: 5, literal: "1".to_owned(), is_included: false, selected, rows: 10_000 }.heading()
        };
        assert_eq!(heading(80, 101, 130), "About the top 1 % of keys of epoch 5: about 101 rows (between 80 and 130)");
        assert_eq!(heading(900, 900, 900), "The top keys of epoch 5: 900 rows");
    }
}
