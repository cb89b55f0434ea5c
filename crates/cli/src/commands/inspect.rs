//! `turbidite inspect`: describes a dataset and its content.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use serde_json::json;
use turbidite::format::{EpochManifest, FORMAT_VERSION, PartId, RowGroupEntry, RunKind};
use turbidite::query::{Dataset, EpochSelection};
use turbidite::store::{EpochSet, parse_epoch};
use turbidite::{Attribute, Clustering, DataType, EpochAttributes, Periods, Schema, TIME_ATTRIBUTE, Value, indexes};

use super::answers::{aligned, say, say_json};
use super::index;
use crate::failure::Failure;
use crate::text;

/// Describe a dataset: its columns and epochs, and with --epoch the row groups
#[derive(Debug, Args)]
pub(crate) struct Inspect {
    /// The dataset, or an epoch's folder or a part file in it
    path: PathBuf,
    /// List the row groups of these epochs, such as 200, 0..4000, 0..4000..100, 500,700, last or -2
    #[arg(long, value_name = "EPOCHS", allow_hyphen_values = true)]
    epoch: Option<EpochSet>,
}

/// Number of digits of an attribute: enough to tell steps apart, and fewer than rounding errors have.
const SHOWN_DIGITS: usize = 9;

/// The dataset, epoch or part file that a path denotes.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    dataset: PathBuf,
    epoch: Option<u64>,
    part: Option<PartId>,
}

impl Target {
    /// Splits `DS/data/epoch=N/part-….parquet` and its prefixes. Any other path denotes a dataset. The folder of a
    /// level of detail may precede a part.
    fn of(path: &Path) -> Self {
        let whole = || Self { dataset: path.to_owned(), epoch: None, part: None };
        let name = |path: &Path| path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
        let part = name(path).and_then(|name| PartId::parse(&name));
        let folder = if part.is_some() { path.parent() } else { Some(path) };
        let is_level = |folder: &Path| name(folder).is_some_and(|name| name.starts_with("level"));
        let folder =
            folder.and_then(|folder| if part.is_some() && is_level(folder) { folder.parent() } else { Some(folder) });
        let epoch = folder.and_then(name).and_then(|name| parse_epoch(name.strip_prefix("epoch=")?));
        let data = if epoch.is_some() { folder.and_then(Path::parent) } else { folder };
        let is_data = data.and_then(name).is_some_and(|name| name == "data");
        match data.and_then(Path::parent) {
            Some(dataset) if is_data && (epoch.is_some() || part.is_none()) && !is_dataset(path) => {
                // The parent of the path `data` is the empty path.
                let dataset = if dataset.as_os_str().is_empty() { Path::new(".") } else { dataset };
                Self { dataset: dataset.to_owned(), epoch, part }
            }
            _ => whole(),
        }
    }
}

/// Returns whether a path is a dataset. A dataset may be called `data`.
fn is_dataset(path: &Path) -> bool {
    path.join("_turbidite").is_dir()
}

/// One epoch in the JSON output.
#[derive(Debug, Serialize)]
struct EpochEntry {
    epoch: u64,
    rows: u64,
    parts: usize,
    row_groups: usize,
    bytes: u64,
    key_min: Option<f64>,
    key_max: Option<f64>,
    /// The physical time. Null if there is none.
    time: Option<f64>,
    attributes: EpochAttributes,
    #[serde(skip_serializing_if = "Option::is_none")]
    runs: Option<Vec<serde_json::Value>>,
}

