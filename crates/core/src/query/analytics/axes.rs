//! The columns of a histogram: those of its axes, and the one that is summed. They are stored, or computed from stored
//! ones.

use std::sync::Arc;

use crate::error::{Error, Result, UsageError};
use crate::expr::{ComputedColumn, is_name};
use crate::query::analytics::bins::Bins;
use crate::query::analytics::grid::{Axis, Grid};
use crate::query::analytics::level_errors::SampledRows;
use crate::query::analytics::numbers::{Binned, Estimate, Series};
use crate::query::request::{computed_column, no_expression, resolve_column};
use crate::schema::{Column, EPOCH_COLUMN, KeyOrder, Schema, Value};

/// The range of an axis, or `None` without finite values.
pub(super) type Range = Option<(Value, Value)>;

/// The edges of each axis, and the places of the rows among them.
pub(super) type Edges = (Vec<Vec<Value>>, Arc<Grid>);

/// The column of an axis, and its bins.
#[derive(Debug, Clone, Copy)]
pub(super) struct AxisColumn<'a> {
    pub(super) index: usize,
    pub(super) order: KeyOrder,
    pub(super) bins: &'a Bins,
}

/// The columns of a histogram. The numbers of computed columns follow those of the schema.
#[derive(Debug)]
pub(super) struct Columns<'a> {
    x: AxisColumn<'a>,
    y: Option<AxisColumn<'a>>,
    /// The column to sum.
    pub(super) weights: Option<usize>,
    pub(super) computed: Vec<Arc<ComputedColumn>>,
}

/// Returns a column by its number among those of a schema and the computed ones.
pub(super) fn column_of<'c>(schema: &'c Schema, computed: &'c [Arc<ComputedColumn>], number: usize) -> &'c Column {
    schema.columns().get(number).unwrap_or_else(|| computed[number - schema.columns().len()].column())
}

impl<'a> Columns<'a> {
    /// Finds the columns.
    ///
    /// # Errors
    /// Usage errors for an unknown column, the epoch's label, and a column without numbers; for an expression, unless
    /// the numbers are exact.
    pub(super) fn resolve(
        schema: &Schema,
        x: &'a (String, Bins),
        y: Option<&'a (String, Bins)>,
        weights: Option<&str>,
        is_exact: bool,
    ) -> Result<Self> {
        let mut computed: Vec<Arc<ComputedColumn>> = Vec::new();
        let mut find = |option, text: &str| {
            if is_name(text) || resolve_column(text, schema).is_ok() {
                return numeric_column(schema, option, text);
            }
            let column = computed_column(option, text, schema)?;
            if !is_exact {
                return Err(no_expression(option, text, "only exact numbers (source 'exact') are computed"));
            }
            let data_type = column.column().data_type;
            let order = KeyOrder::new(data_type).ok_or_else(|| Error::internal("an expression is no number"))?;
            computed.push(column);
            Ok((schema.columns().len() + computed.len() - 1, order))
        };
        let mut axis = |option, (column, bins): &'a (String, Bins)| {
            find(option, column).map(|(index, order)| AxisColumn { index, order, bins })
        };
        let (x, y) = (axis("column", x)?, y.map(|y| axis("by", y)).transpose()?);
        let weights = weights.map(|column| find("weights", column)).transpose()?.map(|(index, _)| index);
        Ok(Self { x, y, weights, computed })
    }

    /// Returns the axes.
    pub(super) fn axes(&self) -> impl Iterator<Item = &AxisColumn<'a>> {
        [&self.x].into_iter().chain(&self.y)
    }

    /// Returns the only axis.
    pub(super) fn only_axis(&self) -> Option<AxisColumn<'a>> {
        self.y.is_none().then_some(self.x)
    }

    /// Returns the columns that are read: those of the axes, then the one that is summed.
    pub(super) fn read(&self) -> Vec<usize> {
        self.axes().map(|axis| axis.index).chain(self.weights).collect()
    }

    /// Returns the columns of the axes.
    pub(super) fn of_axes(&self) -> Vec<usize> {
        self.axes().map(|axis| axis.index).collect()
    }

    /// Returns the edges over these ranges, of which there may be `most` pairs. Invalid bins are refused even if there
    /// is no value.
    pub(super) fn edges(&self, ranges: &[Range], most: usize) -> Result<Edges> {
        let edges_of = |(axis, range): (&AxisColumn<'_>, &Range)| match range {
            Some(range) => axis.bins.edges_over(axis.order, *range),
            None => axis.bins.edges_over(axis.order, (Value::Int(1), Value::Int(1))).map(|_| Vec::new()),
        };
        let edges = self.axes().zip(ranges).map(edges_of).collect::<Result<Vec<_>>>()?;
        let axis = |column: &AxisColumn<'_>, edges: &Vec<Value>| Axis::new(column.order, edges);
        let y = self.y.as_ref().zip(edges.get(1)).map(|(column, edges)| axis(column, edges));
        let grid = Grid { x: axis(&self.x, &edges[0]), y };
        if grid.pairs() > most {
            let sides: Vec<String> = grid.axes().map(|axis| axis.bins().to_string()).collect();
            let what = format!("{} bins are more than {most}", sides.join(" x "));
            return Err(UsageError::Option { option: "bins", what }.into());
        }
        Ok((edges, Arc::new(grid)))
    }
}

/// The numbers of a histogram.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) edges: Vec<Vec<Value>>,
    pub(super) rows: Binned<u64>,
    pub(super) sums: Option<Binned<f64>>,
    /// Sums of the squares of the column that is summed.
    pub(super) squares: Option<Binned<f64>>,
    /// The sample that the numbers are estimated from, and the rows of it.
    pub(super) sample: Option<(SampledRows, Binned<u64>)>,
}

impl Found {
    /// Creates counts.
    pub(super) fn counted((edges, grid): (Vec<Vec<Value>>, &Grid), all: Estimate<u64>, places: Series<u64>) -> Self {
        let rows = Binned::new(all, places, grid.unbinned());
        Self { edges, rows, sums: None, squares: None, sample: None }
    }
}

/// Returns the index of a stored column of numbers that an option names, and their order.
///
/// # Errors
/// Usage errors: an unknown column, the epoch's label, a column without numbers.
pub(super) fn numeric_column(schema: &Schema, option: &'static str, column: &str) -> Result<(usize, KeyOrder)> {
    let refuse = |what: String| UsageError::Option { option, what };
    let found = resolve_column(column, schema);
    let Some(index) = found? else {
        return Err(refuse(format!("'{EPOCH_COLUMN}' is a label, not a stored column")).into());
    };
    let stated = &schema.columns()[index];
    let order = KeyOrder::new(stated.data_type)
        .ok_or_else(|| refuse(format!("'{}' has the type {}, which is not numeric", stated.name, stated.data_type)))?;
    Ok((index, order))
}
