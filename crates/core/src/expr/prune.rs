//! Pruning: decides from statistics whether a predicate is true for no row, for all rows, or possibly for some.
//!
//! Pruning is sound but not complete: `Never` and `Always` are guaranteed, while `Maybe` may stand for either of them.
//! A number is represented by the interval of its non-NaN values, and by whether it can be NaN. IEEE arithmetic rounds
//! monotonically. An operator that is monotone in each operand therefore maps interval ends to interval ends, with the
//! same rounding as for rows. Where an operator is not monotone (division near zero, infinity minus infinity), the
//! interval is unbounded and NaN is possible. `%` is monotone between two multiples of its right operand.
//!
//! Bounds of integers are integers (`prune_whole`). Rows of which a number has no result have the truth value that
//! [`Computed`] states.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::schema::{DataType, Value};

use super::members::Members;
use super::plan::{Computed, ExpressionPlan, Source, type_range};
use super::prune_whole::{self, WholeBounds};
use super::tree::{BinaryOp, ColumnRef, CompareOp, Number, UnaryOp};

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

/// Bounds of a computed number.
#[derive(Debug, Clone, Copy)]
struct Interval {
    /// `None` means that every value is NaN.
    range: Option<(f64, f64)>,
    can_be_nan: bool,
}

impl Interval {
    const ANYTHING: Self = Self { range: Some((f64::NEG_INFINITY, f64::INFINITY)), can_be_nan: true };
    const NAN: Self = Self { range: None, can_be_nan: true };

    fn point(value: f64) -> Self {
        if value.is_nan() { Self::NAN } else { Self { range: Some((value, value)), can_be_nan: false } }
    }

    /// Returns the hull of the results at the corners, or an unbounded interval if one of the results is NaN.
    fn hull(corners: &[f64], can_be_nan: bool) -> Self {
        if corners.iter().any(|corner| corner.is_nan()) {
            return Self::ANYTHING;
        }
        let low = corners.iter().copied().fold(f64::INFINITY, f64::min);
        let high = corners.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Self { range: Some((low, high)), can_be_nan }
    }
}

/// The evaluation of plans on the statistics of one set of rows.
pub(super) struct Pruner<'a> {
    pub(super) epoch: u64,
    pub(super) summary: &'a dyn Fn(usize) -> Option<ColumnBounds>,
}

fn holds_zero((low, high): (f64, f64)) -> bool {
    low <= 0.0 && high >= 0.0
}

fn holds_infinity((low, high): (f64, f64)) -> bool {
    low == f64::NEG_INFINITY || high == f64::INFINITY
}

fn binary(op: BinaryOp, left: Interval, right: Interval) -> Interval {
    let (Some(a), Some(b)) = (left.range, right.range) else { return Interval::NAN };
    let can_be_nan = left.can_be_nan || right.can_be_nan;
    let corners = [op.apply(a.0, b.0), op.apply(a.0, b.1), op.apply(a.1, b.0), op.apply(a.1, b.1)];
    match op {
        // Infinities cancel only at the ends of their intervals, and then a corner is NaN.
        BinaryOp::Add | BinaryOp::Subtract => Interval::hull(&corners, can_be_nan),
        BinaryOp::Multiply => {
            let zero_by_infinity = holds_zero(a) && holds_infinity(b) || holds_infinity(a) && holds_zero(b);
            Interval::hull(&corners, can_be_nan || zero_by_infinity)
        }
        BinaryOp::Divide | BinaryOp::Quotient if holds_zero(b) => Interval::ANYTHING,
        BinaryOp::Divide | BinaryOp::Quotient => Interval::hull(&corners, can_be_nan),
        BinaryOp::Remainder => remainder(left, right).hull(),
        BinaryOp::And | BinaryOp::Or | BinaryOp::ShiftLeft | BinaryOp::ShiftRight => Interval::ANYTHING,
    }
}

/// Bounds of a remainder.
struct Remainders {
    /// Intervals that contain all remainders but NaN. A range of dividends that crosses a multiple of the divisor has
    /// remainders at both ends of the divisor's range.
    pieces: [Option<(f64, f64)>; 2],
    can_be_nan: bool,
}

impl Remainders {
    fn hull(&self) -> Interval {
        let joined = |one: (f64, f64), other: (f64, f64)| (one.0.min(other.0), one.1.max(other.1));
        Interval { range: self.pieces.into_iter().flatten().reduce(joined), can_be_nan: self.can_be_nan }
    }
}

