//! The output formats, and the choice of a format.

use std::io::IsTerminal;
use std::path::Path;

use crate::failure::Failure;

/// A file format, chosen by the extension of the file's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileFormat {
    Parquet,
    Arrow,
    Csv,
    JsonLines,
}

impl FileFormat {
    /// Returns the format that the extension of a file's name selects.
    pub(crate) fn of(path: &Path) -> Result<Self, Failure> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("parquet") => Ok(Self::Parquet),
            Some("arrow") => Ok(Self::Arrow),
            Some("csv") => Ok(Self::Csv),
            Some("jsonl") => Ok(Self::JsonLines),
            _ => Err(Failure::Usage(format!(
                "unknown format: '{}'; use a name that ends in .parquet, .arrow, .csv or .jsonl",
                path.display()
            ))),
        }
    }
}

/// Text on standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum TextFormat {
    /// Aligned columns
    Table,
    /// Comma-separated values, with a header
    Csv,
    /// One JSON object per row
    #[value(name = "jsonl")]
    JsonLines,
}

impl TextFormat {
    /// Returns the default format: a table on a terminal, CSV elsewhere.
    pub(crate) fn of_stdout() -> Self {
        if std::io::stdout().is_terminal() { Self::Table } else { Self::Csv }
    }
}
