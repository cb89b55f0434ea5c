//! The typed tree of an expression, and its normalized text.

use std::fmt;
use std::sync::Arc;

use crate::schema::{DataType, EPOCH_COLUMN, Value};

use super::precedence::{self, ATOM, SIGN};
use super::tuples::TupleSet;

/// A column by its index in the schema (or among the source columns).
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ColumnRef {
    pub(super) index: usize,
    pub(super) data_type: DataType,
    pub(super) name: Arc<str>,
}

/// A function or sign with one operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnaryOp {
    Negate,
    /// Inverts the bits of an integer.
    Invert,
    Abs,
    Sqrt,
    Floor,
}

impl UnaryOp {
    pub(super) fn apply(self, value: f64) -> f64 {
        match self {
            Self::Negate => -value,
            Self::Invert => unreachable!("binding refuses floats"),
            Self::Abs => value.abs(),
            Self::Sqrt => value.sqrt(),
            Self::Floor => value.floor(),
        }
    }
}

/// An arithmetic operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BinaryOp {
    Add,
    Subtract,
    Multiply,
    Divide,
    /// The quotient without its fraction.
    Quotient,
    /// The remainder with the dividend's sign.
    Remainder,
    And,
    Or,
    ShiftLeft,
    ShiftRight,
}

impl BinaryOp {
    pub(super) fn apply(self, left: f64, right: f64) -> f64 {
        match self {
            Self::Add => left + right,
            Self::Subtract => left - right,
            Self::Multiply => left * right,
            Self::Divide => left / right,
            Self::Quotient => (left / right).trunc(),
            Self::Remainder => left % right,
            Self::And | Self::Or | Self::ShiftLeft | Self::ShiftRight => unreachable!("binding refuses floats"),
        }
    }

    pub(super) fn sign(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Quotient => "//",
            Self::Remainder => "%",
            Self::And => "&",
            Self::Or => "|",
            Self::ShiftLeft => "<<",
            Self::ShiftRight => ">>",
        }
    }

    /// Returns how tightly the operator binds.
    pub(super) fn binding(self) -> u8 {
        match self {
            Self::Or => precedence::BITS_OR,
            Self::And => precedence::BITS_AND,
            Self::ShiftLeft | Self::ShiftRight => precedence::SHIFT,
            Self::Add | Self::Subtract => precedence::SUM,
            Self::Multiply | Self::Divide | Self::Quotient | Self::Remainder => precedence::PRODUCT,
        }
    }

    /// Returns whether the operator is one of bits, which floats do not have.
    pub(super) fn is_of_bits(self) -> bool {
        matches!(self, Self::And | Self::Or | Self::ShiftLeft | Self::ShiftRight)
    }
}

/// A comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CompareOp {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl CompareOp {
    /// Returns the equivalent comparison of the exchanged operands.
    pub(super) fn flipped(self) -> Self {
        match self {
            Self::Equal | Self::NotEqual => self,
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
        }
    }

    /// Compares any two ordered values; for `f64` the comparison is IEEE's.
    #[inline(always)]
    pub(super) fn holds<T: PartialOrd>(self, left: T, right: T) -> bool {
        match self {
            Self::Equal => left == right,
            Self::NotEqual => left != right,
            Self::Less => left < right,
            Self::LessOrEqual => left <= right,
            Self::Greater => left > right,
            Self::GreaterOrEqual => left >= right,
        }
    }

    /// Compares two values exactly.
    pub(super) fn holds_exactly(self, left: Value, right: Value) -> bool {
        match left.compare(right) {
            Some(order) => self.holds(order, std::cmp::Ordering::Equal),
            None => self == Self::NotEqual,
        }
    }

    fn sign(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "<>",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }
}

/// A numeric expression.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Number {
    Column(ColumnRef),
    /// The label of the rows' epoch.
    Epoch,
    Literal(Value),
    /// A literal that was rounded to `f32`, the type of the column that it is compared with.
    Single(f32),
    /// A constant of the source file: its index in the list of constants in use, and its name.
    Constant(usize, Arc<str>),
    /// The bits of an `f32` column.
    Bits(ColumnRef),
    Unary(UnaryOp, Box<Number>),
    Binary(BinaryOp, Box<Number>, Box<Number>),
}

