//! Assembles the page: heading, metrics, plots, tables and commands.

use std::path::Path;
use std::time::Duration;

use turbidite::Clustering;

use super::bars::{Series, Stack};
use super::largest::Largest;
use super::markup::{card, row};
use super::model::{Buckets, Epoch, ReportData, sum};
use super::svg::escape;
use super::{boxes, distribution, indexes, loads, lookups, selectivity};
use crate::text;

/// Maximum number of the dataset's columns that are listed.
const LISTED_COLUMNS: usize = 64;

/// Maximum number of derivations that are listed.
const LISTED_DERIVATIONS: usize = 32;

/// The logo in the heading: graded beds.
const LOGO: &str = "<svg viewBox=\"0 0 52 52\" aria-hidden=\"true\">\
<rect x=\"4\" y=\"6\" width=\"44\" height=\"8\" rx=\"4\" style=\"fill:#e3b75f\"/>\
<rect x=\"4\" y=\"17\" width=\"44\" height=\"10\" rx=\"4\" style=\"fill:#c08a3e\"/>\
<rect x=\"4\" y=\"30\" width=\"44\" height=\"16\" rx=\"4\" style=\"fill:#4d6f91\"/></svg>";

const FADE_LEGEND: &str = "<ul class=\"legend\"><li>earliest epoch<span class=\"fade\">\u{200b}</span>latest</li></ul>";

const STAGES: Stack = Stack {
    name: "stages",
    description: "Time by stage and epoch",
    series: &[
        Series { name: "route", class: "route", value: |epoch, _| epoch.stages()[0] },
        Series { name: "sort", class: "sort", value: |epoch, _| epoch.stages()[1] },
        Series { name: "encode", class: "encode", value: |epoch, _| epoch.stages()[2] },
        Series { name: "write", class: "write", value: |epoch, _| epoch.stages()[3] },
        Series { name: "sync", class: "sync", value: |epoch, _| epoch.stages()[4] },
    ],
    in_words: seconds,
    unit: seconds_unit,
};

const STORED: Stack = Stack {
    name: "stored",
    description: "Bytes written by epoch",
    series: &[
        Series { name: "records", class: "rows", value: |epoch, row_bytes| epoch.rows as f64 * row_bytes as f64 },
        Series {
            name: "page headers, indexes, footers, manifest, padding",
            class: "beside",
            value: |epoch, row_bytes| {
                (epoch.metrics.bytes_written as f64 - epoch.rows as f64 * row_bytes as f64).max(0.0)
            },
        },
    ],
    in_words: |bytes| text::bytes(bytes as u64),
    unit: bytes_unit,
};

const OUTSIDE: Stack = Stack {
    name: "outside",
    description: "Strays, spills and NaN keys by epoch",
    series: &[
        Series { name: "strays", class: "strays", value: |epoch, _| text::share(epoch.metrics.strays, epoch.rows) },
        Series { name: "spills", class: "spills", value: |epoch, _| text::share(epoch.metrics.spills, epoch.rows) },
        Series { name: "NaN keys", class: "nan", value: |epoch, _| text::share(epoch.metrics.nan_keys, epoch.rows) },
    ],
    in_words: text::percent,
    unit: |_| (100.0, "% of the epoch's rows"),
};

