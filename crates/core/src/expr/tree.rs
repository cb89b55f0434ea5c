//! The typed tree of an expression, and its normalized text.

use std::fmt;
use std::sync::Arc;

use crate::schema::{DataType, EPOCH_COLUMN, Value};

use super::functions;
use super::precedence::{self, ATOM, POWER, SIGN};
use super::tuples::TupleSet;

/// A column by its index in the schema (or among the source columns).
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ColumnRef {
    pub(super) index: usize,
    pub(super) data_type: DataType,
    pub(super) name: Arc<str>,
}

/// Applies a function of many values to one.
fn of_one(function: fn(&mut [f64]), value: f64) -> f64 {
    let mut values = [value];
    function(&mut values);
    values[0]
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
    /// Rounds to the nearest integer, ties to even.
    Round,
    Sign,
    Exp,
    Log,
    Log10,
    Sin,
    Cos,
}

impl UnaryOp {
    /// Applies the operation to a float. With a constant operation, only its code remains.
    #[inline(always)]
    pub(super) fn apply(self, value: f64) -> f64 {
        match self {
            Self::Negate => -value,
            Self::Invert => unreachable!("binding refuses floats"),
            Self::Abs => value.abs(),
            Self::Sqrt => value.sqrt(),
            Self::Floor => value.floor(),
            Self::Round => functions::round(value),
            Self::Sign => functions::sign(value),
            Self::Exp => functions::exp(value),
            Self::Log => functions::log(value),
            Self::Log10 => functions::log10(value),
            Self::Sin => of_one(functions::sines, value),
            Self::Cos => of_one(functions::cosines, value),
        }
    }

    /// Returns the sign, or the function's name.
    fn name(self) -> &'static str {
        match self {
            Self::Negate => "-",
            Self::Invert => "~",
            Self::Abs => "abs",
            Self::Sqrt => "sqrt",
            Self::Floor => "floor",
            Self::Round => "round",
            Self::Sign => "sign",
            Self::Exp => "exp",
            Self::Log => "log",
            Self::Log10 => "log10",
            Self::Sin => "sin",
            Self::Cos => "cos",
        }
    }

    /// Returns whether the result of an integer is an integer. Binding drops the rounding of integers.
    pub(super) fn is_whole(self) -> bool {
        matches!(self, Self::Negate | Self::Invert | Self::Abs | Self::Sign)
    }
}

/// An operator, or a function of two numbers.
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
    Power,
    Atan2,
    Least,
    Greatest,
}

impl BinaryOp {
    /// Applies the operator to floats. With a constant operator, only that operator's code remains.
    #[inline(always)]
    pub(super) fn apply(self, left: f64, right: f64) -> f64 {
        match self {
            Self::Add => left + right,
            Self::Subtract => left - right,
            Self::Multiply => left * right,
            Self::Divide => left / right,
            Self::Quotient => (left / right).trunc(),
            Self::Remainder => left % right,
            Self::And | Self::Or | Self::ShiftLeft | Self::ShiftRight => unreachable!("binding refuses floats"),
            Self::Power => functions::power(left, right),
            Self::Atan2 => functions::atan2(left, right),
            Self::Least => functions::least(left, right),
            Self::Greatest => functions::greatest(left, right),
        }
    }

    /// Returns the operator's sign, or the function's name.
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
            Self::Power => "**",
            Self::Atan2 => "atan2",
            Self::Least => "least",
            Self::Greatest => "greatest",
        }
    }

    /// Returns whether this is a function, which is written before its operands.
    fn is_function(self) -> bool {
        matches!(self, Self::Atan2 | Self::Least | Self::Greatest)
    }

    /// Returns how tightly the operator binds.
    pub(super) fn binding(self) -> u8 {
        match self {
            Self::Or => precedence::BITS_OR,
            Self::And => precedence::BITS_AND,
            Self::ShiftLeft | Self::ShiftRight => precedence::SHIFT,
            Self::Add | Self::Subtract => precedence::SUM,
            Self::Multiply | Self::Divide | Self::Quotient | Self::Remainder => precedence::PRODUCT,
            Self::Power => POWER,
            Self::Atan2 | Self::Least | Self::Greatest => ATOM,
        }
    }

    /// Returns whether the result of integers is an integer. A negative number as exponent makes a float: `n ** -2`.
    pub(super) fn is_whole(self, right: &Number) -> bool {
        match self {
            Self::Divide | Self::Atan2 => false,
            Self::Power => !matches!(right.literal(), Some(Value::Int(..0))),
            _ => true,
        }
    }

    /// Returns whether the operator is one of bits, which floats do not have.
    pub(super) fn is_of_bits(self) -> bool {
        matches!(self, Self::And | Self::Or | Self::ShiftLeft | Self::ShiftRight)
    }
}

