//! `turbidite aggregate`: sums, means and quantiles of rows by group.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use turbidite::query::{AggregateRequest, Aggregates, Dataset, Query};
use turbidite::store::EpochSet;
use turbidite::{Error, UsageError};

use super::answers::{report_ignored, say_json, to_json};
use super::boxes::{self, BoxOptions};
use super::epochs::selection;
use super::table::{ReadOptions, TableOptions};
use crate::failure::{Failure, complain};
use crate::text;

/// Compute sums, means, quantiles and other aggregates of rows by group
#[derive(Debug, Args)]
#[command(after_help = "\
Aggregates of expressions e, a, b (docs/query.md), with or without a weight w:
  count()                              rows; error(count()) is its root
  sum(e)                               exact of integers; error(sum(e)) is the root of the sum of e*e
  mean(e[, w]), var(e[, w]), std(e[, w]), cov(a, b[, w])   of the population; NaN of any row is NaN
  min(e), max(e), quantile(e, share[, w])                  without NaN; the inverted distribution
  nan(e), n_eff(w)                     rows with NaN; sum(w)**2 / sum(w*w)

Groups: 'epoch', an integer such as 'id % 8', or 'bins(e, from, to, count)', half-open but for the last.
Epochs and bins without rows are printed, too.

  turbidite aggregate particles --by epoch --agg 'E=sum(energy*weighting)' --agg 'n=count()'
  turbidite aggregate particles --epoch last --by 'bins(z, 0, 100, 50)' --agg 'spread=std(ux, weighting)'")]
pub(crate) struct Aggregate {
    /// The dataset
    dataset: PathBuf,
    /// An aggregate with a name: NAME=sum(energy). Repeat it for more
    #[arg(long = "agg", value_name = "NAME=AGGREGATE", required = true)]
    aggregates: Vec<String>,
    /// Group by this. Repeat it for more [default: one group]
    #[arg(long, value_name = "GROUP")]
    by: Vec<String>,
    /// Epochs, such as 200, 0..4000, 0..4000..100, 500,700, last or -2 [default: all]
    #[arg(long, value_name = "EPOCHS", allow_hyphen_values = true)]
    epoch: Option<EpochSet>,
    /// Use only rows that match this expression
    #[arg(long = "where", value_name = "EXPRESSION", allow_hyphen_values = true)]
    filter: Option<String>,
    #[command(flatten)]
    space: BoxOptions,
    #[command(flatten)]
    table: TableOptions,
    #[command(flatten)]
    read: ReadOptions,
}

impl Aggregate {
    pub(crate) fn run(&self, as_json: bool) -> Result<(), Failure> {
        self.table.check()?;
        let dataset = Dataset::open(&self.dataset)?;
        let found = dataset.aggregate(&self.request()).map_err(|error| self.wrong(error))?;
        let schema = found.table.schema();
        let mut writer = self.table.writer(&schema, as_json)?;
        writer.write(&found.table)?;
        let groups = writer.finish()?;
        if as_json {
            return self.conclude(&found, groups);
        }
        report_ignored(&dataset, &found.metrics);
        if found.outside > 0 {
            let rows = text::counted(found.rows, "row", "rows");
            complain(&format!("{} of {rows} are outside the bins, or NaN", text::count(found.outside)));
        }
        if let Some(path) = self.table.output() {
            complain(&format!("wrote {} to {}", text::counted(groups, "group", "groups"), path.display()));
        }
        Ok(())
    }

    fn request(&self) -> AggregateRequest {
        let mut query = self.space.restrict(Query::new().epochs(selection(self.epoch.as_ref())));
        if let Some(filter) = &self.filter {
            query = query.filter(filter);
        }
        let request = AggregateRequest::new(self.read.restrict(query));
        let request = self.by.iter().fold(request, AggregateRequest::by);
        self.aggregates.iter().fold(request, |request, aggregate| request.aggregate(aggregate))
    }

    /// Converts an error, which names the option.
    fn wrong(&self, error: Error) -> Failure {
        match error {
            Error::Usage(UsageError::Option { option: "aggregates", what }) => Failure::Usage(format!("--agg {what}")),
            Error::Usage(UsageError::Option { option: "by", what }) => Failure::Usage(format!("--by {what}")),
            error => boxes::wrong(error, "--where", self.filter.as_deref()),
        }
    }

    /// Prints the totals as JSON: on standard error, if standard output has the table.
    fn conclude(&self, found: &Aggregates, groups: u64) -> Result<(), Failure> {
        let mut totals =
            json!({"groups": groups, "rows": found.rows, "outside": found.outside, "metrics": found.metrics});
        match self.table.output() {
            Some(path) => {
                totals["output"] = json!(path);
                say_json(&totals)
            }
            None => {
                complain(&to_json(&totals)?);
                Ok(())
            }
        }
    }
}
