//! Integer arithmetic in 128 bits. An operation returns the exact result, or the reason why there is none.

use super::tree::{BinaryOp, UnaryOp};

/// The reason why an integer operation has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    Overflow,
    ZeroDivisor,
    ShiftDistance,
    NegativeExponent,
    /// The condition of an `if` is neither true nor false.
    Condition,
}

impl Fault {
    /// Returns the end of a sentence whose subject is the expression.
    pub(super) fn what(self) -> &'static str {
        match self {
            Self::Overflow => "exceeds 128 bits",
            Self::ZeroDivisor => "divides by zero",
            Self::ShiftDistance => "shifts by a distance that is not 0 to 127",
            Self::NegativeExponent => "raises an integer to a negative power; make the base a float, such as 1.0 * n",
            Self::Condition => "has an 'if' whose condition has no result",
        }
    }
}

/// Applies an operation whose result is an integer.
pub(super) fn unary(op: UnaryOp, value: i128) -> Result<i128, Fault> {
    match op {
        UnaryOp::Negate => value.checked_neg().ok_or(Fault::Overflow),
        UnaryOp::Invert => Ok(!value),
        UnaryOp::Abs => value.checked_abs().ok_or(Fault::Overflow),
        UnaryOp::Sign => Ok(value.signum()),
        _ => unreachable!("these functions return floats"),
    }
}

/// Applies an operator. With a constant operator, only that operator's code remains.
#[inline(always)]
pub(super) fn binary(op: BinaryOp, left: i128, right: i128) -> Result<i128, Fault> {
    match op {
        BinaryOp::Add => left.checked_add(right).ok_or(Fault::Overflow),
        BinaryOp::Subtract => left.checked_sub(right).ok_or(Fault::Overflow),
        BinaryOp::Multiply => left.checked_mul(right).ok_or(Fault::Overflow),
        BinaryOp::Quotient | BinaryOp::Remainder if right == 0 => Err(Fault::ZeroDivisor),
        BinaryOp::Quotient => left.checked_div(right).ok_or(Fault::Overflow),
        // The least integer has the remainder 0 by -1, although it has no quotient.
        BinaryOp::Remainder => Ok(left.wrapping_rem(right)),
        BinaryOp::And => Ok(left & right),
        BinaryOp::Or => Ok(left | right),
        BinaryOp::ShiftLeft => {
            let shifted = left << distance(right)?;
            if shifted >> right == left { Ok(shifted) } else { Err(Fault::Overflow) }
        }
        BinaryOp::ShiftRight => Ok(left >> distance(right)?),
        BinaryOp::Power => power(left, right),
        BinaryOp::Least => Ok(left.min(right)),
        BinaryOp::Greatest => Ok(left.max(right)),
        BinaryOp::Divide | BinaryOp::Atan2 => unreachable!("these operators return floats"),
    }
}

fn power(base: i128, exponent: i128) -> Result<i128, Fault> {
    match (base, exponent) {
        (_, ..0) => Err(Fault::NegativeExponent),
        (0 | 1, 1..) => Ok(base),
        (-1, _) => Ok(if exponent & 1 == 0 { 1 } else { -1 }),
        (_, 0..=127) => base.checked_pow(exponent as u32).ok_or(Fault::Overflow),
        _ => Err(Fault::Overflow),
    }
}

fn distance(right: i128) -> Result<u32, Fault> {
    if (0..128).contains(&right) { Ok(right as u32) } else { Err(Fault::ShiftDistance) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_the_range_have_exact_results_or_none() {
        use BinaryOp::{Add, Greatest, Least, Multiply, Power, Quotient, Remainder, ShiftLeft, ShiftRight, Subtract};
        let (least, most) = (i128::MIN, i128::MAX);
        for (left, op, right, wanted) in [
            (most, Add, 1, Err(Fault::Overflow)),
            (least, Add, most, Ok(-1)),
            (least, Subtract, 1, Err(Fault::Overflow)),
            (least, Multiply, -1, Err(Fault::Overflow)),
            (1 << 64, Multiply, 1 << 62, Ok(1 << 126)),
            (least, Quotient, -1, Err(Fault::Overflow)),
            (least, Remainder, -1, Ok(0)),
            (-7, Quotient, 2, Ok(-3)),
            (-7, Remainder, 2, Ok(-1)),
            (7, Remainder, -2, Ok(1)),
            (7, Quotient, 0, Err(Fault::ZeroDivisor)),
            (0, Remainder, 0, Err(Fault::ZeroDivisor)),
            (1, ShiftLeft, 126, Ok(1 << 126)),
            (1, ShiftLeft, 127, Err(Fault::Overflow)),
            (-1, ShiftLeft, 127, Ok(least)),
            (0, ShiftLeft, 127, Ok(0)),
            (0, ShiftLeft, 128, Err(Fault::ShiftDistance)),
            (1, ShiftRight, -1, Err(Fault::ShiftDistance)),
            (1, ShiftRight, (1 << 64) + 1, Err(Fault::ShiftDistance)),
            (-5, ShiftRight, 1, Ok(-3)),
            (least, ShiftRight, 127, Ok(-1)),
            (2, Power, 126, Ok(1 << 126)),
            (2, Power, 127, Err(Fault::Overflow)),
            (-2, Power, 127, Ok(least)),
            (-2, Power, 128, Err(Fault::Overflow)),
            (3, Power, 80, Ok(147_808_829_414_345_923_316_083_210_206_383_297_601)),
            (3, Power, 81, Err(Fault::Overflow)),
            (least, Power, 1, Ok(least)),
            (least, Power, 0, Ok(1)),
            (0, Power, 0, Ok(1)),
            (0, Power, most, Ok(0)),
            (1, Power, most, Ok(1)),
            (-1, Power, most, Ok(-1)),
            (-1, Power, most - 1, Ok(1)),
            (2, Power, most, Err(Fault::Overflow)),
            (1, Power, -1, Err(Fault::NegativeExponent)),
            (0, Power, least, Err(Fault::NegativeExponent)),
            (least, Least, most, Ok(least)),
            (least, Greatest, -1, Ok(-1)),
        ] {
            assert_eq!(binary(op, left, right), wanted, "{left} {op:?} {right}");
        }
        assert_eq!(unary(UnaryOp::Negate, least), Err(Fault::Overflow));
        assert_eq!(unary(UnaryOp::Invert, least), Ok(most));
        assert_eq!(unary(UnaryOp::Abs, least), Err(Fault::Overflow));
        assert_eq!([least, 0, most].map(|value| unary(UnaryOp::Sign, value)), [Ok(-1), Ok(0), Ok(1)]);
    }
}
