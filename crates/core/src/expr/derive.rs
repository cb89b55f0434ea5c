//! Derived columns: `energy = sqrt(1+ux*ux+uy*uy+uz*uz)-1`, `id:i32 = bits_i32(w) - 1024608549`.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::types::{
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{ArrayRef, FixedSizeBinaryArray, PrimitiveArray};

use crate::schema::{Column, ColumnView, DataType, EPOCH_COLUMN, OutOfRange};

use super::ExpressionError;
use super::bind::{Binder, Names};
use super::chunks::CHUNK_ROWS;
use super::naming::number_type;
use super::number_bytes::{store_floats, store_whole};
use super::parse::parse;
use super::plan::{Choices, ExpressionPlanner};
use super::predicate_input::PredicateInput;
use super::program::{Formula, Program, Stack, Values};
use super::tokens::SourceText;
use super::tree::{Number, gather};
use super::whole_program::Faults;

/// A column that is computed from others: integers in 128 bits, all other numbers in `f64`.
///
/// A float column stores the result rounded to its type. An integer column stores the result rounded to the nearest
/// integer (ties to even). For an integer column, NaN and values out of range are errors, as is an integer operation
/// without a result in any column. For an `f32` column, values out of range are counted.
#[derive(Debug, Clone)]
pub struct Derivation {
    column: Column,
    tree: Number,
    formula: Formula,
    choices: Choices,
    inputs: Vec<usize>,
    types: Vec<DataType>,
    /// Factor of each input, by slot. The product with a factor other than 1 is `f64`.
    factors: Vec<f64>,
    constants: Vec<Arc<str>>,
}

/// Returns values of a column, multiplied by a factor if it is not 1.
fn array(view: ColumnView<'_>, rows: Range<usize>, factor: f64) -> ArrayRef {
    macro_rules! values {
        ($arrow:ty, $native:ty) => {{
            let value = |row: usize| {
                let mut raw = [0u8; size_of::<$native>()];
                raw.copy_from_slice(view.value(row));
                <$native>::from_le_bytes(raw)
            };
            if factor == 1.0 {
                Arc::new(PrimitiveArray::<$arrow>::from_iter_values(rows.map(value)))
            } else {
                let scaled = rows.map(|row| value(row) as f64 * factor);
                Arc::new(PrimitiveArray::<Float64Type>::from_iter_values(scaled))
            }
        }};
    }
    match view.data_type() {
        DataType::I8 => values!(Int8Type, i8),
        DataType::I16 => values!(Int16Type, i16),
        DataType::I32 => values!(Int32Type, i32),
        DataType::I64 => values!(Int64Type, i64),
        DataType::U8 => values!(UInt8Type, u8),
        DataType::U16 => values!(UInt16Type, u16),
        DataType::U32 => values!(UInt32Type, u32),
        DataType::U64 => values!(UInt64Type, u64),
        DataType::F32 => values!(Float32Type, f32),
        DataType::F64 => values!(Float64Type, f64),
        DataType::FixedBytes(width) => {
            let bytes: Vec<u8> = rows.flat_map(|row| view.value(row).iter().copied()).collect();
            Arc::new(FixedSizeBinaryArray::new(width as i32, bytes.into(), None))
        }
    }
}

/// Splits `name:type = expression`. Returns the column, the expression, and the number of characters before the
/// expression. A column without a type has the type `default`.
fn split(text: &str, default: DataType) -> Result<(Column, &str, usize), ExpressionError> {
    let form = || ExpressionError::DerivationForm { text: text.to_owned() };
    let (head, expression) = text.split_once('=').ok_or_else(form)?;
    let skipped = head.chars().count() + 1;
    let (name, type_name) = match head.split_once(':') {
        Some((name, type_name)) => (name.trim(), Some(type_name.trim())),
        None => (head.trim(), None),
    };
    let name = name.strip_prefix('"').and_then(|name| name.strip_suffix('"')).unwrap_or(name);
    let refused = |reason| ExpressionError::DerivationName { name: name.to_owned(), reason };
    if name.is_empty() || expression.starts_with('=') {
        return Err(form());
    }
    if name.eq_ignore_ascii_case(EPOCH_COLUMN) {
        return Err(refused("the name is reserved for the timestep"));
    }
    if name.chars().any(|part| part.is_whitespace() || ".\"'`<>!()+-*/%,".contains(part)) {
        return Err(refused("use letters, digits and _"));
    }
    let data_type = match type_name {
        None => default,
        Some(type_name) => number_type(name, type_name)?,
    };
    Ok((Column::new(name, data_type), expression, skipped))
}

