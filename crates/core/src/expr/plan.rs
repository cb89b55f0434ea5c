//! The execution plan of comparisons, built once per predicate.
//!
//! Every comparison of a bare column (or `epoch`) with a literal becomes a range test: the value lies in a closed
//! interval of the column's own type. For `x > v`, the interval begins at the next value above `v`. Hence one kernel
//! evaluates `=`, `<`, `<=`, `>`, `>=` and BETWEEN, and conjunctions of them on one column are merged into a single
//! pass. Pruning is an overlap test. NaN lies in no interval, so NaN follows IEEE 754 without a special case.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::sync::Arc;

use crate::schema::{DataType, Value};

use super::chunks::Slots;
use super::members::Members;
use super::program::{Formula, Program};
use super::tree::{ColumnRef, CompareOp, Condition, Number, rounded};
use super::tuples::TupleSet;

/// A value that is read without arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Column { slot: usize, index: usize, data_type: DataType },
    Epoch,
}

impl Source {
    pub(super) fn data_type(self) -> DataType {
        match self {
            Self::Column { data_type, .. } => data_type,
            Self::Epoch => DataType::U64,
        }
    }
}

/// A computed number: its tree for pruning, its formula for evaluation.
#[derive(Debug, Clone)]
pub(super) struct Computed {
    pub(super) tree: Number,
    pub(super) formula: Formula,
    /// The value of the condition for rows of which the number has no result. It is false if the condition is stated,
    /// and true if it is negated, so that such rows do not match.
    pub(super) without: bool,
}

/// An executable condition. `inside: false` negates the condition, which is then true for NaN.
#[derive(Debug, Clone)]
pub(super) enum ExpressionPlan {
    Constant(bool),
    /// The value lies in [low, high]. Both ends have the source's type, and the interval is not empty.
    Range {
        source: Source,
        low: Value,
        high: Value,
        inside: bool,
    },
    /// The value is a member of a list.
    Member {
        source: Source,
        members: Arc<Members>,
        inside: bool,
    },
    /// Numbers of which one is an integer, or both are, compare exactly.
    Compare {
        op: CompareOp,
        left: Computed,
        right: Computed,
    },
    /// The number lies in [low, high]. Both ends are integers if the number is one, and the interval is not empty.
    ComputedRange {
        value: Computed,
        low: Value,
        high: Value,
        inside: bool,
    },
    ComputedMember {
        value: Computed,
        members: Arc<Members>,
        inside: bool,
    },
    /// The values of columns are one of the tuples, at least one.
    Tuple {
        columns: Vec<Source>,
        members: Arc<TupleSet>,
        inside: bool,
    },
    IsNan(Computed),
    Not(Box<ExpressionPlan>),
    And(Vec<ExpressionPlan>),
    Or(Vec<ExpressionPlan>),
}

/// The condition of an `if`.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) holds: ExpressionPlan,
    /// The negation, if rows may have neither: a number of the condition has no result.
    pub(super) fails: Option<ExpressionPlan>,
}

/// The plans of all `if` of an expression, by slot.
pub(super) type Choices = Arc<[Choice]>;

/// A planner for the conditions of one expression.
pub(super) struct ExpressionPlanner<'a> {
    /// Columns in use, in ascending order. A column's slot is its index in this list.
    columns: &'a [usize],
    /// Whether the conditions are negated.
    negated: bool,
    choices: &'a RefCell<Vec<Choice>>,
}

