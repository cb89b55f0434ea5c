//! The expression language of predicates (`energy > 0.5 AND ux BETWEEN -1 AND 1`) and of derived columns
//! (`energy = sqrt(1+ux*ux+uy*uy+uz*uz)-1`).
//!
//! # Language
//!
//! - Numbers: `7`, `0.05`, `1.5e-3`, `inf`, `-inf`, `nan`. Columns by name, case-sensitive first, then regardless of
//!   case where that is unambiguous; any name may be quoted, `"time"`. `epoch` is a column of every predicate,
//!   `header.x0` a constant of the source file in derivations.
//! - `+ - * / %`, unary minus, `abs(x)`, `sqrt(x)`, `floor(x)`, and `bits_i32(x)`: the bits of an `f32` column as an
//!   `i32`.
//! - `= == <> != < <= > >=`, `BETWEEN`, `IN (…)`, each with `NOT`; `isnan(x)`, `TRUE`, `FALSE`, `AND`, `OR`, `NOT`.
//!
//! # Meaning
//!
//! That of NumPy, which is IEEE 754:
//!
//! - NaN is in no relation to anything: `=`, `<`, `<=`, `>`, `>=`, `BETWEEN` and `IN` are false for it. Hence `<>`,
//!   `NOT IN`, `NOT BETWEEN` and `NOT (x > 1)` are *true* for it. `isnan(x)` finds it. -0.0 equals 0.0; infinities are
//!   ordinary.
//! - A literal, or an expression of literals, that meets a bare float column is rounded to the column's type first:
//!   `energy > 0.1` on an `f32` column compares with the `f32` nearest to 0.1.
//! - A bare integer column (or `epoch`) compares exactly, with literals and with other integer columns, over the whole
//!   range of `i64` and `u64`.
//! - Everything else is computed and compared in `f64`. Division and remainder by zero give infinities and NaN. `%` is
//!   C's `fmod`: the result has the sign of the dividend, as in SQL (and as `np.fmod`, not `np.mod`).
//! - Integer literals are exact, and so are `+`, `-` and `*` of them: `9007199254740992 + 1` is 9007199254740993.
//!
//! # Map
//!
//! `builder` makes text of expressions that programs compose; `comparison` folds a predicate over its comparisons.
//! `parse` turns text into sqlparser's tree within fixed limits; `bind` turns that into our own typed `tree`; `plan`
//! chooses the execution of each comparison: on native slices (`mask`) or in `f64` chunks (`program`). [`Predicate`]
//! evaluates and prunes (`prune`: interval arithmetic over column statistics), [`Derivation`] computes columns.

mod bind;
mod builder;
mod comparison;
mod derive;
mod error;
mod mask;
mod members;
mod parse;
mod plan;
mod predicate;
mod program;
mod prune;
mod tree;

#[cfg(test)]
mod tests;

pub use builder::{Expr, col, lit};
#[doc(hidden)]
pub use comparison::{Comparison, Connective};
#[doc(hidden)]
pub use derive::{Derivation, DerivationSet, DerivedColumns};
pub use error::ExpressionError;
#[doc(hidden)]
pub use predicate::{Predicate, PredicateInput};
#[doc(hidden)]
pub use prune::{ColumnBounds, NanPresence, TruthValue};
