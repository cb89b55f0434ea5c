//! `turbidite report`: writes a page that shows the layout of a dataset.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use turbidite::query::Dataset;
use turbidite::store::EpochRange;

use super::answers::{say, say_json};
use super::epochs::chosen_epochs;
use crate::failure::{Failure, FileContext};
use crate::output::PendingFile;
use crate::report::{ReportData, render};
use crate::text;

/// Write an HTML report with plots: keys, loads, selectivity, times, sizes
///
/// The report is one self-contained HTML file, computed from the manifests alone.
#[derive(Debug, Args)]
pub(crate) struct Report {
    /// The dataset
    dataset: PathBuf,
    /// The file to write
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    output: PathBuf,
    /// One epoch, or a range with both ends included [default: all]
    #[arg(long, value_name = "E|A..B")]
    epoch: Option<EpochRange>,
}

impl Report {
    pub(crate) fn run(&self, as_json: bool) -> Result<(), Failure> {
        let dataset = Dataset::open(&self.dataset)?;
        let epochs = chosen_epochs(&dataset, &self.dataset, self.epoch)?;
        let page = render(&ReportData::gather(&dataset, &self.dataset, &epochs)?);
        let mut file = PendingFile::create(&self.output)?;
        file.write_all(page.as_bytes()).on_file("write", &self.output)?;
        file.complete()?;
        if as_json {
            return say_json(&json!({"output": self.output, "bytes": page.len(), "epochs": epochs.len()}));
        }
        let about = text::counted(epochs.len() as u64, "epoch", "epochs");
        say(&format!("wrote {}, a report on {about} ({})", self.output.display(), text::bytes(page.len() as u64)))
    }
}
