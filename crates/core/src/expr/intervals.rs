//! Arithmetic on intervals of floats.
//!
//! IEEE arithmetic rounds monotonically. An operator that is monotone in each operand therefore maps interval ends to
//! interval ends, with the same rounding as for rows. Where an operator is not monotone (division near zero, infinity
//! minus infinity), the interval is unbounded and NaN is possible. `%` is monotone between two multiples of its right
//! operand. Functions such as `exp` round less exactly: their intervals are widened, as `functions` states.

use std::f64::consts::PI;

use super::functions::DISORDER;
use super::tree::{BinaryOp, UnaryOp};

/// Bounds of a computed number.
#[derive(Debug, Clone, Copy)]
pub(super) struct Interval {
    /// `None` means that every value is NaN.
    pub(super) range: Option<(f64, f64)>,
    pub(super) can_be_nan: bool,
}

impl Interval {
    pub(super) const ANYTHING: Self = Self { range: Some((f64::NEG_INFINITY, f64::INFINITY)), can_be_nan: true };
    pub(super) const NAN: Self = Self { range: None, can_be_nan: true };

    pub(super) fn point(value: f64) -> Self {
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

    /// Returns the interval of the values of either one.
    pub(super) fn or(self, other: Self) -> Self {
        let joined = |one: (f64, f64), other: (f64, f64)| (one.0.min(other.0), one.1.max(other.1));
        let range = self.range.into_iter().chain(other.range).reduce(joined);
        Self { range, can_be_nan: self.can_be_nan || other.can_be_nan }
    }

    /// Widens the interval by the error of functions whose results are not correctly rounded.
    fn widened(self) -> Self {
        let widened = |(low, high): (f64, f64)| {
            (0..DISORDER).fold((low, high), |(low, high), _| (low.next_down(), high.next_up()))
        };
        Self { range: self.range.map(widened), ..self }
    }

    /// Returns the part within two ends, which no value exceeds.
    fn within(self, ends: (f64, f64)) -> Self {
        Self { range: self.range.map(|(low, high)| (low.max(ends.0), high.min(ends.1))), ..self }
    }
}

fn holds_zero((low, high): (f64, f64)) -> bool {
    low <= 0.0 && high >= 0.0
}

fn holds_infinity((low, high): (f64, f64)) -> bool {
    low == f64::NEG_INFINITY || high == f64::INFINITY
}

pub(super) fn binary(op: BinaryOp, left: Interval, right: Interval) -> Interval {
    if op == BinaryOp::Power {
        return power(left, right);
    }
    let (Some(a), Some(b)) = (left.range, right.range) else { return Interval::NAN };
    let can_be_nan = left.can_be_nan || right.can_be_nan;
    if op.is_of_bits() {
        return Interval::ANYTHING;
    }
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
        BinaryOp::Least | BinaryOp::Greatest => Interval::hull(&corners, can_be_nan),
        BinaryOp::Atan2 => Interval { range: Some((-PI, PI)), can_be_nan },
        BinaryOp::And | BinaryOp::Or | BinaryOp::ShiftLeft | BinaryOp::ShiftRight | BinaryOp::Power => {
            Interval::ANYTHING
        }
    }
}

/// Returns bounds of a power of a constant exponent, or of a base that is not negative. A power of NaN may be 1.
fn power(base: Interval, exponent: Interval) -> Interval {
    let (Some(a), Some(b)) = (base.range, exponent.range) else { return Interval::ANYTHING };
    let can_be_nan = base.can_be_nan || exponent.can_be_nan;
    let result = |base, exponent| BinaryOp::Power.apply(base, exponent);
    if a.0 > 0.0 {
        // The power is monotone in each operand, between 0 and infinity.
        let corners = [result(a.0, b.0), result(a.0, b.1), result(a.1, b.0), result(a.1, b.1)];
        let one = if can_be_nan { 1.0 } else { corners[0] };
        let corners = [corners[0], corners[1], corners[2], corners[3], one];
        return Interval::hull(&corners, can_be_nan).widened().within((0.0, f64::INFINITY));
    }
    if b.0 != b.1 || exponent.can_be_nan {
        return Interval::ANYTHING;
    }
    // The power of a constant exponent is monotone up to -0, and from 0 on. Most exponents have no powers of negative
    // numbers.
    let zeros = if holds_zero(a) { [-0.0, 0.0] } else { [a.0, a.1] };
    let ends = [a.0, zeros[0], zeros[1], a.1].map(|end| result(end, b.0));
    let numbers: Vec<f64> = ends.into_iter().filter(|end| !end.is_nan()).collect();
    let can_be_nan = can_be_nan || a.0 < 0.0 && b.0.fract() != 0.0;
    match numbers.is_empty() {
        true => Interval::NAN,
        false if a.0 >= 0.0 && b.0 > 0.0 => Interval::hull(&numbers, can_be_nan).widened().within((0.0, f64::INFINITY)),
        false => Interval::hull(&numbers, can_be_nan).widened(),
    }
}

/// Bounds of a remainder.
pub(super) struct Remainders {
    /// Intervals that contain all remainders but NaN. A range of dividends that crosses a multiple of the divisor has
    /// remainders at both ends of the divisor's range.
    pub(super) pieces: [Option<(f64, f64)>; 2],
    pub(super) can_be_nan: bool,
}

impl Remainders {
    fn hull(&self) -> Interval {
        let joined = |one: (f64, f64), other: (f64, f64)| (one.0.min(other.0), one.1.max(other.1));
        Interval { range: self.pieces.into_iter().flatten().reduce(joined), can_be_nan: self.can_be_nan }
    }
}

