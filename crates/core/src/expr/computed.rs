//! Columns of a query that are computed from stored ones: `gamma = sqrt(1 + ux*ux)`, `id:u64 = id // 2`, `x*x + y*y`.

use arrow_array::ArrayRef;

use crate::schema::{Column, DataType, Schema, Value};

use super::ExpressionError;
use super::bind::{Binder, Names};
use super::chunks::CHUNK_ROWS;
use super::number_bytes::{store_floats, store_whole};
use super::parse::parse;
use super::plan::{Choices, ExpressionPlanner};
use super::predicate_input::PredicateInput;
use super::program::{Formula, Program, Stack, Values};
use super::prune::Pruner;
use super::tokens::{Kind, SourceText, tokens};
use super::tree::{Number, gather};

/// A column that is computed from stored columns and `epoch`. Unless a type is stated, an integer is `i64`, or `u64` if
/// the types of its columns exclude negative values and admit values beyond `i64`. All other numbers are `f64`.
#[derive(Debug, Clone)]
pub(crate) struct ComputedColumn {
    column: Column,
    tree: Number,
    formula: Formula,
    choices: Choices,
    inputs: Vec<usize>,
    types: Vec<DataType>,
}

/// A text split into the name that it states, the type, and the place of the expression.
struct Head {
    name: Option<String>,
    data_type: Option<DataType>,
    place: usize,
}

/// Returns whether a text is one name, and therefore no expression.
pub(crate) fn is_name(text: &str) -> bool {
    let tokens = tokens(&SourceText::new(text, 0));
    tokens.is_ok_and(|tokens| matches!(tokens.as_slice(), [name, _] if matches!(name.kind, Kind::Word(_))))
}

/// Splits `name = expression` and `name:type = expression`. A text that begins otherwise is an expression.
fn split(text: &str) -> Result<Head, ExpressionError> {
    let whole = Head { name: None, data_type: None, place: 0 };
    let Some((head, expression)) = text.split_once('=') else { return Ok(whole) };
    let (name, type_name) = head.split_once(':').map_or((head, None), |(name, of)| (name, Some(of.trim())));
    let named = tokens(&SourceText::new(name, 0));
    let name = match named.as_deref() {
        Ok([name, _]) => match &name.kind {
            Kind::Word(name) => (*name).to_owned(),
            Kind::Quoted(name) => name.clone(),
            _ => return Ok(whole),
        },
        _ => return Ok(whole),
    };
    if expression.starts_with('=') {
        return Ok(whole);
    }
    let number_type = |type_name: &str| {
        let parsed = type_name.parse().ok().filter(|parsed: &DataType| parsed.is_numeric());
        parsed.ok_or_else(|| ExpressionError::DerivationType { name: name.clone(), type_name: type_name.to_owned() })
    };
    let data_type = type_name.map(number_type).transpose()?;
    Ok(Head { name: Some(name), data_type, place: head.len() + 1 })
}

/// Returns the type of an integer. Labels of epochs are far from the ends of `i64`: `2 * epoch` has negative differences.
fn whole_type(tree: &Number) -> DataType {
    let bounds = |epoch| Pruner { epoch, summary: &|_| None }.whole(tree);
    match bounds(0).or(bounds(1 << 40)).range {
        Some((0.., high)) if high > i64::MAX.into() => DataType::U64,
        _ => DataType::I64,
    }
}

impl ComputedColumn {
    /// Parses `name = expression`, `name:type = expression`, or an expression, whose text becomes the name.
    ///
    /// # Errors
    /// [`ExpressionError`] if the text is none of them.
    pub(crate) fn parse(text: &str, schema: &Schema) -> Result<Self, ExpressionError> {
        let Head { name, data_type, place } = split(text)?;
        let source = SourceText::new(&text[place..], text[..place].chars().count());
        let tree = Binder::new(source, schema.columns(), Names::Predicate).number(&parse(&source)?, 0)?;
        let natural = match &tree {
            Number::Column(column) => column.data_type,
            number if number.is_whole() => whole_type(number),
            _ => DataType::F64,
        };
        let name = name.unwrap_or_else(|| match &tree {
            Number::Column(column) => column.name.to_string(),
            _ => text.trim().to_owned(),
        });
        let column = Column::new(name, data_type.unwrap_or(natural));
        let (mut inputs, mut uses_epoch) = (Vec::new(), false);
        gather(&tree, &mut inputs, &mut uses_epoch);
        inputs.sort_unstable();
        inputs.dedup();
        let types = inputs.iter().map(|index| schema.columns()[*index].data_type).collect();
        let (formula, choices) = ExpressionPlanner::compile(&inputs, |planner| match column.data_type.is_float() {
            true => Formula::Float(Program::new(&tree, planner)),
            false => Formula::new(&tree, planner),
        });
        Ok(Self { column, tree, formula, choices, inputs, types })
    }

    /// Returns the name and type.
    pub(crate) fn column(&self) -> &Column {
        &self.column
    }

    /// Returns the index of the stored column that this one is, perhaps under another name.
    pub(crate) fn stored(&self) -> Option<usize> {
        match &self.tree {
            Number::Column(column) if column.data_type == self.column.data_type => Some(column.index),
            _ => None,
        }
    }

    /// Returns the stored columns that are read, as ascending indexes.
    pub(crate) fn inputs(&self) -> &[usize] {
        &self.inputs
    }

    /// Computes the values of all rows, little-endian, into `out`. `arrays` are the inputs, of `rows` rows each.
    ///
    /// # Errors
    /// [`ExpressionError::Computed`] for the first row without a result that fits the type.
    pub(crate) fn evaluate(
        &self,
        epoch: u64,
        rows: usize,
        arrays: &[ArrayRef],
        out: &mut [u8],
    ) -> Result<(), ExpressionError> {
        let columns = self.inputs.iter().copied().zip(self.types.iter().copied());
        let input = PredicateInput::new((epoch, rows), arrays, columns, self.choices.clone())
            .map_err(|what| ExpressionError::Input(format!("input of column '{}': {what}", self.column.name)))?;
        let (mut stack, mut bytes) = (Stack::default(), Vec::new());
        let data_type = self.column.data_type;
        let chunks = out.chunks_mut(CHUNK_ROWS * data_type.width());
        for (first_row, out) in (0..rows).step_by(CHUNK_ROWS).zip(chunks) {
            let (values, faults) = self.formula.run(&input, first_row, CHUNK_ROWS.min(rows - first_row), &mut stack);
            if let Some((_, fault)) = faults.first() {
                return Err(self.without_result(fault.what().to_owned()));
            }
            bytes.clear();
            let unfit = match values {
                Values::Float(values) => {
                    let stored = store_floats(data_type, values, &mut bytes);
                    stored.err().map(|row| Value::Float(values[row]))
                }
                Values::Whole(values) => {
                    let stored = store_whole(data_type, values, &mut bytes);
                    stored.err().map(|row| Value::Int(values[row]))
                }
            };
            if let Some(value) = unfit {
                let what =
                    format!("is {value}, which does not fit {data_type}; state another type, as in 'name:f64 = …'");
                return Err(self.without_result(what));
            }
            out.copy_from_slice(&bytes);
        }
        Ok(())
    }

    fn without_result(&self, what: String) -> ExpressionError {
        ExpressionError::Computed { column: self.column.name.clone(), expression: self.tree.to_string(), what }
    }
}
