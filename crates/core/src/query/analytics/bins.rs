//! Histogram bins, and the ordinal cells behind them.
//!
//! Edges are values, but rows are counted by ordinal. Comparisons are therefore exact integer comparisons: a value is
//! at or above an edge exactly when its ordinal is at or above the edge's cut.

use std::cmp::Ordering;
use std::ops::RangeInclusive;

use crate::error::{Result, UsageError};
use crate::schema::{DataType, KeyOrder, Value};

/// Maximum number of bins of a histogram.
const MAX_BINS: usize = 1 << 16;

/// Maximum number of digits of an edge that is taken for a decimal.
const DECIMAL_DIGITS: usize = 12;

/// The spacing of a histogram's edges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BinScale {
    /// Equal widths.
    #[default]
    Linear,
    /// Equal ratios. Requires positive values.
    Log,
}

/// The requested bins. A histogram has at most `count` bins. An integer column has at most one bin per integer.
#[derive(Debug, Clone, PartialEq)]
pub struct Bins {
    /// Number of bins.
    pub count: usize,
    /// The closed range of the bins. The default is that of the column's finite values.
    pub range: Option<(Value, Value)>,
    /// The spacing of the edges.
    pub scale: BinScale,
    /// The edges themselves, ascending. The other fields then state their number and range.
    pub edges: Option<Vec<Value>>,
}

impl Bins {
    /// Requests this many bins of equal width over all finite values.
    pub fn new(count: usize) -> Self {
        Self { count, range: None, scale: BinScale::Linear, edges: None }
    }

    /// Requests bins between these edges. An edge that is a decimal is rounded to the type of the column.
    pub fn between(edges: Vec<Value>) -> Self {
        let range = edges.first().copied().zip(edges.last().copied());
        Self { range, edges: Some(edges.clone()), ..Self::new(edges.len().saturating_sub(1)) }
    }

    /// Returns the edges over a range: ascending, unique unless the range is a single value. Ends and edges that are
    /// decimals are rounded to the type of the column, as literals of the language are.
    ///
    /// # Errors
    /// Usage errors: no bins or too many, or a range that is not finite, is reversed, or is not positive on a log
    /// scale.
    pub(in crate::query) fn edges_over(&self, order: KeyOrder, range: (Value, Value)) -> Result<Vec<Value>> {
        if self.count == 0 || self.count > MAX_BINS {
            let what = format!("must be 1 to {MAX_BINS}, not {}", self.count);
            return Err(UsageError::Option { option: "bins", what }.into());
        }
        let refuse = |what: String| Err(UsageError::Option { option: "range", what }.into());
        if let Some(edges) = &self.edges {
            return given(edges, order);
        }
        let (from, to) = range;
        if !from.as_f64().is_finite() || !to.as_f64().is_finite() || from.compare(to) == Some(Ordering::Greater) {
            return refuse(format!("{from}..{to} is not a finite ascending range"));
        }
        if self.scale == BinScale::Log && from.as_f64() <= 0.0 {
            return refuse(format!("a log scale needs a range above 0, not {from}..{to}"));
        }
        let edges = match (order.data_type().is_float(), self.scale) {
            (true, _) => self.float_edges(from.as_f64(), to.as_f64(), order.data_type() == DataType::F32),
            (false, BinScale::Linear) => self.integer_edges(whole(from, f64::ceil), whole(to, f64::floor)),
            (false, BinScale::Log) => self.integer_log_edges(whole(from, f64::ceil), whole(to, f64::floor)),
        };
        match edges.as_slice() {
            [] | [_] => refuse(format!("no value of type {} lies in {from}..{to}", order.data_type())),
            _ => Ok(edges),
        }
    }

    /// Returns the positions of the inner edges, as fractions of the range.
    fn inner_shares(&self) -> impl Iterator<Item = f64> {
        let count = self.count as f64;
        (1..self.count).map(move |bin| bin as f64 / count)
    }

