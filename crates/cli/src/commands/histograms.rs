//! Prints histograms: as JSON, or in words. `pairs` draws those of two columns.

use clap::ValueEnum;
use serde_json::{Value as Json, json};
use turbidite::Value;
use turbidite::query::{Binned, Dataset, Estimate, Histogram, HistogramAxis, Source, Unbinned};

use super::answers::{aligned, edge_text, json_number};
use super::bar::bar;
use super::estimates::{
    error_in_words, rows_in_words, rows_json, rows_text, sample_json, source_in_words, source_name, sum_in_words,
    sum_json, sum_text, unplaced,
};
use super::pairs;
use crate::text;

/// The length of the largest sum's bar, as a number of rows.
const LONGEST: u64 = 1_000_000;

/// A form of the numbers of bins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Form {
    PerWidth,
    Density,
    Cumulative,
}

impl Form {
    /// Returns the name, as in JSON and in tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::PerWidth => "per_width",
            Self::Density => "density",
            Self::Cumulative => "cumulative",
        }
    }

    /// Returns the number of each bin.
    pub(super) fn of(self, histogram: &Histogram) -> Vec<f64> {
        match self {
            Self::PerWidth => histogram.per_width(),
            Self::Density => histogram.density(),
            Self::Cumulative => histogram.cumulative(),
        }
    }
}

/// Returns a histogram as JSON. `is_whole` states that it is of all rows of its epochs, whose number is known.
pub(super) fn document(histogram: &Histogram, is_whole: bool, form: Option<Form>) -> Json {
    let Histogram { source, rows, .. } = histogram;
    let mut document = json!({
        "epochs": histogram.epochs,
        "source": source_name(*source),
        "rows": rows_json(&rows.all, *source),
        "cost": histogram.metrics,
    });
    for (reason, number) in &rows.unbinned {
        document[reason.name()] = rows_json(number, *source);
    }
    if let Some(sample) = &histogram.sample {
        document["sample"] = sample_json(sample);
    }
    match histogram.axes.as_slice() {
        [axis] => {
            add_bins(&mut document, histogram, axis, form);
            if *source == Source::Exact || *source == Source::Bounds && is_whole {
                document["rows"] = json!(rows.all.estimate);
                document["nan"] = json!(rows.at(Unbinned::Nan).estimate);
            }
        }
        axes => add_pairs(&mut document, histogram, axes),
    }
    document
}

/// Adds the bins of the only axis.
fn add_bins(document: &mut Json, histogram: &Histogram, axis: &HistogramAxis, form: Option<Form>) {
    let in_form = form.map(|form| (form.name(), form.of(histogram)));
    let bin = |(number, (edges, rows)): (usize, (&[Value], Estimate<u64>))| {
        let mut bin = rows_json(&rows, histogram.source);
        bin["from"] = json_number(edges[0]);
        bin["to"] = json_number(edges[1]);
        if let Some((name, numbers)) = &in_form {
            bin[*name] = json_number(Value::Float(numbers[number]));
        }
        bin
    };
    document["column"] = json!(axis.column);
    document["bins"] = axis.edges.windows(2).zip(histogram.rows.bins.iter()).enumerate().map(bin).collect();
    if let Some(sums) = &histogram.sums {
        let sampled = |bin: usize| histogram.sampled.as_ref().map(|sampled| sampled.bins.at(bin).estimate);
        let squares = histogram.squares.as_ref().map_or(&[][..], |squares| squares.bins.estimates());
        let bins = sums.bins.iter().zip(squares).enumerate().map(|(bin, (sum, square))| {
            let mut document = sum_json(&sum, sampled(bin));
            document["squares"] = json_number(Value::Float(*square));
            document
        });
        document["sums"] = totals(histogram, sums);
        document["sums"]["bins"] = bins.collect();
    }
}

/// Adds the edges and the bins of two axes: a list of numbers for each bin of the first.
fn add_pairs(document: &mut Json, histogram: &Histogram, axes: &[HistogramAxis]) {
    let bins = &histogram.rows.bins;
    let edges = |axis: &HistogramAxis| axis.edges.iter().map(|edge| json_number(*edge)).collect();
    document["columns"] = axes.iter().map(|axis| axis.column.as_str()).collect();
    document["edges"] = axes.iter().map(edges).collect::<Vec<Json>>().into();
    document["least"] = lines(axes, bins.least(), |rows| json!(rows));
    document["estimate"] = lines(axes, bins.estimates(), |rows| json!(rows));
    document["most"] = lines(axes, bins.most(), |rows| json!(rows));
    let float = |number: &f64| json_number(Value::Float(*number));
    // JSON has no NaN: an unknown error is null.
    let error = |error: &f64| json!(error);
    if let Some(errors) = bins.errors() {
        document["error"] = lines(axes, errors, error);
    }
    if let Some(sums) = &histogram.sums {
        document["sums"] = totals(histogram, sums);
        document["sums"]["sum"] = lines(axes, sums.bins.estimates(), float);
        let squares = histogram.squares.as_ref().map_or(&[][..], |squares| squares.bins.estimates());
        document["sums"]["squares"] = lines(axes, squares, float);
        if let Some(errors) = sums.bins.errors() {
            document["sums"]["error"] = lines(axes, errors, error);
        }
    }
}

