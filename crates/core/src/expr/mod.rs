//! The expression language of predicates (`energy > 0.5 AND ux BETWEEN -1 AND 1`), of derived columns
//! (`energy = sqrt(1+ux*ux+uy*uy+uz*uz)-1`), and of columns of queries.
//!
//! # Language
//!
//! - Numbers: `7`, `0.05`, `1.5e-3`, `inf`, `-inf`, `nan`.
//! - Column names match exactly, or else case-insensitively if that match is unique. Any name may be quoted: `"time"`.
//! - Byte strings: `x'0a1b'`. A `fixed_bytes` column compares with them by `=`, `<>` and `IN`.
//! - Tuples of integers and byte strings: `(cpu, id) = (3, 17)`, `(cpu, id) IN ((3, 17), (4, 5))`, and their negations.
//! - `epoch` is a column, but not in derivations. `header.x0` is a constant of the source file, in derivations.
//! - `+ - * / // % **`, unary minus. `& | ~ << >>` of integers.
//! - `abs`, `sign`, `sqrt`, `exp`, `log`, `log10`, `sin`, `cos`, `floor` and `round` (ties to even) of `(x)`;
//!   `pow(x, y)`, `atan2(y, x)`, `least(a, b, …)`, `greatest(a, b, …)`; `if(condition, a, b)`; and `bits_i32(x)`: the
//!   bits of an `f32` column as an `i32`.
//! - `= == <> != < <= > >=`, `BETWEEN`, `IN (…)`, each with `NOT`; `isnan(x)`, `TRUE`, `FALSE`, `AND`, `OR`, `NOT`.
//!
//! # Meaning
//!
//! An expression is an integer or a float. Integer columns, `epoch`, integer literals, and the results of
//! `+ - * // % ** & | ~ << >>`, unary minus, `abs`, `sign`, `floor`, `round`, `least`, `greatest` and `if` of integers
//! are integers, but for powers of negative literals. All other expressions are floats.
//!
//! Integers are computed in 128 bits, and compared exactly, with floats as well. `//` truncates. An overflow, a zero
//! divisor, a shift by less than 0 or more than 127, and a negative power have no result: an error in a column. In
//! a predicate, the row matches neither the comparison nor its negation (Kleene's logic). An `if` has no result where
//! its condition has none. The branch that is not taken does not matter.
//!
//! Floats follow NumPy, and thereby IEEE 754:
//!
//! - `=`, `<`, `<=`, `>`, `>=`, `BETWEEN` and `IN` are false for NaN. Hence `<>`, `NOT IN`, `NOT BETWEEN` and
//!   `NOT (x > 1)` are *true* for NaN. `isnan(x)` is true for NaN only.
//! - -0.0 equals 0.0. Infinities are ordinary values.
//! - A literal, or an expression of literals, is rounded to the type of the bare float column that it is compared with:
//!   `energy > 0.1` on an `f32` column compares with the `f32` nearest to 0.1.
//! - Floats are computed and compared in `f64`. Division by zero returns an infinity or NaN. Remainder by zero returns
//!   NaN. `%` is C's `fmod`: the result has the sign of the dividend, as in SQL and `np.fmod`, but not in `np.mod`.
//!   `x // y` is `x / y` without its fraction. `least` and `greatest` of NaN are NaN.
//! - Functions have the same results on every machine (`functions`).
//!
//! # Map
//!
//! `builder` converts expressions composed by a program to text. `tokens` splits text within fixed limits, and `parse`
//! parses it. `bind` (`bind_tuple` for tuples) resolves names and types, and makes the typed `tree`. `space` converts
//! boxes to comparisons. `plan` chooses the execution of each comparison: on native slices (`mask`) or in chunks of
//! floats (`program`, `functions`) or integers (`whole_program`, `whole`), whose inputs are `chunks`. `comparison`
//! folds a predicate over its comparisons. [`Predicate`] evaluates (`predicate_input`) and prunes (`prune`,
//! `intervals`, `prune_whole`: interval arithmetic over column statistics; `keys`: lists of keys). [`Derivation`]
//! computes columns that are stored (`number_bytes`), and `computed` those of queries. A `calculation` is a number of a
//! request, such as one to sum; `of_epoch` has those of an epoch.

mod bind;
mod bind_tuple;
mod builder;
mod calculation;
mod chunks;
mod comparison;
mod computed;
mod derive;
mod error;
mod functions;
mod intervals;
mod keys;
mod mask;
mod members;
mod naming;
mod number_bytes;
mod of_epoch;
mod parse;
mod plan;
mod precedence;
mod predicate;
mod predicate_input;
mod program;
mod prune;
mod prune_whole;
mod space;
mod tokens;
mod tree;
mod tuples;
mod whole;
mod whole_program;

#[cfg(test)]
mod tests;

pub use builder::{Expr, col, lit};
pub(crate) use calculation::{Calculation, Call, Numbers, Term};
#[doc(hidden)]
pub use comparison::{Comparison, Connective};
pub(crate) use computed::ComputedColumn;
#[doc(hidden)]
pub use derive::{Derivation, DerivationSet, DerivedColumns};
pub use error::ExpressionError;
#[doc(hidden)]
pub use naming::split_list;
pub(crate) use naming::{NamedText, is_name};
#[doc(hidden)]
pub use of_epoch::EpochNumber;
#[doc(hidden)]
pub use predicate::Predicate;
#[doc(hidden)]
pub use predicate_input::PredicateInput;
#[doc(hidden)]
pub use prune::{ColumnBounds, NanPresence, TruthValue};
pub(crate) use space::{SpaceText, has_side_without_name};
