//! The columns that the definition of an index names.

use crate::error::UsageError;
use crate::schema::Schema;

/// Checks the columns of an index, whose folder has their names. `kind` is what the index is called in errors.
///
/// # Errors
/// If one is listed twice, or cannot be part of a folder's name.
pub(super) fn check_names(columns: &[String], kind: &str) -> Result<(), UsageError> {
    let wrong = |what: String| Err(UsageError::Option { option: "index", what });
    for (number, column) in columns.iter().enumerate() {
        if column.is_empty() || column.contains(['/', '\\', '\0', ',', '=']) {
            return wrong(format!("'{column}' cannot be a column of {kind}, whose folder has its name"));
        }
        if columns[..number].contains(column) {
            return wrong(format!("'{column}' is listed twice"));
        }
    }
    Ok(())
}

/// Returns the position of a column among those of the records.
///
/// # Errors
/// If there is no such column; the error lists those that there are.
pub(super) fn position(records: &Schema, name: &str) -> Result<usize, UsageError> {
    let known = || records.columns().iter().map(|column| column.name.clone()).collect();
    records.index_of(name).ok_or_else(|| UsageError::Column { name: name.to_owned(), known: known() })
}
