//! `turbidite hist`: shows the distribution of a column's values.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use turbidite::Value;
use turbidite::query::{BinScale, Bins, Bounded, Dataset, Histogram, Precision, Query, Use};
use turbidite::store::EpochSet;

use super::answers::{
    aligned, bounded, edge_text, json_number, report_ignored, rows_in_words, say, say_json, source_in_words,
    without_bins,
};
use super::bar::bar;
use super::boxes::{self, BoxOptions};
use super::epochs::{of_epochs, selection};
use super::hist_level;
use super::hist_sums;
use super::pairs::Pairs;
use crate::failure::Failure;
use crate::text;

/// Show a histogram of a column, or of two
#[derive(Debug, Args)]
#[command(after_help = "\
Bounds come from manifests and bitmap indexes alone; --exact reads what they leave undecided. See docs/cli.md.

  turbidite hist particles --column energy --log
  turbidite hist particles --column ux --bins 40 --range -5..5 --epoch 4000 --exact
  turbidite hist particles --column ux --box 0:10,-5:5,: --level 2
  turbidite hist particles --column x --level 2 --sum energy
  turbidite hist particles --column ux --by uy --bins 64 --range -1.6..1.6 --by-range -1.6..1.6")]
pub(crate) struct Hist {
    /// The dataset
    dataset: PathBuf,
    /// The column [default: the key]
    #[arg(long, value_name = "NAME")]
    column: Option<String>,
    /// A second column: count pairs of values
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// Number of bins
    #[arg(long, value_name = "N", default_value_t = 20)]
    bins: usize,
    /// Number of bins of the second column [default: that of the first]
    #[arg(long, value_name = "N", requires = "by")]
    by_bins: Option<usize>,
    /// Epochs, such as 200, 0..4000, 0..4000..100, 500,700, last or -2 [default: all]
    #[arg(long, value_name = "EPOCHS", allow_hyphen_values = true)]
    epoch: Option<EpochSet>,
    /// Count only rows that match this expression
    #[arg(long = "where", value_name = "EXPRESSION", allow_hyphen_values = true)]
    filter: Option<String>,
    #[command(flatten)]
    space: BoxOptions,
    /// Range of values, both ends included [default: all finite values]
    #[arg(long, value_name = "A..B", allow_hyphen_values = true)]
    range: Option<ValueRange>,
    /// Range of the second column [default: all finite values]
    #[arg(long, value_name = "A..B", requires = "by", allow_hyphen_values = true)]
    by_range: Option<ValueRange>,
    /// Logarithmic bins, of equal ratio instead of equal width
    #[arg(long)]
    log: bool,
    /// Logarithmic bins of the second column
    #[arg(long, requires = "by")]
    by_log: bool,
    /// Count exactly, reading only the rows that manifests and indexes leave undecided
    #[arg(long)]
    exact: bool,
    /// Estimate from the rows of this level of detail and above, one in 8^K
    #[arg(long, value_name = "K", conflicts_with_all = ["by", "exact", "access"])]
    level: Option<u8>,
    /// With --level, also estimate the sum of this column in each bin
    #[arg(long, value_name = "NAME", requires = "level")]
    sum: Option<String>,
    /// Use the index NAME, or 'scan' without any [default: whatever reads least]
    #[arg(long = "use", value_name = "NAME")]
    access: Option<String>,
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
        let bins = bins_of(self.bins, self.range, self.log);
        let wrong = |error| boxes::wrong(error, "--where", self.filter.as_deref());
        if let Some(by) = &self.by {
            let others = bins_of(self.by_bins.unwrap_or(self.bins), self.by_range, self.by_log);
            let (x, y) = ((column, &bins), (by.as_str(), &others));
            let pairs = match self.exact {
                true => Pairs::of_counts(dataset.histogram_2d(&self.query(), x, y, None).map_err(wrong)?),
                false => Pairs::of_bounds(dataset.histogram_2d_bounds(&self.query(), x, y).map_err(wrong)?),
            };
            if as_json {
                return say_json(&pairs.document());
            }
            report_ignored(&dataset, &pairs.metrics);
            return say(&pairs.in_words(&dataset, &of_epochs(pairs.epochs, self.epoch.as_ref())));
        }
        let is_selected = self.is_selected() || self.access.is_some();
        let histogram = match (self.level, is_selected, self.exact) {
            (Some(level), ..) => match &self.sum {
                Some(sum) => dataset.histogram_sums_from_level(&self.query(), column, &bins, level, sum),
                None => dataset.histogram_from_level(&self.query(), column, &bins, level),
            }
            .map_err(wrong)?,
            (None, true, true) => dataset.histogram_of(&self.query(), column, &bins).map_err(wrong)?,
            (None, true, false) => dataset.histogram_bounds(&self.query(), column, &bins).map_err(wrong)?,
            (None, false, _) => {
                let precision = if self.exact { Precision::Exact } else { Precision::Bounded };
                dataset.histogram(column, &bins, selection(self.epoch.as_ref()), precision)?
            }
        };
        if as_json {
            return say_json(&match &histogram.errors {
                Some(errors) => hist_level::document(&histogram, errors),
                None => self.document(&histogram),
            });
        }
        report_ignored(&dataset, &histogram.metrics);
        say(&self.in_words(&dataset, &histogram))
    }

    /// Returns whether rows are selected.
    fn is_selected(&self) -> bool {
        self.filter.is_some() || self.space.is_stated()
    }

    /// Returns the query for the rows to count.
    fn query(&self) -> Query {
        let mut query = self.space.restrict(Query::new().epochs(selection(self.epoch.as_ref())));
        if let Some(filter) = &self.filter {
            query = query.filter(filter);
        }
        if let Some(access) = &self.access {
            query = query.using(Use::named(access));
        }
        query
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
            "rows": self.stated(histogram.rows),
            "nan": self.stated(histogram.nan),
            "negative_infinity": histogram.negative_infinity,
            "below": histogram.below,
            "bins": bins,
            "above": histogram.above,
            "positive_infinity": histogram.positive_infinity,
            "cost": histogram.metrics,
        })
    }

    /// Returns a count that is known unless rows are selected without being counted.
    fn stated(&self, rows: Bounded) -> serde_json::Value {
        if self.exact || !self.is_selected() { json!(rows.estimate) } else { json!(rows) }
    }

    fn in_words(&self, dataset: &Dataset, histogram: &Histogram) -> String {
        let stated = dataset.schema().columns().iter().find(|column| column.name == histogram.column);
        let unit = stated.and_then(|column| column.unit.as_ref()).map(|unit| format!(" ({unit})")).unwrap_or_default();
        let (rows, source) = match &histogram.errors {
            Some(errors) => hist_level::headline(histogram.rows, errors),
            None if self.exact => (rows_in_words(histogram.rows), source_in_words(true).to_owned()),
            None => {
                let source = source_in_words(false);
                (rows_in_words(histogram.rows), format!("{source}; 'least' and 'most' are guaranteed bounds"))
            }
        };
        let epochs = of_epochs(histogram.epochs, self.epoch.as_ref());
        let sum = histogram.sums.as_ref().map(|sums| format!(", {}", hist_sums::headline(sums))).unwrap_or_default();
        let mut lines = vec![format!("{}{unit} {epochs}: {rows}{sum}, {source}", histogram.column)];
        lines.push(String::new());
        let is_empty = histogram.bins.is_empty();
        lines.push(if is_empty { without_bins(histogram.below.most).to_owned() } else { self.bars(histogram) });
        let mut stated = match &histogram.errors {
            Some(errors) => hist_level::apart(histogram, errors),
            None => apart(histogram),
        };
        stated.extend(histogram.sums.iter().flat_map(hist_sums::apart));
        if !stated.is_empty() {
            lines.push(String::new());
            lines.push(stated.join("; "));
        }
        lines.join("\n")
    }

    fn bars(&self, histogram: &Histogram) -> String {
        let is_integer = matches!(histogram.edges.first(), Some(Value::Int(_)));
        let errors = histogram.errors.as_ref().map(|errors| &errors.bins);
        let counted = if self.exact { "rows" } else { "about" };
        let mut names = vec!["from", if is_integer { "to" } else { "below" }, counted];
        names.extend(match (errors, self.exact) {
            (Some(_), _) => &["error"][..],
            (None, true) => &[],
            (None, false) => &["least", "most"],
        });
        let mut rows = vec![names.into_iter().map(str::to_owned).collect::<Vec<_>>()];
        rows[0].extend(histogram.sums.iter().flat_map(hist_sums::heads));
        let last = histogram.bins.len().saturating_sub(1);
        for (number, (edges, bin)) in histogram.edges.windows(2).zip(&histogram.bins).enumerate() {
            let to = match edges[1] {
                Value::Int(edge) if number < last => Value::Int(edge - 1),
                other => other,
            };
            let mut row = vec![edge_text(edges[0]), edge_text(to), text::count(bin.estimate)];
            match errors.map(|errors| errors[number]) {
                Some(error) => row.push(text::count(error.ceil() as u64)),
                None if self.exact => {}
                None => row.extend([text::count(bin.least), text::count(bin.most)]),
            }
            row.extend(histogram.sums.iter().flat_map(|sums| hist_sums::cells(&sums.bins[number])));
            rows.push(row);
        }
        let widest = rows.iter().map(|row| row[0].chars().count()).max().unwrap_or(0);
        for row in &mut rows {
            row[0] = format!("{:>widest$}", row[0]);
        }
        let bars = drawn(histogram);
        let lines = aligned(&rows);
        let paired = lines.lines().zip([String::new()].into_iter().chain(bars));
        paired.map(|(line, bar)| format!("{line}  {bar}").trim_end().to_owned()).collect::<Vec<_>>().join("\n")
    }
}

