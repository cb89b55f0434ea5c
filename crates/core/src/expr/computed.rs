//! Columns of a query that are computed from stored ones: `gamma = sqrt(1 + ux*ux)`, `id:u64 = id // 2`, `x*x + y*y`.

use arrow_array::ArrayRef;

use crate::schema::{Column, DataType, Schema, Value};

use super::ExpressionError;
use super::calculation::Calculation;
use super::chunks::CHUNK_ROWS;
use super::naming::NamedText;
use super::number_bytes::{store_floats, store_whole};
use super::program::Values;

/// A column that is computed from stored columns and `epoch`. Unless a type is stated, an integer is `i64`, or `u64` if
/// the types of its columns exclude negative values and admit values beyond `i64`. All other numbers are `f64`.
#[derive(Debug, Clone)]
pub(crate) struct ComputedColumn {
    column: Column,
    number: Calculation,
}

impl ComputedColumn {
    /// Parses `name = expression`, `name:type = expression`, or an expression, whose text becomes the name.
    ///
    /// # Errors
    /// [`ExpressionError`] if the text is none of them.
    pub(crate) fn parse(text: &str, schema: &Schema) -> Result<Self, ExpressionError> {
        let NamedText { name, data_type, expression, skipped } = NamedText::of(text)?;
        let number = Calculation::parse(expression, skipped, schema.columns())?;
        let stored = number.column().map(|index| &schema.columns()[index]);
        let natural = || match stored {
            Some(column) => column.data_type,
            None => number.integer_type().unwrap_or(DataType::F64),
        };
        let data_type = data_type.unwrap_or_else(natural);
        let name = name.unwrap_or_else(|| stored.map_or_else(|| text.trim().to_owned(), |column| column.name.clone()));
        let number = if data_type.is_float() { number.as_float(schema.columns()) } else { number };
        Ok(Self { column: Column::new(name, data_type), number })
    }

    /// Returns the name and type.
    pub(crate) fn column(&self) -> &Column {
        &self.column
    }

    /// Returns the stored column that this one is in `schema`, perhaps under another name.
    pub(crate) fn stored(&self, schema: &Schema) -> Option<usize> {
        self.number.column().filter(|index| schema.columns()[*index].data_type == self.column.data_type)
    }

    /// Returns the stored columns that are read, as ascending indexes.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = usize> {
        self.number.inputs()
    }

    /// Computes the values of all rows, little-endian, into `out`. `arrays` are the inputs, of `rows` rows each.
    ///
    /// # Errors
    /// [`ExpressionError::Computed`] for the first row without a result that fits the type.
    pub(crate) fn evaluate(
        &self,
        epoch: u64,
        rows: usize,
        arrays: &[ArrayRef],
        out: &mut [u8],
    ) -> Result<(), ExpressionError> {
        let data_type = self.column.data_type;
        let (mut bytes, mut chunks) = (Vec::new(), out.chunks_mut(CHUNK_ROWS * data_type.width()));
        let store = |values: Values<'_>| {
            bytes.clear();
            let unfit = match values {
                Values::Float(values) => {
                    let stored = store_floats(data_type, values, &mut bytes);
                    stored.err().map(|row| Value::Float(values[row]))
                }
                Values::Whole(values) => {
                    let stored = store_whole(data_type, values, &mut bytes);
                    stored.err().map(|row| Value::Int(values[row]))
                }
            };
            if let Some(value) = unfit {
                return Err(ExpressionError::Input(format!(
                    "{} is {value}, which does not fit {data_type}; state another type, as in 'name:f64 = …'",
                    self.number
                )));
            }
            if let Some(out) = chunks.next() {
                out.copy_from_slice(&bytes);
            }
            Ok(())
        };
        self.number
            .each_chunk((epoch, rows), arrays, store)
            .map_err(|error| ExpressionError::Computed { column: self.column.name.clone(), what: error.to_string() })
    }
}
