//! Numbers that requests compute from the columns of rows, and calls of functions of many rows, such as
//! `sum(energy * weighting)`, whose names are the caller's.

use std::fmt;

use arrow_array::ArrayRef;

use crate::schema::{Column, DataType, Value};

use super::ExpressionError;
use super::bind::{Binder, Names};
use super::chunks::CHUNK_ROWS;
use super::parse::{Syntax, SyntaxKind, parse};
use super::plan::{Choices, ExpressionPlanner};
use super::predicate_input::PredicateInput;
use super::program::{Formula, Program, Stack, Values};
use super::prune::Pruner;
use super::tokens::SourceText;
use super::tree::{Number, gather};

/// A number that is computed from the columns of a row: an integer in 128 bits, or a float.
#[derive(Debug, Clone)]
pub(crate) struct Calculation {
    tree: Number,
    formula: Formula,
    choices: Choices,
    inputs: Vec<(usize, DataType)>,
}

/// Results of a calculation, one for each row.
#[derive(Debug)]
pub(crate) enum Numbers {
    Whole(Vec<i128>),
    Float(Vec<f64>),
}

/// A number, or a call of one of the caller's functions.
#[derive(Debug)]
pub(crate) enum Term {
    Number(Calculation),
    Call(Call),
}

/// A call of one of the caller's functions.
#[derive(Debug)]
pub(crate) struct Call {
    /// The name in lower case.
    pub(crate) name: String,
    /// Position of the call in the user's text, counted in characters from 1.
    pub(crate) position: usize,
    pub(crate) arguments: Vec<Term>,
}

impl Term {
    /// Parses a text, of which `skipped` characters of the user's text precede. Calls of `functions` may have each
    /// other as arguments, but are not operands of a number.
    ///
    /// # Errors
    /// [`ExpressionError`] for a text that is neither a number nor such a call.
    pub(crate) fn parse(
        text: &str,
        skipped: usize,
        columns: &[Column],
        functions: &[&str],
    ) -> Result<Self, ExpressionError> {
        let source = SourceText::new(text, skipped);
        let syntax = parse(&source)?;
        let binder = Binder::new(source, columns, Names::Predicate);
        Self::bind(&syntax, &binder, columns, functions)
    }

    fn bind(
        syntax: &Syntax<'_>,
        binder: &Binder<'_>,
        columns: &[Column],
        functions: &[&str],
    ) -> Result<Self, ExpressionError> {
        if let SyntaxKind::Call { name, is_plain: true, arguments } = &syntax.kind
            && let name = name.to_ascii_lowercase()
            && functions.contains(&name.as_str())
        {
            let arguments = arguments.iter().map(|argument| Self::bind(argument, binder, columns, functions));
            let arguments = arguments.collect::<Result<_, _>>()?;
            return Ok(Self::Call(Call { name, position: binder.source.position(syntax.place), arguments }));
        }
        let tree = binder.derivation(syntax)?;
        Ok(Self::Number(Calculation::compile(tree, columns, false)))
    }
}

impl Calculation {
    /// Parses a number, of which `skipped` characters of the user's text precede.
    ///
    /// # Errors
    /// [`ExpressionError`] for a text that is no number.
    pub(super) fn parse(text: &str, skipped: usize, columns: &[Column]) -> Result<Self, ExpressionError> {
        let source = SourceText::new(text, skipped);
        let tree = Binder::new(source, columns, Names::Predicate).derivation(&parse(&source)?)?;
        Ok(Self::compile(tree, columns, false))
    }

    fn compile(tree: Number, columns: &[Column], as_float: bool) -> Self {
        let mut used = Vec::new();
        gather(&tree, &mut used, &mut false);
        used.sort_unstable();
        used.dedup();
        let (formula, choices) = ExpressionPlanner::compile(&used, |planner| match as_float {
            true => Formula::Float(Program::new(&tree, planner)),
            false => Formula::new(&tree, planner),
        });
        let inputs = used.into_iter().map(|index| (index, columns[index].data_type)).collect();
        Self { tree, formula, choices, inputs }
    }

    /// Returns the same number as a float.
    pub(crate) fn as_float(&self, columns: &[Column]) -> Self {
        Self::compile(self.tree.clone(), columns, true)
    }