impl Number {
    /// Returns the value, if the number is a literal.
    pub(super) fn literal(&self) -> Option<Value> {
        match self {
            Self::Literal(value) => Some(*value),
            Self::Single(value) => Some(Value::Float(f64::from(*value))),
            _ => None,
        }
    }

    /// Returns whether the number is an integer, which is computed exactly. All other numbers are floats.
    pub(super) fn is_whole(&self) -> bool {
        match self {
            Self::Column(column) => !column.data_type.is_float(),
            Self::Epoch => true,
            Self::Literal(value) => matches!(value, Value::Int(_)),
            Self::Single(_) | Self::Constant(..) | Self::Bits(_) => false,
            Self::Unary(op, operand) => matches!(op, UnaryOp::Negate | UnaryOp::Invert) && operand.is_whole(),
            Self::Binary(BinaryOp::Divide, ..) => false,
            // Chains of one operator are deep on the left.
            Self::Binary(_, left, right) => right.is_whole() && left.is_whole(),
        }
    }

    /// Returns whether the number is an integer that is computed, and not only read.
    pub(super) fn is_computed_whole(&self) -> bool {
        matches!(self, Self::Unary(..) | Self::Binary(..)) && self.is_whole()
    }
}

/// Converts a literal to a column's type: rounds it for float types, and returns it unchanged for integer types.
pub(super) fn rounded(data_type: DataType, literal: Value) -> Value {
    match (data_type, literal) {
        // The conversion from i128 to f32 rounds once. A conversion by way of f64 could round twice.
        (DataType::F32, Value::Int(value)) => Value::Float(f64::from(value as f32)),
        (DataType::F32, Value::Float(value)) => Value::Float(f64::from(value as f32)),
        (DataType::F64, value) => Value::Float(value.as_f64()),
        _ => literal,
    }
}

/// A Boolean expression.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Condition {
    Constant(bool),
    Compare(CompareOp, Number, Number),
    Between {
        value: Number,
        low: Number,
        high: Number,
        negated: bool,
    },
    In {
        value: Number,
        list: Vec<Number>,
        negated: bool,
    },
    /// The values of columns are one of the tuples, at least one.
    Tuple {
        columns: Vec<ColumnRef>,
        members: TupleSet,
        negated: bool,
    },
    IsNan(Number),
    Not(Box<Condition>),
    And(Vec<Condition>),
    Or(Vec<Condition>),
}

/// Keywords of the language. A column with such a name must be quoted.
pub(super) const WORDS: [&str; 11] =
    ["and", "or", "not", "between", "in", "true", "false", "inf", "infinity", "nan", EPOCH_COLUMN];

fn write_name(f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    let starts = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    let simple = starts && name.chars().all(|part| part.is_ascii_alphanumeric() || part == '_');
    if simple && !WORDS.iter().any(|word| word.eq_ignore_ascii_case(name)) {
        return f.write_str(name);
    }
    write!(f, "\"{}\"", name.replace('"', "\"\""))
}

fn write_float(f: &mut fmt::Formatter<'_>, value: f64, text: &str) -> fmt::Result {
    if value.is_nan() {
        f.write_str("nan")
    } else if value.is_infinite() {
        f.write_str(if value > 0.0 { "inf" } else { "-inf" })
    } else {
        f.write_str(text)
    }
}

/// Returns how tightly a number's text binds.
fn binding(number: &Number) -> u8 {
    let is_negative = match number {
        Number::Literal(Value::Int(value)) => *value < 0,
        Number::Literal(Value::Float(value)) => value.is_sign_negative() && !value.is_nan(),
        Number::Single(value) => value.is_sign_negative() && !value.is_nan(),
        _ => false,
    };
    match number {
        Number::Binary(op, ..) => op.binding(),
        Number::Unary(UnaryOp::Negate | UnaryOp::Invert, _) => SIGN,
        _ if is_negative => SIGN,
        _ => ATOM,
    }
}

