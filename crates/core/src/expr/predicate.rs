//! Predicates: parsing, what they state of columns, and pruning of row sets. `predicate_input` evaluates them on rows.

use std::fmt;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_buffer::BooleanBuffer;

use crate::schema::{DataType, Schema, Value};

use super::ExpressionError;
use super::bind::{Binder, Names};
use super::comparison::{Comparison, Connective, fold};
use super::keys::keys_of;
use super::members::Members;
use super::parse::parse;
use super::plan::{Choices, ExpressionPlan, ExpressionPlanner, Source, members_of_type};
use super::predicate_input::PredicateInput;
use super::program::Stack;
use super::prune::{ColumnBounds, Pruner, TruthValue, members_of, range_of};
use super::space::{self, SpaceText};
use super::tokens::SourceText;
use super::tree::{Condition, gather_all};
use super::tuples::TupleSet;

/// A condition on records, bound to a schema.
///
/// ```
/// use std::sync::Arc;
/// use arrow_array::{ArrayRef, Float32Array};
/// use turbidite::expr::{ColumnBounds, NanPresence, Predicate, TruthValue};
/// use turbidite::{Column, DataType, Schema, Value};
///
/// let schema = Schema::new(
///     vec![Column::new("energy", DataType::F32), Column::new("id", DataType::U64)],
///     "energy",
/// )?;
/// let predicate = Predicate::parse("epoch >= 100 and energy > 0.1", &schema)?;
/// assert_eq!(predicate.columns(), [0]);
///
/// // 0.1 is rounded to f32 first, so the middle row, which holds that very number, does not match.
/// let columns: [ArrayRef; 1] = [Arc::new(Float32Array::from(vec![0.5, 0.1, f32::NAN]))];
/// let rows = predicate.input(200, 3, &columns)?;
/// assert_eq!(predicate.evaluate(&rows).iter().collect::<Vec<_>>(), [true, false, false]);
///
/// let low = |_: usize| {
///     Some(ColumnBounds { range: Some((Value::Float(0.0), Value::Float(0.05))), nan: NanPresence::None })
/// };
/// assert_eq!(predicate.prune(200, &low), TruthValue::Never);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Predicate {
    /// The output of [`fmt::Display`].
    text: String,
    plan: ExpressionPlan,
    choices: Choices,
    columns: Vec<usize>,
    types: Vec<DataType>,
    uses_epoch: bool,
}

fn bind(text: &str, schema: &Schema) -> Result<Condition, ExpressionError> {
    let expr = parse(&SourceText::new(text, 0))?;
    Binder::new(SourceText::new(text, 0), schema.columns(), Names::Predicate).predicate(&expr)
}

impl Predicate {
    /// Parses a condition and binds it to a schema's columns and the virtual column `epoch`.
    ///
    /// # Errors
    /// [`ExpressionError`] if the text is not a valid condition.
    pub fn parse(text: &str, schema: &Schema) -> Result<Self, ExpressionError> {
        Ok(Self::of(&bind(text, schema)?, schema))
    }

    /// Returns the predicate of the rows that satisfy a condition and lie within a box, or `None` if neither is stated.
    ///
    /// # Errors
    /// [`ExpressionError`] if the text is not a valid condition, or the box is not one of the schema's columns.
    pub(crate) fn parse_within(
        text: Option<&str>,
        space: Option<SpaceText<'_>>,
        schema: &Schema,
    ) -> Result<Option<Self>, ExpressionError> {
        let stated = text.map(|text| bind(text, schema)).transpose()?;
        let Some(space) = space else { return Ok(stated.map(|condition| Self::of(&condition, schema))) };
        let mut all = match stated {
            Some(Condition::And(all)) => all,
            stated => stated.into_iter().collect(),
        };
        all.extend(space::conditions(space, schema)?);
        let condition = if all.len() == 1 { all.remove(0) } else { Condition::And(all) };
        Ok(Some(Self::of(&condition, schema)))
    }

