//! `turbidite quantiles`: shows quantiles of a column.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde_json::json;
use turbidite::query::{Dataset, Quantiles, QuantilesRequest, Query, Source};
use turbidite::store::EpochSet;
use turbidite::{DataType, Value};

use super::answers::{aligned, json_number, say, say_json};
use super::epochs::{of_epochs, selection};
use super::estimates::source_name;
use crate::failure::Failure;
use crate::text;

/// Show quantiles of a column
#[derive(Debug, Args)]
pub(crate) struct QuantilesCommand {
    /// The dataset
    dataset: PathBuf,
    /// The column [default: the key]
    #[arg(long, value_name = "NAME")]
    column: Option<String>,
    /// Shares of the values, from 0 to 1
    #[arg(long, value_name = "A,B,…", value_delimiter = ',', default_value = "0,0.01,0.1,0.25,0.5,0.75,0.9,0.99,1")]
    at: Vec<f64>,
    /// Epochs, such as 200, 0..4000, 0..4000..100, 500,700, last or -2 [default: all]
    #[arg(long, value_name = "EPOCHS", allow_hyphen_values = true)]
    epoch: Option<EpochSet>,
    /// The source of the values
    #[arg(long, value_enum, default_value_t = SourceName::Exact)]
    source: SourceName,
    /// Read at most this size of the column for exact values
    #[arg(long, value_name = "SIZE", value_parser = text::parse_bytes, default_value = "1GB")]
    budget: usize,
}

/// The source of quantiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SourceName {
    Exact,
    Bounds,
}

impl QuantilesCommand {
    pub(crate) fn run(&self, as_json: bool) -> Result<(), Failure> {
        let dataset = Dataset::open(&self.dataset)?;
        let column = self.column.as_deref().unwrap_or(&dataset.schema().key().name);
        let source = if self.source == SourceName::Exact { Source::Exact } else { Source::Bounds };
        let query = Query::new().epochs(selection(self.epoch.as_ref()));
        let request = QuantilesRequest::new(query, column, &self.at).source(source).budget(self.budget as u64);
        let found = dataset.quantiles(&request)?;
        if as_json { say_json(&self.document(&found)) } else { say(&self.in_words(&dataset, &found)) }
    }

    fn document(&self, found: &Quantiles) -> serde_json::Value {
        let quantiles: Vec<serde_json::Value> = found
            .quantiles
            .iter()
            .map(|quantile| {
                json!({
                    "share": quantile.share, "position": quantile.position, "least": json_number(quantile.value.least),
                    "estimate": json_number(quantile.value.estimate), "most": json_number(quantile.value.most),
                })
            })
            .collect();
        json!({
            "column": found.column,
            "epochs": found.epochs,
            "source": source_name(found.source),
            "rows": found.rows,
            "nan": found.nan,
            "quantiles": quantiles,
            "cost": found.metrics,
        })
    }

    fn in_words(&self, dataset: &Dataset, found: &Quantiles) -> String {
        let nan = match found.nan {
            0 => String::new(),
            nan => format!(", {} NaN excluded", text::count(nan)),
        };
        let heading = format!(
            "{} {}: {}{nan}, {}",
            found.column,
            of_epochs(found.epochs, self.epoch.as_ref()),
            text::counted(found.rows, "row", "rows"),
            if found.source == Source::Exact {
                "exact"
            } else {
                "estimated from the manifests; 'at least' and 'at most' are guaranteed bounds"
            },
        );
        if found.quantiles.is_empty() {
            return format!("{heading}\n\nno values");
        }
        let is_single = dataset
            .schema()
            .columns()
            .iter()
            .any(|column| column.name == found.column && column.data_type == DataType::F32);
        let value = |value: Value| match value {
            Value::Float(float) if is_single => format!("{:?}", float as f32),
            Value::Float(float) => format!("{float:?}"),
            Value::Int(integer) => integer.to_string(),
        };
        let is_exact = found.source == Source::Exact;
        let names = if is_exact { vec!["share", "value"] } else { vec!["share", "about", "at least", "at most"] };
        let mut rows = vec![names.into_iter().map(str::to_owned).collect::<Vec<_>>()];
        for quantile in &found.quantiles {
            let mut row = vec![quantile.share.to_string(), value(quantile.value.estimate)];
            if !is_exact {
                row.extend([value(quantile.value.least), value(quantile.value.most)]);
            }
            rows.push(row);
        }
        format!("{heading}\n\n{}", aligned(&rows))
    }
}
