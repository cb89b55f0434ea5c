//! `turbidite query`: returns rows or counts, explains queries, and runs lists of range queries.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use serde::Serialize;
use serde_json::json;
use turbidite::Error;
use turbidite::query::{Dataset, Query, QueryMetrics, QueryProgress, Source};
use turbidite::store::EpochSet;

use super::answers::{report_ignored, report_unlisted, say, say_json, to_json};
use super::batch;
use super::boxes::{self, BoxOptions};
use super::epochs::selection;
use super::estimates;
use super::sample::{SampleOptions, Sampled, WeightColumn};
use super::table::{self, ReadOptions, TableOptions};
use crate::failure::{Failure, complain};
use crate::progress::ProgressLines;
use crate::text;

/// Print, count, export or explain the rows that match a predicate
#[derive(Debug, Args)]
#[command(after_help = "\
Expressions, boxes and samples: docs/query.md and docs/space.md.

  turbidite query particles --where 'energy >= 1.2 AND energy < 3' --epoch 500..4000 -o hot.parquet
  turbidite query particles --where 'ux > 5 AND abs(uy) < 1' --count
  turbidite query particles --box x=0:10,y=-5:5 --epoch 400 --quality 0.125
  turbidite query particles --epoch 400 --rows 50000 --near 3,4,0
  turbidite query particles --batch queries.csv --log times.csv      # lines 'epoch,begin,end'")]
pub(crate) struct QueryCommand {
    /// The dataset
    dataset: PathBuf,
    /// Epochs, such as 200, 0..4000, 0..4000..100, 500,700, last or -2 [default: all]
    #[arg(long, value_name = "EPOCHS", allow_hyphen_values = true)]
    epoch: Option<EpochSet>,
    /// Return only rows that match this expression
    #[arg(long = "where", value_name = "EXPRESSION", allow_hyphen_values = true)]
    filter: Option<String>,
    #[command(flatten)]
    space: BoxOptions,
    /// Return only these columns and expressions, in this order: id, 'p = sqrt(ux*ux + uy*uy)'
    #[arg(long, value_name = "A,B,…")]
    columns: Option<Vec<String>>,
    /// Sort by columns over all epochs, as in 'energy desc, id', or, without a value, by the key within each epoch
    #[arg(long, value_name = "COLUMNS", num_args = 0..=1)]
    order: Option<Option<String>>,
    /// With --order, sort each epoch by itself
    #[arg(long, requires = "order")]
    per_epoch: bool,
    /// Stop after N rows
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    #[command(flatten)]
    sample: SampleOptions,
    /// Print the number of matching rows instead of the rows
    #[arg(long, conflicts_with_all = ["columns", "order", "limit", "quality", "rows", "output", "format", "explain"])]
    count: bool,
    /// With --count, print bounds from manifests and bitmap indexes, without reading records
    #[arg(long, requires = "count")]
    bounds: bool,
    /// With --count, estimate from the rows of this level of detail and above, one in 8^K
    #[arg(long, value_name = "K", requires = "count", conflicts_with_all = ["bounds", "access"])]
    level: Option<u8>,
    /// Explain what the query would read, and why, without reading it
    #[arg(long, conflicts_with_all = ["output", "format"])]
    explain: bool,
    #[command(flatten)]
    table: TableOptions,
    /// Print the cost of the query on standard error [default: on a terminal]
    #[arg(long = "metrics")]
    metrics: bool,
    /// Run a list of range queries: lines 'epoch,begin,end'
    #[arg(long, value_name = "FILE", conflicts_with_all = ["epoch", "filter", "sides", "columns", "order", "limit", "quality", "rows", "count", "explain", "output", "format"])]
    batch: Option<PathBuf>,
    /// With --batch, write matches, bytes and times of each query to a file
    #[arg(long, value_name = "FILE", requires = "batch")]
    log: Option<PathBuf>,
    #[command(flatten)]
    read: ReadOptions,
    /// Do not verify page checksums
    #[arg(long)]
    no_check: bool,
    /// Print the progress in row groups as lines of JSON on standard error. For programs.
    #[arg(long, requires_all = ["json", "output"], conflicts_with_all = ["quality", "rows"], hide = true)]
    progress: bool,
}

