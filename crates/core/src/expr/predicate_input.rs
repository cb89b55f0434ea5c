//! Evaluates predicates on the native values of columns.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef};

use crate::schema::{DataType, Value};

use super::chunks::{CHUNK_ROWS, Chunks};
use super::mask::{Mask, WORD_ROWS};
use super::members::Code;
use super::plan::{Choices, Computed, ExpressionPlan, Source, type_range};
use super::program::{Stack, Values};
use super::tree::CompareOp;
use super::tuples::TupleSet;

/// Columns of some rows of one epoch, checked to match one expression.
#[derive(Debug)]
pub struct PredicateInput<'a> {
    epoch: u64,
    rows: usize,
    columns: Vec<Slice<'a>>,
    choices: Choices,
    /// Values of the constants of a derivation.
    constants: &'a [f64],
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
    /// Byte strings of one length, concatenated, and the length. Only tuples read them.
    Bytes(&'a [u8], usize),
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
            Slice::Bytes(..) => unreachable!("binding accepts byte strings in tuples only"),
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
                Some(Self::Bytes(array.value_data(), width as usize))
            }
        }
    }

    /// Returns the part that has these rows.
    fn part(self, first_row: usize, rows: usize) -> Self {
        let range = first_row..first_row + rows;
        macro_rules! parts {
            ($($variant:ident),*) => {
                match self {
                    $(Self::$variant(values) => Self::$variant(&values[range]),)*
                    Self::Bytes(values, width) => Self::Bytes(&values[range.start * width..range.end * width], width),
                }
            };
        }
        parts!(I8, I16, I32, I64, U8, U16, U32, U64, F32, F64)
    }

    /// Appends the stored bytes of a row's value.
    fn pack(self, row: usize, out: &mut Vec<u8>) {
        match self {
            Self::Bytes(values, width) => out.extend_from_slice(&values[row * width..][..width]),
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

    fn load_whole(&self, slot: usize, first_row: usize, out: &mut [i128]) {
        with_values!(self.columns[slot], values => {
            for (out, value) in out.iter_mut().zip(&values[first_row..]) {
                *out = *value as i128;
            }
        });
    }

    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn constant(&self, index: usize) -> f64 {
        self.constants[index]
    }

    fn condition(&self, slot: usize, first_row: usize, rows: usize, unknown: &mut dyn FnMut(usize)) -> Mask {
        let columns = self.columns.iter().map(|column| column.part(first_row, rows)).collect();
        let part = PredicateInput { epoch: self.epoch, rows, columns, choices: self.choices.clone(), ..*self };
        let mut stack = <[Stack; 2]>::default();
        let choice = &self.choices[slot];
        let holds = part.mask(&choice.holds, &mut stack);
        if let Some(fails) = &choice.fails {
            let fails = part.mask(fails, &mut stack);
            (0..rows).filter(|row| !holds.get(*row) && !fails.get(*row)).for_each(unknown);
        }
        holds
    }
}

impl<'a> PredicateInput<'a> {
    /// Wraps one array for each of these columns of a schema.
    ///
    /// # Errors
    /// If an array has nulls, or another type or length than its column.
    pub(super) fn new(
        (epoch, rows): (u64, usize),
        arrays: &'a [ArrayRef],
        columns: impl ExactSizeIterator<Item = (usize, DataType)>,
        choices: Choices,
    ) -> Result<Self, String> {
        if arrays.len() != columns.len() {
            return Err(format!("{} arrays for {} columns", arrays.len(), columns.len()));
        }
        let wrap = |(array, (index, data_type)): (&'a ArrayRef, (usize, DataType))| {
            if array.len() != rows || array.null_count() > 0 {
                let (found, nulls) = (array.len(), array.null_count());
                return Err(format!("column {index} has {found} values and {nulls} nulls, not {rows} values"));
            }
            Slice::new(array.as_ref(), data_type)
                .ok_or_else(|| format!("column {index} is {data_type}, the array {}", array.data_type()))
        };
        let columns = arrays.iter().zip(columns).map(wrap).collect::<Result<_, _>>()?;
        Ok(Self { epoch, rows, columns, choices, constants: &[] })
    }

    /// Adds the values of a derivation's constants.
    pub(super) fn with_constants(self, constants: &'a [f64]) -> Self {
        Self { constants, ..self }
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Evaluates a plan of the predicate's.
    pub(super) fn mask(&self, plan: &ExpressionPlan, stack: &mut [Stack; 2]) -> Mask {
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
            ExpressionPlan::Compare { op, left, right } => self.compare(*op, left, right, stack),
            ExpressionPlan::ComputedRange { value, low, high, inside } => {
                // `&` instead of `&&` avoids a branch in the loop.
                match (*low, *high) {
                    (Value::Int(low), Value::Int(high)) => {
                        self.each_whole(value, stack, *inside, |value| (value >= low) & (value <= high))
                    }
                    (low, high) => {
                        let (low, high) = (low.as_f64(), high.as_f64());
                        self.each_float(value, stack, *inside, |value| (value >= low) & (value <= high))
                    }
                }
            }
            ExpressionPlan::ComputedMember { value, members, inside } => match value.tree.is_whole() {
                true => self.each_whole(value, stack, *inside, |value| members.contains_whole(value)),
                false => self.each_float(value, stack, *inside, |value| members.contains(value)),
            },
            ExpressionPlan::Tuple { columns, members, inside } => {
                let mask = self.tuples(columns, members);
                if *inside { mask } else { mask.negate() }
            }
            ExpressionPlan::IsNan(value) => self.each_float(value, stack, true, f64::is_nan),
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

    fn tuples(&self, columns: &[Source], members: &TupleSet) -> Mask {
        let mut mask = Mask::constant(self.rows, false);
        let mut tuple = Vec::with_capacity(members.width());
        let mut found = [false; WORD_ROWS];
        for first_row in (0..self.rows).step_by(WORD_ROWS) {
            let rows = WORD_ROWS.min(self.rows - first_row);
            for (row, found) in found[..rows].iter_mut().enumerate() {
                tuple.clear();
                for source in columns {
                    if let Source::Column { slot, .. } = *source {
                        self.columns[slot].pack(first_row + row, &mut tuple);
                    }
                }
                *found = members.contains(&tuple);
            }
            mask.set(first_row, &found[..rows], |found| found);
        }
        mask
    }

    fn compare(&self, op: CompareOp, left: &Computed, right: &Computed, stack: &mut [Stack; 2]) -> Mask {
        let mut mask = Mask::constant(self.rows, false);
        let [left_stack, right_stack] = stack;
        for first_row in (0..self.rows).step_by(CHUNK_ROWS) {
            let rows = CHUNK_ROWS.min(self.rows - first_row);
            let (a, faults) = left.formula.run(self, first_row, rows, left_stack);
            let (b, others) = right.formula.run(self, first_row, rows, right_stack);
            match (a, b) {
                (Values::Float(a), Values::Float(b)) => compare_floats(&mut mask, first_row, op, a, b),
                (Values::Whole(a), Values::Whole(b)) => mask.set_pairs(first_row, a, b, |a, b| op.holds(a, b)),
                (Values::Whole(a), Values::Float(b)) => {
                    mask.set_pairs(first_row, a, b, |a, b| op.holds_exactly(Value::Int(a), Value::Float(b)));
                }
                (Values::Float(a), Values::Whole(b)) => {
                    mask.set_pairs(first_row, a, b, |a, b| op.holds_exactly(Value::Float(a), Value::Int(b)));
                }
            }
            for (row, _) in faults.rows().chain(others.rows()) {
                mask.put(first_row + row, left.without);
            }
        }
        mask
    }

    fn each_float(&self, value: &Computed, stack: &mut [Stack; 2], inside: bool, test: impl Fn(f64) -> bool) -> Mask {
        self.each_chunk(value, stack, inside, |mask, first_row, values| {
            if let Values::Float(values) = values {
                mask.set(first_row, values, &test);
            }
        })
    }

    fn each_whole(&self, value: &Computed, stack: &mut [Stack; 2], inside: bool, test: impl Fn(i128) -> bool) -> Mask {
        self.each_chunk(value, stack, inside, |mask, first_row, values| {
            if let Values::Whole(values) = values {
                mask.set(first_row, values, &test);
            }
        })
    }

    /// Returns the mask that `test` sets, or its negation if not `inside`. `test` does not set the bits of integers if
    /// it is one of floats, and the reverse.
    fn each_chunk(
        &self,
        value: &Computed,
        stack: &mut [Stack; 2],
        inside: bool,
        test: impl Fn(&mut Mask, usize, Values<'_>),
    ) -> Mask {
        let mut mask = Mask::constant(self.rows, false);
        for first_row in (0..self.rows).step_by(CHUNK_ROWS) {
            let rows = CHUNK_ROWS.min(self.rows - first_row);
            let (values, faults) = value.formula.run(self, first_row, rows, &mut stack[0]);
            test(&mut mask, first_row, values);
            for (row, _) in faults.rows() {
                mask.put(first_row + row, value.without == inside);
            }
        }
        if inside { mask } else { mask.negate() }
    }
}

fn compare_floats(mask: &mut Mask, first_row: usize, op: CompareOp, a: &[f64], b: &[f64]) {
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