/// Returns the factor of a unit such as `1e-06 m` or `kg m s^-1`, or `None` if it has other parts than a factor and SI
/// base units.
fn si_factor(unit: &str) -> Option<f64> {
    let is_base = |part: &str| {
        let (symbol, power) = part.split_once('^').unwrap_or((part, "1"));
        ["m", "kg", "s", "A", "K", "mol", "cd"].contains(&symbol) && power.parse::<f64>().is_ok_and(f64::is_finite)
    };
    let mut parts = unit.split_whitespace().peekable();
    let factor = match parts.peek()?.parse::<f64>() {
        Ok(factor) => {
            parts.next();
            factor
        }
        Err(_) => 1.0,
    };
    (factor.is_finite() && parts.all(is_base)).then_some(factor)
}

impl Derivation {
    /// Parses a derivation over the columns `inputs` and the constants of the source. `constants` returns a constant's
    /// value by its full name (`"header.x0"`). Only the existence of a constant is checked: its value may differ in
    /// every file.
    ///
    /// # Errors
    /// [`ExpressionError`] if the text is not a valid derivation.
    ///
    /// ```
    /// use turbidite::expr::Derivation;
    /// use turbidite::{Column, ColumnView, DataType};
    ///
    /// let inputs = [Column::new("w", DataType::F32)];
    /// let id = Derivation::parse("id:i32 = bits_i32(w) - 1024608549", &inputs, &|_| None)?;
    /// assert_eq!(id.column(), &Column::new("id", DataType::I32));
    ///
    /// let bytes = [1024608549u32, 1024608556].map(|bits| f32::from_bits(bits).to_le_bytes()).concat();
    /// let weights = ColumnView::new(&bytes, 4, 2, DataType::F32)?;
    /// let mut ids = Vec::new();
    /// id.evaluate(&[weights], 2, &|_| None, &mut ids)?;
    /// assert_eq!(ids, [0i32.to_le_bytes(), 7i32.to_le_bytes()].concat());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn parse(
        text: &str,
        inputs: &[Column],
        constants: &dyn Fn(&str) -> Option<f64>,
    ) -> Result<Self, ExpressionError> {
        Self::parse_as(text, inputs, constants, false)
    }

    /// Parses a derivation over columns in the units of the source, or in SI units.
    fn parse_as(
        text: &str,
        inputs: &[Column],
        constants: &dyn Fn(&str) -> Option<f64>,
        in_si_units: bool,
    ) -> Result<Self, ExpressionError> {
        let (column, expression, skipped) = split(text, if in_si_units { DataType::F64 } else { DataType::F32 })?;
        let expr = parse(&SourceText::new(expression, skipped))?;
        let factor = |column: &Column| match &column.unit {
            Some(unit) if in_si_units => si_factor(unit),
            _ => Some(1.0),
        };
        let mut scaled = inputs.to_vec();
        let is_scaled = |column: &&mut Column| column.data_type.is_numeric() && factor(column) != Some(1.0);
        scaled.iter_mut().filter(is_scaled).for_each(|column| column.data_type = DataType::F64);
        let binder = Binder::new(SourceText::new(expression, skipped), &scaled, Names::Derivation(constants));
        let tree = binder.derivation(&expr)?;
        let constants = binder.constants();
        let mut used = Vec::new();
        gather(&tree, &mut used, &mut false);
        used.sort_unstable();
        used.dedup();
        let types = used.iter().map(|index| inputs[*index].data_type).collect();
        let factor = |index: &usize| {
            let column = &inputs[*index];
            factor(column).ok_or_else(|| {
                let unit = column.unit.clone().unwrap_or_default();
                ExpressionError::Unit { column: column.name.clone(), unit }
            })
        };
        let factors = used.iter().map(factor).collect::<Result<_, _>>()?;
        let (formula, choices) = ExpressionPlanner::compile(&used, |planner| match column.data_type.is_float() {
            true => Formula::Float(Program::new(&tree, planner)),
            false => Formula::new(&tree, planner),
        });
        Ok(Self { column, tree, formula, choices, inputs: used, types, factors, constants })
    }

    /// Returns the name and type of the derived column.
    pub fn column(&self) -> &Column {
        &self.column
    }

    /// Returns the input columns that the derivation reads, as ascending indexes.
    pub fn inputs(&self) -> &[usize] {
        &self.inputs
    }

    /// Iterates over the source constants that the derivation reads, by full name.
    pub fn constants(&self) -> impl Iterator<Item = &str> {
        self.constants.iter().map(AsRef::as_ref)
    }

    /// Computes the column for all `rows` and appends its values, little-endian and packed, to `out`. Returns counts of
    /// values that are out of the range of `f32`, if there are any.
    ///
    /// `inputs` are the columns that were passed to [`Derivation::parse`], in the same order.
    ///
    /// # Errors
    /// [`ExpressionError::ValueRange`] for a value out of the range of the integer type, [`ExpressionError::Whole`] for
    /// an integer operation without a result, [`ExpressionError::Input`] for inputs or constants that are missing or
    /// have another type. An error leaves `out` unchanged.
    pub fn evaluate(
        &self,
        inputs: &[ColumnView<'_>],
        rows: usize,
        constants: &dyn Fn(&str) -> Option<f64>,
        out: &mut Vec<u8>,
    ) -> Result<Option<OutOfRange>, ExpressionError> {
        let views = self.views(inputs, rows)?;
        let constant = |name: &Arc<str>| {
            constants(name).ok_or_else(|| {
                ExpressionError::Input(format!("derived column '{}': the source has no {name}", self.column.name))
            })
        };
        let constants = self.constants.iter().map(constant).collect::<Result<Vec<f64>, _>>()?;
        let start = out.len();
        out.reserve(rows * self.column.data_type.width());
        let mut stack = Stack::default();
        let (mut overflows, mut underflows) = (0, 0);
        for first_row in (0..rows).step_by(CHUNK_ROWS) {
            let chunk_rows = CHUNK_ROWS.min(rows - first_row);
            let arrays = self.arrays(&views, first_row..first_row + chunk_rows);
            let chunk = self.chunk(&arrays, chunk_rows, &constants)?;
            let (values, faults) = self.formula.run(&chunk, 0, chunk_rows, &mut stack);
            match self.store(values, faults, first_row, out) {
                Ok((large, small)) => {
                    overflows += large;
                    underflows += small;
                }
                Err(error) => {
                    out.truncate(start);
                    return Err(error);
                }
            }
        }
        let found = overflows + underflows > 0;
        Ok(found.then(|| OutOfRange { column: self.column.name.clone(), overflows, underflows }))
    }

    fn arrays(&self, views: &[ColumnView<'_>], rows: Range<usize>) -> Vec<ArrayRef> {
        views.iter().zip(&self.factors).map(|(view, factor)| array(*view, rows.clone(), *factor)).collect()
    }

    fn chunk<'a>(
        &self,
        arrays: &'a [ArrayRef],
        rows: usize,
        constants: &'a [f64],
    ) -> Result<PredicateInput<'a>, ExpressionError> {
        let data_type =
            |(data_type, factor): (&DataType, &f64)| if *factor == 1.0 { *data_type } else { DataType::F64 };
        let types = self.types.iter().zip(&self.factors).map(data_type);
        // Derivations cannot use the epoch.
        let input =
            PredicateInput::new((0, rows), arrays, self.inputs.iter().copied().zip(types), self.choices.clone());
        Ok(input.map_err(ExpressionError::Input)?.with_constants(constants))
    }

    fn views<'a>(&self, inputs: &[ColumnView<'a>], rows: usize) -> Result<Vec<ColumnView<'a>>, ExpressionError> {
        let mut views = Vec::with_capacity(self.inputs.len());
        for (index, data_type) in self.inputs.iter().zip(&self.types) {
            match inputs.get(*index) {
                Some(view) if view.data_type() == *data_type && view.len() >= rows => views.push(*view),
                found => {
                    let found = found
                        .map_or("missing".to_owned(), |view| format!("{} with {} rows", view.data_type(), view.len()));
                    let name = &self.column.name;
                    return Err(ExpressionError::Input(format!(
                        "derived column '{name}': input {index} is {found}, not {data_type} with {rows} rows"
                    )));
                }
            }
        }
        Ok(views)
    }

    /// Appends a chunk of values. Returns the numbers of values that are too large and too small for `f32`.
    ///
    /// # Errors
    /// The error of the first row with a fault or a value that does not fit.
    fn store(
        &self,
        values: Values<'_>,
        faults: &Faults,
        first_row: usize,
        out: &mut Vec<u8>,
    ) -> Result<(u64, u64), ExpressionError> {
        let Column { name, data_type, .. } = &self.column;
        let without_result = |row: usize, what: String| ExpressionError::Whole {
            column: name.clone(),
            row: first_row + row,
            expression: self.tree.to_string(),
            what,
        };
        let fault = faults.first();
        let results = |rows: usize| fault.map_or(rows, |(row, _)| row);
        let counts = match values {
            Values::Float(values) => {
                store_floats(*data_type, &values[..results(values.len())], out).map_err(|row| {
                    let (row, value) = (first_row + row, format!("{:?}", values[row]));
                    ExpressionError::ValueRange { column: name.clone(), row, value, data_type: *data_type }
                })?
            }
            Values::Whole(values) => {
                store_whole(*data_type, &values[..results(values.len())], out).map_err(|row| {
                    let what = format!("is {}, which does not fit {data_type}; use a wider type", values[row]);
                    without_result(row, what)
                })?;
                (0, 0)
            }
        };
        fault.map_or(Ok(counts), |(row, fault)| Err(without_result(row, fault.what().to_owned())))
    }
}