/// Returns bounds of `dividend % divisor`. The remainder has the sign of the dividend. It is not above the dividend,
/// and below the divisor, in magnitude.
fn remainder(dividend: Interval, divisor: Interval) -> Remainders {
    let (Some(a), Some(b)) = (dividend.range, divisor.range) else {
        return Remainders { pieces: [None; 2], can_be_nan: true };
    };
    let can_be_nan = dividend.can_be_nan || divisor.can_be_nan || holds_infinity(a) || holds_zero(b);
    let period = b.0.abs();
    let most = period.max(b.1.abs());
    let whole = (a.0.min(0.0).max(-most), a.1.max(0.0).min(most));
    // The difference rounds monotonically: if it is below the period, so is the exact difference.
    let is_narrow = b.0 == b.1 && b.0 != 0.0 && a.1 - a.0 < period;
    let (from, to) = (a.0 % period, a.1 % period);
    let pieces = if !is_narrow || from.is_nan() || to.is_nan() {
        [Some(whole), None]
    } else if from <= to {
        // Between two multiples of the period, the remainder is the dividend less a constant. Across a multiple, the
        // last remainder would be less than the first.
        [Some((from, to)), None]
    } else if a.0 > 0.0 {
        [Some((from, period.next_down())), Some((0.0, to))]
    } else {
        [Some((from, 0.0)), Some(((-period).next_up(), to))]
    };
    Remainders { pieces, can_be_nan }
}

fn square(value: Interval) -> Interval {
    let Some((low, high)) = value.range else { return Interval::NAN };
    let mut result = Interval::hull(&[low * low, high * high], value.can_be_nan);
    if holds_zero((low, high))
        && let Some((least, _)) = &mut result.range
    {
        *least = 0.0;
    }
    result
}

fn unary(op: UnaryOp, value: Interval) -> Interval {
    let Some((low, high)) = value.range else { return Interval::NAN };
    match op {
        UnaryOp::Negate | UnaryOp::Floor => Interval::hull(&[op.apply(low), op.apply(high)], value.can_be_nan),
        UnaryOp::Abs => {
            let ends = [low.abs(), high.abs(), if holds_zero((low, high)) { 0.0 } else { low.abs() }];
            Interval::hull(&ends, value.can_be_nan)
        }
        UnaryOp::Sqrt if high < 0.0 => Interval::NAN,
        // Negative values return NaN only. The results of the other values begin at zero.
        UnaryOp::Sqrt => Interval::hull(&[low.max(0.0).sqrt(), high.sqrt()], value.can_be_nan || low < 0.0),
        UnaryOp::Invert => Interval::ANYTHING,
    }
}

