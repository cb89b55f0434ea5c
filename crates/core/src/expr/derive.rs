//! Derived columns: `energy = sqrt(1+ux*ux+uy*uy+uz*uz)-1`, `id:i32 = bits_i32(w) - 1024608549`.

use std::fmt;
use std::sync::Arc;

use crate::schema::{Column, ColumnView, DataType, EPOCH_COLUMN, OutOfRange};

use super::ExpressionError;
use super::bind::{Binder, Names};
use super::parse::parse;
use super::program::{CHUNK_ROWS, Chunks, Program, Scalar, Stack};
use super::tokens::SourceText;
use super::tree::{Number, gather};

/// A column that is computed from others in `f64`.
///
/// A float column stores the result rounded to its type. An integer column stores the result rounded to the nearest
/// integer (ties to even). For an integer column, NaN and values out of range are errors. For an `f32` column, values
/// out of range are counted.
#[derive(Debug, Clone)]
pub struct Derivation {
    column: Column,
    tree: Number,
    program: Program,
    inputs: Vec<usize>,
    types: Vec<DataType>,
    /// Factor of each input, by slot.
    factors: Vec<f64>,
    constants: Vec<Arc<str>>,
}

/// The input columns of one derivation, by slot.
struct Views<'a> {
    columns: Vec<ColumnView<'a>>,
    factors: &'a [f64],
}

