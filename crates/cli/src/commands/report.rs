//! `turbidite report`: writes a page that shows the layout of a dataset.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use turbidite::query::Dataset;
use turbidite::store::EpochSet;

use super::answers::{say, say_json};
use super::epochs::selection;
use crate::failure::{Failure, FileContext};
use crate::output::PendingFile;
use crate::report::{ReportData, render};
use crate::text;

/// Write an HTML report with plots: keys, loads, selectivity, times, sizes
#[derive(Debug, Args)]
pub(crate) struct Report {
    /// The dataset
    dataset: PathBuf,
    /// The file to write
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    output: PathBuf,
    /// Epochs, such as 200, 0..4000, 0..4000..100, 500,700, last or -2 [default: all]
    #[arg(long, value_name = "EPOCHS", allow_hyphen_values = true)]
    epoch: Option<EpochSet>,
}

impl Report {
    pub(crate) fn run(&self, as_json: bool) -> Result<(), Failure> {
        let dataset = Dataset::open(&self.dataset)?;
        let epochs = dataset.select(selection(self.epoch.as_ref()))?;
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