/// Returns the smallest and largest value of a type. For floats these are the infinities.
pub(super) fn type_range(data_type: DataType) -> (Value, Value) {
    let whole = |low: i128, high: i128| (Value::Int(low), Value::Int(high));
    match data_type {
        DataType::I8 => whole(i8::MIN.into(), i8::MAX.into()),
        DataType::I16 => whole(i16::MIN.into(), i16::MAX.into()),
        DataType::I32 => whole(i32::MIN.into(), i32::MAX.into()),
        DataType::I64 => whole(i64::MIN.into(), i64::MAX.into()),
        DataType::U8 => whole(0, u8::MAX.into()),
        DataType::U16 => whole(0, u16::MAX.into()),
        DataType::U32 => whole(0, u32::MAX.into()),
        DataType::U64 => whole(0, u64::MAX.into()),
        DataType::F32 | DataType::F64 | DataType::FixedBytes(_) => {
            (Value::Float(f64::NEG_INFINITY), Value::Float(f64::INFINITY))
        }
    }
}

/// Returns the values of `data_type` for which `value op literal` is true, as a closed interval, or `None` if there are
/// none. For `NotEqual`, returns the interval of the values that do *not* match.
fn interval(op: CompareOp, data_type: DataType, literal: Value) -> Option<(Value, Value)> {
    let literal = rounded(data_type, literal);
    match data_type {
        DataType::F32 => {
            let next = |value: f32, up: bool| if up { value.next_up() } else { value.next_down() };
            float_interval(op, literal.as_f64(), |value, up| f64::from(next(value as f32, up)))
        }
        DataType::F64 => float_interval(op, literal.as_f64(), next_f64),
        _ => intersect(whole_interval(op, literal), Some(type_range(data_type))),
    }
}

fn next_f64(value: f64, up: bool) -> f64 {
    if up { value.next_up() } else { value.next_down() }
}

fn float_interval(op: CompareOp, literal: f64, next: impl Fn(f64, bool) -> f64) -> Option<(Value, Value)> {
    let (low, high) = match op {
        _ if literal.is_nan() => return None,
        CompareOp::Equal | CompareOp::NotEqual => (literal, literal),
        CompareOp::Less if literal == f64::NEG_INFINITY => return None,
        CompareOp::Less => (f64::NEG_INFINITY, next(literal, false)),
        CompareOp::LessOrEqual => (f64::NEG_INFINITY, literal),
        CompareOp::Greater if literal == f64::INFINITY => return None,
        CompareOp::Greater => (next(literal, true), f64::INFINITY),
        CompareOp::GreaterOrEqual => (literal, f64::INFINITY),
    };
    Some((Value::Float(low), Value::Float(high)))
}

/// Returns the integers of 128 bits for which `value op literal` is true, like [`interval`].
fn whole_interval(op: CompareOp, literal: Value) -> Option<(Value, Value)> {
    const BEYOND: f64 = (1u128 << 127) as f64;
    let (least, greatest) = (i128::MIN, i128::MAX);
    // The nearest integers that are not above and not below the literal, if there are any.
    let (below, above) = match literal {
        Value::Int(value) => (Some(value), Some(value)),
        Value::Float(value) if value.is_nan() => return None,
        Value::Float(value) if value >= BEYOND => (Some(greatest), None),
        Value::Float(value) if value < -BEYOND => (None, Some(least)),
        Value::Float(value) => (Some(value.floor() as i128), Some(value.ceil() as i128)),
    };
    let (low, high) = match op {
        CompareOp::Equal | CompareOp::NotEqual if below != above => return None,
        CompareOp::Equal | CompareOp::NotEqual => (below?, above?),
        CompareOp::Less => (least, above.map_or(Some(greatest), |above| above.checked_sub(1))?),
        CompareOp::LessOrEqual => (least, below?),
        CompareOp::Greater => (below.map_or(Some(least), |below| below.checked_add(1))?, greatest),
        CompareOp::GreaterOrEqual => (above?, greatest),
    };
    Some((Value::Int(low), Value::Int(high)))
}

fn range(source: Source, within: Option<(Value, Value)>, inside: bool) -> ExpressionPlan {
    match within {
        Some((low, high)) => ExpressionPlan::Range { source, low, high, inside },
        None => ExpressionPlan::Constant(!inside),
    }
}