/// The result and the cost of a query.
#[derive(Debug, Serialize)]
struct Answer {
    rows: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sample: Option<Sampled>,
    /// Size of the rows of the requested epochs, for comparison with the bytes read.
    bytes_of_epochs: u64,
    wall_s: f64,
    metrics: QueryMetrics,
}

impl QueryCommand {
    pub(crate) fn run(&self, as_json: bool) -> Result<(), Failure> {
        self.table.check()?;
        let is_sample = self.sample.is_stated()?;
        let dataset = Dataset::open(&self.dataset)?;
        if let Some(queries) = &self.batch {
            return batch::run(&dataset, queries, self.log.as_deref(), self.query(), as_json);
        }
        let query = self.query();
        if self.explain {
            let explanation = dataset.explain(&query).map_err(|error| self.wrong(error))?;
            if as_json {
                return say_json(&explanation);
            }
            report_unlisted(&dataset);
            return say(explanation.to_string().trim_end());
        }
        if self.count {
            return self.count(&dataset, &query, as_json);
        }
        match is_sample {
            true => self.sample(&dataset, query, as_json),
            false => self.rows(&dataset, &query, as_json),
        }
    }

    fn query(&self) -> Query {
        let ordered = match &self.order {
            None => Query::new(),
            Some(None) => Query::new().ordered(true),
            Some(Some(columns)) => Query::new().ordered_by(columns).per_epoch(self.per_epoch),
        };
        let mut query = self.space.restrict(ordered.check(!self.no_check));
        if let Some(epochs) = &self.epoch {
            query = query.epochs(epochs.clone());
        }
        if let Some(filter) = &self.filter {
            query = query.filter(filter);
        }
        if let Some(columns) = &self.columns {
            query = query.columns(table::columns(columns));
        }
        if let Some(limit) = self.limit {
            query = query.limit(limit);
        }
        self.read.restrict(query)
    }

    /// Converts an error. If predicate or box caused it, the message contains them.
    fn wrong(&self, error: Error) -> Failure {
        boxes::wrong(error, "--where", self.filter.as_deref())
    }

    fn count(&self, dataset: &Dataset, query: &Query, as_json: bool) -> Result<(), Failure> {
        let begun = Instant::now();
        let source = match self.level {
            Some(level) => Source::Level(level),
            None if self.bounds => Source::Bounds,
            None => Source::Exact,
        };
        let found = dataset.count_from(query, source).map_err(|error| self.wrong(error))?;
        let rows = if self.bounds { found.rows.most } else { found.rows.estimate };
        let answer = || self.answer(dataset, rows, begun, found.metrics);
        if as_json {
            let mut document = match source {
                Source::Exact => json!({"count": rows}),
                _ => estimates::count_json(&found),
            };
            document["cost"] = json!(answer()?);
            return say_json(&document);
        }
        let (rows, left_out) = estimates::count_in_words(&found);
        say(&rows)?;
        left_out.iter().for_each(|words| complain(words));
        report_ignored(dataset, &found.metrics);
        if self.tells() {
            self.tell(&answer()?);
        }
        Ok(())
    }

    fn rows(&self, dataset: &Dataset, query: &Query, as_json: bool) -> Result<(), Failure> {
        let begun = Instant::now();
        let (dataset, lines) = if self.progress {
            let (dataset, lines) = watched(dataset);
            (dataset, Some(lines))
        } else {
            (dataset.clone(), None)
        };
        let mut stream = dataset.run(query).map_err(|error| self.wrong(error))?;
        let mut writer = self.table.writer(&stream.schema(), as_json)?;
        for batch in &mut stream {
            writer.write(&batch?)?;
        }
        let rows = writer.finish()?;
        if let Some(lines) = lines {
            lines.finish();
        }
        self.conclude(&dataset, (rows, None), begun, stream.metrics(), as_json)
    }

