//! The trajectories of particles, as `tracks` and `get` print them.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use turbidite::query::{Dataset, ParticleId, Query, TrackMetrics, TrackProgress, TrackRequest};
use turbidite::store::EpochSet;
use turbidite::{DataType, Schema};

use super::answers::{report_ignored, say_json, to_json};
use super::table::{self, ReadOptions, TableOptions};
use crate::failure::{Failure, complain};
use crate::text;

/// The options of commands that print trajectories.
#[derive(Debug, Args)]
pub(super) struct TrajectoryOptions {
    /// The column or columns that identify particles [default: the key, if it has no float]
    #[arg(long, value_name = "COLUMN,…")]
    id: Option<String>,
    /// Epochs, such as 200, 0..4000, 0..4000..100, 500,700, last or -2 [default: all]
    #[arg(long, value_name = "EPOCHS", allow_hyphen_values = true)]
    epoch: Option<EpochSet>,
    /// Return only these columns and expressions after id and epoch, in this order
    #[arg(long, value_name = "A,B,…")]
    columns: Option<Vec<String>>,
    /// Stop after N rows
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    #[command(flatten)]
    table: TableOptions,
    #[command(flatten)]
    read: ReadOptions,
    /// Do not verify page checksums
    #[arg(long)]
    no_check: bool,
}

/// The result and the cost of a request.
#[derive(Debug, Serialize)]
struct Summary {
    #[serde(flatten)]
    found: TrackMetrics,
    /// Number of rows written. A limit makes it smaller than the number of rows found.
    written: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<PathBuf>,
    wall_s: f64,
}

impl TrajectoryOptions {
    /// Prints the trajectories of the particles of a request, which `request` makes of the dataset's schema and the
    /// name of the column that identifies particles.
    pub(super) fn print(
        &self,
        path: &Path,
        as_json: bool,
        request: impl FnOnce(&Schema, &str) -> Result<TrackRequest, Failure>,
    ) -> Result<(), Failure> {
        self.table.check()?;
        let begun = Instant::now();
        let dataset = Dataset::open(path)?;
        let id = self.id(dataset.schema())?;
        let request = self.with_options(request(dataset.schema(), &id)?);
        let bar = progress_bar(as_json);
        let advance = |progress: TrackProgress| {
            bar.set_length(progress.epochs);
            bar.set_position(progress.done_epochs);
        };
        let mut tracks = dataset.tracks(&request, &advance)?;
        bar.finish_and_clear();
        let schema = tracks.schema();
        let mut writer = self.table.writer(&schema, as_json)?;
        for batch in &mut tracks {
            writer.write(&batch?)?;
        }
        let written = writer.finish()?;
        let wall_s = begun.elapsed().as_secs_f64();
        let summary =
            Summary { found: tracks.metrics(), written, output: self.table.output().map(Path::to_owned), wall_s };
        match self.table.output() {
            Some(_) if as_json => say_json(&summary)?,
            // Standard output contains the rows.
            None if as_json => complain(&to_json(&summary)?),
            _ => {
                report_ignored(&dataset, &summary.found.read);
                self.tell(&id, &summary);
            }
        }
        Ok(())
    }

    /// Returns the column that identifies particles, or several, separated by commas.
    fn id(&self, schema: &Schema) -> Result<String, Failure> {
        let key = schema.key();
        match &self.id {
            Some(id) => Ok(id.clone()),
            None if !schema.has_sorted_runs() => Err(Failure::Usage(format!(
                "--id COLUMN: state which column identifies particles; the records are clustered by '{}'",
                schema.cluster_key()
            ))),
            // A key of several columns has no floats.
            None if !key.data_type.is_float() => Ok(schema.cluster_key().columns.join(",")),
            None => Err(Failure::Usage(format!(
                "--id COLUMN: state which column identifies particles; the key, '{}', is {}",
                key.name, key.data_type
            ))),
        }
    }