/// Formats the normalized `name:type = expression`. The text parses to the same derivation.
impl fmt::Display for Derivation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{} = {}", self.column.name, self.column.data_type, self.tree)
    }
}

/// Derivations over one set of source columns. A derivation may read the stored values of earlier derivations.
///
/// ```
/// use turbidite::expr::DerivationSet;
/// use turbidite::{Column, ColumnView, DataType};
///
/// let source = [Column::new("ux", DataType::F32)];
/// let set = DerivationSet::parse(&["energy = sqrt(1 + ux*ux) - 1", "mev = energy * header.scale"], &source, &|_| Some(0.511))?;
/// let bytes = 0.75f32.to_le_bytes();
/// let ux = ColumnView::new(&bytes, 4, 1, DataType::F32)?;
/// let derived = set.evaluate(&[ux], 1, &|_| Some(0.511))?;
/// assert_eq!(derived.view(0).value(0), 0.25f32.to_le_bytes());
/// assert_eq!(derived.view(1).value(0), ((0.25 * 0.511) as f32).to_le_bytes());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct DerivationSet {
    sources: usize,
    derivations: Vec<Derivation>,
}

/// The columns computed by a [`DerivationSet`].
#[derive(Debug, Clone, Default)]
pub struct DerivedColumns {
    rows: usize,
    columns: Vec<(DataType, Vec<u8>)>,
    out_of_range: Vec<OutOfRange>,
}

