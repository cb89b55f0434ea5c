//! Writes rows as text: an aligned table, CSV or JSON lines.

use std::fmt::Write as _;
use std::io::{self, Write};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use super::cells::Cells;
use super::format::TextFormat;
use crate::failure::Failure;

/// Maximum number of rows that determine the column widths of a table.
const SAMPLE_ROWS: usize = 1000;

/// A writer of batches as text, one line per row.
pub(super) struct TextRows {
    format: TextFormat,
    names: Vec<String>,
    /// Widths of the table's columns, determined from the first rows.
    widths: Option<Vec<usize>>,
    has_header: bool,
    line: String,
}

impl TextRows {
    pub(super) fn new(format: TextFormat, schema: &SchemaRef) -> Self {
        let names = schema.fields().iter().map(|field| field.name().clone()).collect();
        Self { format, names, widths: None, has_header: false, line: String::new() }
    }

    /// Writes a batch. `failed` converts an I/O error to a failure with the output's name.
    pub(super) fn write<F>(&mut self, batch: &RecordBatch, out: &mut dyn Write, failed: F) -> Result<(), Failure>
    where
        F: Fn(io::Error) -> Failure,
    {
        let columns: Vec<Cells<'_>> = batch.columns().iter().map(|array| Cells::of(array)).collect::<Result<_, _>>()?;
        if self.format == TextFormat::Table && self.widths.is_none() && batch.num_rows() > 0 {
            self.widths = Some(widths(&self.names, &columns, batch.num_rows()));
        }
        self.header(&columns, out).map_err(&failed)?;
        for row in 0..batch.num_rows() {
            self.line.clear();
            match self.format {
                TextFormat::Table => self.table_line(&columns, row),
                TextFormat::Csv => self.csv_line(&columns, row),
                TextFormat::JsonLines => self.json_line(&columns, row),
            }
            self.line.push('\n');
            out.write_all(self.line.as_bytes()).map_err(&failed)?;
        }
        Ok(())
    }

    /// Completes the text. A result without rows also has a header.
    pub(super) fn finish<F>(&mut self, out: &mut dyn Write, failed: F) -> Result<(), Failure>
    where
        F: Fn(io::Error) -> Failure,
    {
        self.header(&[], out).map_err(failed)
    }

    /// Writes the names of the columns, once.
    fn header(&mut self, columns: &[Cells<'_>], out: &mut dyn Write) -> io::Result<()> {
        let names_known = !columns.is_empty() || self.format == TextFormat::Csv || self.widths.is_none();
        if self.has_header || !names_known || self.format == TextFormat::JsonLines {
            return Ok(());
        }
        self.has_header = true;
        self.line.clear();
        match self.format {
            TextFormat::Csv => {
                let quoted: Vec<String> = self.names.iter().map(|name| csv_name(name)).collect();
                self.line.push_str(&quoted.join(","));
            }
            _ => {
                for (index, name) in self.names.iter().enumerate() {
                    let is_number = columns.get(index).is_none_or(Cells::is_number);
                    let width = self.widths.as_ref().map_or(name.len(), |widths| widths[index]);
                    pad(&mut self.line, index, name, width, is_number);
                }
            }
        }
        writeln!(out, "{}", self.line.trim_end())
    }

    fn table_line(&mut self, columns: &[Cells<'_>], row: usize) {
        let mut cell = String::new();
        for (index, column) in columns.iter().enumerate() {
            cell.clear();
            column.write(row, &mut cell);
            let width = self.widths.as_ref().map_or(0, |widths| widths[index]);
            pad(&mut self.line, index, &cell, width, column.is_number());
        }
    }

    fn csv_line(&mut self, columns: &[Cells<'_>], row: usize) {
        for (index, column) in columns.iter().enumerate() {
            if index > 0 {
                self.line.push(',');
            }
            column.write(row, &mut self.line);
        }
    }

    fn json_line(&mut self, columns: &[Cells<'_>], row: usize) {
        for (index, (column, name)) in columns.iter().zip(&self.names).enumerate() {
            self.line.push(if index == 0 { '{' } else { ',' });
            // Every string can be written as JSON, and writing to a string cannot fail.
            let _ = write!(self.line, "{}:", serde_json::Value::from(name.as_str()));
            column.write_json(row, &mut self.line);
        }
        self.line.push('}');
    }
}

/// Appends a cell of a table, after two spaces unless it is the first. Numbers are right-aligned.
fn pad(line: &mut String, index: usize, cell: &str, width: usize, is_number: bool) {
    if index > 0 {
        line.push_str("  ");
    }
    let _ = if is_number { write!(line, "{cell:>width$}") } else { write!(line, "{cell:<width$}") };
}

/// Returns the widths of the columns, from their names and first values.
fn widths(names: &[String], columns: &[Cells<'_>], rows: usize) -> Vec<usize> {
    let mut cell = String::new();
    let widest = |(name, column): (&String, &Cells<'_>)| {
        let mut width = name.chars().count();
        for row in 0..rows.min(SAMPLE_ROWS) {
            cell.clear();
            column.write(row, &mut cell);
            width = width.max(cell.len());
        }
        width
    };
    names.iter().zip(columns).map(widest).collect()
}

/// Returns a column's name quoted for CSV.
fn csv_name(name: &str) -> String {
    if name.contains([',', '"', '\n', '\r']) { format!("\"{}\"", name.replace('"', "\"\"")) } else { name.to_owned() }
}
