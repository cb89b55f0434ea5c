//! `turbidite hist`: shows the distribution of a column's values.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use turbidite::Value;
use turbidite::query::{BinScale, Bins, Dataset, HistogramRequest, Query, Source, Use};
use turbidite::store::EpochSet;

use super::answers::{report_ignored, say, say_json};
use super::boxes::{self, BoxOptions};
use super::epochs::{of_epochs, selection};
use super::histograms::{self, Form};
use crate::failure::Failure;
use crate::text;

/// Show a histogram of a column, or of two
#[derive(Debug, Args)]
#[command(after_help = "\
Exact numbers read what manifests and bitmap indexes leave undecided, up to the budget. See docs/cli.md.

  turbidite hist particles --column energy --log
  turbidite hist particles --column ux --bins 40 --range -5..5 --epoch 4000
  turbidite hist particles --column ux --source bounds
  turbidite hist particles --column ux --box 0:10,-5:5,: --level 2
  turbidite hist particles --column x --level 2 --weights energy
  turbidite hist particles --column energy --log --weights weighting --as per-width
  turbidite hist particles --column ux --by uy --bins 64 --range -1.6..1.6 --by-range -1.6..1.6")]
pub(crate) struct Hist {
    /// The dataset
    dataset: PathBuf,
    /// The column, or for exact numbers an expression [default: the key]
    #[arg(long, value_name = "NAME")]
    column: Option<String>,
    /// A second column, or for exact numbers an expression: count pairs of values
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
    /// Edges of the bins, ascending, instead of their number and range
    #[arg(long, value_name = "A,B,…", value_delimiter = ',', allow_hyphen_values = true)]
    #[arg(conflicts_with_all = ["bins", "range", "log"])]
    edges: Vec<Number>,
    /// Edges of the bins of the second column
    #[arg(long, value_name = "A,B,…", value_delimiter = ',', allow_hyphen_values = true)]
    #[arg(requires = "by", conflicts_with_all = ["by_bins", "by_range", "by_log"])]
    by_edges: Vec<Number>,
    /// Logarithmic bins, of equal ratio instead of equal width
    #[arg(long)]
    log: bool,
    /// Logarithmic bins of the second column
    #[arg(long, requires = "by")]
    by_log: bool,
    /// Count rows, bound numbers without reading records, or estimate from levels [default: exact, or levels with --level]
    #[arg(long, value_enum)]
    source: Option<SourceName>,
    /// Read at most this size of columns for exact numbers, or for levels without --level
    #[arg(long, value_name = "SIZE", value_parser = text::parse_bytes, default_value = "1GB")]
    budget: usize,
    /// Estimate from the rows of this level of detail and above, one in 8^K
    #[arg(long, value_name = "K", conflicts_with = "access")]
    level: Option<u8>,
    /// Also sum this column in each bin; for exact numbers, it may be an expression
    #[arg(long, value_name = "NAME")]
    weights: Option<String>,
    /// Also state the numbers of the bins in another form
    #[arg(long = "as", value_enum, value_name = "FORM", conflicts_with = "by")]
    form: Option<Form>,
    /// Use the index NAME, or 'scan' without any [default: whatever reads least]
    #[arg(long = "use", value_name = "NAME")]
    access: Option<String>,
}

/// The source of the numbers of a histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SourceName {
    Exact,
    Bounds,
    Levels,
}

/// An integer or a finite float.
#[derive(Debug, Clone, Copy)]
struct Number(Value);

impl std::str::FromStr for Number {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let float = || text.trim().parse().ok().filter(|float: &f64| float.is_finite()).map(Value::Float);
        let value = text.trim().parse::<i128>().ok().map(Value::Int).or_else(float);
        value.map(Self).ok_or_else(|| format!("'{text}' is not a number"))
    }
}

/// A range `A..B` of integers or floats.
#[derive(Debug, Clone, Copy)]
struct ValueRange(Value, Value);

impl std::str::FromStr for ValueRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let value = |text: &str| text.parse().ok().map(|Number(value)| value);
        let range = text.split_once("..").and_then(|(from, to)| value(from).zip(value(to)));
        range.map(|(from, to)| Self(from, to)).ok_or_else(|| format!("'{text}' is not a range such as 0..1.5"))
    }
}

impl Hist {
    pub(crate) fn run(&self, as_json: bool) -> Result<(), Failure> {
        let dataset = Dataset::open(&self.dataset)?;
        let found = dataset.histogram(&self.request(&dataset)?);
        let histogram = found.map_err(|error| boxes::wrong(error, "--where", self.filter.as_deref()))?;
        if as_json {
            return say_json(&histograms::document(&histogram, !self.is_selected(), self.form));
        }
        report_ignored(&dataset, &histogram.metrics);
        let of_epochs = of_epochs(histogram.epochs, self.epoch.as_ref());
        say(&histograms::in_words(&histogram, &dataset, &of_epochs, self.form))
    }

    fn request(&self, dataset: &Dataset) -> Result<HistogramRequest, Failure> {
        let column = self.column.as_deref().unwrap_or(&dataset.schema().key().name);
        let bins = bins_of(&self.edges, self.bins, self.range, self.log);
        let mut request = HistogramRequest::new(self.query(), column, bins).budget(self.budget as u64);
        if let Some(by) = &self.by {
            let count = self.by_bins.unwrap_or(self.bins);
            request = request.by(by, bins_of(&self.by_edges, count, self.by_range, self.by_log));
        }
        if let Some(weights) = &self.weights {
            request = request.weights(weights);
        }
        Ok(match (self.source, self.level) {
            (None | Some(SourceName::Levels), Some(level)) => request.source(Source::Level(level)),
            (Some(SourceName::Levels), None) => request.finest_level(),
            (Some(SourceName::Bounds), None) => request.source(Source::Bounds),
            (None | Some(SourceName::Exact), None) => request,
            (Some(_), Some(_)) => {
                return Err(Failure::Usage("--level cannot be used with another --source than levels".to_owned()));
            }
        })
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
}

fn bins_of(edges: &[Number], count: usize, range: Option<ValueRange>, is_log: bool) -> Bins {
    if !edges.is_empty() {
        return Bins::between(edges.iter().map(|Number(edge)| *edge).collect());
    }
    Bins {
        range: range.map(|ValueRange(from, to)| (from, to)),
        scale: if is_log { BinScale::Log } else { BinScale::Linear },
        ..Bins::new(count)
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