fn lines<T>(axes: &[HistogramAxis], numbers: &[T], one: impl Fn(&T) -> Json) -> Json {
    let line = axes.get(1).map_or(1, |axis| axis.edges.len().saturating_sub(1)).max(1);
    numbers.chunks(line).map(|numbers| numbers.iter().map(&one).collect::<Json>()).collect()
}

/// Returns the summed column, and the sums that are not those of bins.
fn totals(histogram: &Histogram, sums: &Binned<f64>) -> Json {
    let sampled = histogram.sampled.as_ref();
    let of_all = sampled.map(|sampled| sampled.all.estimate);
    let mut totals = json!({"column": histogram.weights, "rows": sum_json(&sums.all, of_all)});
    for (reason, sum) in &sums.unbinned {
        totals[reason.name()] = sum_json(sum, sampled.map(|sampled| sampled.at(*reason).estimate));
    }
    totals
}

/// Returns a histogram in words. `of_epochs` names the epochs.
pub(super) fn in_words(histogram: &Histogram, dataset: &Dataset, of_epochs: &str, form: Option<Form>) -> String {
    let Histogram { source, rows, .. } = histogram;
    let names: Vec<String> = histogram.axes.iter().map(|axis| with_unit(dataset, &axis.column)).collect();
    let counted = rows_in_words(rows.all, *source);
    let weights = histogram.weights.as_deref().unwrap_or_default();
    let sum = histogram.sums.as_ref().map(|sums| format!(", sum of {weights} {}", sum_in_words(sums.all)));
    let source_text = source_in_words(*source, histogram.sample.as_ref());
    let mut lines =
        vec![format!("{} {of_epochs}: {counted}{}, {source_text}", names.join(" by "), sum.unwrap_or_default())];
    lines.push(String::new());
    let mut stated = unbinned(histogram);
    match histogram.axes.as_slice() {
        _ if rows.bins.is_empty() => lines.push(without_bins(histogram).to_owned()),
        [axis] => {
            lines[0].push_str(match source {
                Source::Exact => "",
                Source::Bounds => "; 'least' and 'most' are guaranteed bounds",
                Source::Level(_) => "; 'error' is the standard error",
            });
            lines.push(bars(histogram, axis, form));
        }
        axes => lines.extend(pairs::picture(histogram, axes)),
    }
    if histogram.axes.len() > 1 && *source == Source::Bounds {
        let doubtful = rows.bins.iter().filter(|rows| !rows.is_exact()).count();
        let all = text::counted(rows.bins.len() as u64, "bin", "bins");
        stated.push(format!("{} of {all} in doubt", text::count(doubtful as u64)));
    }
    if !stated.is_empty() {
        lines.extend([String::new(), stated.join("; ")]);
    }
    lines.join("\n")
}

/// Returns the name of a column, with its unit.
fn with_unit(dataset: &Dataset, name: &str) -> String {
    let stated = dataset.schema().columns().iter().find(|column| column.name == name);
    let unit = stated.and_then(|column| column.unit.as_ref());
    unit.map_or_else(|| name.to_owned(), |unit| format!("{name} ({unit})"))
}

/// Returns why there is no bin.
fn without_bins(histogram: &Histogram) -> &'static str {
    let finite = [Unbinned::Below, Unbinned::Above, Unbinned::Outside];
    match finite.iter().all(|reason| histogram.rows.at(*reason).most == 0) {
        true => "no finite values",
        false => "the manifests state no finite values; --source exact finds them",
    }
}

fn reason_in_words(reason: Unbinned) -> &'static str {
    match reason {
        Unbinned::Nan => "NaN",
        Unbinned::NegativeInfinity => "-inf",
        Unbinned::Below => "below the range",
        Unbinned::Above => "above the range",
        Unbinned::PositiveInfinity => "inf",
        reason => reason.name(),
    }
}