fn greater(a: Value, b: Value) -> Value {
    if a.compare(b) == Some(Ordering::Less) { b } else { a }
}

fn lesser(a: Value, b: Value) -> Value {
    if a.compare(b) == Some(Ordering::Greater) { b } else { a }
}

fn intersect(a: Option<(Value, Value)>, b: Option<(Value, Value)>) -> Option<(Value, Value)> {
    let ((a_low, a_high), (b_low, b_high)) = (a?, b?);
    let (low, high) = (greater(a_low, b_low), lesser(a_high, b_high));
    (low.compare(high) != Some(Ordering::Greater)).then_some((low, high))
}

/// Returns the plan of two ranges of the same column or of the same computed number, or `None` for other plans.
fn both(one: &ExpressionPlan, other: &ExpressionPlan) -> Option<ExpressionPlan> {
    match (one, other) {
        (
            ExpressionPlan::Range { source, low, high, inside: true },
            ExpressionPlan::Range { source: same, low: other_low, high: other_high, inside: true },
        ) if source == same => {
            Some(range(*source, intersect(Some((*low, *high)), Some((*other_low, *other_high))), true))
        }
        (
            ExpressionPlan::ComputedRange { value, low, high, inside: true },
            ExpressionPlan::ComputedRange { value: same, low: other_low, high: other_high, inside: true },
        ) if value.tree == same.tree => match intersect(Some((*low, *high)), Some((*other_low, *other_high))) {
            Some((low, high)) => Some(ExpressionPlan::ComputedRange { value: value.clone(), low, high, inside: true }),
            None if value.tree.can_fault() => None,
            None => Some(ExpressionPlan::Constant(false)),
        },
        _ => None,
    }
}

impl ExpressionPlan {
    /// Returns a plan that tests whether a source's value is in a list.
    pub(super) fn any_of(source: Source, members: Arc<Members>, inside: bool) -> Self {
        match *members.values() {
            [] => Self::Constant(!inside),
            [value] => range(source, Some((value, value)), inside),
            _ => Self::Member { source, members, inside },
        }
    }
}

/// Returns the values of a type that equal one of these literals.
///
/// It is not inlined, since planning calls itself, and deep predicates have little stack.
#[inline(never)]
pub(super) fn members_of_type(data_type: DataType, literals: impl Iterator<Item = Value>) -> Arc<Members> {
    let equal = |literal| interval(CompareOp::Equal, data_type, literal);
    Arc::new(Members::new(literals.filter_map(equal).map(|(value, _)| value)))
}

/// Returns a rough cost of a plan per row. Cheap plans run first, and may make the others unnecessary.
fn cost(plan: &ExpressionPlan) -> usize {
    match plan {
        ExpressionPlan::Constant(_) => 0,
        ExpressionPlan::Range { .. } => 1,
        ExpressionPlan::Member { .. } => 3,
        ExpressionPlan::Compare { .. } | ExpressionPlan::ComputedRange { .. } | ExpressionPlan::IsNan(_) => 10,
        ExpressionPlan::ComputedMember { .. } | ExpressionPlan::Tuple { .. } => 13,
        ExpressionPlan::Not(inner) => cost(inner),
        ExpressionPlan::And(inner) | ExpressionPlan::Or(inner) => inner.iter().map(cost).sum(),
    }
}

impl Slots for ExpressionPlanner<'_> {
    fn column(&self, index: usize) -> usize {
        // The list contains every column of the tree, since it was gathered from the tree.
        self.columns.partition_point(|column| *column < index)
    }

    fn condition(&self, condition: &Condition) -> usize {
        let plan = |negated| Self { negated, ..*self }.plan(condition);
        let holds = plan(false);
        let fails = condition.can_fault().then(|| ExpressionPlan::Not(Box::new(plan(true))));
        let mut choices = self.choices.borrow_mut();
        choices.push(Choice { holds, fails });
        choices.len() - 1
    }
}

