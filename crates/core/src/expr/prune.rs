//! Pruning: decides from statistics whether a predicate is true for no row, for all rows, or possibly for some.
//!
//! Pruning is sound but not complete: `Never` and `Always` are guaranteed, while `Maybe` may stand for either of them.
//! A number is represented by the interval of its non-NaN values, and by whether it can be NaN (`intervals`). Bounds of
//! integers are integers (`prune_whole`). An `if` has the values of the branches that rows may take. Rows of which a
//! number has no result have the truth value that [`Computed`] states.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::schema::{DataType, Value};

use super::intervals::{self, Interval, Remainders};
use super::members::Members;
use super::plan::{Computed, ExpressionPlan, Source, type_range};
use super::prune_whole::{self, WholeBounds};
use super::tree::{BinaryOp, ColumnRef, CompareOp, Condition, Number};

/// The presence of NaN in a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NanPresence {
    /// No value is NaN.
    None,
    /// Some values are NaN, some are not.
    Some,
    /// Every value is NaN.
    All,
    /// The presence of NaN is unknown.
    Unknown,
}

/// Statistics of one column over some rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ColumnBounds {
    /// Closed bounds of the non-NaN values. The bounds may be wider than the values. `None` means that the bounds are
    /// unknown, or that there are no such values if `nan` is [`NanPresence::All`].
    pub range: Option<(Value, Value)>,
    /// The presence of NaN. It is ignored for integer columns.
    pub nan: NanPresence,
}

/// The truth of a predicate over a set of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TruthValue {
    /// No row matches.
    Never,
    /// Some rows may match.
    Maybe,
    /// Every row matches.
    Always,
}

impl TruthValue {
    fn of(can_hold: bool, can_fail: bool) -> Self {
        match (can_hold, can_fail) {
            (true, false) => Self::Always,
            (false, true) => Self::Never,
            // Both are false only for an empty set of rows, for which any result is valid.
            _ => Self::Maybe,
        }
    }

    /// Returns the truth value of the predicate's negation.
    #[must_use]
    pub fn opposite(self) -> Self {
        match self {
            Self::Never => Self::Always,
            Self::Maybe => Self::Maybe,
            Self::Always => Self::Never,
        }
    }
}

/// Exact bounds of a column, of `epoch`, or of a computed number.
struct Known {
    /// `None` means that every value is NaN.
    range: Option<(Value, Value)>,
    can_be_nan: bool,
}

/// The evaluation of plans on the statistics of one set of rows.
pub(super) struct Pruner<'a> {
    pub(super) epoch: u64,
    pub(super) summary: &'a dyn Fn(usize) -> Option<ColumnBounds>,
}

fn compare(op: CompareOp, left: &Known, right: &Known) -> TruthValue {
    use CompareOp::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
    let can_be_nan = left.can_be_nan || right.can_be_nan;
    let (Some(a), Some(b)) = (left.range, right.range) else {
        // Every pair contains a NaN.
        return if op == NotEqual { TruthValue::Always } else { TruthValue::Never };
    };
    let overlap = at_most(a.0, b.1) && at_most(b.0, a.1);
    let one_value = [a.1, b.0, b.1].into_iter().all(|end| Equal.holds_exactly(a.0, end));
    match op {
        Equal => TruthValue::of(overlap, !one_value || can_be_nan),
        NotEqual => TruthValue::of(!one_value || can_be_nan, overlap),
        Less => TruthValue::of(Less.holds_exactly(a.0, b.1), at_most(b.0, a.1) || can_be_nan),
        LessOrEqual => TruthValue::of(at_most(a.0, b.1), Greater.holds_exactly(a.1, b.0) || can_be_nan),
        Greater => TruthValue::of(Greater.holds_exactly(a.1, b.0), at_most(a.0, b.1) || can_be_nan),
        GreaterOrEqual => TruthValue::of(at_most(b.0, a.1), Less.holds_exactly(a.0, b.1) || can_be_nan),
    }
}

fn all(truths: impl Iterator<Item = TruthValue>) -> TruthValue {
    truths.min().unwrap_or(TruthValue::Always)
}

fn any(truths: impl Iterator<Item = TruthValue>) -> TruthValue {
    truths.max().unwrap_or(TruthValue::Never)
}

fn of_whole(range: Option<(i128, i128)>) -> Option<(Value, Value)> {
    range.map(|(low, high)| (Value::Int(low), Value::Int(high)))
}

fn of_float(range: Option<(f64, f64)>) -> Option<(Value, Value)> {
    range.map(|(low, high)| (Value::Float(low), Value::Float(high)))
}

fn at_most(a: Value, b: Value) -> bool {
    matches!(a.compare(b), Some(Ordering::Less | Ordering::Equal))
}