/// Writes a number, in parentheses unless its precedence is at least `tightly`.
fn write_number(f: &mut fmt::Formatter<'_>, number: &Number, tightly: u8) -> fmt::Result {
    if binding(number) < tightly { write!(f, "({number})") } else { write!(f, "{number}") }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Column(column) => write_name(f, &column.name),
            Self::Epoch => f.write_str(EPOCH_COLUMN),
            Self::Literal(Value::Int(value)) => write!(f, "{value}"),
            Self::Literal(Value::Float(value)) => write_float(f, *value, &format!("{value:?}")),
            Self::Single(value) => write_float(f, f64::from(*value), &format!("{value:?}")),
            Self::Constant(_, name) => f.write_str(name),
            Self::Bits(column) => {
                f.write_str("bits_i32(")?;
                write_name(f, &column.name)?;
                f.write_str(")")
            }
            Self::Unary(UnaryOp::Negate, operand) => {
                f.write_str("-")?;
                // Two consecutive signs would begin an SQL comment.
                write_number(f, operand, ATOM)
            }
            Self::Unary(UnaryOp::Invert, operand) => {
                f.write_str("~")?;
                write_number(f, operand, ATOM)
            }
            Self::Unary(UnaryOp::Abs, operand) => write!(f, "abs({operand})"),
            Self::Unary(UnaryOp::Sqrt, operand) => write!(f, "sqrt({operand})"),
            Self::Unary(UnaryOp::Floor, operand) => write!(f, "floor({operand})"),
            Self::Binary(op, left, right) => {
                let own = op.binding();
                write_number(f, left, own)?;
                write!(f, " {} ", op.sign())?;
                write_number(f, right, own + 1)
            }
        }
    }
}

/// Writes a condition, in parentheses unless its precedence is at least `tightly`: OR 1, AND 2, NOT 3, all others 4.
fn write_condition(f: &mut fmt::Formatter<'_>, condition: &Condition, tightly: u8) -> fmt::Result {
    let binds = match condition {
        Condition::Or(_) => 1,
        Condition::And(_) => 2,
        Condition::Not(_) => 3,
        _ => 4,
    };
    if binds < tightly { write!(f, "({condition})") } else { write!(f, "{condition}") }
}

fn write_joined(f: &mut fmt::Formatter<'_>, operands: &[Condition], word: &str, tightly: u8) -> fmt::Result {
    for (index, operand) in operands.iter().enumerate() {
        if index > 0 {
            write!(f, " {word} ")?;
        }
        write_condition(f, operand, tightly)?;
    }
    Ok(())
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let not = |negated: &bool| if *negated { " NOT" } else { "" };
        match self {
            Self::Constant(value) => f.write_str(if *value { "TRUE" } else { "FALSE" }),
            Self::Compare(op, left, right) => write!(f, "{left} {} {right}", op.sign()),
            Self::Between { value, low, high, negated } => {
                write!(f, "{value}{} BETWEEN {low} AND {high}", not(negated))
            }
            Self::In { value, list, negated } => {
                write!(f, "{value}{} IN (", not(negated))?;
                for (index, item) in list.iter().enumerate() {
                    if index > 0 {
                        f.write_str(", ")?;
                    }
                    write!(f, "{item}")?;
                }
                f.write_str(")")
            }
            Self::Tuple { columns, members, negated } => {
                let open = |text| if columns.len() > 1 { text } else { "" };
                f.write_str(open("("))?;
                for (place, column) in columns.iter().enumerate() {
                    f.write_str(if place > 0 { ", " } else { "" })?;
                    write_name(f, &column.name)?;
                }
                f.write_str(open(")"))?;
                match (members.len(), negated) {
                    (1, false) => write!(f, " = {members}"),
                    (1, true) => write!(f, " <> {members}"),
                    (_, negated) => write!(f, "{} IN ({members})", not(negated)),
                }
            }
            Self::IsNan(value) => write!(f, "isnan({value})"),
            Self::Not(operand) => {
                f.write_str("NOT ")?;
                write_condition(f, operand, 4)
            }
            Self::And(operands) => write_joined(f, operands, "AND", 3),
            Self::Or(operands) => write_joined(f, operands, "OR", 2),
        }
    }
}

/// Appends the columns that a number reads to `columns`. Sets `epoch` if the number reads the epoch.
pub(super) fn gather(number: &Number, columns: &mut Vec<usize>, epoch: &mut bool) {
    match number {
        Number::Column(column) | Number::Bits(column) => columns.push(column.index),
        Number::Epoch => *epoch = true,
        Number::Literal(_) | Number::Single(_) | Number::Constant(..) => {}
        Number::Unary(_, operand) => gather(operand, columns, epoch),
        Number::Binary(_, left, right) => {
            gather(left, columns, epoch);
            gather(right, columns, epoch);
        }
    }
}