impl DerivationSet {
    /// Parses derivations in order. Each derivation may read the source columns and all earlier derivations.
    ///
    /// # Errors
    /// The errors of [`Derivation::parse`], and an error for a derived column with the name of a source column or of
    /// another derived column.
    pub fn parse(
        texts: &[impl AsRef<str>],
        sources: &[Column],
        constants: &dyn Fn(&str) -> Option<f64>,
    ) -> Result<Self, ExpressionError> {
        Self::parse_as(texts, sources, constants, false)
    }

    fn parse_as(
        texts: &[impl AsRef<str>],
        sources: &[Column],
        constants: &dyn Fn(&str) -> Option<f64>,
        in_si_units: bool,
    ) -> Result<Self, ExpressionError> {
        let mut columns = sources.to_vec();
        let mut derivations = Vec::with_capacity(texts.len());
        for text in texts {
            let derivation = Derivation::parse_as(text.as_ref(), &columns, constants, in_si_units)?;
            let name = &derivation.column.name;
            if columns.iter().any(|column| column.name.eq_ignore_ascii_case(name)) {
                let reason = "a source column or an earlier derivation has that name";
                return Err(ExpressionError::DerivationName { name: name.clone(), reason });
            }
            columns.push(derivation.column.clone());
            derivations.push(derivation);
        }
        Ok(Self { sources: sources.len(), derivations })
    }