    fn float_edges(&self, from: f64, to: f64, is_single: bool) -> Vec<Value> {
        // Of sums of products, and of exponential functions.
        let error = |edge: f64| match self.scale {
            BinScale::Linear => 4.0 * f64::EPSILON * from.abs().max(to.abs()),
            BinScale::Log => 64.0 * f64::EPSILON * edge,
        };
        let typed = |edge: f64| as_typed(edge, error(edge), is_single);
        let at = |share: f64| match self.scale {
            // The difference of the ends may overflow, but neither product does.
            BinScale::Linear => from * (1.0 - share) + to * share,
            BinScale::Log => (from.ln() * (1.0 - share) + to.ln() * share).exp(),
        };
        let first = as_typed(from, 0.0, is_single);
        // Of a narrow range, only one end may have been rounded.
        let last = as_typed(to, 0.0, is_single).max(first);
        let mut edges = vec![first];
        for edge in self.inner_shares().map(at).map(typed) {
            if edge < last && edges.last().is_some_and(|previous| edge > *previous) {
                edges.push(edge);
            }
        }
        edges.push(last);
        edges.into_iter().map(Value::Float).collect()
    }

    fn integer_edges(&self, from: i128, to: i128) -> Vec<Value> {
        let integers = to - from + 1;
        if integers <= 0 {
            return Vec::new();
        }
        let bins = (self.count as i128).min(integers);
        (0..bins).map(|bin| from + integers * bin / bins).chain([to]).map(Value::Int).collect()
    }

    fn integer_log_edges(&self, from: i128, to: i128) -> Vec<Value> {
        if from > to {
            return Vec::new();
        }
        let (low, high) = ((from as f64).ln(), (to as f64 + 1.0).ln());
        let mut edges = vec![from];
        for share in self.inner_shares() {
            let edge = (low * (1.0 - share) + high * share).exp().ceil() as i128;
            if edge <= to && edges.last().is_some_and(|last| edge > *last) {
                edges.push(edge);
            }
        }
        edges.push(to);
        edges.into_iter().map(Value::Int).collect()
    }
}

/// Returns edges that are given: decimals as literals of the column's type, integers as they are.
fn given(edges: &[Value], order: KeyOrder) -> Result<Vec<Value>> {
    let is_single = order.data_type() == DataType::F32;
    let typed = |edge: &Value| match edge {
        _ if order.data_type().is_float() => Value::Float(as_typed(edge.as_f64(), 0.0, is_single)),
        edge => *edge,
    };
    let typed: Vec<Value> = edges.iter().map(typed).collect();
    let ascend = |pair: &[Value]| pair[0].compare(pair[1]) == Some(Ordering::Less);
    match typed.iter().all(|edge| edge.as_f64().is_finite()) && typed.windows(2).all(ascend) {
        true => Ok(typed),
        false => {
            let what = "the edges must be finite and ascend, by more than the column's numbers are apart".to_owned();
            Err(UsageError::Option { option: "bins", what }.into())
        }
    }
}

/// Returns the width of each bin: of integers without given edges, the number of integers in it.
pub(super) fn widths(edges: &[Value], are_given: bool) -> Vec<f64> {
    let last = edges.len().saturating_sub(2);
    let width = |(bin, ends): (usize, &[Value])| match (ends[0], ends[1]) {
        (Value::Int(from), Value::Int(to)) => (to - from + i128::from(bin == last && !are_given)) as f64,
        (from, to) => to.as_f64() - from.as_f64(),
    };
    edges.windows(2).enumerate().map(width).collect()
}

/// Returns the decimal that an edge with some error was meant to be, as a literal of the language: rounded to the type
/// of the column. Other edges are returned as they are. So bins begin where conditions with the same number do.
fn as_typed(edge: f64, error: f64, is_single: bool) -> f64 {
    if edge.abs() <= error {
        return 0.0;
    }
    let decimal = format!("{edge:.*e}", DECIMAL_DIGITS - 1).parse().unwrap_or(edge);
    if (decimal - edge).abs() > error {
        return edge;
    }
    let single = f64::from(decimal as f32);
    let is_close = (single - decimal).abs() <= f64::from(f32::EPSILON) * decimal.abs();
    if is_single && is_close { single } else { decimal }
}