/// Returns the interval of `bits_i32` of an `f32` column. The bits are ordered like the values if all values are
/// positive. Otherwise, the interval is the range of `i32`.
fn bits(column: Interval) -> Interval {
    let range = match column.range {
        Some((low, high)) if low > 0.0 && !column.can_be_nan => {
            (f64::from((low as f32).to_bits() as i32), f64::from((high as f32).to_bits() as i32))
        }
        _ => (f64::from(i32::MIN), f64::from(i32::MAX)),
    };
    Interval { range: Some(range), can_be_nan: false }
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
            ExpressionPlan::And(inner) => {
                let truths: Vec<TruthValue> = inner.iter().map(|plan| self.truth(plan)).collect();
                if truths.contains(&TruthValue::Never) {
                    TruthValue::Never
                } else if truths.contains(&TruthValue::Maybe) {
                    TruthValue::Maybe
                } else {
                    TruthValue::Always
                }
            }
            ExpressionPlan::Or(inner) => {
                let truths: Vec<TruthValue> = inner.iter().map(|plan| self.truth(plan)).collect();
                if truths.contains(&TruthValue::Always) {
                    TruthValue::Always
                } else if truths.contains(&TruthValue::Maybe) {
                    TruthValue::Maybe
                } else {
                    TruthValue::Never
                }
            }
        }
    }

    /// Returns whether a number lies in a closed interval.
    fn computed_range(&self, number: &Number, (low, high): (Value, Value)) -> TruthValue {
        let (pieces, can_be_nan) = match number {
            Number::Binary(BinaryOp::Remainder, left, right) if number.is_whole() => {
                let ranges = self.whole(left).range.zip(self.whole(right).range);
                (ranges.map_or([None; 2], |(a, b)| prune_whole::remainders(a, b).map(of_whole)), false)
            }
            Number::Binary(BinaryOp::Remainder, left, right) => {
                let Remainders { pieces, can_be_nan } = remainder(self.number(left), self.number(right));
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
        let mut faulty = numbers.iter().filter(|number| number.formula.can_fault() && self.can_fault(&number.tree));
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
    fn whole(&self, number: &Number) -> WholeBounds {
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
            Number::Bits(column) => bits(self.column(column.index, column.data_type)),
            Number::Epoch => Interval::point(self.epoch as f64),
            // Predicates have no source constants.
            Number::Constant(..) => Interval::ANYTHING,
            Number::Literal(_) | Number::Single(_) => {
                number.literal().map_or(Interval::ANYTHING, |value| Interval::point(value.as_f64()))
            }
            Number::Unary(..) | Number::Binary(..) if number.is_whole() => {
                // The rows' values are converted with the same rounding, which is monotone.
                let range = self.whole(number).range.map(|(low, high)| (low as f64, high as f64));
                range.map_or(Interval::NAN, |range| Interval { range: Some(range), can_be_nan: false })
            }
            Number::Unary(op, operand) => unary(*op, self.number(operand)),
            Number::Binary(BinaryOp::Multiply, left, right) if left == right => square(self.number(left)),
            Number::Binary(op, left, right) => binary(*op, self.number(left), self.number(right)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDS: [f64; 11] =
        [f64::NEG_INFINITY, f64::MIN, -2.0, -1e-200, -0.0, 0.0, 1e-200, 0.5, 3.0, f64::MAX, f64::INFINITY];

    /// Returns every interval between two of `ENDS`, with the ends in it as samples, and the interval of NaN alone.
    fn intervals() -> Vec<(Interval, Vec<f64>)> {
        let mut intervals = vec![(Interval::NAN, vec![f64::NAN])];
        for (first, low) in ENDS.iter().enumerate() {
            for high in &ENDS[first..] {
                let held: Vec<f64> = ENDS.iter().copied().filter(|value| low <= value && value <= high).collect();
                intervals.push((Interval { range: Some((*low, *high)), can_be_nan: false }, held.clone()));
                let with_nan = held.into_iter().chain([f64::NAN]).collect();
                intervals.push((Interval { range: Some((*low, *high)), can_be_nan: true }, with_nan));
            }
        }
        intervals
    }

    fn assert_holds(interval: Interval, value: f64, what: &dyn Fn() -> String) {
        let held = match interval.range {
            _ if value.is_nan() => interval.can_be_nan,
            Some((low, high)) => low <= value && value <= high,
            None => false,
        };
        assert!(held, "{} gives {value}, outside {interval:?}", what());
    }

    #[test]
    fn every_result_lies_in_the_interval_of_its_operands() {
        let intervals = intervals();
        for (a, a_values) in &intervals {
            for x in a_values {
                for op in [UnaryOp::Negate, UnaryOp::Abs, UnaryOp::Sqrt, UnaryOp::Floor] {
                    assert_holds(unary(op, *a), op.apply(*x), &|| format!("{op:?} {x} of {a:?}"));
                }
                assert_holds(square(*a), x * x, &|| format!("square {x} of {a:?}"));
            }
            for (b, b_values) in &intervals {
                use BinaryOp::{Add, Divide, Multiply, Quotient, Remainder, Subtract};
                for op in [Add, Subtract, Multiply, Divide, Quotient, Remainder] {
                    let result = binary(op, *a, *b);
                    for (x, y) in a_values.iter().flat_map(|x| b_values.iter().map(move |y| (*x, *y))) {
                        assert_holds(result, op.apply(x, y), &|| format!("{x} {op:?} {y} of {a:?} and {b:?}"));
                    }
                }
            }
        }
    }

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

    #[test]
    fn bits_keep_within_their_interval() {
        for (column, values) in intervals() {
            for value in values.into_iter().map(|value| value as f32) {
                // The statistics of an f32 column are f32 values.
                let column =
                    Interval { range: column.range.map(|(a, b)| ((a as f32).into(), (b as f32).into())), ..column };
                let found = f64::from(value.to_bits() as i32);
                assert_holds(bits(column), found, &|| format!("bits of {value} of {column:?}"));
            }
        }
    }
}