/// Returns the rows that are in no bin, in words.
fn unbinned(histogram: &Histogram) -> Vec<String> {
    let Histogram { source, rows, .. } = histogram;
    let is_present = |rows: &Estimate<u64>| match source {
        // An upper bound of a level is that of all other rows.
        Source::Level(_) => rows.estimate > 0,
        _ => rows.most > 0,
    };
    let present = rows.unbinned.iter().filter(|(_, rows)| is_present(rows));
    let mut stated: Vec<String> =
        present.map(|(reason, rows)| format!("{}: {}", reason_in_words(*reason), rows_text(*rows, *source))).collect();
    stated.extend(histogram.sample.as_ref().and_then(unplaced));
    let weights = histogram.weights.as_deref().unwrap_or_default();
    for (reason, sum) in histogram.sums.iter().flat_map(|sums| &sums.unbinned) {
        let added = histogram.sampled.as_ref().unwrap_or(rows).at(*reason).estimate;
        if added > 0 {
            stated.push(format!("sum of {weights} {}: {}", reason_in_words(*reason), sum_in_words(*sum)));
        }
    }
    stated
}

/// Returns a table of the bins of the only axis, with bars.
fn bars(histogram: &Histogram, axis: &HistogramAxis, form: Option<Form>) -> String {
    let Histogram { source, rows: Binned { bins, .. }, .. } = histogram;
    let is_integer = matches!(axis.edges.first(), Some(Value::Int(_)));
    let counted = if *source == Source::Exact { "rows" } else { "about" };
    let mut names = vec!["from", if is_integer { "to" } else { "below" }, counted];
    names.extend(match source {
        Source::Exact => &[][..],
        Source::Bounds => &["least", "most"],
        Source::Level(_) => &["error"],
    });
    let mut table = vec![names.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    if let Some(weights) = &histogram.weights {
        table[0].push(format!("sum of {weights}"));
        table[0].push("±".to_owned());
        table[0].extend(histogram.sampled.iter().flat_map(|_| ["error".to_owned(), "sampled".to_owned()]));
    }
    let (error_bars, in_form) = (histogram.error_bars(), form.map(|form| form.of(histogram)));
    table[0].extend(form.map(|form| form.name().replace('_', " ")));
    let last = bins.len().saturating_sub(1);
    for (number, (edges, rows)) in axis.edges.windows(2).zip(bins.iter()).enumerate() {
        let to = match edges[1] {
            Value::Int(edge) if number < last => Value::Int(edge - 1),
            other => other,
        };
        let mut cells = vec![edge_text(edges[0]), edge_text(to), text::count(rows.estimate)];
        match source {
            Source::Exact => {}
            Source::Bounds => cells.extend([text::count(rows.least), text::count(rows.most)]),
            Source::Level(_) => cells.push(text::count(reach(rows).ceil() as u64)),
        }
        if let Some(sums) = &histogram.sums {
            let sum = sums.bins.at(number);
            cells.extend([sum_text(sum.estimate), sum_text(error_bars[number])]);
            let sampled = histogram.sampled.as_ref().map(|sampled| sampled.bins.at(number).estimate);
            cells.extend(sampled.into_iter().flat_map(|rows| [error_in_words(sum.error), text::count(rows)]));
        }
        cells.extend(in_form.as_ref().map(|numbers| sum_text(numbers[number])));
        table.push(cells);
    }
    let widest = table.iter().map(|cells| cells[0].chars().count()).max().unwrap_or(0);
    for cells in &mut table {
        cells[0] = format!("{:>widest$}", cells[0]);
    }
    let drawn = [String::new()].into_iter().chain(match &histogram.sums {
        Some(sums) => bars_of_sums(sums),
        None => bars_of_rows(histogram),
    });
    let lines = aligned(&table);
    let paired = lines.lines().zip(drawn);
    paired.map(|(line, bar)| format!("{line}  {bar}").trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

fn reach(rows: Estimate<u64>) -> f64 {
    rows.error.unwrap_or(0.0)
}

/// Returns a bar of each number of rows, with its upper bound or its error.
fn bars_of_rows(histogram: &Histogram) -> Vec<String> {
    let bins = &histogram.rows.bins;
    let longest = bins.estimates().iter().copied().max().unwrap_or(0);
    let one = |rows: Estimate<u64>| match histogram.source {
        Source::Level(_) => bar(rows.estimate, rows.estimate.saturating_add(reach(rows).ceil() as u64), longest),
        _ => bar(rows.estimate, rows.most, longest),
    };
    bins.iter().map(one).collect()
}

/// Returns a bar of each sum with its error. Sums that are negative or not finite have none.
fn bars_of_sums(sums: &Binned<f64>) -> Vec<String> {
    let drawn = |sum: f64| if sum.is_finite() { sum.max(0.0) } else { 0.0 };
    let longest = sums.bins.estimates().iter().copied().map(drawn).fold(0.0, f64::max);
    // Conversions saturate, and 0 / 0 becomes 0.
    let scaled = |sum: f64| (drawn(sum) / longest * LONGEST as f64).ceil() as u64;
    let one = |sum: Estimate<f64>| {
        let estimate = scaled(sum.estimate);
        bar(estimate, scaled(sum.estimate + sum.error.unwrap_or(0.0)).max(estimate), LONGEST)
    };
    sums.bins.iter().map(one).collect()
}