/// Returns a closed range that contains the column's values of all matching rows, or `None` if the plan implies no
/// range. Rows with NaN in the column do not match such a plan.
pub(super) fn range_of(plan: &ExpressionPlan, column: usize) -> Option<(Value, Value)> {
    match plan {
        ExpressionPlan::Range { source: Source::Column { index, .. }, low, high, inside: true } if *index == column => {
            Some((*low, *high))
        }
        ExpressionPlan::Member { source: Source::Column { index, .. }, members, inside: true } if *index == column => {
            members.values().first().copied().zip(members.values().last().copied())
        }
        ExpressionPlan::And(inner) => inner.iter().filter_map(|plan| range_of(plan, column)).reduce(|one, other| {
            let low = if at_most(one.0, other.0) { other.0 } else { one.0 };
            (low, if at_most(one.1, other.1) { one.1 } else { other.1 })
        }),
        ExpressionPlan::Or(inner) => {
            let ranges: Option<Vec<_>> = inner.iter().map(|plan| range_of(plan, column)).collect();
            ranges?.into_iter().reduce(|one, other| {
                let low = if at_most(one.0, other.0) { one.0 } else { other.0 };
                (low, if at_most(one.1, other.1) { other.1 } else { one.1 })
            })
        }
        _ => None,
    }
}

/// Returns values among which are the column's values of all matching rows, or `None` if the plan implies no finite
/// list. A list is not copied.
pub(super) fn members_of(plan: &ExpressionPlan, column: usize) -> Option<Arc<Members>> {
    match plan {
        ExpressionPlan::Range { source: Source::Column { index, .. }, low, high, inside: true }
            if *index == column && at_most(*high, *low) =>
        {
            Some(Arc::new(Members::new([*low])))
        }
        ExpressionPlan::Member { source: Source::Column { index, .. }, members, inside: true } if *index == column => {
            Some(members.clone())
        }
        ExpressionPlan::And(inner) => {
            inner.iter().filter_map(|plan| members_of(plan, column)).min_by_key(|members| members.values().len())
        }
        ExpressionPlan::Or(inner) => {
            let lists: Option<Vec<_>> = inner.iter().map(|plan| members_of(plan, column)).collect();
            let lists = lists?;
            Some(Arc::new(Members::new(lists.iter().flat_map(|members| members.values()).copied())))
        }
        _ => None,
    }
}

