//! Bounds of integer expressions, computed in 128 bits.

use super::tree::{BinaryOp, UnaryOp};
use super::whole;

/// A closed interval of integers.
type Range = (i128, i128);

/// Bounds of an integer expression.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct WholeBounds {
    /// `None` means that no row has a result.
    pub(super) range: Option<Range>,
    /// Whether a row may have no result.
    pub(super) can_fault: bool,
}

impl WholeBounds {
    /// Returns the bounds of the values of either one.
    pub(super) fn or(self, other: Self) -> Self {
        let range = self.range.into_iter().chain(other.range).reduce(joined);
        Self { range, can_fault: self.can_fault || other.can_fault }
    }
}

/// Returns the hull of the results at the corners of two ranges, where an operator is monotone in both operands.
///
/// A corner without a result lies beyond 128 bits, and rows with a result do not.
fn hull(op: BinaryOp, a: Range, b: Range) -> WholeBounds {
    let corner = |left: i128, right: i128| {
        whole::binary(op, left, right).map_err(|_| {
            let is_negative = if op == BinaryOp::Add || op == BinaryOp::ShiftLeft {
                left < 0
            } else if op == BinaryOp::Subtract {
                right > 0
            } else {
                (left < 0) != (right < 0)
            };
            if is_negative { i128::MIN } else { i128::MAX }
        })
    };
    let corners = [corner(a.0, b.0), corner(a.0, b.1), corner(a.1, b.0), corner(a.1, b.1)];
    let can_fault = corners.iter().any(Result::is_err);
    let corners = corners.map(|corner| corner.unwrap_or_else(|end| end));
    WholeBounds { range: corners.into_iter().map(|end| (end, end)).reduce(joined), can_fault }
}

fn joined(one: Range, other: Range) -> Range {
    (one.0.min(other.0), one.1.max(other.1))
}

/// Returns the part of a range that lies within another one, if there is any.
fn within(range: Range, (low, high): Range) -> Option<Range> {
    let range = (range.0.max(low), range.1.min(high));
    (range.0 <= range.1).then_some(range)
}

pub(super) fn unary(op: UnaryOp, operand: WholeBounds) -> WholeBounds {
    let Some((low, high)) = operand.range else { return operand };
    match op {
        UnaryOp::Invert => WholeBounds { range: Some((!high, !low)), ..operand },
        UnaryOp::Sign => WholeBounds { range: Some((low.signum(), high.signum())), ..operand },
        UnaryOp::Abs if low >= 0 => operand,
        UnaryOp::Abs => {
            let negated = unary(UnaryOp::Negate, WholeBounds { range: Some((low, high.min(0))), ..operand });
            negated.or(WholeBounds { range: within((low, high), (0, i128::MAX)), ..operand })
        }
        _ => {
            let bounds = hull(BinaryOp::Subtract, (0, 0), (low, high));
            WholeBounds { can_fault: bounds.can_fault || operand.can_fault, ..bounds }
        }
    }
}

pub(super) fn binary(op: BinaryOp, left: WholeBounds, right: WholeBounds) -> WholeBounds {
    let (Some(a), Some(b)) = (left.range, right.range) else {
        return WholeBounds { range: None, can_fault: true };
    };
    let of_parts = |parts: &[Range], is_whole: bool| {
        let none = WholeBounds { range: None, can_fault: !is_whole };
        parts.iter().map(|part| hull(op, a, *part)).fold(none, WholeBounds::or)
    };
    let bounds = match op {
        BinaryOp::Add | BinaryOp::Subtract | BinaryOp::Multiply => hull(op, a, b),
        BinaryOp::ShiftLeft | BinaryOp::ShiftRight => {
            let distances = within(b, (0, 127));
            of_parts(distances.as_slice(), distances == Some(b))
        }
        BinaryOp::Quotient => {
            // A quotient is monotone where the divisor has one sign.
            let parts: Vec<Range> =
                [(i128::MIN, -1), (1, i128::MAX)].into_iter().filter_map(|sign| within(b, sign)).collect();
            of_parts(&parts, b.0 > 0 || b.1 < 0)
        }
        BinaryOp::Remainder => {
            let range = remainders(a, b).into_iter().flatten().reduce(joined);
            WholeBounds { range, can_fault: b.0 <= 0 && b.1 >= 0 }
        }
        BinaryOp::And | BinaryOp::Or => WholeBounds { range: Some(bits(op, a, b)), can_fault: false },
        BinaryOp::Least => WholeBounds { range: Some((a.0.min(b.0), a.1.min(b.1))), can_fault: false },
        BinaryOp::Greatest => WholeBounds { range: Some((a.0.max(b.0), a.1.max(b.1))), can_fault: false },
        BinaryOp::Power => power(a, b),
        BinaryOp::Divide | BinaryOp::Atan2 => unreachable!("these operators return floats"),
    };
    WholeBounds { can_fault: bounds.can_fault || left.can_fault || right.can_fault, ..bounds }
}

/// Returns bounds of `base ** exponent`.
fn power(base: Range, exponent: Range) -> WholeBounds {
    let none = WholeBounds { range: None, can_fault: exponent.0 < 0 };
    let Some(exponent) = within(exponent, (0, i128::MAX)) else { return none };
    let result = |base: i128, exponent: i128| {
        let result = whole::binary(BinaryOp::Power, base, exponent);
        // Beyond 128 bits, the result has the sign of the base if the exponent is odd.
        let end = if base < 0 && exponent & 1 == 1 { i128::MIN } else { i128::MAX };
        WholeBounds { range: Some(result.map_or((end, end), |value| (value, value))), can_fault: result.is_err() }
    };
    // In magnitude, powers grow with the exponent if the base is not zero, and with the base. Of a negative base, even
    // and odd exponents have results of either sign. 0 ** 0 is 1.
    let exponents =
        [exponent.0, exponent.1, exponent.0.saturating_add(1).min(exponent.1), (exponent.1 - 1).max(exponent.0)];
    let bases = [base.0, base.1, base.0.max(-1).min(base.1), base.0.max(0).min(base.1), base.0.max(1).min(base.1)];
    let corners = bases.iter().flat_map(|base| exponents.iter().map(move |exponent| (*base, *exponent)));
    corners.map(|(base, exponent)| result(base, exponent)).fold(none, WholeBounds::or)
}