    fn of(condition: &Condition, schema: &Schema) -> Self {
        let (mut columns, mut uses_epoch) = (Vec::new(), false);
        gather_all(condition, &mut columns, &mut uses_epoch);
        columns.sort_unstable();
        columns.dedup();
        let types = columns.iter().map(|column| schema.columns()[*column].data_type).collect();
        let (plan, choices) = ExpressionPlanner::compile(&columns, |planner| planner.plan(condition));
        Self { text: condition.to_string(), plan, choices, columns, types, uses_epoch }
    }

    /// Returns the predicate `column IN values` on a numeric column, for lists that are too long to parse from text.
    ///
    /// # Errors
    /// [`ExpressionError::Input`] if the schema has no such numeric column.
    pub(crate) fn any_of(
        schema: &Schema,
        column: usize,
        values: impl Iterator<Item = Value>,
    ) -> Result<Self, ExpressionError> {
        let data_type = schema.columns().get(column).map_or(DataType::U64, |stated| stated.data_type);
        Self::of_members(schema, column, members_of_type(data_type, values))
    }

    /// Returns the predicate that a numeric column has one of these values of its type, which are shared.
    ///
    /// # Errors
    /// As for [`Predicate::any_of`].
    pub(crate) fn of_members(schema: &Schema, column: usize, members: Arc<Members>) -> Result<Self, ExpressionError> {
        let Some(stated) = schema.columns().get(column).filter(|stated| stated.data_type.is_numeric()) else {
            return Err(ExpressionError::Input(format!("column {column} is not a numeric column")));
        };
        let source = Source::Column { slot: 0, index: column, data_type: stated.data_type };
        let plan = ExpressionPlan::any_of(source, members, true);
        let text = format!("{} IN (…)", stated.name);
        let (columns, types) = (vec![column], vec![stated.data_type]);
        Ok(Self { text, plan, choices: Arc::default(), columns, types, uses_epoch: false })
    }

    /// Returns the predicate that the values of columns are one of the packed tuples, for lists that are too long to
    /// parse from text. The columns are integers or byte strings.
    pub(crate) fn any_tuple_of(schema: &Schema, columns: &[usize], packed: &[u8]) -> Self {
        let mut read = columns.to_vec();
        read.sort_unstable();
        read.dedup();
        let data_type = |index: &usize| schema.columns()[*index].data_type;
        let source = |index: &usize| {
            let slot = read.partition_point(|column| column < index);
            Source::Column { slot, index: *index, data_type: data_type(index) }
        };
        let members = TupleSet::new(columns.iter().map(data_type).collect(), packed);
        let plan = match members.len() {
            0 => ExpressionPlan::Constant(false),
            _ => ExpressionPlan::Tuple {
                columns: columns.iter().map(source).collect(),
                members: Arc::new(members),
                inside: true,
            },
        };
        let names: Vec<&str> = columns.iter().map(|index| schema.columns()[*index].name.as_str()).collect();
        let (text, choices) = (format!("({}) IN (…)", names.join(", ")), Arc::default());
        let types = read.iter().map(data_type).collect();
        Self { text, plan, choices, columns: read, types, uses_epoch: false }
    }

    /// Returns the columns that the predicate reads, as ascending indexes into the schema, without `epoch`.
    pub fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// Returns whether the predicate reads the virtual column `epoch`.
    pub fn uses_epoch(&self) -> bool {
        self.uses_epoch
    }

