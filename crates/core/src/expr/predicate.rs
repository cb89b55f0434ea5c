//! Predicates: evaluation on rows, and pruning of row sets.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef};
use arrow_buffer::BooleanBuffer;

use crate::schema::{DataType, Schema, Value};

use super::ExpressionError;
use super::bind::{Binder, Names};
use super::comparison::{Comparison, Connective, fold};
use super::keys::keys_of;
use super::mask::{Mask, WORD_ROWS};
use super::members::{Code, Members};
use super::parse::{SourceText, parse};
use super::plan::{Computed, ExpressionPlan, ExpressionPlanner, Source, type_range};
use super::program::{CHUNK_ROWS, Chunks, Scalar, Stack};
use super::prune::{ColumnBounds, Pruner, TruthValue, range_of, values_of};
use super::space::{self, SpaceText};
use super::tree::{CompareOp, Condition, gather};
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
    columns: Vec<usize>,
    types: Vec<DataType>,
    uses_epoch: bool,
}

/// Columns of some rows of one epoch, checked to match one predicate.
#[derive(Debug)]
pub struct PredicateInput<'a> {
    epoch: u64,
    rows: usize,
    columns: Vec<Slice<'a>>,
}

/// The native values of one column.
#[derive(Debug, Clone, Copy)]
enum Slice<'a> {
    I8(&'a [i8]),
    I16(&'a [i16]),
    I32(&'a [i32]),
    I64(&'a [i64]),
    U8(&'a [u8]),
    U16(&'a [u16]),
    U32(&'a [u32]),
    U64(&'a [u64]),
    F32(&'a [f32]),
    F64(&'a [f64]),
    /// Byte strings of one length, concatenated. Only tuples read them.
    Bytes(&'a [u8]),
}

/// Evaluates `$body` with the native values of a column of any type.
macro_rules! with_values {
    ($slice:expr, $values:ident => $body:expr) => {
        match $slice {
            Slice::I8($values) => $body,
            Slice::I16($values) => $body,
            Slice::I32($values) => $body,
            Slice::I64($values) => $body,
            Slice::U8($values) => $body,
            Slice::U16($values) => $body,
            Slice::U32($values) => $body,
            Slice::U64($values) => $body,
            Slice::F32($values) => $body,
            Slice::F64($values) => $body,
            Slice::Bytes(_) => unreachable!("binding accepts byte strings in tuples only"),
        }
    };
}

impl<'a> Slice<'a> {
    fn new(array: &'a dyn Array, data_type: DataType) -> Option<Self> {
        macro_rules! values {
            ($variant:ident, $arrow:ty) => {
                Some(Self::$variant(array.as_primitive_opt::<$arrow>()?.values()))
            };
        }
        match data_type {
            DataType::I8 => values!(I8, Int8Type),
            DataType::I16 => values!(I16, Int16Type),
            DataType::I32 => values!(I32, Int32Type),
            DataType::I64 => values!(I64, Int64Type),
            DataType::U8 => values!(U8, UInt8Type),
            DataType::U16 => values!(U16, UInt16Type),
            DataType::U32 => values!(U32, UInt32Type),
            DataType::U64 => values!(U64, UInt64Type),
            DataType::F32 => values!(F32, Float32Type),
            DataType::F64 => values!(F64, Float64Type),
            DataType::FixedBytes(width) => {
                let array = array.as_fixed_size_binary_opt().filter(|array| array.value_length() as u32 == width)?;
                Some(Self::Bytes(array.value_data()))
            }
        }
    }

    /// Appends the stored bytes of a row's value.
    fn pack(self, row: usize, width: usize, out: &mut Vec<u8>) {
        match self {
            Self::Bytes(values) => out.extend_from_slice(&values[row * width..][..width]),
            _ => with_values!(self, values => out.extend_from_slice(&values[row].to_le_bytes())),
        }
    }
}

/// A native column type, to which a plan's values are converted.
trait Native: Code + PartialOrd {
    fn of(value: Value) -> Self;
}

macro_rules! native_whole {
    ($($type:ty),*) => { $(impl Native for $type {
        fn of(value: Value) -> Self {
            match value {
                // Plans hold values of the column's own type only.
                Value::Int(value) => value as $type,
                Value::Float(value) => value as $type,
            }
        }
    })* };
}
native_whole!(i8, i16, i32, i64, u8, u16, u32, u64);

macro_rules! native_float {
    ($($type:ty),*) => { $(impl Native for $type {
        fn of(value: Value) -> Self {
            value.as_f64() as $type
        }
    })* };
}
native_float!(f32, f64);

/// Returns the mask of the values in [low, high]. If only one end is open, the values are compared with the other end
/// only.
fn within<T: Native>(values: &[T], low: Value, high: Value, open: (bool, bool)) -> Mask {
    let (low, high) = (T::of(low), T::of(high));
    match open {
        (false, true) => Mask::of(values, |value| value >= low),
        (true, false) => Mask::of(values, |value| value <= high),
        // `&` instead of `&&` avoids a branch in the loop.
        _ => Mask::of(values, |value| (value >= low) & (value <= high)),
    }
}

impl Chunks for PredicateInput<'_> {
    #[allow(clippy::unnecessary_cast, reason = "the code is for all types, f64 among them")]
    fn load(&self, slot: usize, first_row: usize, out: &mut [f64]) {
        with_values!(self.columns[slot], values => {
            let values = &values[first_row..first_row + out.len()];
            for (out, value) in out.iter_mut().zip(values) {
                *out = *value as f64;
            }
        });
    }

    fn load_bits(&self, slot: usize, first_row: usize, out: &mut [f64]) {
        // Binding rejects other types.
        if let Slice::F32(values) = self.columns[slot] {
            for (out, value) in out.iter_mut().zip(&values[first_row..]) {
                *out = f64::from(value.to_bits() as i32);
            }
        }
    }
}

impl<'a> PredicateInput<'a> {
    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    fn mask(&self, plan: &ExpressionPlan, stack: &mut [Stack; 2]) -> Mask {
        match plan {
            ExpressionPlan::Constant(value) => Mask::constant(self.rows, *value),
            ExpressionPlan::Range { source, low, high, inside } => {
                let mask = match *source {
                    Source::Epoch => {
                        let epoch = Value::Int(self.epoch.into());
                        let held = CompareOp::GreaterOrEqual.holds_exactly(epoch, *low)
                            && CompareOp::LessOrEqual.holds_exactly(epoch, *high);
                        Mask::constant(self.rows, held)
                    }
                    Source::Column { slot, data_type, .. } => {
                        let (least, greatest) = type_range(data_type);
                        let open = (*low == least, *high == greatest);
                        with_values!(self.columns[slot], values => within(values, *low, *high, open))
                    }
                };
                if *inside { mask } else { mask.negate() }
            }
            ExpressionPlan::Member { source, members, inside } => {
                let mask = match *source {
                    Source::Epoch => Mask::constant(self.rows, members.contains(self.epoch)),
                    Source::Column { slot, .. } => {
                        with_values!(self.columns[slot], values => members.mask(values))
                    }
                };
                if *inside { mask } else { mask.negate() }
            }
            ExpressionPlan::Whole { op, left, right } => self.whole(*op, *left, *right),
            ExpressionPlan::Compare { op, left, right } => self.compare(*op, left, right, stack),
            ExpressionPlan::ComputedRange { value, low, high, inside } => {
                // `&` instead of `&&` avoids a branch in the loop.
                let mask = self.each_chunk(value, stack, |value| (value >= *low) & (value <= *high));
                if *inside { mask } else { mask.negate() }
            }
            ExpressionPlan::ComputedMember { value, members, inside } => {
                let mask = self.members(value, members, stack);
                if *inside { mask } else { mask.negate() }
            }
            ExpressionPlan::Tuple { columns, members, inside } => {
                let mask = self.tuples(columns, members);
                if *inside { mask } else { mask.negate() }
            }
            ExpressionPlan::IsNan(value) => self.each_chunk(value, stack, f64::is_nan),
            ExpressionPlan::Not(inner) => self.mask(inner, stack).negate(),
            ExpressionPlan::And(inner) => self.joined(inner, stack, true),
            ExpressionPlan::Or(inner) => self.joined(inner, stack, false),
        }
    }

    /// Evaluates a conjunction (`all`) or a disjunction. Stops as soon as a conjunction matches no row, or a
    /// disjunction matches every row.
    fn joined(&self, plans: &[ExpressionPlan], stack: &mut [Stack; 2], all: bool) -> Mask {
        let mut joined: Option<Mask> = None;
        for plan in plans {
            let mask = match joined.take() {
                Some(mask) if mask.is_all(!all) => return mask,
                Some(mut mask) => {
                    let other = self.mask(plan, stack);
                    if all {
                        mask.and(&other)
                    } else {
                        mask.or(&other)
                    }
                    mask
                }
                None => self.mask(plan, stack),
            };
            joined = Some(mask);
        }
        joined.unwrap_or_else(|| Mask::constant(self.rows, all))
    }

    fn whole(&self, op: CompareOp, left: Source, right: Source) -> Mask {
        let mut mask = Mask::constant(self.rows, false);
        let (mut a, mut b) = ([0i128; WORD_ROWS], [0i128; WORD_ROWS]);
        for first_row in (0..self.rows).step_by(WORD_ROWS) {
            let rows = WORD_ROWS.min(self.rows - first_row);
            self.load_whole(left, first_row, &mut a[..rows]);
            self.load_whole(right, first_row, &mut b[..rows]);
            mask.set_pairs(first_row, &a[..rows], &b[..rows], |a, b| op.holds(a, b));
        }
        mask
    }

    fn tuples(&self, columns: &[Source], members: &TupleSet) -> Mask {
        let mut mask = Mask::constant(self.rows, false);
        let mut tuple = Vec::with_capacity(members.width());
        let mut found = [false; WORD_ROWS];
        for first_row in (0..self.rows).step_by(WORD_ROWS) {
            let rows = WORD_ROWS.min(self.rows - first_row);
            for (row, found) in found[..rows].iter_mut().enumerate() {
                tuple.clear();
                for source in columns {
                    if let Source::Column { slot, data_type, .. } = *source {
                        self.columns[slot].pack(first_row + row, data_type.width(), &mut tuple);
                    }
                }
                *found = members.contains(&tuple);
            }
            mask.set(first_row, &found[..rows], |found| found);
        }
        mask
    }

    fn load_whole(&self, source: Source, first_row: usize, out: &mut [i128]) {
        match source {
            Source::Epoch => out.fill(self.epoch.into()),
            Source::Column { slot, .. } => with_values!(self.columns[slot], values => {
                for (out, value) in out.iter_mut().zip(&values[first_row..]) {
                    *out = *value as i128;
                }
            }),
        }
    }

    fn scalar(&self, scalar: Scalar) -> f64 {
        match scalar {
            Scalar::Literal(value) => value,
            Scalar::Epoch => self.epoch as f64,
            // Binding rejects source constants in predicates.
            Scalar::Constant(_) => f64::NAN,
        }
    }

    fn compare(&self, op: CompareOp, left: &Computed, right: &Computed, stack: &mut [Stack; 2]) -> Mask {
        let mut mask = Mask::constant(self.rows, false);
        let [left_stack, right_stack] = stack;
        let scalars = |scalar| self.scalar(scalar);
        for first_row in (0..self.rows).step_by(CHUNK_ROWS) {
            let rows = CHUNK_ROWS.min(self.rows - first_row);
            let a = left.program.run(self, &scalars, first_row, rows, left_stack);
            let b = right.program.run(self, &scalars, first_row, rows, right_stack);
            // Each operator has its own loop, so that no loop branches on the operator.
            match op {
                CompareOp::Equal => mask.set_pairs(first_row, a, b, |a, b| a == b),
                CompareOp::NotEqual => mask.set_pairs(first_row, a, b, |a, b| a != b),
                CompareOp::Less => mask.set_pairs(first_row, a, b, |a, b| a < b),
                CompareOp::LessOrEqual => mask.set_pairs(first_row, a, b, |a, b| a <= b),
                CompareOp::Greater => mask.set_pairs(first_row, a, b, |a, b| a > b),
                CompareOp::GreaterOrEqual => mask.set_pairs(first_row, a, b, |a, b| a >= b),
            }
        }
        mask
    }

    fn members(&self, value: &Computed, members: &Members, stack: &mut [Stack; 2]) -> Mask {
        self.each_chunk(value, stack, |value| members.contains(value))
    }

    fn each_chunk(&self, value: &Computed, stack: &mut [Stack; 2], test: impl Fn(f64) -> bool) -> Mask {
        let mut mask = Mask::constant(self.rows, false);
        for first_row in (0..self.rows).step_by(CHUNK_ROWS) {
            let rows = CHUNK_ROWS.min(self.rows - first_row);
            let values = value.program.run(self, &|scalar| self.scalar(scalar), first_row, rows, &mut stack[0]);
            mask.set(first_row, values, &test);
        }
        mask
    }
}

fn gather_all(condition: &Condition, columns: &mut Vec<usize>, epoch: &mut bool) {
    match condition {
        Condition::Constant(_) => {}
        Condition::Compare(_, left, right) => {
            gather(left, columns, epoch);
            gather(right, columns, epoch);
        }
        Condition::Between { value, low, high, .. } => {
            [value, low, high].iter().for_each(|number| gather(number, columns, epoch));
        }
        Condition::In { value, list, .. } => {
            gather(value, columns, epoch);
            list.iter().for_each(|number| gather(number, columns, epoch));
        }
        Condition::Tuple { columns: of, .. } => columns.extend(of.iter().map(|column| column.index)),
        Condition::IsNan(value) => gather(value, columns, epoch),
        Condition::Not(operand) => gather_all(operand, columns, epoch),
        Condition::And(operands) | Condition::Or(operands) => {
            operands.iter().for_each(|operand| gather_all(operand, columns, epoch));
        }
    }
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
        let plan = ExpressionPlanner { columns: &columns }.plan(condition);
        Self { text: condition.to_string(), plan, columns, types, uses_epoch }
    }

    /// Returns the predicate `column IN values` on an integer column, for lists that are too long to parse from text.
    ///
    /// # Errors
    /// [`ExpressionError::Input`] if the schema has no such integer column.
    pub(crate) fn any_of(
        schema: &Schema,
        column: usize,
        values: impl Iterator<Item = i128>,
    ) -> Result<Self, ExpressionError> {
        let Some(stated) = schema.columns().get(column).filter(|stated| stated.data_type.is_integer()) else {
            return Err(ExpressionError::Input(format!("column {column} is not an integer column")));
        };
        let source = Source::Column { slot: 0, index: column, data_type: stated.data_type };
        let (least, greatest) = type_range(stated.data_type);
        let fits = |value: &Value| {
            least.compare(*value).is_some_and(Ordering::is_le) && greatest.compare(*value).is_some_and(Ordering::is_ge)
        };
        let plan = ExpressionPlan::any_of(source, Members::new(values.map(Value::Int).filter(fits)), true);
        let text = format!("{} IN (…)", stated.name);
        Ok(Self { text, plan, columns: vec![column], types: vec![stated.data_type], uses_epoch: false })
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
        let types = read.iter().map(data_type).collect();
        Self { text: format!("({}) IN (…)", names.join(", ")), plan, columns: read, types, uses_epoch: false }
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
        let wrong = |what: String| ExpressionError::Input(format!("input of the predicate '{self}': {what}"));
        if arrays.len() != self.columns.len() {
            return Err(wrong(format!("{} arrays for {} columns", arrays.len(), self.columns.len())));
        }
        let mut columns = Vec::with_capacity(arrays.len());
        for ((array, data_type), index) in arrays.iter().zip(&self.types).zip(&self.columns) {
            if array.len() != rows || array.null_count() > 0 {
                let (found, nulls) = (array.len(), array.null_count());
                return Err(wrong(format!("column {index} has {found} values and {nulls} nulls, not {rows} values")));
            }
            let slice = Slice::new(array.as_ref(), *data_type)
                .ok_or_else(|| wrong(format!("column {index} is {data_type}, the array {}", array.data_type())))?;
            columns.push(slice);
        }
        Ok(PredicateInput { epoch, rows, columns })
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
    /// finite list.
    pub fn values_of(&self, column: usize) -> Option<Vec<Value>> {
        values_of(&self.plan, column)
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
