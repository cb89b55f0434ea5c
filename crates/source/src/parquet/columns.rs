//! The columns to read from a Parquet file, and their types.

use std::path::Path;

use arrow_schema::DataType as ArrowType;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use parquet::basic::Compression;
use turbidite::{Column, DataType, MAX_FIXED_BYTES};

use crate::error::SourceError;

/// The columns common to the files of a source.
#[derive(Debug)]
pub(crate) struct ParquetForm {
    pub(crate) columns: Vec<Column>,
    /// Whether nulls of float columns are read as NaN.
    pub(super) nulls_as_nan: bool,
}

/// The columns to read from one file.
#[derive(Debug)]
pub(super) struct Chosen {
    /// Names and types, in the requested order.
    pub(super) columns: Vec<Column>,
    /// The index of each column in the file's schema.
    places: Vec<usize>,
}

impl Chosen {
    /// Finds the requested columns, or all columns, in a file.
    pub(super) fn of(
        path: &Path,
        footer: &ArrowReaderMetadata,
        wanted: Option<&[String]>,
    ) -> Result<Self, SourceError> {
        let fields = footer.schema().fields();
        let places = match wanted {
            None => (0..fields.len()).collect(),
            Some(names) => names.iter().map(|name| place(path, footer, name)).collect::<Result<Vec<_>, _>>()?,
        };
        let mut columns = Vec::with_capacity(places.len());
        for &place in &places {
            let field = &fields[place];
            let data_type = stored_type(field.data_type()).ok_or_else(|| {
                let names = fields.iter().filter(|field| stored_type(field.data_type()).is_some());
                let names: Vec<&str> = names.map(|field| field.name().as_str()).collect();
                SourceError::Usage(format!(
                    "{}: column '{}' has the unsupported type {}; integers, floats, booleans and fixed-size \
                     binary can be read: {}",
                    path.display(),
                    field.name(),
                    in_words(field.data_type()),
                    if names.is_empty() {
                        "the file has no such columns".to_owned()
                    } else {
                        format!("--columns {}", names.join(","))
                    },
                ))
            })?;
            columns.push(Column::new(field.name(), data_type));
        }
        if columns.is_empty() {
            return Err(SourceError::Unfit { path: path.to_owned(), what: "the file has no columns".into() });
        }
        Ok(Self { columns, places })
    }

    /// Returns notes on columns whose values are stored in another form.
    pub(super) fn notes(&self, footer: &ArrowReaderMetadata) -> Vec<String> {
        let fields = footer.schema().fields();
        let of = |found: ArrowType, what: &str| {
            let names = self.places.iter().filter(|place| *fields[**place].data_type() == found);
            let names: Vec<&str> = names.map(|place| fields[*place].name().as_str()).collect();
            (!names.is_empty()).then(|| format!("{what}: {}", names.join(", ")))
        };
        let booleans = of(ArrowType::Boolean, "booleans are stored as u8");
        booleans.into_iter().chain(of(ArrowType::Float16, "16-bit floats are stored as f32")).collect()
    }

    /// Returns the projection for the decoder.
    pub(super) fn mask(&self, footer: &ArrowReaderMetadata) -> ProjectionMask {
        ProjectionMask::roots(footer.parquet_schema(), self.places.iter().copied())
    }

    /// Returns the index of each column among the decoded columns, which are in the file's order.
    pub(super) fn decoded_places(&self) -> Vec<usize> {
        self.places.iter().map(|place| self.places.iter().filter(|other| *other < place).count()).collect()
    }

    /// Returns an error if the footer shows nulls or an unsupported compression in the chosen columns.
    pub(super) fn check_content(
        &self,
        path: &Path,
        footer: &ArrowReaderMetadata,
        nulls_as_nan: bool,
    ) -> Result<(), SourceError> {
        let schema = footer.parquet_schema();
        for (column, place) in self.columns.iter().zip(&self.places) {
            // A flat column has one leaf.
            let Some(leaf) = (0..schema.num_columns()).find(|leaf| schema.get_column_root_idx(*leaf) == *place) else {
                continue;
            };
            for (number, group) in footer.metadata().row_groups().iter().enumerate() {
                let Some(chunk) = group.columns().get(leaf) else { continue };
                if chunk.compression() == Compression::LZO {
                    let name = &column.name;
                    let what =
                        format!("column '{name}' is compressed with LZO, which is not supported; write it with zstd");
                    return Err(SourceError::Unfit { path: path.to_owned(), what });
                }
                if !(nulls_as_nan && column.data_type.is_float())
                    && chunk
                        .statistics()
                        .and_then(|statistics| statistics.null_count_opt())
                        .is_some_and(|nulls| nulls > 0)
                {
                    return Err(self.null(path, column, format_args!("row group {number}")));
                }
            }
        }
        Ok(())
    }