/// Returns the bars of the sums if there are any, or of the rows.
fn drawn(histogram: &Histogram) -> Vec<String> {
    if let Some(sums) = &histogram.sums {
        return hist_sums::bars(sums);
    }
    let errors = histogram.errors.as_ref().map(|errors| &errors.bins);
    let longest = histogram.bins.iter().map(|bin| bin.estimate).max().unwrap_or(0);
    let one = |(number, rows): (usize, &Bounded)| match errors.map(|errors| errors[number]) {
        Some(error) => bar(Bounded { most: rows.estimate.saturating_add(error.ceil() as u64), ..*rows }, longest),
        None => bar(*rows, longest),
    };
    histogram.bins.iter().enumerate().map(one).collect()
}

/// Returns the rows that are in no bin, in words.
fn apart(histogram: &Histogram) -> Vec<String> {
    let apart = [
        ("NaN", histogram.nan),
        ("-inf", histogram.negative_infinity),
        ("below the range", histogram.below),
        ("above the range", histogram.above),
        ("inf", histogram.positive_infinity),
    ];
    let present = apart.into_iter().filter(|(_, rows)| rows.most > 0);
    present.map(|(name, rows)| format!("{name}: {}", bounded(rows))).collect()
}

fn bins_of(count: usize, range: Option<ValueRange>, is_log: bool) -> Bins {
    Bins {
        count,
        range: range.map(|ValueRange(from, to)| (from, to)),
        scale: if is_log { BinScale::Log } else { BinScale::Linear },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
