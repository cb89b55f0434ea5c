//! `turbidite hist`: shows the distribution of a column's values.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use turbidite::Value;
use turbidite::query::{BinScale, Bins, Bounded, Dataset, Histogram, Precision, Query};
use turbidite::store::EpochRange;

use super::answers::{aligned, json_number, say, say_json};
use super::boxes::{self, BoxOptions};
use super::epochs::of_epochs;
use crate::failure::Failure;
use crate::text;

/// Width of the longest bar, in terminal columns.
const BAR_WIDTH: usize = 40;

/// Show a histogram of a column
///
/// Estimated from the manifests alone, with guaranteed bounds, which are narrow for the key and wide for columns that
/// the data is not clustered by. --where and --box select rows, which --exact counts. NaN, infinities and values
/// outside the range are counted separately.
#[derive(Debug, Args)]
#[command(after_long_help = "\
A bin includes its lower edge and excludes its upper edge; the last bin includes both. Bins of an integer column are
printed with their first and last integer, and there are at most as many bins as integers.

  turbidite hist particles --column energy --log
  turbidite hist particles --column ux --bins 40 --range -5..5 --epoch 4000 --exact
  turbidite hist particles --column energy --log --box x=0:10,z=-5:5 --exact")]
pub(crate) struct Hist {
    /// The dataset
    dataset: PathBuf,
    /// The column [default: the key]
    #[arg(long, value_name = "NAME")]
    column: Option<String>,
    /// Number of bins
    #[arg(long, value_name = "N", default_value_t = 20)]
    bins: usize,
    /// One epoch, or a range with both ends included [default: all]
    #[arg(long, value_name = "E|A..B")]
    epoch: Option<EpochRange>,
    /// Count only rows that match this expression
    #[arg(long = "where", value_name = "EXPRESSION")]
    filter: Option<String>,
    #[command(flatten)]
    space: BoxOptions,
    /// Range of values, both ends included [default: all finite values]
    #[arg(long, value_name = "A..B", allow_hyphen_values = true)]
    range: Option<ValueRange>,
    /// Logarithmic bins, of equal ratio instead of equal width
    #[arg(long)]
    log: bool,
    /// Count exactly, reading only the pages that the manifests leave undecided
    #[arg(long)]
    exact: bool,
}

/// A range `A..B` of integers or floats.
#[derive(Debug, Clone, Copy)]
struct ValueRange(Value, Value);

impl std::str::FromStr for ValueRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let value = |text: &str| match text.trim().parse::<i128>() {
            Ok(integer) => Some(Value::Int(integer)),
            Err(_) => text.trim().parse().ok().filter(|float: &f64| float.is_finite()).map(Value::Float),
        };
        let range = text.split_once("..").and_then(|(from, to)| value(from).zip(value(to)));
        range.map(|(from, to)| Self(from, to)).ok_or_else(|| format!("'{text}' is not a range such as 0..1.5"))
    }
}

impl Hist {
    pub(crate) fn run(&self, as_json: bool) -> Result<(), Failure> {
        let dataset = Dataset::open(&self.dataset)?;
        let column = self.column.as_deref().unwrap_or(&dataset.schema().key().name);
        let bins = Bins {
            count: self.bins,
            range: self.range.map(|ValueRange(from, to)| (from, to)),
            scale: if self.log { BinScale::Log } else { BinScale::Linear },
        };
        let precision = if self.exact { Precision::Exact } else { Precision::Bounded };
        let epochs = self.epoch.unwrap_or(EpochRange::ALL);
        let histogram = match self.filter.is_some() || self.space.is_stated() {
            true => self.of_rows(&dataset, column, &bins, epochs)?,
            false => dataset.histogram(column, &bins, epochs, precision)?,
        };
        if as_json { say_json(&self.document(&histogram)) } else { say(&self.in_words(&dataset, &histogram)) }
    }

    /// Counts the rows that match the predicate and lie within the box.
    fn of_rows(&self, dataset: &Dataset, column: &str, bins: &Bins, epochs: EpochRange) -> Result<Histogram, Failure> {
        if !self.exact {
            let what = "manifests do not tell how many rows of a box or predicate a bin has; add --exact to count them";
            return Err(Failure::Usage(what.to_owned()));
        }
        let mut query = self.space.restrict(Query::new().epochs(epochs));
        if let Some(filter) = &self.filter {
            query = query.filter(filter);
        }
        let found = dataset.histogram_of(&query, column, bins);
        found.map_err(|error| boxes::wrong(error, "--where", self.filter.as_deref()))
    }

    fn document(&self, histogram: &Histogram) -> serde_json::Value {
        let bins: Vec<serde_json::Value> = histogram
            .edges
            .windows(2)
            .zip(&histogram.bins)
            .map(|(edges, rows)| {
                json!({
                    "from": json_number(edges[0]), "to": json_number(edges[1]),
                    "least": rows.least, "estimate": rows.estimate, "most": rows.most,
                })
            })
            .collect();
        json!({
            "column": histogram.column,
            "epochs": histogram.epochs,
            "exact": self.exact,
            "rows": histogram.rows,
            "nan": histogram.nan,
            "negative_infinity": histogram.negative_infinity,
            "below": histogram.below,
            "bins": bins,
            "above": histogram.above,
            "positive_infinity": histogram.positive_infinity,
            "cost": histogram.metrics,
        })
    }

