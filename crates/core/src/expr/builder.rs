//! Expressions composed by a program, instead of written as text.
//!
//! An [`Expr`] holds text in the expression language, with quoted names and parenthesized operands. A composed
//! expression means the same as its text.

use std::fmt;
use std::ops::{Add, Div, Mul, Neg, Not, Rem, Sub};

/// An expression: a number computed from columns, or a condition on rows.
///
/// ```
/// use turbidite::expr::{col, lit};
/// let hot = col("energy").ge(1.5).and(col("uy").abs().lt(1.0));
/// assert_eq!(hot.to_string(), r#"("energy" >= 1.5) AND (abs("uy") < 1.0)"#);
/// let early = (col("epoch") * lit(2)).between(0, 800).or(!col("tag").is_in([7, 9]));
/// assert_eq!(early.to_string(), r#"(("epoch" * 2) BETWEEN 0 AND 800) OR (NOT ("tag" IN (7, 9)))"#);
/// ```
#[derive(Debug, Clone)]
pub struct Expr {
    text: String,
    /// Whether the expression is a name, a non-negative number or a call, and needs no parentheses.
    is_atom: bool,
}

/// Returns the column with this name. The name may contain any characters.
pub fn col(name: &str) -> Expr {
    Expr::atom(format!("\"{}\"", name.replace('"', "\"\"")))
}

/// Returns a number.
pub fn lit(value: impl Into<Expr>) -> Expr {
    value.into()
}

macro_rules! literals {
    ($($native:ty => |$value:ident| $text:expr, $negative:expr;)*) => {$(
        impl From<$native> for Expr {
            fn from($value: $native) -> Self {
                Self { text: $text, is_atom: !$negative }
            }
        }
    )*};
}

literals! {
    i32 => |value| value.to_string(), value < 0;
    i64 => |value| value.to_string(), value < 0;
    u32 => |value| value.to_string(), false;
    u64 => |value| value.to_string(), false;
    // The text is the shortest that parses to the same value.
    f32 => |value| number(format!("{value:?}")), value.is_sign_negative();
    f64 => |value| number(format!("{value:?}")), value.is_sign_negative();
}

/// Converts a float's text to the language's spelling: `inf`, `-inf`, `nan`.
fn number(text: String) -> String {
    text.replace("NaN", "nan")
}

impl Expr {
    fn atom(text: String) -> Self {
        Self { text, is_atom: true }
    }

    fn operand(&self) -> String {
        if self.is_atom { self.text.clone() } else { format!("({})", self.text) }
    }

    fn call(function: &str, argument: &Self) -> Self {
        Self::atom(format!("{function}({})", argument.text))
    }

    fn infix(&self, operator: &str, other: impl Into<Self>) -> Self {
        Self { text: format!("{} {operator} {}", self.operand(), other.into().operand()), is_atom: false }
    }

    /// Returns the absolute value.
    #[must_use]
    pub fn abs(&self) -> Self {
        Self::call("abs", self)
    }

    /// Returns the square root.
    #[must_use]
    pub fn sqrt(&self) -> Self {
        Self::call("sqrt", self)
    }

    /// Returns the largest integer that is not greater than the number.
    #[must_use]
    pub fn floor(&self) -> Self {
        Self::call("floor", self)
    }

    /// Compares for equality. The comparison is false for NaN.
    #[must_use]
    pub fn eq(&self, other: impl Into<Self>) -> Self {
        self.infix("=", other)
    }

    /// Compares for inequality. The comparison is true for NaN.
    #[must_use]
    pub fn ne(&self, other: impl Into<Self>) -> Self {
        self.infix("<>", other)
    }

    /// Compares: less than.
    #[must_use]
    pub fn lt(&self, other: impl Into<Self>) -> Self {
        self.infix("<", other)
    }

    /// Compares: less than or equal to.
    #[must_use]
    pub fn le(&self, other: impl Into<Self>) -> Self {
        self.infix("<=", other)
    }

    /// Compares: greater than.
    #[must_use]
    pub fn gt(&self, other: impl Into<Self>) -> Self {
        self.infix(">", other)
    }

    /// Compares: greater than or equal to.
    #[must_use]
    pub fn ge(&self, other: impl Into<Self>) -> Self {
        self.infix(">=", other)
    }