fn seconds(seconds: f64) -> String {
    text::duration(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

fn seconds_unit(most: f64) -> (f64, &'static str) {
    if most < 1.0 { (1e3, "time in ms, summed over threads") } else { (1.0, "time in seconds, summed over threads") }
}

fn bytes_unit(most: f64) -> (f64, &'static str) {
    match most {
        most if most < 1e6 => (1e-3, "kB"),
        most if most < 1e9 => (1e-6, "MB"),
        most if most < 1e12 => (1e-9, "GB"),
        _ => (1e-12, "TB"),
    }
}

/// Returns the page, as HTML that is also well-formed XML.
pub(crate) fn render(model: &ReportData) -> String {
    let title =
        Path::new(&model.path).file_name().map_or(model.path.clone(), |name| name.to_string_lossy().into_owned());
    let sections =
        [plots_of_keys(model), plots_by_epoch(model), epochs_table(model), identity(model), commands(model)].concat();
    format!(
        "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\"><head><meta charset=\"utf-8\"/>\
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/><title>{} · Turbidite report</title>\n\
<style>\n{}</style></head>\n<body><main>\n<header>{LOGO}<div><h1>{}</h1><p>{}</p></div></header>\n{}\n\
<div class=\"cards\">\n{sections}</div>\n<footer>Written by turbidite {} from the dataset's manifests; no record was read. \
Terms: <i>read amplification</i> of a key is the rows of all row groups whose range contains it over the rows of one \
perfectly balanced receiver; <i>load imbalance</i> is the standard deviation of the receivers' rows over their mean; \
<i>write amplification</i> is bytes written over bytes of records.</footer>\n</main><div id=\"tip\" hidden=\"hidden\">\u{200b}</div>\n\
<script>\n{}</script></body></html>\n",
        escape(&title),
        include_str!("page.css"),
        escape(&title),
        escape(&subtitle(model)),
        tiles(model),
        env!("CARGO_PKG_VERSION"),
        include_str!("page.js"),
    )
}

fn subtitle(model: &ReportData) -> String {
    let epochs = match model.epochs.as_slice() {
        [] => "no epochs".to_owned(),
        [only] => format!("epoch {}", only.epoch),
        [first, .., last] => {
            format!("{} epochs, {} to {}", text::count(model.all_epochs as u64), first.epoch, last.epoch)
        }
    };
    format!(
        "{epochs} · {} columns, {} bytes per row, clustered by {}{}",
        model.columns.len(),
        model.row_bytes,
        match model.clustering {
            Clustering::Range => "",
            Clustering::Hash => "the hash of ",
            Clustering::Space => "place in ",
        },
        model.key_names
    )
}

fn tiles(model: &ReportData) -> String {
    let worst = |pick: fn(&Epoch) -> f64| model.epochs.iter().map(pick).fold(0.0, f64::max);
    let stored = model.rows() as f64 * model.row_bytes as f64;
    let written = model.bytes_written();
    let amplification = if stored > 0.0 { format!("{:.3}", written as f64 / stored) } else { "–".to_owned() };
    let tiles = [
        (text::count(model.rows()), format!("rows{}", model.sample())),
        (text::bytes(written), format!("written{}, all metadata included", model.sample())),
        (text::percent(worst(|epoch| epoch.imbalance)), "load imbalance, worst epoch".to_owned()),
        match model.clustering {
            Clustering::Hash => {
                (format!("{:.1}", lookups::bits_per_row(&model.epochs)), "filter bits per row".to_owned())
            }
            Clustering::Space => (
                text::count(model.epochs.iter().map(|epoch| epoch.row_groups as u64).sum()),
                "row groups, each a box".to_owned(),
            ),
            Clustering::Range => (
                format!(
                    "{:.2} / {:.2}",
                    worst(|epoch| epoch.amplification_p50),
                    worst(|epoch| epoch.amplification_p99)
                ),
                "read amplification p50 / p99, worst epoch".to_owned(),
            ),
        },
        (amplification, "write amplification".to_owned()),
    ];
    let tile =
        |(figure, name): &(String, String)| format!("<li><b>{}</b><span>{}</span></li>", escape(figure), escape(name));
    format!("<ul class=\"tiles\">{}</ul>", tiles.iter().map(tile).collect::<String>())
}

/// Returns the plots of the key distribution and of query cost by key.
fn plots_of_keys(model: &ReportData) -> String {
    let is_single = model.drawn.len() == 1;
    let fade = if model.drawn.len() > 1 { FADE_LEGEND } else { "" };
    let with_fade = |plot: Option<String>| plot.map(|plot| fade.to_owned() + &plot);
    let selection = escape(&model.selection());
    let buckets = Buckets::of(&model.epochs);
    let by_range = |card: String| if model.is_by_range() { card } else { String::new() };
    let cards = [
        card(
            "Distribution of keys",
            &format!(
                "Distribution of {} by epoch, estimated from the manifests; {}.{}{selection}",
                escape(&model.key.name),
                if is_single { "the line is the approximate median" } else { "the dashed line follows the median" },
                escape(&distribution::beyond(model))
            ),
            with_fade(distribution::ridges(model)),
        ),
        card(
            "Load of receivers",
            &format!(
                "Each dot is a receiver, in order of rank. If there are too many, a line shows their range and a band the \
middle 80 %. The number above is the load imbalance.{}",
                escape(&buckets.remark("extremes"))
            ),
            loads::loads(model),
        ),
        by_range(card(
            "Rows that a query for one key must touch",
            &format!(
                "Share of an epoch's rows, by the key's percentile; lower is better.{}{selection}",
                if is_single { "" } else { " The bold line is the median." }
            ),
            with_fade(selectivity::SHARE.draw(model)),
        )),
        by_range(card(
            "Row groups that a query for one key must touch",
            &format!(
                "Row groups whose range contains the key; only their pages that may contain it are read.{selection}"
            ),
            with_fade(selectivity::ROW_GROUPS.draw(model)),
        )),
        if model.is_by_hash() { lookups::card(model) } else { String::new() },
        boxes::card(model.boxes.as_ref()),
        indexes::card(&model.indexes),
    ];
    cards.concat()
}

/// Returns the plots by epoch.
fn plots_by_epoch(model: &ReportData) -> String {
    let buckets = Buckets::of(&model.epochs);
    let (mean, worst) = (escape(&buckets.remark("the mean")), escape(&buckets.remark("the worst")));
    let amplification = card(
        "Read amplification",
        &format!(
            "For the median key (filled) and the 99th percentile of keys (hollow); the dashed line is one perfectly \
balanced receiver.{worst}"
        ),
        selectivity::amplification(model),
    );
    let cards = [
        if model.is_by_range() { amplification } else { String::new() },
        card("Time by stage", &format!("Time to write an epoch, summed over threads.{mean}"), STAGES.draw(model)),
        card("Bytes written", &format!("Records and their metadata.{mean}"), STORED.draw(model)),
        card(
            "Rows outside their partition",
            &format!(
                "Strays reached a receiver whose partition no longer contained their key; spills stayed with their sender \
because it had no credit. Both, and NaN keys, are stored in separate runs.{mean}"
            ),
            OUTSIDE.draw(model),
        ),
    ];
    cards.concat()
}

fn epochs_table(model: &ReportData) -> String {
    let names = [
        "epoch",
        "rows",
        "parts",
        "runs",
        "row groups",
        "strays",
        "spills",
        "NaN keys",
        "imbalance",
        "tables",
        "write amp.",
        "wall",
    ];
    let line = |epoch: &Epoch| {
        let metrics = &epoch.metrics;
        [
            epoch.epoch.to_string(),
            text::count(epoch.rows),
            text::count(epoch.parts as u64),
            text::count(epoch.runs as u64),
            text::count(epoch.row_groups as u64),
            text::count(metrics.strays),
            text::count(metrics.spills),
            text::count(metrics.nan_keys),
            text::percent(epoch.imbalance),
            text::count(metrics.renegotiations.into()),
            format!("{:.4}", epoch.write_amplification),
            seconds(metrics.wall_s),
        ]
    };
    let lines: String = model.drawn.iter().map(|&place| row("td", &line(&model.epochs[place]))).collect();
    let sum = |metric: fn(&Epoch) -> u64| text::count(sum(&model.epochs, metric));
    let totals = [
        format!("all{}", model.sample()),
        sum(|epoch| epoch.rows),
        sum(|epoch| epoch.parts as u64),
        sum(|epoch| epoch.runs as u64),
        sum(|epoch| epoch.row_groups as u64),
        sum(|epoch| epoch.metrics.strays),
        sum(|epoch| epoch.metrics.spills),
        sum(|epoch| epoch.metrics.nan_keys),
        String::new(),
        sum(|epoch| epoch.metrics.renegotiations.into()),
        String::new(),
        seconds(model.epochs.iter().map(|epoch| epoch.metrics.wall_s).sum()),
    ];
    let header = row("th", &names.map(str::to_owned));
    format!(
        "<section class=\"wide\"><h2>Epochs</h2><p>Layout of each epoch and the cost of writing it.{}</p><div class=\"scroll\">\
<table id=\"epochs\"><thead>{header}</thead><tbody>{lines}</tbody><tfoot>{}</tfoot></table></div></section>\n",
        escape(&model.selection()),
        row("td", &totals)
    )
}

fn identity(model: &ReportData) -> String {
    let term = |name: &str, value: &str| format!("<dt>{}</dt><dd>{}</dd>", escape(name), escape(value));
    let mut terms = term("path", &model.path) + &term("identity", &model.uuid);
    terms += &term("format version", &model.format_version.to_string());
    if let Some(periods) = &model.periods {
        terms += &term("periodic, so that boxes wrap", periods);
    }
    if let Some(source) = &model.source {
        terms += &term("written from", source);
    }
    for derivation in model.derivations.iter().take(LISTED_DERIVATIONS) {
        terms += &term("derived", derivation);
    }
    if let Some(more) = model.derivations.len().checked_sub(LISTED_DERIVATIONS + 1) {
        terms += &term("", &format!("and {} more", text::count(more as u64 + 1)));
    }
    let mut lines = String::new();
    for column in model.columns.iter().take(LISTED_COLUMNS) {
        let remark = if column.name == model.key.name { "key" } else { "" };
        let unit = column.unit.clone().unwrap_or_default();
        lines += &row("td", &[column.name.clone(), column.data_type.to_string(), unit, remark.to_owned()]);
    }
    if let Some(more) = model.columns.len().checked_sub(LISTED_COLUMNS + 1) {
        lines += &row(
            "td",
            &[format!("and {} more", text::count(more as u64 + 1)), String::new(), String::new(), String::new()],
        );
    }
    let header = row("th", &["column", "type", "unit", ""].map(str::to_owned));
    format!(
        "<section><h2>The dataset</h2><p>Identity, source and columns.</p><dl>{terms}</dl>\
<table class=\"words\"><thead>{header}</thead><tbody>{lines}</tbody></table></section>\n"
    )
}

/// Returns a column's name quoted for SQL and the expression language.
fn name_quoted(name: &str) -> String {
    let is_plain = name.chars().all(|character| character.is_ascii_alphanumeric() || character == '_');
    let begins = name.starts_with(|character: char| character.is_ascii_alphabetic());
    if is_plain && begins { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

fn commands(model: &ReportData) -> String {
    let dataset = text::shell_quoted(&model.path);
    let key = name_quoted(&model.key.name);
    let predicate = model.largest.as_ref().map_or_else(|| format!("{key} > 0"), |largest| largest.predicate(&key));
    let literal_of = model.largest.as_ref().map_or("0", |largest| &largest.literal);
    let last = model.epochs.iter().rev().find(|epoch| epoch.rows > 0).map_or(0, |epoch| epoch.epoch);
    let epoch = model.largest.as_ref().map_or(last, |largest| largest.epoch);
    let heading = model.largest.as_ref().map_or_else(|| format!("Of epoch {epoch}, above zero"), Largest::heading);
    let filter = text::shell_quoted(&predicate);
    let files = Path::new(&model.path).join("data").display().to_string();
    let sql = format!(
        "SELECT epoch, count(*), max({key}) FROM read_parquet('{}') WHERE {predicate} GROUP BY epoch;",
        files.replace('\'', "''")
    );
    let literal = |text: &str| serde_json::Value::from(text).to_string();
    let python = format!(
        "import polars\nframe = polars.scan_parquet({}, hive_partitioning=True)\nframe.filter(polars.col({}).is_between({literal_of}, float('inf'))).collect()",
        literal(&files),
        literal(&model.key.name)
    );
    let ordered = if model.clustering == Clustering::Space { "" } else { "--order " };
    let groups = [
        (heading.as_str(), format!("turbidite query {dataset} --epoch {epoch} --where {filter} {ordered}--limit 20")),
        (
            "What this query reads, and why",
            format!("turbidite query {dataset} --epoch {epoch} --where {filter} --explain"),
        ),
        ("Histogram of a column", format!("turbidite hist {dataset} --column {}", text::shell_quoted(&model.key.name))),
        ("Verify every byte", format!("turbidite verify {dataset}")),
        ("DuckDB", sql),
        ("Polars", python),
    ];
    let block = |(heading, command): &(&str, String)| {
        format!(
            "<h3>{}</h3><div class=\"command\"><pre>{}</pre><button type=\"button\" data-copy=\"\">copy</button></div>",
            escape(heading),
            escape(command)
        )
    };
    format!(
        "<section><h2>How to query it</h2><p>The records are plain Parquet files: any Parquet reader can query them.</p>{}</section>\n",
        groups.iter().map(block).collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paths_stay_what_they_are() {
        assert_eq!(text::shell_quoted("out/particles-1"), "out/particles-1");
        assert_eq!(text::shell_quoted("it's; rm -rf *"), r"'it'\''s; rm -rf *'");
        assert_eq!(name_quoted("energy"), "energy");
        assert_eq!(name_quoted("a\" OR 1"), "\"a\"\" OR 1\"");
        assert_eq!(name_quoted("2x"), "\"2x\"");
    }
}