    /// Returns a sample of one epoch.
    fn sample(&self, dataset: &Dataset, mut query: Query, as_json: bool) -> Result<(), Failure> {
        let begun = Instant::now();
        let listed = |lists: &Vec<String>| table::columns(lists).map(str::to_owned).collect();
        let mut columns = self.columns.as_ref().map(listed);
        let weights = WeightColumn::find(&mut columns, |name| dataset.schema().index_of(name).is_some());
        if let Some(columns) = columns {
            query = query.columns(columns);
        }
        let is_filtered = self.filter.is_some() || self.space.is_stated();
        let mut cursor = dataset.cursor(&self.sample.request(query)).map_err(|error| self.wrong(error))?;
        let schema = weights.add_to(&cursor.schema());
        let mut writer = self.table.writer(&schema, as_json)?;
        let sampled = self
            .sample
            .take(&mut cursor, is_filtered, |rows, found| writer.write(&weights.join(rows, found, &schema)?))?;
        let rows = writer.finish()?;
        self.conclude(dataset, (rows, Some(sampled)), begun, cursor.metrics(), as_json)?;
        if !as_json && self.tells() {
            complain(&sampled.in_words(rows, dataset.schema().level_weight_name()));
        }
        Ok(())
    }

    /// Prints the cost of rows that have been written, if it is wanted.
    fn conclude(
        &self,
        dataset: &Dataset,
        (rows, sample): (u64, Option<Sampled>),
        begun: Instant,
        metrics: QueryMetrics,
        as_json: bool,
    ) -> Result<(), Failure> {
        if !as_json {
            report_ignored(dataset, &metrics);
        }
        let answer = || Ok::<_, Failure>(Answer { sample, ..self.answer(dataset, rows, begun, metrics)? });
        match self.table.output() {
            Some(_) if as_json => say_json(&answer()?)?,
            // Standard output contains the rows.
            None if as_json && self.metrics => complain(&to_json(&answer()?)?),
            _ if !as_json && self.tells() => self.tell(&answer()?),
            _ => {}
        }
        Ok(())
    }

    fn answer(&self, dataset: &Dataset, rows: u64, begun: Instant, metrics: QueryMetrics) -> Result<Answer, Failure> {
        let wall_s = begun.elapsed().as_secs_f64();
        let mut bytes_of_epochs = 0;
        for epoch in dataset.select(selection(self.epoch.as_ref()))? {
            bytes_of_epochs += dataset.page_bytes(epoch)?;
        }
        Ok(Answer {
            rows,
            output: self.table.output().map(Path::to_owned),
            sample: None,
            bytes_of_epochs,
            wall_s,
            metrics,
        })
    }

    /// Returns whether result and cost are printed: they are requested, the rows go to a file or standard output is a
    /// terminal.
    fn tells(&self) -> bool {
        self.metrics || self.table.output().is_some() || std::io::stdout().is_terminal()
    }

    /// Prints result and cost on standard error.
    fn tell(&self, answer: &Answer) {
        if let Some(path) = self.table.output() {
            complain(&format!("wrote {} to {}", text::counted(answer.rows, "row", "rows"), path.display()));
        }
        complain(&format!(
            "{} in {}; read {} of {} ({}), {} of {} row groups",
            text::counted(answer.rows, "row", "rows"),
            text::duration(std::time::Duration::from_secs_f64(answer.wall_s)),
            text::bytes(answer.metrics.bytes_read),
            text::bytes(answer.bytes_of_epochs),
            text::percent(text::share(answer.metrics.bytes_read, answer.bytes_of_epochs)),
            text::count(answer.metrics.runs_touched),
            text::count(answer.metrics.runs_considered),
        ));
    }
}

/// Returns the dataset, and the lines of its next request's progress.
fn watched(dataset: &Dataset) -> (Dataset, ProgressLines) {
    let progress = Arc::new(QueryProgress::counting());
    let (done, total) = (progress.clone(), progress.clone());
    let lines = ProgressLines::start(move || done.done(), move || total.total());
    (dataset.watched(&progress), lines)
}