impl Pruner<'_> {
    pub(super) fn truth(&self, plan: &ExpressionPlan) -> TruthValue {
        match plan {
            ExpressionPlan::Constant(value) => TruthValue::of(*value, !*value),
            ExpressionPlan::Range { source, low, high, inside } => {
                let truth = match self.known(*source) {
                    Known { range: None, .. } => TruthValue::Never,
                    Known { range: Some((least, greatest)), can_be_nan } => {
                        let can_hold = at_most(*low, greatest) && at_most(least, *high);
                        let can_fail = !at_most(*low, least) || !at_most(greatest, *high) || can_be_nan;
                        TruthValue::of(can_hold, can_fail)
                    }
                };
                if *inside { truth } else { truth.opposite() }
            }
            ExpressionPlan::Member { source, members, inside } => {
                let truth = self.member(self.known(*source), members);
                if *inside { truth } else { truth.opposite() }
            }
            ExpressionPlan::ComputedRange { value, low, high, inside } => {
                let truth = self.computed_range(&value.tree, (*low, *high));
                self.with_faults(&[value], if *inside { truth } else { truth.opposite() })
            }
            ExpressionPlan::Compare { op, left, right } => {
                let truth = compare(*op, &self.computed(&left.tree), &self.computed(&right.tree));
                self.with_faults(&[left, right], truth)
            }
            ExpressionPlan::ComputedMember { value, members, inside } => {
                let truth = self.member(self.computed(&value.tree), members);
                self.with_faults(&[value], if *inside { truth } else { truth.opposite() })
            }
            ExpressionPlan::Tuple { columns, members, inside } => {
                let bounds = |source: &Source| match *source {
                    Source::Column { index, .. } => (self.summary)(index)?.range,
                    Source::Epoch => None,
                };
                let bounds: Vec<_> = columns.iter().map(bounds).collect();
                let truth = TruthValue::of(members.any_within(&bounds), true);
                if *inside { truth } else { truth.opposite() }
            }
            ExpressionPlan::IsNan(value) => {
                let Known { range, can_be_nan } = self.computed(&value.tree);
                self.with_faults(&[value], TruthValue::of(can_be_nan, range.is_some()))
            }
            ExpressionPlan::Not(inner) => self.truth(inner).opposite(),
            ExpressionPlan::And(inner) => all(inner.iter().map(|plan| self.truth(plan))),
            ExpressionPlan::Or(inner) => any(inner.iter().map(|plan| self.truth(plan))),
        }
    }

    /// Evaluates the condition of an `if`: `Never` if it holds for no row, `Always` if it fails for none. Rows for
    /// which it does neither have no result.
    fn condition(&self, condition: &Condition) -> TruthValue {
        let compared = |op, left, right| compare(op, &self.computed(left), &self.computed(right));
        let unless = |negated: &bool, truth: TruthValue| if *negated { truth.opposite() } else { truth };
        match condition {
            Condition::Constant(value) => TruthValue::of(*value, !*value),
            Condition::Compare(op, left, right) => compared(*op, left, right),
            Condition::Between { value, low, high, negated } => {
                let (from, to) = (CompareOp::GreaterOrEqual, CompareOp::LessOrEqual);
                unless(negated, all([compared(from, value, low), compared(to, value, high)].into_iter()))
            }
            Condition::In { value, list, negated } => {
                unless(negated, any(list.iter().map(|item| compared(CompareOp::Equal, value, item))))
            }
            Condition::Tuple { .. } => TruthValue::Maybe,
            Condition::IsNan(value) => {
                let Known { range, can_be_nan } = self.computed(value);
                TruthValue::of(can_be_nan, range.is_some())
            }
            Condition::Not(operand) => self.condition(operand).opposite(),
            Condition::And(operands) => all(operands.iter().map(|operand| self.condition(operand))),
            Condition::Or(operands) => any(operands.iter().map(|operand| self.condition(operand))),
        }
    }

    /// Returns the branches of an `if` that rows may take.
    fn branches<'n>(
        &self,
        condition: &Condition,
        then: &'n Number,
        otherwise: &'n Number,
    ) -> impl Iterator<Item = &'n Number> {
        let truth = self.condition(condition);
        let first = (truth != TruthValue::Never).then_some(then);
        first.into_iter().chain((truth != TruthValue::Always).then_some(otherwise))
    }

    /// Returns whether a number lies in a closed interval.
    fn computed_range(&self, number: &Number, (low, high): (Value, Value)) -> TruthValue {
        let (pieces, can_be_nan) = match number {
            Number::Binary(BinaryOp::Remainder, left, right) if number.is_whole() => {
                let ranges = self.whole(left).range.zip(self.whole(right).range);
                (ranges.map_or([None; 2], |(a, b)| prune_whole::remainders(a, b).map(of_whole)), false)
            }
            Number::Binary(BinaryOp::Remainder, left, right) => {
                let Remainders { pieces, can_be_nan } = intervals::remainder(self.number(left), self.number(right));
                (pieces.map(of_float), can_be_nan)
            }
            number => {
                let Known { range, can_be_nan } = self.computed(number);
                ([range, None], can_be_nan)
            }
        };
        let mut pieces = pieces.into_iter().flatten().peekable();
        if pieces.peek().is_none() {
            // Every value is NaN.
            return TruthValue::Never;
        }
        let (mut can_hold, mut can_fail) = (false, can_be_nan);
        for (least, greatest) in pieces {
            can_hold |= at_most(low, greatest) && at_most(least, high);
            can_fail |= !at_most(low, least) || !at_most(greatest, high);
        }
        TruthValue::of(can_hold, can_fail)
    }

    /// Returns the truth value of a condition on some numbers, with the rows of which one of them has no result.
    fn with_faults(&self, numbers: &[&Computed], truth: TruthValue) -> TruthValue {
        let mut faulty = numbers.iter().filter(|number| self.can_fault(&number.tree));
        match (faulty.next().map(|number| number.without), truth) {
            (Some(true), TruthValue::Never) | (Some(false), TruthValue::Always) => TruthValue::Maybe,
            _ => truth,
        }
    }

    /// Returns whether a number may have no result in some row.
    fn can_fault(&self, number: &Number) -> bool {
        match number {
            _ if number.is_whole() => self.whole(number).can_fault,
            Number::Unary(_, operand) => self.can_fault(operand),
            Number::Binary(_, left, right) => self.can_fault(left) || self.can_fault(right),
            Number::If(condition, then, otherwise) => {
                condition.can_fault() || self.branches(condition, then, otherwise).any(|branch| self.can_fault(branch))
            }
            _ => false,
        }
    }

    fn member(&self, known: Known, members: &Members) -> TruthValue {
        let Some((low, high)) = known.range else { return TruthValue::Never };
        let can_hold = members.any_within(low, high);
        let one_value = low.compare(high) == Some(Ordering::Equal);
        TruthValue::of(can_hold, !(can_hold && one_value) || known.can_be_nan)
    }

    fn known(&self, source: Source) -> Known {
        match source {
            Source::Epoch => {
                let epoch = Value::Int(self.epoch.into());
                Known { range: Some((epoch, epoch)), can_be_nan: false }
            }
            Source::Column { index, data_type, .. } => self.known_column(index, data_type),
        }
    }

    fn known_column(&self, index: usize, data_type: DataType) -> Known {
        let bounds = (self.summary)(index).unwrap_or(ColumnBounds { range: None, nan: NanPresence::Unknown });
        if !data_type.is_float() {
            return Known { range: Some(bounds.range.unwrap_or(type_range(data_type))), can_be_nan: false };
        }
        match (bounds.nan, bounds.range) {
            (NanPresence::All, _) => Known { range: None, can_be_nan: true },
            (nan, range) => {
                Known { range: Some(range.unwrap_or(type_range(data_type))), can_be_nan: nan != NanPresence::None }
            }
        }
    }

    fn computed(&self, number: &Number) -> Known {
        if number.is_whole() {
            return Known { range: of_whole(self.whole(number).range), can_be_nan: false };
        }
        let Interval { range, can_be_nan } = self.number(number);
        Known { range: of_float(range), can_be_nan }
    }

    /// Returns the bounds of an integer.
    pub(super) fn whole(&self, number: &Number) -> WholeBounds {
        let known = |range| WholeBounds { range: Some(range), can_fault: false };
        match number {
            Number::Column(ColumnRef { index, data_type, .. }) => {
                let of_type = type_range(*data_type);
                match (self.known_column(*index, *data_type).range, of_type) {
                    (Some((Value::Int(low), Value::Int(high))), _) | (_, (Value::Int(low), Value::Int(high))) => {
                        known((low, high))
                    }
                    _ => known((i128::MIN, i128::MAX)),
                }
            }
            Number::Epoch => known((self.epoch.into(), self.epoch.into())),
            Number::Literal(Value::Int(value)) => known((*value, *value)),
            Number::Unary(op, operand) => prune_whole::unary(*op, self.whole(operand)),
            Number::Binary(op, left, right) => prune_whole::binary(*op, self.whole(left), self.whole(right)),
            Number::If(condition, then, otherwise) => {
                let branches = self.branches(condition, then, otherwise).map(|branch| self.whole(branch));
                branches.fold(WholeBounds { range: None, can_fault: condition.can_fault() }, WholeBounds::or)
            }
            Number::Literal(_) | Number::Single(_) | Number::Constant(..) | Number::Bits(_) => {
                unreachable!("these numbers are floats")
            }
        }
    }

    fn column(&self, index: usize, data_type: DataType) -> Interval {
        let Known { range, can_be_nan } = self.known_column(index, data_type);
        // The rows' values are converted with the same rounding, which is monotone.
        Interval { range: range.map(|(low, high)| (low.as_f64(), high.as_f64())), can_be_nan }
    }

    fn number(&self, number: &Number) -> Interval {
        match number {
            Number::Column(column) => self.column(column.index, column.data_type),
            Number::Bits(column) => intervals::bits(self.column(column.index, column.data_type)),
            Number::Epoch => Interval::point(self.epoch as f64),
            // Predicates have no source constants.
            Number::Constant(..) => Interval::ANYTHING,
            Number::Literal(_) | Number::Single(_) => {
                number.literal().map_or(Interval::ANYTHING, |value| Interval::point(value.as_f64()))
            }
            number if number.is_computed_whole() => {
                // The rows' values are converted with the same rounding, which is monotone.
                let range = self.whole(number).range.map(|(low, high)| (low as f64, high as f64));
                range.map_or(Interval::NAN, |range| Interval { range: Some(range), can_be_nan: false })
            }
            Number::Unary(op, operand) => intervals::unary(*op, self.number(operand)),
            Number::Binary(op, left, right) => match number.root() {
                Some(root) => intervals::square(self.number(root)),
                None => intervals::binary(*op, self.number(left), self.number(right)),
            },
            Number::If(condition, then, otherwise) => {
                let branches = self.branches(condition, then, otherwise).map(|branch| self.number(branch));
                // Rows without a result take no branch.
                branches.reduce(Interval::or).unwrap_or(Interval::ANYTHING)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::intervals::tests::intervals;
    use super::*;

    #[test]
    fn no_pair_of_values_contradicts_a_comparison() {
        use CompareOp::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
        let intervals = intervals();
        for op in [Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual] {
            for ((a, a_values), (b, b_values)) in intervals.iter().flat_map(|a| intervals.iter().map(move |b| (a, b))) {
                let known = |of: &Interval| Known { range: of_float(of.range), can_be_nan: of.can_be_nan };
                let truth = compare(op, &known(a), &known(b));
                for (x, y) in a_values.iter().flat_map(|x| b_values.iter().map(move |y| (*x, *y))) {
                    let fits = match truth {
                        TruthValue::Never => !op.holds(x, y),
                        TruthValue::Maybe => true,
                        TruthValue::Always => op.holds(x, y),
                    };
                    assert!(fits, "{x} {op:?} {y} of {a:?} and {b:?} is not {truth:?}");
                }
            }
        }
    }
}
