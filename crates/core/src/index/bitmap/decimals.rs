//! Decimals of few digits, which are the edges of bins.

/// The powers of ten that are an `f64`.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];

/// A decimal of few digits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Decimal {
    pub(super) value: f64,
    pub(super) digits: u32,
}

/// Returns ten to the power of `exponent`, which is not negative.
fn power(exponent: i32) -> f64 {
    POWERS.get(exponent as usize).copied().unwrap_or_else(|| 10f64.powi(exponent))
}

/// Returns `mantissa` times ten to the power of `exponent`, as it is parsed.
fn decimal(mantissa: i64, exponent: i32) -> f64 {
    if exponent.unsigned_abs() as usize >= POWERS.len() {
        format!("{mantissa}e{exponent}").parse().unwrap_or(f64::INFINITY)
    } else if exponent < 0 {
        // A quotient of two exact numbers is the number nearest to the decimal.
        mantissa as f64 / power(-exponent)
    } else {
        mantissa as f64 * power(exponent)
    }
}

/// Returns the number of digits of a decimal with this mantissa.
fn digits_of(mantissa: i64) -> u32 {
    let mut rest = mantissa.unsigned_abs();
    while rest > 0 && rest.is_multiple_of(10) {
        rest /= 10;
    }
    rest.checked_ilog10().map_or(1, |last| last + 1)
}

/// Returns the smallest decimal of at most `precision` digits that is greater than a number, which is not zero.
/// Decimals of integers are integers.
pub(super) fn next_decimal(value: f64, precision: u32, is_integer: bool) -> Decimal {
    let none = Decimal { value: f64::INFINITY, digits: 1 };
    if value == 0.0 {
        return none;
    }
    let magnitude = value.abs().log10().floor() as i32;
    // One exponent less, in case that the logarithm was rounded up, and for numbers just below a power of ten.
    let exponents = (magnitude - precision as i32)..=(magnitude + 2);
    let most = 10i64.pow(precision);
    let mut found: Option<(f64, i64)> = None;
    for exponent in exponents {
        let exponent = if is_integer { exponent.max(0) } else { exponent };
        let near = match exponent {
            0.. => value / power(exponent),
            // The power of a smaller exponent is none.
            -300..0 => value * power(-exponent),
            _ => value / 10f64.powi(exponent),
        };
        let near = near.floor();
        if near.abs() > (most + 1) as f64 || !near.is_finite() {
            continue;
        }
        for mantissa in [near as i64 - 1, near as i64, near as i64 + 1, near as i64 + 2] {
            let decimal = decimal(mantissa, exponent);
            let is_next = decimal > value && found.is_none_or(|(found, _)| decimal < found);
            if mantissa.abs() <= most && is_next {
                found = Some((decimal, mantissa));
            }
        }
    }
    found.map_or(none, |(value, mantissa)| Decimal { value, digits: digits_of(mantissa) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_decimal_is_the_next() {
        for (value, precision, expected, digits) in [
            (5.03, 2, 5.1, 2),
            (5.1, 2, 5.2, 2),
            (0.0995, 2, 0.1, 1),
            (9.95, 2, 10.0, 1),
            (10.0, 2, 11.0, 2),
            (-1.0, 2, -0.99, 2),
            (-1.05, 2, -1.0, 1),
            (-0.99, 2, -0.98, 2),
            (123.0, 1, 200.0, 1),
            (1e-300, 2, 1.1e-300, 2),
            (9.99e307, 2, 1e308, 1),
            (0.25, 3, 0.251, 3),
        ] {
            let found = next_decimal(value, precision, false);
            assert_eq!((found.value, found.digits), (expected, digits), "{value}");
        }
        assert_eq!(next_decimal(3.0, 2, true).value, 4.0);
        assert_eq!(next_decimal(-3.0, 2, true).value, -2.0);
        assert_eq!(next_decimal(1234.0, 2, true).value, 1300.0);
        assert_eq!(next_decimal(f64::MAX, 2, false).value, f64::INFINITY);
    }
}