/// Returns at most two ranges that contain all remainders. There are none if every divisor is zero.
pub(super) fn remainders(a: Range, b: Range) -> [Option<Range>; 2] {
    if b == (0, 0) {
        return [None; 2];
    }
    // The remainder has the dividend's sign. It is below the divisor, and not above the dividend, in magnitude.
    let most = i128::try_from(b.0.unsigned_abs().max(b.1.unsigned_abs()) - 1).unwrap_or(i128::MAX);
    let whole = (a.0.clamp(-most, 0), a.1.clamp(0, most));
    if b.0 != b.1 {
        return [Some(whole), None];
    }
    let quotients = (a.0.checked_div(b.0), a.1.checked_div(b.0));
    let (Some(from), Some(to)) = quotients else { return [Some(whole), None] };
    // With one quotient, the remainder is the dividend less a constant. With two, it starts again in between.
    let (first, last) = (a.0 % b.0, a.1 % b.0);
    match from.abs_diff(to) {
        0 => [Some((first, last)), None],
        1 if a.0 > 0 => [Some((first, most)), Some((0, last))],
        1 if a.1 < 0 => [Some((first, 0)), Some((-most, last))],
        _ => [Some(whole), None],
    }
}

/// Returns a range of the results of `&` or `|`.
///
/// The bits above the highest one in which the ends of a range differ are those of all its values.
fn bits(op: BinaryOp, a: Range, b: Range) -> Range {
    // The bits that are certainly set, and those that may be.
    let known = |(low, high): Range| {
        let unknown = match (low ^ high).leading_zeros() {
            128 => 0,
            same => u128::MAX >> same,
        } as i128;
        (low & !unknown, low | unknown)
    };
    let (one, other) = (known(a), known(b));
    let (certain, possible) = match op {
        BinaryOp::And => (one.0 & other.0, one.1 & other.1),
        _ => (one.0 | other.0, one.1 | other.1),
    };
    // The highest bit is the sign.
    (certain | (possible & i128::MIN), possible & (certain | i128::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDS: [i128; 15] =
        [i128::MIN, i128::MIN + 1, -(1 << 64), -9, -4, -3, -1, 0, 1, 2, 7, 20, 127, 1 << 64, i128::MAX];

    /// Returns every range between two of `ENDS`, with the values in it: all of a short range, and otherwise the ends.
    fn ranges() -> Vec<(Range, Vec<i128>)> {
        let pairs = ENDS.iter().enumerate().flat_map(|(first, low)| ENDS[first..].iter().map(|high| (*low, *high)));
        let with_values = |(low, high): Range| match high.checked_sub(low) {
            Some(width @ 0..30) => ((low, high), (0..=width).map(|step| low + step).collect()),
            _ => ((low, high), ENDS.into_iter().filter(|end| (low..=high).contains(end)).collect()),
        };
        pairs.map(with_values).collect()
    }

    fn assert_holds(bounds: WholeBounds, result: Result<i128, whole::Fault>, what: &dyn Fn() -> String) {
        let holds = match (result, bounds.range) {
            (Err(_), _) => bounds.can_fault,
            (Ok(value), Some((low, high))) => low <= value && value <= high,
            (Ok(_), None) => false,
        };
        assert!(holds, "{} is {result:?}, outside {bounds:?}", what());
    }

    #[test]
    fn every_result_lies_within_the_bounds() {
        use BinaryOp::{
            Add, And, Greatest, Least, Multiply, Or, Power, Quotient, Remainder, ShiftLeft, ShiftRight, Subtract,
        };
        let operators =
            [Add, Subtract, Multiply, Quotient, Remainder, And, Or, ShiftLeft, ShiftRight, Power, Least, Greatest];
        let known = |range| WholeBounds { range: Some(range), can_fault: false };
        let ranges = ranges();
        for (a, a_values) in &ranges {
            for op in [UnaryOp::Negate, UnaryOp::Invert, UnaryOp::Abs, UnaryOp::Sign] {
                for x in a_values {
                    assert_holds(unary(op, known(*a)), whole::unary(op, *x), &|| format!("{op:?} {x} of {a:?}"));
                }
            }
            for (b, b_values) in &ranges {
                for op in operators {
                    let bounds = binary(op, known(*a), known(*b));
                    for (x, y) in a_values.iter().flat_map(|x| b_values.iter().map(move |y| (*x, *y))) {
                        let result = whole::binary(op, x, y);
                        assert_holds(bounds, result, &|| format!("{x} {op:?} {y} of {a:?} and {b:?}"));
                    }
                }
                for (x, y) in a_values.iter().flat_map(|x| b_values.iter().map(move |y| (*x, *y))) {
                    let pieces = remainders(*a, *b).into_iter().flatten();
                    if let Ok(value) = whole::binary(Remainder, x, y) {
                        let is_held = pieces.into_iter().any(|(low, high)| low <= value && value <= high);
                        assert!(is_held, "{x} % {y} of {a:?} and {b:?}");
                    }
                }
            }
        }
    }
}