    /// Tests whether the number lies in a closed interval.
    #[must_use]
    pub fn between(&self, low: impl Into<Self>, high: impl Into<Self>) -> Self {
        let (low, high) = (low.into().operand(), high.into().operand());
        Self { text: format!("{} BETWEEN {low} AND {high}", self.operand()), is_atom: false }
    }

    /// Tests whether the number is in a list. The test is false for an empty list.
    #[must_use]
    pub fn is_in<T: Into<Self>>(&self, members: impl IntoIterator<Item = T>) -> Self {
        let members: Vec<String> = members.into_iter().map(|member| member.into().text).collect();
        if members.is_empty() {
            return Self::atom("FALSE".to_owned());
        }
        Self { text: format!("{} IN ({})", self.operand(), members.join(", ")), is_atom: false }
    }

    /// Tests for NaN.
    #[must_use]
    pub fn is_nan(&self) -> Self {
        Self::call("isnan", self)
    }

    /// Combines two conditions. The result is true if both are true.
    #[must_use]
    pub fn and(&self, other: impl Into<Self>) -> Self {
        self.infix("AND", other)
    }

    /// Combines two conditions. The result is true if one or both are true.
    #[must_use]
    pub fn or(&self, other: impl Into<Self>) -> Self {
        self.infix("OR", other)
    }
}

macro_rules! operators {
    ($($operator:ident, $function:ident, $symbol:literal;)*) => {$(
        impl<T: Into<Expr>> $operator<T> for Expr {
            type Output = Expr;

            fn $function(self, other: T) -> Expr {
                self.infix($symbol, other)
            }
        }
    )*};
}

operators! {
    Add, add, "+";
    Sub, sub, "-";
    Mul, mul, "*";
    Div, div, "/";
    Rem, rem, "%";
}

impl Neg for Expr {
    type Output = Self;

    fn neg(self) -> Self {
        Self { text: format!("-{}", self.operand()), is_atom: false }
    }
}

impl Not for Expr {
    type Output = Self;

    fn not(self) -> Self {
        Self { text: format!("NOT {}", self.operand()), is_atom: false }
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

/// Returns the text of the expression.
impl From<Expr> for String {
    fn from(expression: Expr) -> Self {
        expression.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::Predicate;
    use crate::schema::{Column, DataType, Schema};

    fn parsed(expression: &Expr) -> String {
        let columns = vec![Column::new("x", DataType::F64), Column::new("odd \"name\"", DataType::I64)];
        let schema = Schema::new(columns, "x").unwrap();
        Predicate::parse(&expression.to_string(), &schema)
            .unwrap_or_else(|error| panic!("{expression}: {error}"))
            .to_string()
    }

    #[test]
    fn expressions_are_text_of_the_language() {
        let (x, odd) = (col("x"), col("odd \"name\""));
        assert_eq!(parsed(&x.eq(-1.5)), parsed_text("x = -1.5"));
        assert_eq!(parsed(&(x.clone() - odd.clone() - 1).gt(-2)), parsed_text("x - \"odd \"\"name\"\"\" - 1 > -2"));
        assert_eq!(parsed(&(-(x.clone() + 1.0) * 2.0).le(x.sqrt())), parsed_text("-(x + 1.0) * 2.0 <= sqrt(x)"));
        assert_eq!(
            parsed(&(!(x.lt(1).or(x.is_nan()))).and(odd.is_in([1u64, u64::MAX]))),
            parsed_text("NOT (x < 1 OR isnan(x)) AND \"odd \"\"name\"\"\" IN (1, 18446744073709551615)")
        );
        assert_eq!(parsed(&x.between(f64::NEG_INFINITY, f64::INFINITY)), parsed_text("x BETWEEN -inf AND inf"));
        assert_eq!(parsed(&x.ne(f64::NAN)), parsed_text("x <> nan"));
        assert_eq!(parsed(&odd.is_in([0i64; 0])), parsed_text("FALSE"));
        assert_eq!(
            parsed(&(x.floor() % 3 / 2).eq(0).or(x.ge(f64::MIN_POSITIVE))),
            parsed_text("floor(x) % 3 / 2 = 0 OR x >= 2.2250738585072014e-308")
        );
    }

    fn parsed_text(text: &str) -> String {
        parsed(&Expr { text: text.to_owned(), is_atom: false })
    }
}
