//! Formats the forecast as text.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use turbidite_forecast::{Advice, Forecast, Measurement, Plan, RunForecast};

use crate::commands::answers::aligned;
use crate::text;

/// A recommended setting, in words.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Recommendation {
    /// Name of the option of `ingest`, or of the field of the C interface.
    option: &'static str,
    value: String,
    reason: String,
}

impl From<&Advice> for Recommendation {
    fn from(advice: &Advice) -> Self {
        match advice {
            Advice::Pivots { value, ranks, records, tries } => {
                let stated: Vec<String> =
                    tries.iter().map(|(pivots, found)| format!("{pivots}: {}", text::percent(*found))).collect();
                let reason = format!(
                    "load imbalance of {ranks} ranks with {} records each, by pivots: {}; {value} is the smallest \
                     number close to the best",
                    text::count(*records),
                    stated.join(", ")
                );
                Self { option: "pivots", value: value.to_string(), reason }
            }
            Advice::Renegotiate { value, adaptive, fixed } => {
                let reason = format!(
                    "with {} ranks, adaptive renegotiation makes {} tables, with {} imbalance and {} strays; seven \
                     equal intervals make {}, with {} and {}",
                    adaptive.ranks,
                    adaptive.tables,
                    text::percent(adaptive.load_imbalance),
                    text::percent(adaptive.strays),
                    fixed.tables,
                    text::percent(fixed.load_imbalance),
                    text::percent(fixed.strays),
                );
                let value = value.map_or("adaptive".to_owned(), |every| every.to_string());
                Self { option: "renegotiate", value, reason }
            }
            Advice::PartBytes { value, files, file_bytes } => {
                let file_bytes = text::bytes(*file_bytes);
                let reason = match value {
                    Some(_) => {
                        let files = text::count(*files);
                        format!(
                            "an epoch would have {files} files of {file_bytes}, which makes its folder slow to list"
                        )
                    }
                    None => {
                        let files = text::counted(*files, "file", "files");
                        format!("an epoch has {files} of {file_bytes} on average")
                    }
                };
                let value = value.map_or("default".to_owned(), text::bytes);
                Self { option: "part bytes", value, reason }
            }
        }
    }
}

/// Returns the forecast as text: a column for the first epoch, and one for the later epochs if they differ.
pub(super) fn of(plan: &Plan, run: &RunForecast, advice: &[Recommendation], page: Option<&Path>) -> String {
    let forecast = &run.first;
    let mut rows = rows(forecast);
    if let Some(steady) = &run.steady {
        for (row, later) in rows.iter_mut().zip(self::rows(steady)) {
            row.extend(later.into_iter().skip(1));
        }
        rows.insert(0, ["", "first epoch", "later epochs"].map(str::to_owned).into());
    }
    let mut lines = vec![
        format!(
            "{} on {}, {} of {} bytes each",
            text::counted(u64::from(forecast.ranks), "rank", "ranks"),
            text::counted(u64::from(forecast.nodes), "node", "nodes"),
            text::counted(forecast.records_per_rank, "record", "records"),
            forecast.record_bytes
        ),
        aligned(&rows),
    ];
    for index in &forecast.indexes {
        let shuffled = format!(
            ", {} and {}",
            text::counted(index.messages, "message", "messages"),
            text::counted(u64::from(index.tables), "partition table", "partition tables"),
        );
        lines.push(format!(
            "index {}: {} in {}, {} of processor time, {} a rank{}",
            index.definition,
            text::bytes(index.bytes),
            text::counted(index.files, "file", "files"),
            seconds(index.processor_s),
            text::bytes(index.memory_bytes),
            if index.messages > 0 { shuffled.as_str() } else { "" },
        ));
    }
    if forecast.simulated_per_rank < plan.records {
        lines.push(format!(
            "simulated: the first {} records of each rank; times, messages, runs and files are scaled up",
            text::count(forecast.simulated_per_rank)
        ));
    }
    for Recommendation { option, value, reason } in advice {
        lines.push(format!("recommended: {option} = {value}: {reason}"));
    }
    if let Some(page) = page {
        lines.push(format!("plots: {}", page.display()));
    }
    lines.join("\n")
}

/// Returns what was measured, and the options that forecast another run without measuring again.
pub(super) fn of_measurement(measured: &Measurement) -> String {
    let Measurement { cores, ranks, speed, node_storage_gb_per_s, commit_ms, epoch_bytes, time_factor, .. } = measured;
    format!(
        "measured with {} and {}: an epoch of {} took {}, and {} in the model\nthe same without measuring: \
         --speed {speed:.3} --node-storage-gb-per-s {node_storage_gb_per_s:.3} --commit-ms {commit_ms:.3} \
         --time-factor {time_factor:.3}",
        text::counted(*cores as u64, "core", "cores"),
        text::counted(u64::from(*ranks), "rank", "ranks"),
        text::bytes(*epoch_bytes),
        seconds(measured.epoch_s),
        seconds(measured.model_s),
    )
}

/// Returns the rows of a table of the forecast: the name and the value.
fn rows(forecast: &Forecast) -> Vec<Vec<String>> {
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let bytes = |bytes: u64| text::bytes(bytes);
    let is_by_hash = forecast.is_by_hash();
    let by_range = |row: Vec<String>| (!is_by_hash).then_some(row);
    [
        Some(row("load imbalance", text::percent(forecast.load_imbalance))),
        Some(row("largest receiver over the mean", text::three_digits(forecast.largest_load))),
        by_range(row("strays", text::percent(forecast.strays))),
        Some(row("spills", text::percent(forecast.spills))),
        is_by_hash.then(|| row("partition tables", "none: receivers follow from the hash".to_owned())),
        by_range(row("partition tables", text::count(forecast.tables.into()))),
        by_range(row("messages per table", text::count(forecast.negotiation_messages_per_table))),
        Some(row("depth of the control tree", forecast.tree_depth.to_string())),
        by_range(row("renegotiation time, mean", seconds(forecast.negotiation_s_mean))),
        by_range(row("renegotiation time, maximum", seconds(forecast.negotiation_s_most))),
        by_range(row("table size", bytes(forecast.table_bytes as u64))),
        Some(row("messages in total", text::count(forecast.messages))),
        Some(row("open batches of a rank, 3 hops", bytes(forecast.buffer_bytes_three_hops))),
        Some(row("open batches of a rank, 1 hop", bytes(forecast.buffer_bytes_one_hop))),
        Some(row("buffers of a rank, observed", bytes(forecast.buffer_bytes_seen as u64))),
        Some(row("files", text::count(forecast.files))),
        Some(row("runs", text::count(forecast.runs))),
        Some(row("manifest", bytes(forecast.manifest_bytes))),
        Some(row("records", bytes(forecast.stored_bytes))),
        is_by_hash.then(|| row("filters", bytes(forecast.filter_bytes))),
        Some(row("plain writes", seconds(forecast.plain_s))),
        Some(row("ingest", seconds(forecast.ingest_s))),
        Some(row("ingest over plain writes", text::three_digits(forecast.ingest_s / forecast.plain_s.max(1e-9)))),
        Some(row("processor time", seconds(forecast.processor_s))),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn seconds(seconds: f64) -> String {
    text::duration(Duration::from_secs_f64(seconds.max(0.0)))
}