    fn in_words(&self, dataset: &Dataset, histogram: &Histogram) -> String {
        let stated = dataset.schema().columns().iter().find(|column| column.name == histogram.column);
        let unit = stated.and_then(|column| column.unit.as_ref()).map(|unit| format!(" ({unit})")).unwrap_or_default();
        let mut lines = vec![format!(
            "{}{unit} {}: {}, {}",
            histogram.column,
            of_epochs(histogram.epochs, self.epoch),
            text::counted(histogram.rows, "row", "rows"),
            if self.exact {
                "counted"
            } else {
                "estimated from the manifests; 'least' and 'most' are guaranteed bounds"
            },
        )];
        lines.push(String::new());
        lines.push(if histogram.bins.is_empty() { "no finite values".to_owned() } else { self.bars(histogram) });
        let apart = [
            ("NaN", Bounded { least: histogram.nan, estimate: histogram.nan, most: histogram.nan }),
            ("-inf", histogram.negative_infinity),
            ("below the range", histogram.below),
            ("above the range", histogram.above),
            ("inf", histogram.positive_infinity),
        ];
        let stated: Vec<String> = apart
            .into_iter()
            .filter(|(_, rows)| rows.most > 0)
            .map(|(name, rows)| format!("{name}: {}", bounded(rows)))
            .collect();
        if !stated.is_empty() {
            lines.push(String::new());
            lines.push(stated.join("; "));
        }
        lines.join("\n")
    }

    fn bars(&self, histogram: &Histogram) -> String {
        let is_integer = matches!(histogram.edges.first(), Some(Value::Int(_)));
        let counted = if self.exact { "rows" } else { "about" };
        let mut names = vec!["from", if is_integer { "to" } else { "below" }, counted];
        names.extend(if self.exact { &[][..] } else { &["least", "most"][..] });
        let mut rows = vec![names.into_iter().map(str::to_owned).collect::<Vec<_>>()];
        let last = histogram.bins.len().saturating_sub(1);
        for (number, (edges, bin)) in histogram.edges.windows(2).zip(&histogram.bins).enumerate() {
            let to = match edges[1] {
                Value::Int(edge) if number < last => Value::Int(edge - 1),
                other => other,
            };
            let mut row = vec![edge_text(edges[0]), edge_text(to), text::count(bin.estimate)];
            if !self.exact {
                row.extend([text::count(bin.least), text::count(bin.most)]);
            }
            rows.push(row);
        }
        let widest = rows.iter().map(|row| row[0].chars().count()).max().unwrap_or(0);
        for row in &mut rows {
            row[0] = format!("{:>widest$}", row[0]);
        }
        let longest = histogram.bins.iter().map(|bin| bin.estimate).max().unwrap_or(0);
        let bars = histogram.bins.iter().map(|bin| bar(*bin, longest));
        let lines = aligned(&rows);
        let paired = lines.lines().zip([String::new()].into_iter().chain(bars));
        paired.map(|(line, bar)| format!("{line}  {bar}").trim_end().to_owned()).collect::<Vec<_>>().join("\n")
    }
}

fn edge_text(edge: Value) -> String {
    match edge {
        Value::Int(integer) => integer.to_string(),
        Value::Float(float) => text::number(float, 5),
    }
}

/// Returns `12`, or `about 12 (3 to 40)` if only bounds are known.
fn bounded(rows: Bounded) -> String {
    match rows.least == rows.most {
        true => text::count(rows.estimate),
        false => {
            format!("about {} ({} to {})", text::count(rows.estimate), text::count(rows.least), text::count(rows.most))
        }
    }
}

/// Returns a bar of the estimate, in eighths of a block. A light bar continues it to the upper bound, or to the margin.
fn bar(rows: Bounded, longest: u64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = |number: u64| text::share(number, longest) * (8 * BAR_WIDTH) as f64;
    let solid = eighths(rows.estimate).round() as usize;
    // A positive estimate is drawn with at least one eighth.
    let solid = if rows.estimate > 0 { solid.max(1) } else { 0 };
    let mut drawn = "█".repeat(solid / 8);
    drawn.push_str(EIGHTHS[solid % 8]);
    if rows.most > rows.estimate {
        let reach = (eighths(rows.most) / 8.0).ceil().min((BAR_WIDTH + BAR_WIDTH / 4) as f64) as usize;
        drawn.push_str(&"░".repeat(reach.saturating_sub(solid.div_ceil(8))));
    }
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_show_estimate_and_bound() {
        let bar = |estimate, most| bar(Bounded { least: 0, estimate, most }, 1000);
        assert_eq!(bar(0, 0), "");
        assert_eq!(bar(1, 1), "▏");
        assert_eq!(bar(1000, 1000), "█".repeat(40));
        assert_eq!(bar(100, 200), "████░░░░");
        assert_eq!(bar(1000, u64::MAX).chars().count(), 50);
        assert_eq!(super::bar(Bounded { least: 0, estimate: 0, most: 9 }, 0), "");
    }

    #[test]
    fn ranges_are_two_numbers() {
        let range = |text: &str| text.parse::<ValueRange>().map(|ValueRange(from, to)| (from, to));
        assert_eq!(range("-3..18446744073709551615"), Ok((Value::Int(-3), Value::Int(u64::MAX.into()))));
        assert_eq!(range("-1e-3..2.5"), Ok((Value::Float(-1e-3), Value::Float(2.5))));
        for text in ["", "..", "1", "1..", "a..b", "nan..1", "0..inf", "1..2..3"] {
            range(text).unwrap_err();
        }
    }
}