/// Returns bounds of `dividend % divisor`. The remainder has the sign of the dividend. It is not above the dividend,
/// and below the divisor, in magnitude.
pub(super) fn remainder(dividend: Interval, divisor: Interval) -> Remainders {
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

pub(super) fn square(value: Interval) -> Interval {
    let Some((low, high)) = value.range else { return Interval::NAN };
    let mut result = Interval::hull(&[low * low, high * high], value.can_be_nan);
    if holds_zero((low, high))
        && let Some((least, _)) = &mut result.range
    {
        *least = 0.0;
    }
    result
}

pub(super) fn unary(op: UnaryOp, value: Interval) -> Interval {
    let Some((low, high)) = value.range else { return Interval::NAN };
    match op {
        UnaryOp::Negate | UnaryOp::Floor | UnaryOp::Round | UnaryOp::Sign => {
            Interval::hull(&[op.apply(low), op.apply(high)], value.can_be_nan)
        }
        UnaryOp::Abs => {
            let ends = [low.abs(), high.abs(), if holds_zero((low, high)) { 0.0 } else { low.abs() }];
            Interval::hull(&ends, value.can_be_nan)
        }
        UnaryOp::Exp => {
            Interval::hull(&[op.apply(low), op.apply(high)], value.can_be_nan).widened().within((0.0, f64::INFINITY))
        }
        UnaryOp::Sqrt | UnaryOp::Log | UnaryOp::Log10 if high < 0.0 => Interval::NAN,
        // Negative values return NaN only. The results of the other values begin at that of zero.
        UnaryOp::Sqrt | UnaryOp::Log | UnaryOp::Log10 => {
            let results = Interval::hull(&[op.apply(low.max(0.0)), op.apply(high)], value.can_be_nan || low < 0.0);
            if op == UnaryOp::Sqrt { results } else { results.widened() }
        }
        UnaryOp::Sin | UnaryOp::Cos => {
            Interval { range: Some((-1.0, 1.0)), can_be_nan: value.can_be_nan || holds_infinity((low, high)) }
        }
        UnaryOp::Invert => Interval::ANYTHING,
    }
}

/// Returns the interval of `bits_i32` of an `f32` column. The bits are ordered like the values if all values are
/// positive. Otherwise, the interval is the range of `i32`.
pub(super) fn bits(column: Interval) -> Interval {
    let range = match column.range {
        Some((low, high)) if low > 0.0 && !column.can_be_nan => {
            (f64::from((low as f32).to_bits() as i32), f64::from((high as f32).to_bits() as i32))
        }
        _ => (f64::from(i32::MIN), f64::from(i32::MAX)),
    };
    Interval { range: Some(range), can_be_nan: false }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const ENDS: [f64; 13] =
        [f64::NEG_INFINITY, f64::MIN, -2.0, -1.0, -5e-324, -0.0, 0.0, 1e-200, 0.5, 1.0, 3.0, f64::MAX, f64::INFINITY];

    const FUNCTIONS: [UnaryOp; 11] = [
        UnaryOp::Negate,
        UnaryOp::Abs,
        UnaryOp::Sqrt,
        UnaryOp::Floor,
        UnaryOp::Round,
        UnaryOp::Sign,
        UnaryOp::Exp,
        UnaryOp::Log,
        UnaryOp::Log10,
        UnaryOp::Sin,
        UnaryOp::Cos,
    ];

    /// Returns every interval between two of `ENDS`, with the ends in it as samples, and the interval of NaN alone.
    pub(in super::super) fn intervals() -> Vec<(Interval, Vec<f64>)> {
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
                for op in FUNCTIONS {
                    assert_holds(unary(op, *a), op.apply(*x), &|| format!("{op:?} {x} of {a:?}"));
                }
                assert_holds(square(*a), x * x, &|| format!("square {x} of {a:?}"));
            }
            for (b, b_values) in &intervals {
                use BinaryOp::{Add, Atan2, Divide, Greatest, Least, Multiply, Power, Quotient, Remainder, Subtract};
                for op in [Add, Subtract, Multiply, Divide, Quotient, Remainder, Power, Atan2, Least, Greatest] {
                    let result = binary(op, *a, *b);
                    for (x, y) in a_values.iter().flat_map(|x| b_values.iter().map(move |y| (*x, *y))) {
                        assert_holds(result, op.apply(x, y), &|| format!("{x} {op:?} {y} of {a:?} and {b:?}"));
                    }
                }
            }
        }
    }

    /// Functions round less exactly than operators, so that results of neighbours may be out of order.
    #[test]
    fn results_of_neighbours_lie_in_the_interval() {
        let point = |value| Interval { range: Some((value, value)), can_be_nan: false };
        for step in 1..30_000 {
            let low = f64::from(step) * 0.000_37;
            let neighbours: Vec<f64> =
                std::iter::successors(Some(low), |value| Some(value.next_up())).take(6).collect();
            let range = Interval { range: Some((low, neighbours[5])), can_be_nan: false };
            for op in [UnaryOp::Exp, UnaryOp::Log, UnaryOp::Log10] {
                let results: Vec<f64> = neighbours.iter().map(|value| op.apply(*value)).collect();
                results.iter().for_each(|result| assert_holds(unary(op, range), *result, &|| format!("{op:?} {low}")));
            }
            for exponent in [0.1, 1.7, -0.3] {
                let results: Vec<f64> =
                    neighbours.iter().map(|value| BinaryOp::Power.apply(*value, exponent)).collect();
                let bounds = power(range, point(exponent));
                results.iter().for_each(|result| assert_holds(bounds, *result, &|| format!("{low} ** {exponent}")));
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
