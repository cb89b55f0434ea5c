//! Histogram bins, and the ordinal cells behind them.
//!
//! Edges are values, but rows are counted by ordinal. Comparisons are therefore exact integer comparisons: a value is
//! at or above an edge exactly when its ordinal is at or above the edge's cut.

use std::cmp::Ordering;
use std::ops::RangeInclusive;

use crate::error::{Result, UsageError};
use crate::schema::{KeyOrder, Value};

/// Maximum number of bins of a histogram.
const MOST_BINS: usize = 1 << 16;

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
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bins {
    /// Number of bins.
    pub count: usize,
    /// The closed range of the bins. The default is the range of the column's finite values in the manifests.
    pub range: Option<(Value, Value)>,
    /// The spacing of the edges.
    pub scale: BinScale,
}

impl Bins {
    /// Requests this many bins of equal width over all finite values.
    pub fn new(count: usize) -> Self {
        Self { count, range: None, scale: BinScale::Linear }
    }

    /// Returns the edges over a range: ascending, unique unless the range is a single value, with both ends exact.
    ///
    /// # Errors
    /// Usage errors: no bins or too many, or a range that is not finite, is reversed, or is not positive on a log
    /// scale.
    pub(in crate::query) fn edges(&self, order: KeyOrder, range: (Value, Value)) -> Result<Vec<Value>> {
        if self.count == 0 || self.count > MOST_BINS {
            let what = format!("must be 1 to {MOST_BINS}, not {}", self.count);
            return Err(UsageError::Option { option: "bins", what }.into());
        }
        let refuse = |what: String| Err(UsageError::Option { option: "range", what }.into());
        let (from, to) = range;
        if !from.as_f64().is_finite() || !to.as_f64().is_finite() || from.compare(to) == Some(Ordering::Greater) {
            return refuse(format!("{from}..{to} is not a finite ascending range"));
        }
        if self.scale == BinScale::Log && from.as_f64() <= 0.0 {
            return refuse(format!("a log scale needs a range above 0, not {from}..{to}"));
        }
        let edges = match (order.data_type().is_float(), self.scale) {
            (true, _) => self.float_edges(from.as_f64(), to.as_f64()),
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

    fn float_edges(&self, from: f64, to: f64) -> Vec<Value> {
        let at = |share: f64| match self.scale {
            // The difference of the ends may overflow, but neither product does.
            BinScale::Linear => from * (1.0 - share) + to * share,
            BinScale::Log => (from.ln() * (1.0 - share) + to.ln() * share).exp(),
        };
        let mut edges = vec![from];
        for edge in self.inner_shares().map(at) {
            if edge < to && edges.last().is_some_and(|last| edge > *last) {
                edges.push(edge);
            }
        }
        edges.push(to);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::DataType;

    fn edges(bins: Bins, data_type: DataType, from: Value, to: Value) -> Result<Vec<Value>> {
        bins.edges(KeyOrder::new(data_type).unwrap(), (from, to))
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
    fn impossible_bins_are_refused() {
        let float = Value::Float;
        for (bins, from, to) in [
            (Bins::new(0), 0.0, 1.0),
            (Bins::new(MOST_BINS + 1), 0.0, 1.0),
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