impl Inspect {
    pub(crate) fn run(&self, as_json: bool) -> Result<(), Failure> {
        let target = Target::of(&self.path);
        let dataset = Dataset::open(&target.dataset)?;
        let wanted = match (&self.epoch, target.epoch) {
            (Some(set), _) => Some(EpochSelection::from(set.clone())),
            (None, epoch) => epoch.map(EpochSelection::from),
        };
        let shows_runs = wanted.is_some();
        let mut manifests = Vec::new();
        for epoch in dataset.select(wanted.unwrap_or_default())? {
            manifests.push(dataset.manifest(epoch)?);
        }
        if let Some(part) = target.part
            && !manifests.iter().any(|manifest| manifest.parts.iter().any(|stored| stored.part == part))
        {
            let source = io::Error::from(io::ErrorKind::NotFound);
            return Err(Failure::File { operation: "find", path: self.path.clone(), source });
        }
        let is_shown = |run: &RowGroupEntry| target.part.is_none_or(|part| part == run.part);
        if as_json {
            let entries: Vec<EpochEntry> = manifests
                .iter()
                .map(|manifest| entry(manifest, dataset.schema(), shows_runs.then_some(&is_shown)))
                .collect();
            return say_json(&self.document(&dataset, &target, &entries)?);
        }
        let mut blocks = Vec::new();
        if !shows_runs {
            blocks.push(describe(&dataset, &target.dataset));
            let lines: Vec<String> = indexes(&target.dataset)?.iter().map(index::in_words).collect();
            if !lines.is_empty() {
                blocks.push(format!("indexes:\n  {}", lines.join("\n  ")));
            }
        }
        let mut rows =
            vec![["epoch", "rows", "files", "row groups", "size", "key from", "to"].map(str::to_owned).to_vec()];
        rows.extend(manifests.iter().map(|manifest| epoch_line(manifest, dataset.schema())));
        if manifests.iter().any(|manifest| manifest.attributes.get(TIME_ATTRIBUTE).is_some()) {
            let times = manifests.iter().map(|manifest| manifest.attributes.get(TIME_ATTRIBUTE).map(attribute));
            let times = times.map(|time| time.unwrap_or_else(|| "-".to_owned()));
            rows.iter_mut().zip(std::iter::once("time".to_owned()).chain(times)).for_each(|(row, time)| row.push(time));
        }
        blocks.push(if manifests.is_empty() { "no epochs".to_owned() } else { aligned(&rows) });
        if shows_runs {
            for manifest in &manifests {
                let runs: Vec<&RowGroupEntry> = manifest.row_groups.iter().filter(|run| is_shown(run)).collect();
                blocks.extend(attributes_line(manifest));
                blocks.push(runs_table(manifest.epoch, &runs, dataset.schema()));
            }
        } else if !manifests.is_empty() {
            let dataset = target.dataset.display();
            blocks.push(format!(
                "row groups of an epoch: turbidite inspect {dataset} --epoch E; clustering: turbidite stats {dataset}"
            ));
        }
        say(&blocks.join("\n\n"))
    }

    fn document(
        &self,
        dataset: &Dataset,
        target: &Target,
        epochs: &[EpochEntry],
    ) -> Result<serde_json::Value, Failure> {
        let descriptor = dataset.descriptor();
        Ok(json!({
            "dataset": target.dataset,
            "format_version": FORMAT_VERSION,
            "uuid": descriptor.uuid.to_string(),
            "source": descriptor.source,
            "derivations": descriptor.derivations,
            "key": dataset.schema().cluster_key().to_string(),
            "levels": dataset.schema().top_level(),
            "level_weight": dataset.schema().level_weight_name(),
            "periods": dataset.schema().periods().map(Periods::as_slice),
            "row_bytes": dataset.schema().row_bytes(),
            "columns": dataset.schema().columns(),
            "epochs": epochs,
            "indexes": indexes(&target.dataset)?,
        }))
    }
}

/// Returns the coordinates that are periodic with their periods, if there are any.
pub(crate) fn periods_in_words(schema: &Schema) -> Option<String> {
    let stated = schema.periods()?.to_string();
    let columns = schema.cluster_key().columns;
    let periods = columns.iter().zip(stated.split(',')).filter(|(_, period)| !period.is_empty());
    Some(periods.map(|(column, period)| format!("{column} by {period}")).collect::<Vec<_>>().join(", "))
}

