//! The order of a query's rows: columns and expressions, each ascending or descending.

use std::sync::Arc;

use crate::error::{Error, Result, UsageError};
use crate::expr::{Predicate, SpaceText, is_name, split_list};
use crate::query::request::columns::{Columns, computed_column, resolve_column};
use crate::schema::{Column, EPOCH_COLUMN, Schema};

/// A column that orders rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::query) enum OrderColumn {
    /// A stored column, by its index in the schema.
    Stored(usize),
    /// A computed column, by its position in [`super::ResolvedQuery::computed`].
    Computed(usize),
}

/// A column by whose values rows are sorted. NaN is last in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::query) struct SortColumn {
    pub(in crate::query) column: OrderColumn,
    pub(in crate::query) is_descending: bool,
}

impl SortColumn {
    /// Returns the order of the ascending values of a column.
    pub(in crate::query) fn ascending(column: OrderColumn) -> Self {
        Self { column, is_descending: false }
    }
}

/// The restrictions of a query, as texts.
#[derive(Debug, Clone)]
pub(in crate::query) struct Restrictions {
    pub(super) filter: Option<String>,
    pub(super) space: Option<String>,
    pub(super) periods: Option<String>,
    /// The schema of the records.
    pub(super) records: Arc<Schema>,
}

/// The order of a query's rows, unless it is that of the key.
#[derive(Debug, Clone)]
pub(in crate::query) struct Order {
    /// At least one. Rows that are equal in one are ordered by the next.
    pub(in crate::query) columns: Vec<SortColumn>,
    /// Whether each epoch is ordered by itself.
    pub(in crate::query) is_per_epoch: bool,
    restrictions: Restrictions,
}

/// The order that a query requests.
pub(super) enum Requested {
    /// Ascending keys, epoch by epoch.
    Key,
    Columns(Order),
}

impl Order {
    /// Resolves an order such as `energy desc, id`. Expressions are added to the computed columns.
    ///
    /// # Errors
    /// Usage errors: an unknown or repeated column, `epoch`, or a column that has no order.
    pub(super) fn resolve(
        (text, is_per_epoch): (&str, bool),
        schema: &Schema,
        columns: &mut Columns,
        restrictions: Restrictions,
    ) -> Result<Requested> {
        let mut sorted: Vec<SortColumn> = Vec::new();
        for item in split_list(text) {
            let (name, is_descending) = direction(item);
            let column = order_column(name, schema, columns)?;
            if sorted.iter().any(|known| known.column == column) {
                return Err(refused(format!("'{name}' is listed twice")));
            }
            sorted.push(SortColumn { column, is_descending });
        }
        let key = SortColumn::ascending(OrderColumn::Stored(schema.key_index()));
        if is_per_epoch && schema.has_numeric_key() && sorted == [key] {
            return Ok(Requested::Key);
        }
        Ok(Requested::Columns(Self { columns: sorted, is_per_epoch, restrictions }))
    }

    /// Returns the column whose ascending values are the order of each epoch, if there is only one column.
    pub(in crate::query) fn ascending(&self) -> Option<OrderColumn> {
        match self.columns.as_slice() {
            [SortColumn { column, is_descending: false }] if self.is_per_epoch => Some(*column),
            _ => None,
        }
    }

    /// Returns the predicate of the query's rows that also satisfy a condition.
    ///
    /// # Errors
    /// A condition that is not one of the schema's columns.
    pub(in crate::query) fn restricted(&self, condition: &str, schema: &Schema) -> Result<Predicate> {
        let Restrictions { filter, space, periods, records } = &self.restrictions;
        let filter =
            filter.as_ref().map_or_else(|| condition.to_owned(), |stated| format!("({stated}) AND {condition}"));
        let space = space.as_ref().map(|sides| SpaceText { sides, periods: periods.as_deref(), records });
        let within = Predicate::parse_within(Some(&filter), space, schema)?;
        within.ok_or_else(|| Error::internal("an order has no condition"))
    }
}

fn refused(what: String) -> Error {
    UsageError::Option { option: "order", what }.into()
}

/// Splits a column from its direction: `energy desc`.
fn direction(item: &str) -> (&str, bool) {
    let (column, last) = item.rsplit_once(char::is_whitespace).unwrap_or((item, ""));
    match last.to_ascii_lowercase().as_str() {
        "desc" => (column.trim_end(), true),
        "asc" => (column.trim_end(), false),
        _ => (item, false),
    }
}

/// Returns the column by whose values a query orders rows: an output column, a stored column, or an expression, which
/// is added to the computed columns.
fn order_column(name: &str, schema: &Schema, columns: &mut Columns) -> Result<OrderColumn> {
    if let Some(place) = columns.computed.iter().position(|computed| computed.column.column().name == name) {
        return Ok(OrderColumn::Computed(place));
    }
    let column = match resolve_column(name, schema) {
        Ok(Some(column)) => column,
        Ok(None) => {
            return Err(refused(format!(
                "'{EPOCH_COLUMN}' orders no rows; rows are ordered over all epochs, or epoch by epoch"
            )));
        }
        Err(error) if is_name(name) => return Err(error),
        Err(_) => {
            let column = computed_column("order", name, schema)?;
            // A name in quotes.
            match column.stored(schema) {
                Some(stored) => stored,
                None => {
                    columns.compute(column);
                    return Ok(OrderColumn::Computed(columns.computed.len() - 1));
                }
            }
        }
    };
    let Column { data_type, .. } = &schema.columns()[column];
    if !data_type.is_numeric() {
        return Err(refused(format!("'{name}' is {data_type}; rows are ordered by numbers")));
    }
    Ok(OrderColumn::Stored(column))
}