    /// Returns the error for a null in a column.
    pub(super) fn null(&self, path: &Path, column: &Column, place: std::fmt::Arguments<'_>) -> SourceError {
        let others: Vec<&str> =
            self.columns.iter().filter(|other| *other != column).map(|other| other.name.as_str()).collect();
        let advice = match others.as_slice() {
            [] => String::new(),
            others => format!(", or omit the column: --columns {}", others.join(",")),
        };
        let name = &column.name;
        let cause = if column.data_type.is_float() {
            "; pandas stores NaN as null: --nulls nan reads nulls as NaN"
        } else {
            "; fill them"
        };
        let what = format!("column '{name}' has nulls ({place}), which cannot be stored{cause}{advice}");
        SourceError::Unfit { path: path.to_owned(), what }
    }
}

/// Returns the index of a column in the file's schema.
fn place(path: &Path, footer: &ArrowReaderMetadata, name: &str) -> Result<usize, SourceError> {
    let fields = footer.schema().fields();
    // Blanks around a name are those of a list, unless a column has them.
    let name = if fields.iter().any(|field| field.name() == name) { name } else { name.trim() };
    let mut found = fields.iter().enumerate().filter(|(_, field)| field.name() == name).map(|(place, _)| place);
    match (found.next(), found.next()) {
        (Some(place), None) => Ok(place),
        (Some(_), Some(_)) => Err(SourceError::Unfit {
            path: path.to_owned(),
            what: format!("the file has several columns called '{name}'"),
        }),
        (None, _) => {
            let known: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
            Err(SourceError::Usage(format!(
                "--columns: {} has no column '{name}'; its columns are {}",
                path.display(),
                known.join(", ")
            )))
        }
    }
}

/// Returns the type that stores each value exactly, or `None` if there is none.
fn stored_type(found: &ArrowType) -> Option<DataType> {
    Some(match found {
        ArrowType::Int8 => DataType::I8,
        ArrowType::Int16 => DataType::I16,
        ArrowType::Int32 => DataType::I32,
        ArrowType::Int64 => DataType::I64,
        ArrowType::UInt8 | ArrowType::Boolean => DataType::U8,
        ArrowType::UInt16 => DataType::U16,
        ArrowType::UInt32 => DataType::U32,
        ArrowType::UInt64 => DataType::U64,
        ArrowType::Float16 | ArrowType::Float32 => DataType::F32,
        ArrowType::Float64 => DataType::F64,
        ArrowType::FixedSizeBinary(bytes) => {
            DataType::FixedBytes(u32::try_from(*bytes).ok().filter(|bytes| (1..=MAX_FIXED_BYTES).contains(bytes))?)
        }
        _ => return None,
    })
}

/// Returns a readable name of a type that cannot be stored.
fn in_words(found: &ArrowType) -> String {
    match found {
        ArrowType::Utf8 | ArrowType::LargeUtf8 | ArrowType::Utf8View => "text".to_owned(),
        ArrowType::Binary | ArrowType::LargeBinary | ArrowType::BinaryView => "variable-length binary".to_owned(),
        ArrowType::Timestamp(..)
        | ArrowType::Date32
        | ArrowType::Date64
        | ArrowType::Time32(_)
        | ArrowType::Time64(_) => "date or time".to_owned(),
        ArrowType::Decimal32(..) | ArrowType::Decimal64(..) | ArrowType::Decimal128(..) | ArrowType::Decimal256(..) => {
            "decimal".to_owned()
        }
        other if other.is_nested() => "nested".to_owned(),
        other => format!("{other}"),
    }
}

/// Checks that a file has the columns of the first one, in any order.
pub(super) fn same_columns(
    path: &Path,
    columns: &[Column],
    first: &Path,
    expected: &[Column],
) -> Result<(), SourceError> {
    let words = |columns: &[Column]| {
        columns.iter().map(|column| format!("{} {}", column.name, column.data_type)).collect::<Vec<_>>().join(", ")
    };
    if columns.len() == expected.len() && expected.iter().all(|column| columns.contains(column)) {
        return Ok(());
    }
    let what = format!(
        "its columns are {}, but those of {} are {}; use --columns to read their common columns",
        words(columns),
        first.display(),
        words(expected)
    );
    Err(SourceError::Unfit { path: path.to_owned(), what })
}
