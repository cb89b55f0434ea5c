//! Errors in expressions, with positions in the text.

use crate::schema::DataType;

/// Maximum length of a text, in bytes. An IN list of about 100,000 numbers fits.
pub(super) const MAX_TEXT_BYTES: usize = 1 << 20;

/// Maximum number of operators, including keywords such as AND, and calls.
pub(super) const MAX_OPERATORS: usize = 1_000;

/// An error in an expression, or in the storage of its result.
///
/// Positions count characters from 1 in the original text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say it")]
pub enum ExpressionError {
    #[error("the expression is empty; write a condition such as 'energy > 0.5'")]
    Empty,
    #[error("at character {position}, near '{near}': {what}")]
    Syntax { position: usize, near: String, what: String },
    #[error("the expression has {bytes} bytes; the maximum is {MAX_TEXT_BYTES}; look up long lists of ids by get")]
    TooLong { bytes: usize },
    #[error("the expression has more than {MAX_OPERATORS} operators; use IN (…) for lists, or several queries")]
    TooManyOperators,
    #[error("at character {position}: the expression nests too deeply here; remove parentheses, or split it")]
    TooDeep { position: usize },
    #[error("at character {position}: there is no column '{name}'; the columns are {}", known.join(", "))]
    UnknownColumn { position: usize, name: String, known: Vec<String> },
    #[error("at character {position}: '{name}' is ambiguous: {}; use the exact name", candidates.join(", "))]
    AmbiguousColumn { position: usize, name: String, candidates: Vec<String> },
    #[error(
        "at character {position}: column '{name}' is {data_type}, which can be stored and returned, and compared by = and IN with literals such as x'0a1b'"
    )]
    Opaque { position: usize, name: String, data_type: DataType },
    #[error(
        "at character {position}: there is no function '{name}'; the functions are abs, atan2, bits_i32, cos, exp, floor, \
         greatest, if, isnan, least, log, log10, pow, round, sign, sin and sqrt"
    )]
    UnknownFunction { position: usize, name: String },
    #[error("at character {position}: {function} takes {takes}, not {found}")]
    ArgumentCount { position: usize, function: String, takes: &'static str, found: usize },
    #[error("at character {position}: bits_i32 takes an f32 column by name; '{argument}' is not one")]
    BitsArgument { position: usize, argument: String },
    #[error("at character {position}, near '{near}': expected a condition, such as 'energy > 0.5', found a number")]
    NotACondition { position: usize, near: String },
    #[error(
        "at character {position}, near '{near}': expected a number, found a condition; if(condition, 1, 0) is a number"
    )]
    NotANumber { position: usize, near: String },
    #[error("at character {position}: the source has no constant '{name}'")]
    UnknownConstant { position: usize, name: String },
    #[error("at character {position}: '{name}' is a constant of source files; predicates can use columns only")]
    ConstantInPredicate { position: usize, name: String },
    #[error("'{text}' is not a derivation; write name = expression, or name:type = expression")]
    DerivationForm { text: String },
    #[error("'{name}' cannot name a derived column: {reason}")]
    DerivationName { name: String, reason: &'static str },
    #[error("derived column '{name}': '{type_name}' is not a number type; use i8 to i64, u8 to u64, f32 or f64")]
    DerivationType { name: String, type_name: String },
    #[error("column '{column}' has the unit '{unit}', which is not a factor and SI base units, such as '1e-06 m'")]
    Unit { column: String, unit: String },
    #[error(
        "derived column '{column}', row {row}: {value} does not fit {data_type}; derive it as f32 or f64, or fix the expression"
    )]
    ValueRange { column: String, row: usize, value: String, data_type: DataType },
    #[error("derived column '{column}', row {row}: {expression} {what}")]
    Whole { column: String, row: usize, expression: String, what: String },
    #[error("column '{column}': {what}")]
    Computed { column: String, what: String },
    #[error("box '{text}': {what}")]
    Box { text: String, what: String },
    #[error("period '{text}': {what}")]
    Period { text: String, what: String },
    #[error("{0}")]
    Input(String),
}