/// Rounds an end of a range inwards to an integer, clamped to just beyond the range of all integer types.
fn whole(end: Value, inwards: fn(f64) -> f64) -> i128 {
    let integer = match end {
        Value::Int(end) => end,
        Value::Float(end) => inwards(end) as i128,
    };
    integer.clamp(-(1 << 64), 1 << 64)
}

/// A partition of a type's ordinals into consecutive cells. Cells can be empty.
#[derive(Debug)]
pub(in crate::query) struct Cells {
    /// First ordinal of each cell, ascending from 0. One past the last ordinal needs a 65th bit.
    starts: Vec<u128>,
}

impl Cells {
    /// Creates cells that begin at 0 and at each of the (ascending) cuts.
    pub(in crate::query) fn new(cuts: impl IntoIterator<Item = u128>) -> Self {
        Self { starts: [0].into_iter().chain(cuts).collect() }
    }

    /// Returns the number of cells.
    pub(in crate::query) fn len(&self) -> usize {
        self.starts.len()
    }

    /// Returns the first ordinal of a cell. For the cell after the last, returns one past all ordinals.
    pub(in crate::query) fn start(&self, cell: usize) -> u128 {
        self.starts.get(cell).copied().unwrap_or(1 << 64)
    }

    /// Returns the cell that holds an ordinal.
    pub(in crate::query) fn of(&self, ordinal: u64) -> usize {
        self.starts.partition_point(|start| *start <= u128::from(ordinal)).saturating_sub(1)
    }

    /// Returns the same cell as [`Cells::of`], but tries `guess` first. This is faster if consecutive ordinals are
    /// often in the same cell.
    pub(in crate::query) fn of_near(&self, ordinal: u64, guess: usize) -> usize {
        let wide = u128::from(ordinal);
        if self.start(guess) <= wide && wide < self.start(guess + 1) { guess } else { self.of(ordinal) }
    }

    /// Returns the cells that an ordinal range overlaps.
    pub(in crate::query) fn span(&self, from: u64, to: u64) -> RangeInclusive<usize> {
        self.of(from)..=self.of(to)
    }
}

