//! Writes the batches of a query in any output format.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use super::file::PendingFile;
use super::format::{FileFormat, TextFormat};
use super::rows::TextRows;
use crate::failure::{Failure, FileContext, on_stdout};

enum Target {
    Stdout(BufWriter<std::io::Stdout>, TextRows),
    Text(BufWriter<PendingFile>, TextRows),
    Arrow(FileWriter<BufWriter<PendingFile>>),
    Parquet(ArrowWriter<PendingFile>),
}

/// A writer of a query's batches.
pub(crate) struct RowWriter {
    target: Target,
    path: PathBuf,
    rows: u64,
}

impl RowWriter {
    /// Creates a writer of text to standard output.
    pub(crate) fn stdout(format: TextFormat, schema: &SchemaRef) -> Self {
        let target = Target::Stdout(BufWriter::new(std::io::stdout()), TextRows::new(format, schema));
        Self { target, path: PathBuf::from("standard output"), rows: 0 }
    }

    /// Creates a writer to a file.
    pub(crate) fn file(path: &Path, schema: &SchemaRef) -> Result<Self, Failure> {
        let format = FileFormat::of(path)?;
        let pending = PendingFile::create(path)?;
        let target = match format {
            FileFormat::Csv => Target::Text(BufWriter::new(pending), TextRows::new(TextFormat::Csv, schema)),
            FileFormat::JsonLines => {
                Target::Text(BufWriter::new(pending), TextRows::new(TextFormat::JsonLines, schema))
            }
            FileFormat::Arrow => {
                Target::Arrow(FileWriter::try_new(BufWriter::new(pending), schema).map_err(|error| arrow(path, error))?)
            }
            FileFormat::Parquet => {
                // Values have plain encoding, since tools that read results may support no other encoding.
                let properties = WriterProperties::builder().set_dictionary_enabled(false).build();
                let writer = ArrowWriter::try_new(pending, schema.clone(), Some(properties));
                Target::Parquet(writer.map_err(|error| parquet(path, error))?)
            }
        };
        Ok(Self { target, path: path.to_owned(), rows: 0 })
    }

    /// Writes a batch.
    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<(), Failure> {
        self.rows += batch.num_rows() as u64;
        match &mut self.target {
            Target::Stdout(out, rows) => rows.write(batch, out, on_stdout),
            Target::Text(out, rows) => {
                let path = &self.path;
                rows.write(batch, out, |source| file_failure(path, source))
            }
            Target::Arrow(writer) => writer.write(batch).map_err(|error| arrow(&self.path, error)),
            Target::Parquet(writer) => writer.write(batch).map_err(|error| parquet(&self.path, error)),
        }
    }

    /// Completes the output. Returns the number of rows written.
    pub(crate) fn finish(self) -> Result<u64, Failure> {
        let path = &self.path;
        match self.target {
            Target::Stdout(mut out, mut rows) => {
                rows.finish(&mut out, on_stdout)?;
                out.flush().map_err(on_stdout)?;
            }
            Target::Text(mut out, mut rows) => {
                rows.finish(&mut out, |source| file_failure(path, source))?;
                into_inner(path, out)?.complete()?;
            }
            Target::Arrow(mut writer) => {
                writer.finish().map_err(|error| arrow(path, error))?;
                into_inner(path, writer.into_inner().map_err(|error| arrow(path, error))?)?.complete()?;
            }
            Target::Parquet(writer) => writer.into_inner().map_err(|error| parquet(path, error))?.complete()?,
        }
        Ok(self.rows)
    }
}

fn file_failure(path: &Path, source: std::io::Error) -> Failure {
    Failure::File { operation: "write", path: path.to_owned(), source }
}

/// Flushes a buffer and returns its file.
fn into_inner(path: &Path, mut out: BufWriter<PendingFile>) -> Result<PendingFile, Failure> {
    out.flush().on_file("write", path)?;
    out.into_inner().map_err(|error| file_failure(path, error.into_error()))
}

fn arrow(path: &Path, error: ArrowError) -> Failure {
    match error {
        ArrowError::IoError(_, source) => file_failure(path, source),
        other => Failure::Internal(format!("writing {}: {other}", path.display())),
    }
}

fn parquet(path: &Path, error: ParquetError) -> Failure {
    match error {
        ParquetError::External(source) => match source.downcast::<std::io::Error>() {
            Ok(source) => file_failure(path, *source),
            Err(other) => Failure::Internal(format!("writing {}: {other}", path.display())),
        },
        other => Failure::Internal(format!("writing {}: {other}", path.display())),
    }
}