    /// Wraps arrays as the predicate's input, without a copy. `arrays` contains one array per entry of
    /// [`Predicate::columns`], in the same order. Each array has the column's Arrow type, `rows` values and no nulls.
    ///
    /// # Errors
    /// [`ExpressionError::Input`] if the arrays do not match.
    pub fn input<'a>(
        &self,
        epoch: u64,
        rows: usize,
        arrays: &'a [ArrayRef],
    ) -> Result<PredicateInput<'a>, ExpressionError> {
        let columns = self.columns.iter().copied().zip(self.types.iter().copied());
        PredicateInput::new((epoch, rows), arrays, columns, self.choices.clone())
            .map_err(|what| ExpressionError::Input(format!("input of the predicate '{self}': {what}")))
    }

    /// Evaluates the predicate. Returns one bit per row, which is set if the row matches.
    ///
    /// # Panics
    /// May panic if `input` was created by another predicate's [`Predicate::input`].
    pub fn evaluate(&self, input: &PredicateInput<'_>) -> BooleanBuffer {
        input.mask(&self.plan, &mut <[Stack; 2]>::default()).finish()
    }

    /// Returns a closed range that contains the column's values of all matching rows, or `None` if the predicate
    /// implies no range. In an empty range the lower end is above the upper end.
    pub fn range_of(&self, column: usize) -> Option<(Value, Value)> {
        range_of(&self.plan, column)
    }

    /// Returns values among which are the column's values of all matching rows, or `None` if the predicate implies no
    /// finite list. The values are those of the predicate, which are not copied.
    pub(crate) fn members_of(&self, column: usize) -> Option<Arc<Members>> {
        members_of(&self.plan, column)
    }

    /// Returns keys among which are the keys of all matching rows: the stored values of the key's columns, packed.
    /// Returns `None` if the predicate implies no list of at most `most` keys.
    pub(crate) fn keys_of(&self, schema: &Schema, most: usize) -> Option<Vec<u8>> {
        self.tuples_of(schema, schema.key_columns(), most).map(|keys| keys.concat())
    }

    /// Returns packed values of some columns, like [`Predicate::keys_of`], each tuple by itself.
    pub(crate) fn tuples_of(&self, schema: &Schema, columns: &[usize], most: usize) -> Option<Vec<Vec<u8>>> {
        let columns: Vec<_> = columns.iter().map(|index| (*index, schema.columns()[*index].data_type)).collect();
        Some(keys_of(&self.plan, &columns, most)?.into_iter().collect())
    }

    /// Returns alternatives of which every matching row satisfies at least one: the operands of an OR, together with
    /// the conditions that it is joined to by AND. Returns nothing if there is no OR, or if there are more than `most`
    /// alternatives.
    pub(crate) fn branches(&self, most: usize) -> Vec<Self> {
        let is_or = |plan: &ExpressionPlan| matches!(plan, ExpressionPlan::Or(_));
        let (operands, others) = match &self.plan {
            ExpressionPlan::Or(operands) => (operands, Vec::new()),
            ExpressionPlan::And(terms) => match terms.iter().position(is_or).map(|place| (&terms[place], place)) {
                Some((ExpressionPlan::Or(operands), place)) => {
                    let others = terms.iter().enumerate().filter(|(other, _)| *other != place);
                    (operands, others.map(|(_, term)| term.clone()).collect())
                }
                _ => return Vec::new(),
            },
            _ => return Vec::new(),
        };
        if operands.len() > most {
            return Vec::new();
        }
        let joined = |operand: &ExpressionPlan| {
            let terms: Vec<_> = [operand.clone()].into_iter().chain(others.iter().cloned()).collect();
            Self { plan: ExpressionPlan::And(terms), ..self.clone() }
        };
        operands.iter().map(joined).collect()
    }

    /// Folds the predicate bottom-up: `comparison` returns the value of a comparison, and `join` joins the values of a
    /// connective's operands.
    ///
    /// # Errors
    /// The first error of `comparison`.
    pub fn fold<T, E>(
        &self,
        comparison: &mut dyn FnMut(&Comparison<'_>) -> Result<T, E>,
        join: &dyn Fn(Connective, Vec<T>) -> T,
    ) -> Result<T, E> {
        fold(&self.plan, comparison, join)
    }

    /// Evaluates the predicate on the column statistics of a set of rows of `epoch`. `statistics` returns a column's
    /// statistics by schema index, or `None` if they are unknown.
    ///
    /// `Never` and `Always` are true of every row within the statistics. For an empty set of rows the result is
    /// arbitrary.
    pub fn prune(&self, epoch: u64, statistics: &dyn Fn(usize) -> Option<ColumnBounds>) -> TruthValue {
        Pruner { epoch, summary: statistics }.truth(&self.plan)
    }
}

/// Formats the normalized text, with literals folded and rounded, and with parentheses only where they are needed. The
/// text of a parsed predicate parses to the same predicate.
impl fmt::Display for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
