//! The columns of a query: stored ones, and expressions.

use std::sync::{Arc, LazyLock};

use arrow_schema::{DataType as ArrowType, Field, FieldRef};

use crate::error::{Error, Result, UsageError};
use crate::expr::{ComputedColumn, is_name};
use crate::format::TIME_ATTRIBUTE;
use crate::schema::{Column, EPOCH_COLUMN, Schema};

/// Name of the column of the epoch's physical time if a stored column is called `time`.
const EPOCH_TIME_COLUMN: &str = "epoch_time";

/// The Arrow field of the epoch.
static EPOCH_FIELD: LazyLock<FieldRef> = LazyLock::new(|| Arc::new(Field::new(EPOCH_COLUMN, ArrowType::Int64, false)));

/// The source of an output column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::query) enum Output {
    /// A stored column, by its position in [`super::ResolvedQuery::stored`].
    Stored(usize),
    /// A computed column, by its position in [`super::ResolvedQuery::computed`].
    Computed(usize),
    /// The epoch's label.
    Epoch,
    /// The epoch's physical time.
    Time,
}

/// A column that is computed from stored ones, and the positions of these in [`super::ResolvedQuery::stored`].
#[derive(Debug, Clone)]
pub(in crate::query) struct Computed {
    pub(in crate::query) column: Arc<ComputedColumn>,
    pub(in crate::query) slots: Vec<usize>,
}

impl Computed {
    /// Adds the stored columns that a column is computed from to those that are read.
    pub(super) fn reading(column: Arc<ComputedColumn>, stored: &mut Vec<usize>) -> Self {
        let slots = column.inputs().map(|input| slot(stored, input)).collect();
        Self { column, slots }
    }
}

/// A column that a query names.
enum Named {
    Stored(usize),
    Epoch,
    /// The time, by the name that it has in this dataset.
    Time(&'static str),
    Computed(Arc<ComputedColumn>),
}

/// The columns of a query, as in [`super::ResolvedQuery`].
#[derive(Default)]
pub(super) struct Columns {
    pub(super) stored: Vec<usize>,
    pub(super) computed: Vec<Computed>,
    pub(super) output: Vec<Output>,
    pub(super) fields: Vec<FieldRef>,
}

impl Columns {
    /// Finds the columns of a query.
    ///
    /// # Errors
    /// Usage errors: unknown or repeated columns, an invalid expression.
    pub(super) fn of(texts: Option<&[String]>, schema: &Schema) -> Result<Self> {
        let mut columns = Self::default();
        let mut computed = Vec::new();
        for named in named_columns(texts, schema)? {
            let (output, field) = match named {
                Named::Epoch => (Output::Epoch, EPOCH_FIELD.clone()),
                Named::Time(name) => (Output::Time, Arc::new(Field::new(name, ArrowType::Float64, false))),
                Named::Stored(column) => {
                    (Output::Stored(slot(&mut columns.stored, column)), schema.field(column).clone())
                }
                Named::Computed(column) => {
                    let Column { name, data_type, .. } = column.column();
                    let field = Arc::new(Field::new(name, data_type.arrow(), false));
                    computed.push(column);
                    (Output::Computed(computed.len() - 1), field)
                }
            };
            columns.output.push(output);
            columns.fields.push(field);
        }
        computed.into_iter().for_each(|column| columns.compute(column));
        Ok(columns)
    }

    pub(super) fn compute(&mut self, column: Arc<ComputedColumn>) {
        self.computed.push(Computed::reading(column, &mut self.stored));
    }
}

/// Returns the value of the column of the epoch.
///
/// # Errors
/// Usage errors: a label that does not fit `i64`, which only earlier releases have written.
pub(in crate::query) fn epoch_value(epoch: u64) -> Result<i64> {
    i64::try_from(epoch).map_err(|_| {
        let what =
            format!("epoch {epoch} is above 2^63 - 1, and has no value of '{EPOCH_COLUMN}'; leave the column out");
        UsageError::Option { option: "columns", what }.into()
    })
}

/// Returns the name of the column of the epoch's physical time, unless stored columns have both of its names.
pub(in crate::query) fn time_column(stored: &[Column]) -> Option<&'static str> {
    let is_free = |name: &&str| stored.iter().all(|column| !column.name.eq_ignore_ascii_case(name));
    [TIME_ATTRIBUTE, EPOCH_TIME_COLUMN].into_iter().find(is_free)
}