    /// Returns whether the result is an integer.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self.formula, Formula::Whole(_))
    }

    /// Returns the type of a column of these integers; `None` if the number is a float. Labels of epochs are far from
    /// the ends of `i64`: `2 * epoch` has negative differences.
    pub(crate) fn integer_type(&self) -> Option<DataType> {
        let bounds = |epoch| Pruner { epoch, summary: &|_| None }.whole(&self.tree);
        self.is_whole().then(|| match bounds(0).or(bounds(1 << 40)).range {
            Some((0.., high)) if high > i64::MAX.into() => DataType::U64,
            _ => DataType::I64,
        })
    }

    /// Returns whether both compute the same number of the same type.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.tree == other.tree && self.is_whole() == other.is_whole()
    }

    /// Returns the value, if it is that of a literal.
    pub(crate) fn literal(&self) -> Option<Value> {
        self.tree.literal()
    }

    /// Returns whether the number is the label of the epoch.
    pub(crate) fn is_epoch(&self) -> bool {
        matches!(self.tree, Number::Epoch)
    }

    /// Returns the column, if the number is the value of one.
    pub(crate) fn column(&self) -> Option<usize> {
        match &self.tree {
            Number::Column(column) => Some(column.index),
            _ => None,
        }
    }

    /// Returns the columns that the number is computed from, as ascending indexes.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = usize> {
        self.inputs.iter().map(|(index, _)| *index)
    }

    /// Computes the number for some rows of an epoch. `arrays` are the columns of [`Calculation::inputs`].
    ///
    /// # Errors
    /// [`ExpressionError::Input`] for arrays that do not match, and for an integer operation without a result.
    pub(crate) fn evaluate(
        &self,
        of_epoch: (u64, usize),
        arrays: &[ArrayRef],
        out: &mut Numbers,
    ) -> Result<(), ExpressionError> {
        out.clear(self.is_whole());
        self.each_chunk(of_epoch, arrays, |values| {
            match (values, &mut *out) {
                (Values::Whole(values), Numbers::Whole(out)) => out.extend_from_slice(values),
                (Values::Float(values), Numbers::Float(out)) => out.extend_from_slice(values),
                _ => unreachable!("the results were cleared for this type"),
            }
            Ok(())
        })
    }

    /// Computes the number for some rows of an epoch, and calls `take` with the results of each chunk, in order.
    ///
    /// # Errors
    /// As for [`Calculation::evaluate`]; the errors of `take`.
    pub(super) fn each_chunk(
        &self,
        (epoch, rows): (u64, usize),
        arrays: &[ArrayRef],
        mut take: impl FnMut(Values<'_>) -> Result<(), ExpressionError>,
    ) -> Result<(), ExpressionError> {
        let input = PredicateInput::new((epoch, rows), arrays, self.inputs.iter().copied(), self.choices.clone());
        let input = input.map_err(ExpressionError::Input)?;
        let mut stack = Stack::default();
        for first_row in (0..rows).step_by(CHUNK_ROWS) {
            let chunk_rows = CHUNK_ROWS.min(rows - first_row);
            let (values, faults) = self.formula.run(&input, first_row, chunk_rows, &mut stack);
            if let Some((_, fault)) = faults.first() {
                let what = format!("epoch {epoch}: {} {}; exclude such rows by a predicate", self.tree, fault.what());
                return Err(ExpressionError::Input(what));
            }
            take(values)?;
        }
        Ok(())
    }
}

/// Formats the normalized expression.
impl fmt::Display for Calculation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tree.fmt(f)
    }
}

impl Numbers {
    /// Removes the numbers and sets their type. Keeps the memory of a type that stays.
    fn clear(&mut self, is_whole: bool) {
        match (&mut *self, is_whole) {
            (Self::Whole(values), true) => values.clear(),
            (Self::Float(values), false) => values.clear(),
            (_, true) => *self = Self::Whole(Vec::new()),
            (_, false) => *self = Self::Float(Vec::new()),
        }
    }

    /// Returns the floats, or nothing if the numbers are integers.
    pub(crate) fn floats(&self) -> &[f64] {
        match self {
            Self::Float(values) => values,
            Self::Whole(_) => &[],
        }
    }

    /// Returns the integers, or nothing if the numbers are floats.
    pub(crate) fn integers(&self) -> &[i128] {
        match self {
            Self::Whole(values) => values,
            Self::Float(_) => &[],
        }
    }
}