/// Expands `$apply!(OPERATOR)` with a constant operator, so that no loop branches on the operator.
macro_rules! with_operator {
    ($op:expr, $apply:ident) => {
        match $op {
            BinaryOp::Add => $apply!(Add),
            BinaryOp::Subtract => $apply!(Subtract),
            BinaryOp::Multiply => $apply!(Multiply),
            BinaryOp::Divide => $apply!(Divide),
            BinaryOp::Quotient => $apply!(Quotient),
            BinaryOp::Remainder => $apply!(Remainder),
            BinaryOp::And => $apply!(And),
            BinaryOp::Or => $apply!(Or),
            BinaryOp::ShiftLeft => $apply!(ShiftLeft),
            BinaryOp::ShiftRight => $apply!(ShiftRight),
            BinaryOp::Power => $apply!(Power),
            BinaryOp::Atan2 => $apply!(Atan2),
            BinaryOp::Least => $apply!(Least),
            BinaryOp::Greatest => $apply!(Greatest),
        }
    };
}
pub(super) use with_operator;

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
    /// `if(condition, then, otherwise)`
    If(Box<Condition>, Box<Number>, Box<Number>),
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
            Self::Unary(op, operand) => op.is_whole() && operand.is_whole(),
            // Chains of one operator are deep on the left.
            Self::Binary(op, left, right) => op.is_whole(right) && right.is_whole() && left.is_whole(),
            Self::If(_, then, otherwise) => then.is_whole() && otherwise.is_whole(),
        }
    }

    /// Returns whether the number is an integer that is computed, and not only read.
    pub(super) fn is_computed_whole(&self) -> bool {
        matches!(self, Self::Unary(..) | Self::Binary(..) | Self::If(..)) && self.is_whole()
    }

    /// Returns the number of which this one is the square in floats, if it is one.
    pub(super) fn root(&self) -> Option<&Self> {
        match self {
            Self::Binary(BinaryOp::Multiply, left, right) if left == right => Some(left),
            Self::Binary(BinaryOp::Power, base, exponent) => {
                exponent.literal().is_some_and(|exponent| exponent.as_f64() == 2.0).then_some(base)
            }
            _ => None,
        }
    }

    /// Returns whether an integer is computed for the number. Such an integer may have no result.
    pub(super) fn can_fault(&self) -> bool {
        match self {
            _ if self.is_computed_whole() => true,
            Self::Unary(_, operand) => operand.can_fault(),
            Self::Binary(_, left, right) => left.can_fault() || right.can_fault(),
            Self::If(condition, then, otherwise) => condition.can_fault() || then.can_fault() || otherwise.can_fault(),
            _ => false,
        }
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

impl Condition {
    /// Returns whether a number of the condition may have no result.
    pub(super) fn can_fault(&self) -> bool {
        match self {
            Self::Constant(_) | Self::Tuple { .. } => false,
            Self::Compare(_, left, right) => left.can_fault() || right.can_fault(),
            Self::Between { value, low, high, .. } => value.can_fault() || low.can_fault() || high.can_fault(),
            Self::In { value, list, .. } => value.can_fault() || list.iter().any(Number::can_fault),
            Self::IsNan(value) => value.can_fault(),
            Self::Not(operand) => operand.can_fault(),
            Self::And(operands) | Self::Or(operands) => operands.iter().any(Self::can_fault),
        }
    }
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

/// Writes the arguments of a function up to and with a number. `least` and `greatest` nest on the left.
fn write_arguments(f: &mut fmt::Formatter<'_>, of: BinaryOp, number: &Number) -> fmt::Result {
    match number {
        Number::Binary(op, left, right) if *op == of && of != BinaryOp::Atan2 => {
            write_arguments(f, of, left)?;
            write!(f, ", {right}")
        }
        number => write!(f, "{number}"),
    }
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
            Self::Unary(op @ (UnaryOp::Negate | UnaryOp::Invert), operand) => {
                f.write_str(op.name())?;
                // Two consecutive signs would begin an SQL comment.
                write_number(f, operand, POWER)
            }
            Self::Unary(op, operand) => write!(f, "{}({operand})", op.name()),
            Self::Binary(op, left, right) if op.is_function() => {
                write!(f, "{}(", op.sign())?;
                write_arguments(f, *op, left)?;
                write!(f, ", {right})")
            }
            Self::Binary(op, left, right) => {
                let (of_left, of_right) = match (op, op.binding()) {
                    (BinaryOp::Power, _) => (ATOM, SIGN),
                    (_, own) => (own, own + 1),
                };
                write_number(f, left, of_left)?;
                write!(f, " {} ", op.sign())?;
                write_number(f, right, of_right)
            }
            Self::If(condition, then, otherwise) => write!(f, "if({condition}, {then}, {otherwise})"),
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
        Number::If(condition, then, otherwise) => {
            gather_all(condition, columns, epoch);
            gather(then, columns, epoch);
            gather(otherwise, columns, epoch);
        }
    }
}

/// Appends the columns that a condition reads, like [`gather`].
pub(super) fn gather_all(condition: &Condition, columns: &mut Vec<usize>, epoch: &mut bool) {
    match condition {
        Condition::Constant(_) => {}
        Condition::Compare(_, left, right) => {
            gather(left, columns, epoch);
            gather(right, columns, epoch);
        }
        Condition::Between { value, low, high, .. } => {
            [value, low, high].iter().for_each(|number| gather(number, columns, epoch));
        }
        Condition::In { value, list, .. } => {
            gather(value, columns, epoch);
            list.iter().for_each(|number| gather(number, columns, epoch));
        }
        Condition::Tuple { columns: of, .. } => columns.extend(of.iter().map(|column| column.index)),
        Condition::IsNan(value) => gather(value, columns, epoch),
        Condition::Not(operand) => gather_all(operand, columns, epoch),
        Condition::And(operands) | Condition::Or(operands) => {
            operands.iter().for_each(|operand| gather_all(operand, columns, epoch));
        }
    }
}