/// Returns the position of a stored column among those that are read.
pub(in crate::query) fn slot(stored: &mut Vec<usize>, column: usize) -> usize {
    stored.iter().position(|read| *read == column).unwrap_or_else(|| {
        stored.push(column);
        stored.len() - 1
    })
}

fn named_columns(texts: Option<&[String]>, schema: &Schema) -> Result<Vec<Named>> {
    let Some(texts) = texts else {
        return Ok((0..schema.columns().len()).map(Named::Stored).chain([Named::Epoch]).collect());
    };
    let (mut found, mut names): (Vec<Named>, Vec<String>) = (Vec::new(), Vec::new());
    for text in texts {
        let time = time_column(schema.columns()).filter(|time| text.eq_ignore_ascii_case(time));
        let named = match resolve_column(text, schema) {
            Ok(Some(column)) => Named::Stored(column),
            Ok(None) => Named::Epoch,
            Err(error) => match time {
                Some(time) => Named::Time(time),
                None if is_name(text) => return Err(error),
                None => Named::Computed(computed_column("columns", text, schema)?),
            },
        };
        let name = match &named {
            Named::Stored(column) => &schema.columns()[*column].name,
            Named::Epoch => EPOCH_COLUMN,
            Named::Time(name) => name,
            Named::Computed(column) => &column.column().name,
        };
        if names.iter().any(|known| known == name) {
            return Err(listed_twice(text));
        }
        names.push(name.to_owned());
        found.push(named);
    }
    Ok(found)
}

/// Returns the error for an expression where a stored column must be named.
pub(in crate::query) fn no_expression(option: &'static str, text: &str, reason: &str) -> Error {
    UsageError::Option { option, what: format!("'{text}' is an expression, and {reason}; name a stored column") }.into()
}

pub(in crate::query) fn listed_twice(text: &str) -> Error {
    UsageError::Option { option: "columns", what: format!("'{text}' is listed twice") }.into()
}

/// Returns the column that an expression states.
///
/// # Errors
/// Usage errors: an invalid expression, or the name of another column.
pub(in crate::query) fn computed_column(
    option: &'static str,
    text: &str,
    schema: &Schema,
) -> Result<Arc<ComputedColumn>> {
    let refused = |what: String| UsageError::Option { option, what }.into();
    let column = ComputedColumn::parse(text, schema).map_err(|error| refused(format!("'{text}': {error}")))?;
    let name = &column.column().name;
    let taken = schema.columns().iter().position(|stored| stored.name.eq_ignore_ascii_case(name));
    let is_itself = taken.is_some() && taken == column.stored(schema);
    if !is_itself && (taken.is_some() || name.eq_ignore_ascii_case(EPOCH_COLUMN)) {
        return Err(refused(format!("'{text}': there is a column '{name}'; name the expression otherwise")));
    }
    Ok(Arc::new(column))
}

/// Returns the schema index of a named column like [`resolve_column`], where an expression is refused for a `reason`.
pub(in crate::query) fn stored_column(
    option: &'static str,
    text: &str,
    reason: &str,
    schema: &Schema,
) -> Result<Option<usize>> {
    resolve_column(text, schema).map_err(|error| match ComputedColumn::parse(text, schema) {
        Ok(_) if !is_name(text) => no_expression(option, text, reason),
        _ => error,
    })
}

/// Returns the schema index of a named column; the epoch column has none. Names match exactly, or else
/// case-insensitively.
pub(in crate::query) fn resolve_column(name: &str, schema: &Schema) -> Result<Option<usize>> {
    if let Some(column) = schema.index_of(name) {
        return Ok(Some(column));
    }
    if name.eq_ignore_ascii_case(EPOCH_COLUMN) {
        return Ok(None);
    }
    schema.columns().iter().position(|column| column.name.eq_ignore_ascii_case(name)).map(Some).ok_or_else(|| {
        let stored = schema.columns().iter().map(|column| column.name.clone());
        let known = stored.chain([EPOCH_COLUMN.to_owned()]).collect();
        UsageError::Column { name: name.to_owned(), known }.into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_that_do_not_fit_are_refused_by_name() {
        assert_eq!(epoch_value(i64::MAX as u64).unwrap(), i64::MAX);
        let refused = epoch_value(1 << 63).unwrap_err().to_string();
        let named =
            "columns: epoch 9223372036854775808 is above 2^63 - 1, and has no value of 'epoch'; leave the column out";
        assert_eq!(refused, named);
    }
}