/// Returns the description of the dataset without its epochs.
fn describe(dataset: &Dataset, path: &Path) -> String {
    let (schema, descriptor) = (dataset.schema(), dataset.descriptor());
    let mut lines = vec![format!("{}: dataset {}, format version {}", path.display(), descriptor.uuid, FORMAT_VERSION)];
    lines.extend(descriptor.source.iter().map(|source| format!("written from {source}")));
    let order = match schema.clustering() {
        Clustering::Range => "sorted by",
        Clustering::Hash => "clustered by the hash of",
        Clustering::Space => "clustered by place in",
    };
    lines.push(format!(
        "{} columns, {} bytes per row, {order} {}:",
        schema.columns().len(),
        schema.row_bytes(),
        schema.cluster_key().columns.join(", ")
    ));
    if let Some(levels) = schema.levels() {
        let last = lines.len() - 1;
        lines.insert(
            last,
            match schema.level_weight_name() {
                None => format!("levels of detail: 0 to {}, each with one of eight rows of the one below", levels.count),
                Some(weight) => format!(
                    "levels of detail: 0 to {}, each with one of eight rows of the one below, in proportion to '{weight}'",
                    levels.count
                ),
            },
        );
    }
    if let Some(periods) = periods_in_words(schema) {
        lines.insert(lines.len() - 1, format!("periodic, so that boxes wrap: {periods}"));
    }
    let mut rows = Vec::new();
    for (index, column) in schema.columns().iter().enumerate() {
        let derived = descriptor.derivations.iter().find(|text| derived_name(text) == column.name);
        let mut remarks = Vec::new();
        if schema.key_columns().contains(&index) {
            remarks.push("key".to_owned());
        }
        remarks.extend(column.unit.iter().map(|unit| format!("in {unit}")));
        remarks.extend(derived.map(|text| format!("derived: {text}")));
        rows.push(vec![
            format!("  {}", column.name),
            format!("{:<4}", column.data_type.to_string()),
            remarks.join("; "),
        ]);
    }
    // The last column contains notes, which are left-aligned.
    let width = rows.iter().map(|row| row[0].chars().count()).max().unwrap_or(0);
    lines.extend(rows.iter().map(|row| format!("{:<width$}  {}  {}", row[0], row[1], row[2]).trim_end().to_owned()));
    lines.join("\n")
}

/// Returns the name in `name:type = expression`.
fn derived_name(text: &str) -> &str {
    text.split(['=', ':']).next().unwrap_or(text).trim().trim_matches('"')
}

/// Returns the smallest and the largest key of an epoch.
fn key_range(manifest: &EpochManifest, schema: &Schema) -> Option<(Value, Value)> {
    let ranges = manifest.row_groups.iter().filter_map(|run| run.columns.get(schema.key_index())?.range);
    let less = |one: Value, other: Value| one.compare(other).is_some_and(std::cmp::Ordering::is_lt);
    ranges.reduce(|(low, high), (from, to)| {
        (if less(from, low) { from } else { low }, if less(high, to) { to } else { high })
    })
}

fn data_bytes(manifest: &EpochManifest) -> u64 {
    manifest.parts.iter().map(|part| part.bytes).sum()
}

fn entry(manifest: &EpochManifest, schema: &Schema, shown: Option<&dyn Fn(&RowGroupEntry) -> bool>) -> EpochEntry {
    let range = key_range(manifest, schema);
    let run = |run: &RowGroupEntry| {
        let key = run.columns.get(schema.key_index()).and_then(|summary| summary.range);
        json!({
            "part": run.part.file_name(),
            "level": run.level,
            "run": run.run,
            "row_group": run.row_group,
            "kind": run.kind,
            "rows": run.rows,
            "offset": run.offset,
            "bytes": run.bytes,
            "table_version": run.table_version,
            "key_min": key.map(|(low, _)| low.as_f64()),
            "key_max": key.map(|(_, high)| high.as_f64()),
        })
    };
    EpochEntry {
        epoch: manifest.epoch,
        rows: manifest.rows(),
        parts: manifest.parts.len(),
        row_groups: manifest.row_groups.len(),
        bytes: data_bytes(manifest),
        key_min: range.map(|(low, _)| low.as_f64()),
        key_max: range.map(|(_, high)| high.as_f64()),
        time: manifest.attributes.get(TIME_ATTRIBUTE).map(|time| time.value),
        attributes: manifest.attributes.clone(),
        runs: shown.map(|shown| manifest.row_groups.iter().filter(|entry| shown(entry)).map(run).collect()),
    }
}