    /// Adds the options to a request.
    fn with_options(&self, request: TrackRequest) -> TrackRequest {
        let mut rows = Query::new().check(!self.no_check);
        if let Some(epochs) = &self.epoch {
            rows = rows.epochs(epochs.clone());
        }
        if let Some(columns) = &self.columns {
            rows = rows.columns(table::columns(columns));
        }
        if let Some(limit) = self.limit {
            rows = rows.limit(limit);
        }
        let request = request.rows(self.read.restrict(rows));
        // Scratch files are created in the output's folder, which must have room for the output anyway.
        match self.table.output().and_then(Path::parent) {
            Some(folder) if folder == Path::new("") => request.scratch_folder("."),
            Some(folder) => request.scratch_folder(folder),
            None => request,
        }
    }

    /// Prints the result on standard error. Problems with ids are always printed. The cost is printed if the rows go to
    /// a file or standard output is a terminal.
    fn tell(&self, id: &str, summary: &Summary) {
        let found = &summary.found;
        if found.incomplete_ids > 0 {
            complain(&format!(
                "turbidite: {} of {} {} missing in at least one epoch, {} in total",
                text::count(found.incomplete_ids),
                text::counted(found.ids, "particle", "particles"),
                if found.incomplete_ids == 1 { "is" } else { "are" },
                text::counted(found.missing, "row", "rows"),
            ));
        }
        if found.absent_ids > 0 {
            complain(&format!(
                "turbidite: {} of {} {} in none of {}",
                text::count(found.absent_ids),
                text::counted(found.ids, "particle", "particles"),
                if found.absent_ids == 1 { "is" } else { "are" },
                text::counted(found.epochs, "epoch", "epochs"),
            ));
        }
        if found.duplicates > 0 {
            complain(&format!(
                "turbidite: {} with a duplicate id and epoch: '{}' does not identify particles uniquely",
                text::counted(found.duplicates, "row", "rows"),
                id,
            ));
        }
        if self.table.output().is_none() && !std::io::stdout().is_terminal() {
            return;
        }
        if let Some(path) = self.table.output() {
            complain(&format!("wrote {} to {}", text::counted(summary.written, "row", "rows"), path.display()));
        }
        complain(&format!(
            "{} of {} through {} in {}; read {}",
            text::counted(found.rows, "row", "rows"),
            text::counted(found.ids, "particle", "particles"),
            text::counted(found.epochs, "epoch", "epochs"),
            text::duration(Duration::from_secs_f64(summary.wall_s)),
            text::bytes(found.read.bytes_read),
        ));
    }
}

/// Returns the ids of texts that are separated by commas or white space.
pub(super) fn parse_ids(texts: &[String], schema: &Schema, id: &str) -> Result<Vec<ParticleId>, Failure> {
    let single = schema.index_of(id).map(|_| vec![id]);
    let names = single.unwrap_or_else(|| id.split(',').map(str::trim).collect());
    let type_of = |name: &&str| schema.index_of(name).map(|index| schema.columns()[index].data_type);
    // The request is refused for a column that does not exist.
    let Some(types) = names.iter().map(type_of).collect::<Option<Vec<DataType>>>() else { return Ok(Vec::new()) };
    let stated = types.iter().map(DataType::to_string).collect::<Vec<_>>().join(":");
    let each = texts.iter().flat_map(|text| text.split(|letter: char| letter == ',' || letter.is_whitespace()));
    each.filter(|text| !text.is_empty())
        .map(|text| {
            ParticleId::parse_tuple(text, &types)
                .ok_or_else(|| Failure::Usage(format!("'{text}' is no id: '{id}' is {stated}")))
        })
        .collect()
}

/// Creates a progress bar that counts epochs on a terminal, and a hidden bar elsewhere.
fn progress_bar(as_json: bool) -> ProgressBar {
    if as_json {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("epoch {pos} of {len} {wide_bar} {eta} left") {
        bar.set_style(style);
    }
    bar
}