/// Returns cells for minus infinity, for values below the bins, for each bin, for values above the bins, and for
/// infinity, in this order.
pub(super) fn histogram_cells(edges: &[Value], order: KeyOrder) -> Cells {
    let (least, greatest) = order.extremes();
    let (finite_from, finite_to) = match order.data_type().is_float() {
        true => (u128::from(order.ordinal_of(least)) + 1, u128::from(order.ordinal_of(greatest))),
        false => (0, 1 << 64),
    };
    let mut cuts = vec![finite_from];
    if let Some((last, inner)) = edges.split_last() {
        cuts.extend(inner.iter().map(|edge| order.first_at_least(*edge)));
        let at_last = order.first_at_least(*last);
        // The last bin includes its upper edge, if the edge is a value of the type.
        let includes = u64::try_from(at_last)
            .is_ok_and(|ordinal| at_last < finite_to && order.value(ordinal).compare(*last).is_some_and(|o| o.is_eq()));
        cuts.push(at_last + u128::from(includes));
    } else {
        cuts.push(finite_to);
    }
    cuts.push(finite_to);
    // Edges beyond the extremes of the type create empty cells.
    Cells::new(cuts.into_iter().map(|cut| cut.clamp(finite_from, finite_to)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(bins: Bins, data_type: DataType, from: Value, to: Value) -> Result<Vec<Value>> {
        bins.edges_over(KeyOrder::new(data_type).unwrap(), (from, to))
    }

    #[test]
    fn integers_get_a_bin_each_at_most() {
        let (int, float) = (Value::Int, Value::Float);
        let found = edges(Bins::new(40), DataType::I32, int(-1), int(2)).unwrap();
        assert_eq!(found, [int(-1), int(0), int(1), int(2), int(2)]);
        let found = edges(Bins::new(2), DataType::I32, float(0.5), float(4.5)).unwrap();
        assert_eq!(found, [int(1), int(3), int(4)]);
        let extremes = KeyOrder::new(DataType::U64).unwrap().extremes();
        let found = edges(Bins::new(4), DataType::U64, extremes.0, extremes.1).unwrap();
        assert_eq!(found[1], int(1 << 62));
        let log = Bins { scale: BinScale::Log, ..Bins::new(3) };
        assert_eq!(edges(log, DataType::U8, int(1), int(99)).unwrap(), [int(1), int(5), int(22), int(99)]);
    }

    #[test]
    fn floats_are_divided_without_overflow() {
        let float = Value::Float;
        let found = edges(Bins::new(2), DataType::F64, float(-f64::MAX), float(f64::MAX)).unwrap();
        assert_eq!(found, [float(-f64::MAX), float(0.0), float(f64::MAX)]);
        assert_eq!(edges(Bins::new(5), DataType::F32, float(3.0), float(3.0)).unwrap(), [float(3.0), float(3.0)]);
        let log = Bins { scale: BinScale::Log, ..Bins::new(2) };
        let found = edges(log, DataType::F64, float(0.01), float(100.0)).unwrap();
        assert!((found[1].as_f64() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn edges_that_are_decimals_are_those_of_literals() {
        let float = Value::Float;
        let found = edges(Bins::new(64), DataType::F64, float(-3.2), float(3.2)).unwrap();
        let expected: Vec<Value> = (-32..=32).map(|tenths| float(f64::from(tenths) / 10.0)).collect();
        assert_eq!(found, expected);
        let found = edges(Bins::new(64), DataType::F32, float(-3.2), float(3.2)).unwrap();
        let single = |edge: &Value| float(f64::from(edge.as_f64() as f32));
        assert_eq!(found, expected.iter().map(single).collect::<Vec<_>>());
        let found = edges(Bins::new(10), DataType::F64, float(-0.3), float(0.7)).unwrap();
        assert_eq!(found[3], float(0.0));
        let log = Bins { scale: BinScale::Log, ..Bins::new(6) };
        let found = edges(log, DataType::F64, float(0.001), float(1000.0)).unwrap();
        assert_eq!(found, [0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0].map(float));
        // Values of single precision that are no decimals, and those beyond its range, stay.
        let third = f64::from(1.0f32 / 3.0);
        let found = edges(Bins::new(1), DataType::F32, float(third), float(1e300)).unwrap();
        assert_eq!(found, [float(third), float(1e300)]);
    }

    #[test]
    fn impossible_bins_are_refused() {
        let float = Value::Float;
        for (bins, from, to) in [
            (Bins::new(0), 0.0, 1.0),
            (Bins::new(MAX_BINS + 1), 0.0, 1.0),
            (Bins::new(3), 1.0, 0.0),
            (Bins::new(3), f64::NAN, 1.0),
            (Bins::new(3), 0.0, f64::INFINITY),
            (Bins { scale: BinScale::Log, ..Bins::new(3) }, 0.0, 1.0),
        ] {
            edges(bins, DataType::F64, float(from), float(to)).unwrap_err();
        }
        edges(Bins::new(3), DataType::I8, float(0.2), float(0.8)).unwrap_err();
        edges(Bins::new(3), DataType::I8, float(-1e300), float(1e300)).unwrap();
    }

    #[test]
    fn cells_hold_what_lies_between_their_starts() {
        let cells = Cells::new([10, 10, 20, 1 << 64]);
        assert_eq!(cells.len(), 5);
        for (ordinal, cell) in [(0, 0), (9, 0), (10, 2), (19, 2), (20, 3), (u64::MAX, 3)] {
            assert_eq!((cells.of(ordinal), cells.of_near(ordinal, 2)), (cell, cell), "{ordinal}");
        }
        assert_eq!(cells.span(5, 15), 0..=2);
    }
}
