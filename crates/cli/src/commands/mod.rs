//! One file per command. Each has the options, `run`, and nothing that another command needs; that lies here.

pub(crate) mod compact;
pub(crate) mod completions;
pub(crate) mod hist;
pub(crate) mod ingest;
pub(crate) mod inspect;
mod job;
pub(crate) mod man;
pub(crate) mod quantiles;
pub(crate) mod query;
pub(crate) mod report;
pub(crate) mod salvage;
pub(crate) mod simulate;
pub(crate) mod stats;
pub(crate) mod tracks;
pub(crate) mod truncate;
pub(crate) mod verify;

mod batch;
mod feed;
pub(crate) mod figures;
mod spooled;

use std::io::Write;
use std::path::Path;

use clap::ValueEnum;
use serde::Serialize;
use turbidite::query::Dataset;
use turbidite::store::{EpochRange, IfExists};
use turbidite::{Error, Value};

use crate::failure::{Failure, on_stdout};

/// What to do with an epoch that the dataset has already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Existing {
    /// Fail
    Error,
    /// Write it anew; the old one stays readable until then
    Replace,
    /// Leave it and go on
    Skip,
}

impl From<Existing> for IfExists {
    fn from(existing: Existing) -> Self {
        match existing {
            Existing::Error => Self::Error,
            Existing::Replace => Self::Replace,
            Existing::Skip => Self::Skip,
        }
    }
}

/// Writes lines to standard output.
fn say(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()).map_err(on_stdout)
}

/// Writes a JSON document of one line to standard output.
fn say_json(answer: &impl Serialize) -> Result<(), Failure> {
    say(&to_json(answer)?)
}

/// A JSON document of one line.
fn to_json(answer: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(answer).map_err(|error| Failure::Internal(format!("cannot write JSON: {error}")))
}

/// The epochs of a dataset within a range; a single one must be there.
fn chosen_epochs(dataset: &Dataset, path: &Path, wanted: Option<EpochRange>) -> Result<Vec<u64>, Failure> {
    let wanted = wanted.unwrap_or(EpochRange::ALL);
    let chosen: Vec<u64> = dataset.epochs()?.into_iter().filter(|&epoch| wanted.contains(epoch)).collect();
    if chosen.is_empty() && wanted.first == wanted.last {
        return Err(Error::EpochMissing { epoch: wanted.first, path: path.to_owned() }.into());
    }
    Ok(chosen)
}

/// A value as a JSON number; infinities, which JSON lacks, as the text `query` writes for them.
fn json_number(value: Value) -> serde_json::Value {
    match value {
        Value::Float(float) if float.is_infinite() => if float > 0.0 { "Infinity" } else { "-Infinity" }.into(),
        Value::Float(float) => float.into(),
        Value::Int(integer) => match (i64::try_from(integer), u64::try_from(integer)) {
            (Ok(integer), _) => integer.into(),
            (_, Ok(integer)) => integer.into(),
            _ => (integer as f64).into(),
        },
    }
}

/// What an answer is about: `of epoch 200`, `of 8 epochs`.
fn of_epochs(epochs: usize, wanted: Option<EpochRange>) -> String {
    match (epochs, wanted) {
        (1, Some(one)) if one.first == one.last => format!("of epoch {one}"),
        _ => format!("of {}", crate::text::counted(epochs as u64, "epoch", "epochs")),
    }
}

/// Lines of columns, each as wide as its widest cell; the first column to the left, the others to the right.
fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let row = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>();
        let text = aligned(&[row(&["epoch", "rows"]), row(&["1", "12345"]), row(&["µs", ""])]);
        assert_eq!(text, "epoch   rows\n1      12345\nµs");
    }
}