impl ExpressionPlanner<'_> {
    /// Compiles an expression over these columns, which are in ascending order, and the conditions in it.
    pub(super) fn compile<T>(columns: &[usize], compile: impl FnOnce(&ExpressionPlanner<'_>) -> T) -> (T, Choices) {
        let choices = RefCell::default();
        let compiled = compile(&ExpressionPlanner { columns, negated: false, choices: &choices });
        (compiled, choices.into_inner().into())
    }

    pub(super) fn plan(&self, condition: &Condition) -> ExpressionPlan {
        match condition {
            Condition::Constant(value) => ExpressionPlan::Constant(*value),
            Condition::Compare(op, left, right) => self.compare(*op, left, right),
            Condition::Between { value, low, high, negated } => self.between(value, low, high, *negated),
            Condition::In { value, list, negated } => self.member(value, list, *negated),
            Condition::Tuple { columns, members, negated } => {
                let source = |column: &ColumnRef| {
                    let ColumnRef { index, data_type, .. } = *column;
                    Source::Column { slot: self.column(index), index, data_type }
                };
                let columns = columns.iter().map(source).collect();
                ExpressionPlan::Tuple { columns, members: Arc::new(members.clone()), inside: !negated }
            }
            Condition::IsNan(value) => match self.source(value) {
                // Integers are never NaN.
                Some(source) if !source.data_type().is_float() => ExpressionPlan::Constant(false),
                _ => ExpressionPlan::IsNan(self.computed(value)),
            },
            Condition::Not(operand) => ExpressionPlan::Not(Box::new(self.opposite(true).plan(operand))),
            Condition::And(operands) => Self::all(operands.iter().map(|operand| self.plan(operand))),
            Condition::Or(operands) => {
                let mut plans: Vec<ExpressionPlan> = operands.iter().map(|operand| self.plan(operand)).collect();
                plans.sort_by_key(cost);
                ExpressionPlan::Or(plans)
            }
        }
    }

    /// Builds a conjunction, and merges the ranges of each column and of each computed number into one.
    fn all(operands: impl Iterator<Item = ExpressionPlan>) -> ExpressionPlan {
        let mut plans: Vec<ExpressionPlan> = Vec::new();
        for operand in operands {
            let merged = plans.iter().enumerate().find_map(|(place, plan)| Some((place, both(plan, &operand)?)));
            match merged {
                Some((place, plan)) => plans[place] = plan,
                None => plans.push(operand),
            }
        }
        plans.sort_by_key(cost);
        ExpressionPlan::And(plans)
    }

    fn source(&self, number: &Number) -> Option<Source> {
        match number {
            Number::Column(column) => Some(Source::Column {
                slot: self.column(column.index),
                index: column.index,
                data_type: column.data_type,
            }),
            Number::Epoch => Some(Source::Epoch),
            _ => None,
        }
    }

    /// Returns the planner of the operand of a negation, if there is one.
    fn opposite(&self, negated: bool) -> Self {
        Self { negated: self.negated != negated, ..*self }
    }

    fn computed(&self, number: &Number) -> Computed {
        let formula = Formula::new(number, self);
        Computed { tree: number.clone(), formula, without: self.negated }
    }

    /// Returns an operand of a comparison whose other operand is not an integer.
    fn beside_float(&self, number: &Number) -> Computed {
        match self.source(number).map(Source::data_type) {
            Some(DataType::I64 | DataType::U64) | None => self.computed(number),
            // The column's values are exact in f64, in which they are compared faster.
            Some(_) => {
                let formula = Formula::Float(Program::new(number, self));
                Computed { tree: number.clone(), formula, without: self.negated }
            }
        }
    }

    fn compare(&self, op: CompareOp, left: &Number, right: &Number) -> ExpressionPlan {
        let with_literal = |op: CompareOp, source: Source, literal: Value| {
            range(source, interval(op, source.data_type(), literal), op != CompareOp::NotEqual)
        };
        if let (Some(a), Some(b)) = (left.literal(), right.literal()) {
            return ExpressionPlan::Constant(op.holds_exactly(a, b));
        }
        if let (Some(source), Some(literal)) = (self.source(left), right.literal()) {
            return with_literal(op, source, literal);
        }
        if let (Some(literal), Some(source)) = (left.literal(), self.source(right)) {
            return with_literal(op.flipped(), source, literal);
        }
        if let Some(literal) = right.literal() {
            return self.computed_range(op, left, literal);
        }
        if let Some(literal) = left.literal() {
            return self.computed_range(op.flipped(), right, literal);
        }
        let (left, right) = match left.is_whole() && right.is_whole() {
            true => (self.computed(left), self.computed(right)),
            false => (self.beside_float(left), self.beside_float(right)),
        };
        ExpressionPlan::Compare { op, left, right }
    }

    /// Plans the comparison of a computed number with a literal.
    fn computed_range(&self, op: CompareOp, number: &Number, literal: Value) -> ExpressionPlan {
        let within = match number.is_whole() {
            true => whole_interval(op, literal),
            false => float_interval(op, literal.as_f64(), next_f64),
        };
        let (value, inside) = (self.computed(number), op != CompareOp::NotEqual);
        match within {
            Some((low, high)) => ExpressionPlan::ComputedRange { value, low, high, inside },
            None => self.never(value, inside),
        }
    }

    /// Returns the plan of a number that lies in no value, or in any value if not `inside`.
    fn never(&self, value: Computed, inside: bool) -> ExpressionPlan {
        match value.tree.can_fault() {
            true => ExpressionPlan::ComputedMember { value, members: Arc::new(Members::new([])), inside },
            false => ExpressionPlan::Constant(!inside),
        }
    }

    fn between(&self, value: &Number, low: &Number, high: &Number, negated: bool) -> ExpressionPlan {
        if let (Some(source), Some(low), Some(high)) = (self.source(value), low.literal(), high.literal()) {
            let from = interval(CompareOp::GreaterOrEqual, source.data_type(), low);
            let to = interval(CompareOp::LessOrEqual, source.data_type(), high);
            return range(source, intersect(from, to), !negated);
        }
        let planner = self.opposite(negated);
        let from = planner.compare(CompareOp::GreaterOrEqual, value, low);
        let to = planner.compare(CompareOp::LessOrEqual, value, high);
        let both = Self::all([from, to].into_iter());
        if negated { ExpressionPlan::Not(Box::new(both)) } else { both }
    }

    fn member(&self, value: &Number, list: &[Number], negated: bool) -> ExpressionPlan {
        let literals: Option<Vec<Value>> = list.iter().map(Number::literal).collect();
        let (source, Some(literals), None) = (self.source(value), literals, value.literal()) else {
            // If the list contains columns, or the value is a literal, each item becomes a comparison.
            let planner = self.opposite(negated);
            let any = list.iter().map(|item| planner.compare(CompareOp::Equal, value, item)).collect();
            return if negated {
                ExpressionPlan::Not(Box::new(ExpressionPlan::Or(any)))
            } else {
                ExpressionPlan::Or(any)
            };
        };
        match source {
            Some(source) => {
                let members = members_of_type(source.data_type(), literals.into_iter());
                ExpressionPlan::any_of(source, members, !negated)
            }
            None => {
                let equal = |literal| whole_interval(CompareOp::Equal, literal).map(|(value, _)| value);
                let members = match value.is_whole() {
                    true => Members::new(literals.into_iter().filter_map(equal)),
                    false => Members::new(literals.into_iter().map(|literal| Value::Float(literal.as_f64()))),
                };
                ExpressionPlan::ComputedMember {
                    value: self.computed(value),
                    members: Arc::new(members),
                    inside: !negated,
                }
            }
        }
    }
}
