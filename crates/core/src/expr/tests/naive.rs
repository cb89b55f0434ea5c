//! A reference interpreter of the expression language, for differential tests. It evaluates one row at a time and
//! shares no code with the implementation under test.

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
    Arithmetic(char, Box<TestNumber>, Box<TestNumber>),
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

/// The value of a literal or of a bare column in its own type, so that comparisons can be exact.
#[derive(Debug, Clone, Copy)]
enum Known {
    /// A bare integer column, or an integer literal.
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
            Self::Arithmetic(sign, left, right) => format!("({}) {sign} ({})", left.text(), right.text()),
        }
    }

    /// Returns the value of an expression of literals, or `None` for other expressions.
    fn constant(&self) -> Option<Known> {
        Some(match self {
            Self::Whole(value) => Known::Whole(*value),
            Self::Decimal(value) => Known::Float(*value),
            Self::Negative(operand) => match operand.constant()? {
                Known::Whole(value) => Known::Whole(-value),
                value => Known::Float(-value.as_f64()),
            },
            Self::Call(name, operand) => match (*name, operand.constant()?) {
                ("abs", Known::Whole(value)) => Known::Whole(value.abs()),
                (name, value) => Known::Float(call(name, value.as_f64())),
            },
            Self::Arithmetic(sign, left, right) => match (sign, left.constant()?, right.constant()?) {
                ('+', Known::Whole(a), Known::Whole(b)) => Known::Whole(a + b),
                ('-', Known::Whole(a), Known::Whole(b)) => Known::Whole(a - b),
                ('*', Known::Whole(a), Known::Whole(b)) if (a as f64 * b as f64).abs() < 1e30 => Known::Whole(a * b),
                (sign, a, b) => Known::Float(arithmetic(*sign, a.as_f64(), b.as_f64())),
            },
            _ => return None,
        })
    }

    /// Returns the value of a bare column, or `None` for other expressions.
    fn bare(&self, epoch: u64, row: &Row) -> Option<Known> {
        Some(match self {
            Self::Single => Known::Single(row.single),
            Self::Double => Known::Float(row.double),
            Self::Small => Known::Whole(row.small.into()),
            Self::Int => Known::Whole(row.int.into()),
            Self::Long => Known::Whole(row.long.into()),
            Self::Big => Known::Whole(row.big.into()),
            Self::Epoch => Known::Whole(epoch.into()),
            _ => return None,
        })
    }

    fn value(&self, epoch: u64, row: &Row) -> f64 {
        if let Some(value) = self.constant().or_else(|| self.bare(epoch, row)) {
            return value.as_f64();
        }
        match self {
            Self::Bits => f64::from(i32::from_ne_bytes(row.single.to_ne_bytes())),
            Self::Call(name, operand) => call(name, operand.value(epoch, row)),
            Self::Negative(operand) => -operand.value(epoch, row),
            Self::Arithmetic(sign, left, right) => arithmetic(*sign, left.value(epoch, row), right.value(epoch, row)),
            _ => unreachable!("bare or constant"),
        }
    }
}

fn call(name: &str, value: f64) -> f64 {
    match name {
        "abs" => value.abs(),
        "sqrt" => value.sqrt(),
        _ => value.floor(),
    }
}

fn arithmetic(sign: char, left: f64, right: f64) -> f64 {
    match sign {
        '+' => left + right,
        '-' => left - right,
        '*' => left * right,
        '/' => left / right,
        _ => left % right,
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
    if float.is_nan() || float.is_infinite() || float.abs() > 1e30 {
        return relation(sign, 0.0, float);
    }
    let part = float.trunc() as i128;
    if whole == part { relation(sign, 0.0, float.fract()) } else { relation(sign, whole, part) }
}

fn compare(sign: &str, left: &TestNumber, right: &TestNumber, epoch: u64, row: &Row) -> bool {
    let flipped = match sign {
        "<" => ">",
        "<=" => ">=",
        ">" => "<",
        ">=" => "<=",
        sign => sign,
    };
    let known = |number: &TestNumber| number.constant().or_else(|| number.bare(epoch, row));
    let is_constant = |number: &TestNumber| number.constant().is_some();
    match (known(left), known(right)) {
        (Some(Known::Single(a)), Some(b)) if is_constant(right) => match b {
            Known::Whole(b) => relation(sign, a, b as f32),
            b => relation(sign, a, b.as_f64() as f32),
        },
        (Some(_), Some(Known::Single(_))) if is_constant(left) => compare(flipped, right, left, epoch, row),
        (Some(Known::Whole(a)), Some(Known::Whole(b))) => relation(sign, a, b),
        // An integer column is compared with a float literal exactly. A float column rounds its literal to the column's
        // type. An integer column and a float column are compared as f64.
        (Some(Known::Whole(a)), Some(Known::Float(b))) if is_constant(right) => whole_to_float(sign, a, b),
        (Some(Known::Float(_)), Some(Known::Whole(_))) if is_constant(left) => {
            compare(flipped, right, left, epoch, row)
        }
        _ => relation(sign, left.value(epoch, row), right.value(epoch, row)),
    }
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

    pub(super) fn holds(&self, epoch: u64, row: &Row) -> bool {
        match self {
            Self::Literal(value) => *value,
            Self::Compare(sign, left, right) => compare(sign, left, right, epoch, row),
            Self::Between(negated, value, low, high) => {
                (compare(">=", value, low, epoch, row) && compare("<=", value, high, epoch, row)) != *negated
            }
            Self::In(negated, value, list) => list.iter().any(|item| compare("=", value, item, epoch, row)) != *negated,
            Self::IsNan(value) => value.value(epoch, row).is_nan(),
            Self::Not(operand) => !operand.holds(epoch, row),
            Self::And(left, right) => left.holds(epoch, row) && right.holds(epoch, row),
            Self::Or(left, right) => left.holds(epoch, row) || right.holds(epoch, row),
        }
    }
}