    /// Parses derivations like [`DerivationSet::parse`], over source columns in SI units: each column is multiplied by
    /// the factor of its unit, such as `1e-06 m`, when it is used. Derived columns, and columns without a unit, stay as
    /// they are. A derived column without a type is `f64`, since the squares of a particle's mass and momentum are too
    /// small for `f32` in SI units.
    ///
    /// # Errors
    /// The errors of [`DerivationSet::parse`]. [`ExpressionError::Unit`] for a source column that is used and whose
    /// unit is not a factor and SI base units.
    ///
    /// ```
    /// use turbidite::expr::DerivationSet;
    /// use turbidite::{Column, ColumnView, DataType};
    ///
    /// let source = [Column::new("x", DataType::F64).with_unit("1e-06 m")];
    /// let set = DerivationSet::parse_in_si_units(&["distance = abs(x)"], &source, &|_| None)?;
    /// let bytes = (-2.5f64).to_le_bytes();
    /// let derived = set.evaluate(&[ColumnView::new(&bytes, 8, 1, DataType::F64)?], 1, &|_| None)?;
    /// assert_eq!(derived.view(0).value(0), (2.5 * 1e-6f64).to_le_bytes());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn parse_in_si_units(
        texts: &[impl AsRef<str>],
        sources: &[Column],
        constants: &dyn Fn(&str) -> Option<f64>,
    ) -> Result<Self, ExpressionError> {
        Self::parse_as(texts, sources, constants, true)
    }

    /// Returns the derivations in order.
    pub fn derivations(&self) -> &[Derivation] {
        &self.derivations
    }

    /// Iterates over the derived columns in order.
    pub fn columns(&self) -> impl Iterator<Item = &Column> {
        self.derivations.iter().map(Derivation::column)
    }

    /// Computes all derived columns from the source columns that were passed to [`DerivationSet::parse`].
    ///
    /// # Errors
    /// The errors of [`Derivation::evaluate`].
    pub fn evaluate(
        &self,
        sources: &[ColumnView<'_>],
        rows: usize,
        constants: &dyn Fn(&str) -> Option<f64>,
    ) -> Result<DerivedColumns, ExpressionError> {
        if sources.len() != self.sources {
            let what = format!("derivations over {} source columns were given {}", self.sources, sources.len());
            return Err(ExpressionError::Input(what));
        }
        let columns = Vec::with_capacity(self.derivations.len());
        let mut derived = DerivedColumns { rows, columns, out_of_range: Vec::new() };
        for derivation in &self.derivations {
            let mut values = Vec::new();
            let mut inputs = sources.to_vec();
            inputs.extend((0..derived.columns.len()).map(|index| derived.view(index)));
            let out_of_range = derivation.evaluate(&inputs, rows, constants, &mut values)?;
            derived.out_of_range.extend(out_of_range);
            derived.columns.push((derivation.column.data_type, values));
        }
        Ok(derived)
    }
}

impl DerivedColumns {
    /// Returns the values of derived column `index`.
    ///
    /// # Panics
    /// If column `index` does not exist.
    pub fn view(&self, index: usize) -> ColumnView<'_> {
        let (data_type, values) = &self.columns[index];
        match ColumnView::new(values, data_type.width(), self.rows, *data_type) {
            Ok(view) => view,
            Err(_) => unreachable!("each column holds exactly its rows"),
        }
    }

    /// Returns counts of the values that are out of the range of `f32`, for columns with such values.
    pub fn out_of_range(&self) -> &[OutOfRange] {
        &self.out_of_range
    }

    /// Returns the number of derived columns.
    pub fn len(&self) -> usize {
        self.columns.len()
    }

    /// Returns whether there are no derived columns.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// Returns the packed values of every column, in order.
    pub fn into_values(self) -> Vec<Vec<u8>> {
        self.columns.into_iter().map(|(_, values)| values).collect()
    }
}
