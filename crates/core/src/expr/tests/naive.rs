//! A reference interpreter of the expression language, for differential tests. It evaluates one row at a time and
//! shares no code with the implementation under test.

use super::super::functions;
use super::Row;

/// A numeric expression of a generated test.
#[derive(Debug, Clone)]
pub(super) enum TestNumber {
    Single,
    Double,
    Small,
    Int,
    Long,
    Big,
    Epoch,
    Whole(i128),
    Decimal(f64),
    Bits,
    Call(&'static str, Box<TestNumber>),
    Negative(Box<TestNumber>),
    /// `~`.
    Inverse(Box<TestNumber>),
    Arithmetic(&'static str, Box<TestNumber>, Box<TestNumber>),
    /// A function of two numbers.
    Pair(&'static str, Box<TestNumber>, Box<TestNumber>),
    If(Box<TestCondition>, Box<TestNumber>, Box<TestNumber>),
}

/// A condition of a generated test.
#[derive(Debug, Clone)]
pub(super) enum TestCondition {
    Literal(bool),
    Compare(&'static str, TestNumber, TestNumber),
    Between(bool, TestNumber, TestNumber, TestNumber),
    In(bool, TestNumber, Vec<TestNumber>),
    IsNan(TestNumber),
    Not(Box<TestCondition>),
    And(Box<TestCondition>, Box<TestCondition>),
    Or(Box<TestCondition>, Box<TestCondition>),
}

/// The value of a number, in its own type so that comparisons can be exact.
#[derive(Debug, Clone, Copy)]
pub(super) enum Known {
    Whole(i128),
    Single(f32),
    Float(f64),
}

impl Known {
    fn as_f64(self) -> f64 {
        match self {
            Self::Whole(value) => value as f64,
            Self::Single(value) => value.into(),
            Self::Float(value) => value,
        }
    }
}

fn decimal(value: f64) -> String {
    match value {
        _ if value.is_nan() => "NaN".to_owned(),
        _ if value == f64::INFINITY => "inf".to_owned(),
        _ if value == f64::NEG_INFINITY => "-inf".to_owned(),
        _ => format!("{value:e}"),
    }
}

impl TestNumber {
    pub(super) fn text(&self) -> String {
        match self {
            Self::Single => "single".to_owned(),
            Self::Double => "\"double\"".to_owned(),
            Self::Small => "SMALL".to_owned(),
            Self::Int => "int".to_owned(),
            Self::Long => "long".to_owned(),
            Self::Big => "big".to_owned(),
            Self::Epoch => "epoch".to_owned(),
            Self::Whole(value) => value.to_string(),
            // A literal without a point or an exponent parses as an integer.
            Self::Decimal(value) => decimal(*value),
            Self::Bits => "bits_i32(single)".to_owned(),
            Self::Call(name, operand) => format!("{name}({})", operand.text()),
            Self::Negative(operand) => format!("- ({})", operand.text()),
            Self::Inverse(operand) => format!("~({})", operand.text()),
            Self::Arithmetic(sign, left, right) => format!("({}) {sign} ({})", left.text(), right.text()),
            Self::Pair(name, left, right) => format!("{name}({}, {})", left.text(), right.text()),
            Self::If(condition, then, otherwise) => {
                format!("if({}, {}, {})", condition.text(), then.text(), otherwise.text())
            }
        }
    }

    /// Returns whether the number is an integer in every row.
    pub(super) fn is_whole(&self) -> bool {
        match self {
            Self::Small | Self::Int | Self::Long | Self::Big | Self::Epoch | Self::Whole(_) | Self::Inverse(_) => true,
            Self::Single | Self::Double | Self::Decimal(_) | Self::Bits => false,
            Self::Call(name, operand) => ["abs", "sign", "round", "floor"].contains(name) && operand.is_whole(),
            Self::Negative(operand) => operand.is_whole(),
            Self::Arithmetic("/", ..) | Self::Pair("atan2", ..) => false,
            Self::Arithmetic("**", _, right) | Self::Pair("pow", _, right)
                if matches!(right.constant(), Some(Known::Whole(..0))) =>
            {
                false
            }
            Self::Arithmetic(_, left, right) | Self::Pair(_, left, right) | Self::If(_, left, right) => {
                left.is_whole() && right.is_whole()
            }
        }
    }

    /// Returns the value of an expression of literals, or `None` for other expressions, and for those without a result
    /// or with the result -2^127.
    fn constant(&self) -> Option<Known> {
        let operands: &[&Self] = match self {
            Self::Whole(_) | Self::Decimal(_) => &[],
            Self::Call(_, operand) | Self::Negative(operand) | Self::Inverse(operand) => &[operand],
            Self::Arithmetic(_, left, right) | Self::Pair(_, left, right) => &[left, right],
            _ => return None,
        };
        operands.iter().try_for_each(|operand| operand.constant().map(drop))?;
        // The row is not read.
        self.value(0, &Row::ZERO).filter(|value| !matches!(value, Known::Whole(i128::MIN)))
    }

    /// Returns the value for a row, or `None` if an integer operation has no result.
    pub(super) fn value(&self, epoch: u64, row: &Row) -> Option<Known> {
        let float = |value| Some(Known::Float(value));
        match self {
            Self::Single => Some(Known::Single(row.single)),
            Self::Double => float(row.double),
            Self::Small => Some(Known::Whole(row.small.into())),
            Self::Int => Some(Known::Whole(row.int.into())),
            Self::Long => Some(Known::Whole(row.long.into())),
            Self::Big => Some(Known::Whole(row.big.into())),
            Self::Epoch => Some(Known::Whole(epoch.into())),
            Self::Whole(value) => Some(Known::Whole(*value)),
            Self::Decimal(value) => float(*value),
            Self::Bits => float(i32::from_ne_bytes(row.single.to_ne_bytes()).into()),
            Self::Call(name, operand) => match (*name, operand.value(epoch, row)?) {
                ("abs", Known::Whole(value)) => value.checked_abs().map(Known::Whole),
                ("sign", Known::Whole(value)) => Some(Known::Whole(value.signum())),
                ("round" | "floor", Known::Whole(value)) => Some(Known::Whole(value)),
                (name, value) => float(call(name, value.as_f64())),
            },
            Self::Negative(operand) => match operand.value(epoch, row)? {
                Known::Whole(value) => value.checked_neg().map(Known::Whole),
                value => float(-value.as_f64()),
            },
            Self::Inverse(operand) => match operand.value(epoch, row)? {
                Known::Whole(value) => Some(Known::Whole(-1 - value)),
                value => unreachable!("{value:?} has no bits"),
            },
            Self::Arithmetic(name, left, right) | Self::Pair(name, left, right) => {
                match (left.value(epoch, row)?, right.value(epoch, row)?) {
                    (Known::Whole(left), Known::Whole(right)) if self.is_whole() => {
                        whole_arithmetic(name, left, right).map(Known::Whole)
                    }
                    (left, right) => float(arithmetic(name, left.as_f64(), right.as_f64())),
                }
            }
            Self::If(condition, then, otherwise) => {
                let taken = if condition.truth(epoch, row)? { then } else { otherwise };
                match taken.value(epoch, row)? {
                    value if self.is_whole() => Some(value),
                    value => float(value.as_f64()),
                }
            }
        }
    }
}

fn call(name: &str, value: f64) -> f64 {
    match name {
        "abs" => value.abs(),
        "sqrt" => value.sqrt(),
        "floor" => value.floor(),
        "round" => value.round_ties_even(),
        "sign" => {
            if value == 0.0 {
                0.0
            } else {
                value.signum()
            }
        }
        "log" => libm::log(value),
        "log10" => libm::log10(value),
        // Those of the language are compared with msun's by tests of their own, since the last bit may differ.
        "exp" => functions::exp(value),
        "sin" | "cos" => {
            let mut values = [value];
            if name == "sin" {
                functions::sines(&mut values)
            } else {
                functions::cosines(&mut values)
            }
            values[0]
        }
        _ => unreachable!("there is no {name}"),
    }
}

fn arithmetic(sign: &str, left: f64, right: f64) -> f64 {
    match sign {
        "+" => left + right,
        "-" => left - right,
        "*" => left * right,
        "/" => left / right,
        "//" => (left / right).trunc(),
        "%" => left % right,
        // Compared with msun's by a test of its own.
        "**" | "pow" => functions::power(left, right),
        "atan2" => libm::atan2(left, right),
        "least" | "greatest" if left.is_nan() || right.is_nan() => f64::NAN,
        "least" => left.min(right),
        "greatest" => left.max(right),
        _ => unreachable!("floats have no {sign}"),
    }
}

fn whole_arithmetic(sign: &str, left: i128, right: i128) -> Option<i128> {
    match sign {
        "+" => left.checked_add(right),
        "-" => left.checked_sub(right),
        "*" => left.checked_mul(right),
        "//" => left.checked_div(right),
        // -2^127 % -1 is 0.
        "%" if right == -1 => Some(0),
        "%" => left.checked_rem(right),
        "&" => Some(left & right),
        "|" => Some(left | right),
        "<<" if right == 127 => [(0, 0), (-1, i128::MIN)].into_iter().find(|(from, _)| *from == left).map(|(_, to)| to),
        "<<" => left.checked_mul(1i128.checked_shl(u32::try_from(right).ok()?)?),
        "**" | "pow" if right < 0 => None,
        // All but -1, 0 and 1 overflow in fewer steps, and those alternate.
        "**" | "pow" => (0..right.min(200 + right % 2)).try_fold(1i128, |power, _| power.checked_mul(left)),
        "least" => Some(left.min(right)),
        "greatest" => Some(left.max(right)),
        _ => left.checked_shr(u32::try_from(right).ok()?),
    }
}

fn relation<T: PartialOrd>(sign: &str, left: T, right: T) -> bool {
    match sign {
        "=" | "==" => left == right,
        "<>" | "!=" => left != right,
        "<" => left < right,
        "<=" => left <= right,
        ">" => left > right,
        _ => left >= right,
    }
}

/// Compares an integer with a float without rounding the integer: first the integer parts, then the fraction.
fn whole_to_float(sign: &str, whole: i128, float: f64) -> bool {
    let end = 2f64.powi(127);
    if float.is_nan() || float >= end || float < -end {
        return relation(sign, 0.0, float);
    }
    let part = float.trunc() as i128;
    if whole == part { relation(sign, 0.0, float.fract()) } else { relation(sign, whole, part) }
}

fn flipped(sign: &str) -> &str {
    match sign {
        "<" => ">",
        "<=" => ">=",
        ">" => "<",
        ">=" => "<=",
        sign => sign,
    }
}

/// Returns whether a comparison holds, or `None` if a number has no result.
fn compare(sign: &str, left: &TestNumber, right: &TestNumber, epoch: u64, row: &Row) -> Option<bool> {
    let (a, b) = (left.value(epoch, row)?, right.value(epoch, row)?);
    let is_constant = |number: &TestNumber| number.constant().is_some();
    Some(match (a, b) {
        (Known::Single(a), Known::Whole(b)) if is_constant(right) => relation(sign, a, b as f32),
        (Known::Single(a), b) if is_constant(right) => relation(sign, a, b.as_f64() as f32),
        (_, Known::Single(_)) if is_constant(left) => return compare(flipped(sign), right, left, epoch, row),
        (Known::Whole(a), Known::Whole(b)) => relation(sign, a, b),
        // An integer literal is rounded if it is compared with a float. Other integers are not.
        (Known::Whole(a), b) if !is_constant(left) || is_constant(right) => whole_to_float(sign, a, b.as_f64()),
        (a, Known::Whole(b)) if !is_constant(right) || is_constant(left) => {
            whole_to_float(flipped(sign), b, a.as_f64())
        }
        (a, b) => relation(sign, a.as_f64(), b.as_f64()),
    })
}

fn and(left: Option<bool>, right: Option<bool>) -> Option<bool> {
    if left == Some(false) || right == Some(false) { Some(false) } else { Some(left? && right?) }
}

fn or(left: Option<bool>, right: Option<bool>) -> Option<bool> {
    and(left.map(|left| !left), right.map(|right| !right)).map(|neither| !neither)
}

impl TestCondition {
    pub(super) fn text(&self) -> String {
        let not = |negated: &bool| if *negated { "NOT " } else { "" };
        match self {
            Self::Literal(value) => value.to_string(),
            Self::Compare(sign, left, right) => format!("{} {sign} {}", left.text(), right.text()),
            Self::Between(negated, value, low, high) => {
                format!("{} {}between {} and {}", value.text(), not(negated), low.text(), high.text())
            }
            Self::In(negated, value, list) => {
                let list: Vec<String> = list.iter().map(TestNumber::text).collect();
                format!("{} {}in ({})", value.text(), not(negated), list.join(", "))
            }
            Self::IsNan(value) => format!("isnan({})", value.text()),
            Self::Not(operand) => format!("not ({})", operand.text()),
            Self::And(left, right) => format!("({}) and ({})", left.text(), right.text()),
            Self::Or(left, right) => format!("({}) or ({})", left.text(), right.text()),
        }
    }

    /// Returns whether a row matches. It does not if that depends on a number without a result.
    pub(super) fn holds(&self, epoch: u64, row: &Row) -> bool {
        self.truth(epoch, row) == Some(true)
    }

    fn truth(&self, epoch: u64, row: &Row) -> Option<bool> {
        match self {
            Self::Literal(value) => Some(*value),
            Self::Compare(sign, left, right) => compare(sign, left, right, epoch, row),
            Self::Between(negated, value, low, high) => {
                let within = and(compare(">=", value, low, epoch, row), compare("<=", value, high, epoch, row));
                within.map(|within| within != *negated)
            }
            Self::In(negated, value, list) => {
                let any = list.iter().map(|item| compare("=", value, item, epoch, row)).fold(Some(false), or);
                any.map(|any| any != *negated)
            }
            Self::IsNan(value) => Some(value.value(epoch, row)?.as_f64().is_nan()),
            Self::Not(operand) => operand.truth(epoch, row).map(|truth| !truth),
            Self::And(left, right) => and(left.truth(epoch, row), right.truth(epoch, row)),
            Self::Or(left, right) => or(left.truth(epoch, row), right.truth(epoch, row)),
        }
    }
}
