//! Formats the forecast as text.

use std::path::Path;
use std::time::Duration;

use super::advice::Advice;
use super::forecast::Forecast;
use super::plan::Plan;
use crate::commands::answers::aligned;
use crate::text;

pub(super) fn of(plan: &Plan, forecast: &Forecast, advice: &[Advice], page: Option<&Path>) -> String {
    let seconds = |seconds: f64| text::duration(Duration::from_secs_f64(seconds.max(0.0)));
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let bytes = |bytes: u64| text::bytes(bytes);
    let is_by_hash = forecast.is_by_hash();
    let by_range = |row: Vec<String>| (!is_by_hash).then_some(row);
    let rows: Vec<Vec<String>> = [
        Some(row("load imbalance", text::percent(forecast.load_imbalance))),
        Some(row("largest receiver over the mean", text::three_digits(forecast.largest_load))),
        by_range(row("strays", text::percent(forecast.strays))),
        Some(row("spills", text::percent(forecast.spills))),
        is_by_hash.then(|| row("partition tables", "none: receivers follow from the hash".to_owned())),
        by_range(row("partition tables", text::count(forecast.tables as u64))),
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
    .collect();
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
            text::counted(index.tables as u64, "partition table", "partition tables"),
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
    for Advice { option, value, reason } in advice {
        lines.push(format!("recommended: {option} = {value}: {reason}"));
    }
    if let Some(page) = page {
        lines.push(format!("plots: {}", page.display()));
    }
    lines.join("\n")
}