impl Chunks for Views<'_> {
    fn load(&self, slot: usize, first_row: usize, out: &mut [f64]) {
        let view = &self.columns[slot];
        macro_rules! values {
            ($type:ty) => {
                for (row, out) in out.iter_mut().enumerate() {
                    let mut raw = [0u8; size_of::<$type>()];
                    raw.copy_from_slice(view.value(first_row + row));
                    *out = <$type>::from_le_bytes(raw) as f64;
                }
            };
        }
        match view.data_type() {
            DataType::I8 => values!(i8),
            DataType::I16 => values!(i16),
            DataType::I32 => values!(i32),
            DataType::I64 => values!(i64),
            DataType::U8 => values!(u8),
            DataType::U16 => values!(u16),
            DataType::U32 => values!(u32),
            DataType::U64 => values!(u64),
            DataType::F32 => values!(f32),
            DataType::F64 => values!(f64),
            // Binding rejects such columns.
            DataType::FixedBytes(_) => {}
        }
        let factor = self.factors[slot];
        if factor != 1.0 {
            out.iter_mut().for_each(|value| *value *= factor);
        }
    }

    fn load_bits(&self, slot: usize, first_row: usize, out: &mut [f64]) {
        for (row, out) in out.iter_mut().enumerate() {
            let mut raw = [0u8; 4];
            raw.copy_from_slice(self.columns[slot].value(first_row + row));
            *out = f64::from(i32::from_le_bytes(raw));
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
        Some(type_name) => type_name.parse().ok().filter(|parsed: &DataType| parsed.is_numeric()).ok_or_else(|| {
            ExpressionError::DerivationType { name: name.to_owned(), type_name: type_name.to_owned() }
        })?,
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

/// Returns whether a value is too large or too small for `f32`, which stores `stored` instead, with a larger relative
/// error than that of rounding to 24 bits. NaN and infinities are stored exactly.
fn is_out_of_range(value: f64, stored: f32) -> bool {
    const ROUNDING: f64 = 1.0 / (1u32 << 24) as f64;
    !stored.is_normal() && (f64::from(stored) - value).abs() > value.abs() * ROUNDING
}

/// Appends values as `f32`. Returns the numbers of values that are too large and too small for `f32`.
fn store_f32(values: &[f64], out: &mut Vec<u8>) -> (u64, u64) {
    // Of a float, the exponent's highest seven bits. They are zero in the sum with the exponent's lowest bit if the
    // float is zero, subnormal, infinite or NaN.
    const EXPONENT: u32 = 0x7f00_0000;
    const LOWEST: u32 = 0x0080_0000;
    let start = out.len();
    out.extend(values.iter().flat_map(|value| (*value as f32).to_le_bytes()));
    let (stored, _) = out[start..].as_chunks();
    let is_special = |raw: &[u8; 4]| u32::from_le_bytes(*raw).wrapping_add(LOWEST) & EXPONENT == 0;
    // Without a branch, so that the loop is vectorised. Most chunks have no such values.
    let found = stored.iter().fold(0, |found, raw| found | u32::from(is_special(raw)));
    if found == 0 { (0, 0) } else { count_out_of_range(values) }
}

/// Returns the numbers of values that are too large and too small for `f32`.
fn count_out_of_range(values: &[f64]) -> (u64, u64) {
    let lost: u64 = values.iter().map(|value| u64::from(is_out_of_range(*value, *value as f32))).sum();
    if lost == 0 {
        // The zeros, infinities and so on are results of the derivation.
        return (0, 0);
    }
    let overflows = values.iter().filter(|value| value.is_finite() && (**value as f32).is_infinite()).count() as u64;
    (overflows, lost - overflows)
}

/// Rounds like `f64::round_ties_even`, which calls the C library on targets without a rounding instruction.
fn round_ties_even(value: f64) -> f64 {
    // Floats of at least this magnitude are integers. Adding it to a smaller float rounds off the fraction, by IEEE
    // 754's default rounding.
    const WHOLE: f64 = (1u64 << 52) as f64;
    let pushed = WHOLE.copysign(value);
    if value.abs() < WHOLE { (value + pushed) - pushed } else { value }
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
        Self::parse_as(text, inputs, constants, DataType::F32)
    }

    /// Parses a derivation whose column has the type `default` unless the text states another one.
    fn parse_as(
        text: &str,
        inputs: &[Column],
        constants: &dyn Fn(&str) -> Option<f64>,
        default: DataType,
    ) -> Result<Self, ExpressionError> {
        let (column, expression, skipped) = split(text, default)?;
        let expr = parse(&SourceText::new(expression, skipped))?;
        let binder = Binder::new(SourceText::new(expression, skipped), inputs, Names::Derivation(constants));
        let tree = binder.derivation(&expr)?;
        let constants = binder.constants();
        let mut used = Vec::new();
        gather(&tree, &mut used, &mut false);
        used.sort_unstable();
        used.dedup();
        let types = used.iter().map(|index| inputs[*index].data_type).collect();
        let factors = vec![1.0; used.len()];
        let program = Program::new(&tree, &|index| used.partition_point(|used| *used < index));
        Ok(Self { column, tree, program, inputs: used, types, factors, constants })
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
    /// [`ExpressionError::ValueRange`] for a value out of the range of the integer type, [`ExpressionError::Input`] for
    /// inputs or constants that are missing or have another type. An error leaves `out` unchanged.
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
        let scalars = |scalar| match scalar {
            Scalar::Literal(value) => value,
            Scalar::Constant(index) => constants[index],
            // Derivations cannot use the epoch.
            Scalar::Epoch => f64::NAN,
        };
        let start = out.len();
        out.reserve(rows * self.column.data_type.width());
        let mut stack = Stack::default();
        let (mut overflows, mut underflows) = (0, 0);
        for first_row in (0..rows).step_by(CHUNK_ROWS) {
            let chunk_rows = CHUNK_ROWS.min(rows - first_row);
            let values = self.program.run(&views, &scalars, first_row, chunk_rows, &mut stack);
            match self.store(values, first_row, out) {
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

    fn views<'a>(&'a self, inputs: &[ColumnView<'a>], rows: usize) -> Result<Views<'a>, ExpressionError> {
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
        Ok(Views { columns: views, factors: &self.factors })
    }

    /// Appends a chunk of values. Returns the numbers of values that are too large and too small for `f32`.
    fn store(&self, values: &[f64], first_row: usize, out: &mut Vec<u8>) -> Result<(u64, u64), ExpressionError> {
        macro_rules! whole {
            ($type:ty) => {{
                // Both ends are zero or powers of two in magnitude, hence exact in f64. `above` is the first value that
                // is too large.
                let (low, above) = (<$type>::MIN as f64, 2f64.powi(<$type>::MAX.count_ones() as i32));
                const WIDTH: usize = size_of::<$type>();
                let start = out.len();
                out.resize(start + values.len() * WIDTH, 0);
                for (row, (slot, value)) in out[start..].chunks_exact_mut(WIDTH).zip(values).enumerate() {
                    let rounded = round_ties_even(*value);
                    // Both comparisons are false for NaN.
                    if !(rounded >= low && rounded < above) {
                        return Err(self.out_of_range(first_row + row, *value));
                    }
                    slot.copy_from_slice(&(rounded as $type).to_le_bytes());
                }
            }};
        }
        match self.column.data_type {
            DataType::F32 => return Ok(store_f32(values, out)),
            DataType::F64 => out.extend(values.iter().flat_map(|value| value.to_le_bytes())),
            DataType::I8 => whole!(i8),
            DataType::I16 => whole!(i16),
            DataType::I32 => whole!(i32),
            DataType::I64 => whole!(i64),
            DataType::U8 => whole!(u8),
            DataType::U16 => whole!(u16),
            DataType::U32 => whole!(u32),
            DataType::U64 => whole!(u64),
            // `split` rejects other types.
            DataType::FixedBytes(_) => {}
        }
        Ok((0, 0))
    }

    fn out_of_range(&self, row: usize, value: f64) -> ExpressionError {
        ExpressionError::ValueRange {
            column: self.column.name.clone(),
            row,
            value: format!("{value:?}"),
            data_type: self.column.data_type,
        }
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
        Self::parse_as(texts, sources, constants, DataType::F32)
    }

    fn parse_as(
        texts: &[impl AsRef<str>],
        sources: &[Column],
        constants: &dyn Fn(&str) -> Option<f64>,
        default: DataType,
    ) -> Result<Self, ExpressionError> {
        let mut columns = sources.to_vec();
        let mut derivations = Vec::with_capacity(texts.len());
        for text in texts {
            let derivation = Derivation::parse_as(text.as_ref(), &columns, constants, default)?;
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
        let mut set = Self::parse_as(texts, sources, constants, DataType::F64)?;
        for derivation in &mut set.derivations {
            for (index, factor) in derivation.inputs.iter().zip(&mut derivation.factors) {
                let Some(Column { name, unit: Some(unit), .. }) = sources.get(*index) else { continue };
                *factor = si_factor(unit)
                    .ok_or_else(|| ExpressionError::Unit { column: name.clone(), unit: unit.clone() })?;
            }
        }
        Ok(set)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_that_of_the_standard_library() {
        let mut values =
            vec![0.0, 0.5, 1.5, 2.5, 0.499_999_999_999_999_94, 4_503_599_627_370_495.5, 4_503_599_627_370_497.0];
        values.extend([9_007_199_254_740_993.0, 1e300, f64::INFINITY, f64::MIN_POSITIVE]);
        values.extend((0..2_000).map(|step| f64::from(step) * 0.125));
        for value in values.iter().flat_map(|value| [*value, -value]) {
            assert_eq!(round_ties_even(value), value.round_ties_even(), "{value}");
        }
        assert!(round_ties_even(f64::NAN).is_nan());
    }
}
