//! Options of the commands that print or write rows.

use std::path::{Path, PathBuf};

use arrow_schema::SchemaRef;
use clap::Args;
use turbidite::expr::split_list;
use turbidite::query::{Query, Use};

use crate::failure::Failure;
use crate::output::{FileFormat, RowWriter, TextFormat};

/// Where rows go.
#[derive(Debug, Args)]
pub(super) struct TableOptions {
    /// Write the rows to a file; its name ends in .parquet, .arrow, .csv or .jsonl
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Format of printed rows: table, csv or jsonl [default: table on a terminal, else csv]
    #[arg(long, value_enum, hide_possible_values = true, conflicts_with = "output")]
    format: Option<TextFormat>,
}

/// How rows are read.
#[derive(Debug, Args)]
pub(super) struct ReadOptions {
    /// Find rows by the index NAME, or by 'scan' without any [default: whatever reads least]
    #[arg(long = "use", value_name = "NAME")]
    access: Option<String>,
    /// Threads [default: the number of cores]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

impl TableOptions {
    /// Checks the format of the file, before anything is read.
    pub(super) fn check(&self) -> Result<(), Failure> {
        self.output.as_deref().map_or(Ok(()), |path| FileFormat::of(path).map(drop))
    }

    /// Returns the file that rows go to.
    pub(super) fn output(&self) -> Option<&Path> {
        self.output.as_deref()
    }

    /// Returns the writer of rows to the file, or to standard output.
    pub(super) fn writer(&self, schema: &SchemaRef, as_json: bool) -> Result<RowWriter, Failure> {
        match &self.output {
            Some(path) => RowWriter::file(path, schema),
            None => {
                let default = if as_json { TextFormat::JsonLines } else { TextFormat::of_stdout() };
                Ok(RowWriter::stdout(self.format.unwrap_or(default), schema))
            }
        }
    }
}

impl ReadOptions {
    /// Adds the options to a query.
    pub(super) fn restrict(&self, mut query: Query) -> Query {
        if let Some(access) = &self.access {
            query = query.using(Use::named(access));
        }
        if let Some(threads) = self.threads {
            query = query.threads(threads);
        }
        query
    }
}

/// Returns the names and expressions of lists of columns.
pub(super) fn columns(lists: &[String]) -> impl Iterator<Item = &str> {
    lists.iter().flat_map(|list| split_list(list))
}