fn epoch_line(manifest: &EpochManifest, schema: &Schema) -> Vec<String> {
    let (low, high) = in_words(key_range(manifest, schema), schema);
    vec![
        manifest.epoch.to_string(),
        text::count(manifest.rows()),
        text::count(manifest.parts.len() as u64),
        text::count(manifest.row_groups.len() as u64),
        text::bytes(data_bytes(manifest)),
        low,
        high,
    ]
}

/// Returns an attribute as text.
fn attribute(Attribute { value, unit }: &Attribute) -> String {
    [text::number(*value, SHOWN_DIGITS)].into_iter().chain(unit.clone()).collect::<Vec<_>>().join(" ")
}

/// Returns the attributes of an epoch as text, if there are any besides its time.
fn attributes_line(manifest: &EpochManifest) -> Option<String> {
    let others = manifest.attributes.iter().filter(|(name, _)| *name != TIME_ATTRIBUTE);
    let stated: Vec<String> = others.map(|(name, found)| format!("{name} = {}", attribute(found))).collect();
    (!stated.is_empty()).then(|| format!("attributes of epoch {}: {}", manifest.epoch, stated.join(", ")))
}

/// Returns the bounds of a key range as text, with the digits of the key's type.
fn in_words(range: Option<(Value, Value)>, schema: &Schema) -> (String, String) {
    let value = |value: Value| match value {
        Value::Float(float) if schema.key().data_type == DataType::F32 => format!("{:?}", float as f32),
        Value::Float(float) => format!("{float:?}"),
        // The value of a byte string is its first eight bytes.
        Value::Int(integer) => match schema.key().data_type {
            DataType::FixedBytes(width) => {
                let digits = format!("{integer:016x}");
                format!("x'{}'{}", &digits[..2 * width.min(8) as usize], if width > 8 { "…" } else { "" })
            }
            _ => integer.to_string(),
        },
    };
    range.map_or_else(|| ("-".to_owned(), "-".to_owned()), |(low, high)| (value(low), value(high)))
}

fn runs_table(epoch: u64, runs: &[&RowGroupEntry], schema: &Schema) -> String {
    let header =
        ["file", "run", "row group", "kind", "rows", "offset", "bytes", "key from", "to", "table", "bounds from", "to"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for run in runs {
        let (low, high) = in_words(run.columns.get(schema.key_index()).and_then(|summary| summary.range), schema);
        let (from, to) = in_words(run.bounds, schema);
        let kind = match run.kind {
            RunKind::Regular => "regular",
            RunKind::Stray => "stray",
            RunKind::Unordered => "unordered",
            RunKind::NanKey => "NaN key",
        };
        rows.push(vec![
            run.part.path_in_epoch(run.level, schema),
            run.run.to_string(),
            run.row_group.to_string(),
            kind.to_owned(),
            text::count(run.rows),
            run.offset.to_string(),
            run.bytes.to_string(),
            low,
            high,
            run.table_version.to_string(),
            from,
            to,
        ]);
    }
    format!("row groups of epoch {epoch}:\n{}", aligned(&rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_into_a_dataset_are_understood() {
        let target = |dataset: &str, epoch, part| Target { dataset: dataset.into(), epoch, part };
        let part = PartId { rank: 3, roll: 0 };
        for (path, expected) in [
            ("ds", target("ds", None, None)),
            ("ds/data", target("ds", None, None)),
            ("data", target(".", None, None)),
            ("ds/data/epoch=500", target("ds", Some(500), None)),
            ("ds/data/epoch=500/part-00003.parquet", target("ds", Some(500), Some(part))),
            ("ds/data/epoch=500/level=2/part-00003.parquet", target("ds", Some(500), Some(part))),
            ("ds/epoch=500", target("ds/epoch=500", None, None)),
            ("data/part-00003.parquet", target("data/part-00003.parquet", None, None)),
            ("other.parquet", target("other.parquet", None, None)),
        ] {
            assert_eq!(Target::of(Path::new(path)), expected, "{path}");
        }
    }

    #[test]
    fn derived_columns_are_found_by_name() {
        for text in ["energy=ux", "energy:f64 = ux", " \"energy\" = ux"] {
            assert_eq!(derived_name(text), "energy");
        }
    }
}
