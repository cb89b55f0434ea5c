//! The cells of histograms of one and two columns, and the places that their rows are counted at.

use std::ops::Range;

use crate::query::analytics::bins::{BinScale, Cells, histogram_cells};
use crate::query::analytics::numbers::Unbinned;
use crate::query::scan::read::PackedRows;
use crate::schema::{KeyOrder, Value};

/// Places of the rows of two columns that are in no bin: their positions after the last bin.
pub(super) const OUTSIDE: usize = 0;
pub(super) const INFINITE: usize = 1;
pub(super) const NAN: usize = 2;

/// The bins of one column.
#[derive(Debug)]
pub(super) struct Axis {
    pub(super) order: KeyOrder,
    /// Minus infinity, below, the bins, above, infinity.
    cells: Cells,
    bins: usize,
    guess: Guess,
}

/// Consecutive cells of an axis: numbered as [`histogram_cells`] orders them, with the cell of NaN after the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) first: u32,
    pub(super) last: u32,
}

/// A line through the positions of the edges, which almost always hits the bin of a value. A search corrects it
/// otherwise.
#[derive(Debug)]
struct Guess {
    is_log: bool,
    from: f64,
    bins_per_unit: f64,
}

impl Guess {
    fn new(edges: &[Value], scale: BinScale) -> Self {
        let is_log = scale == BinScale::Log;
        let scaled = |edge: Option<&Value>| {
            let edge = edge.map_or(0.0, |edge| edge.as_f64());
            if is_log { edge.ln() } else { edge }
        };
        let (from, to) = (scaled(edges.first()), scaled(edges.last()));
        Self { is_log, from, bins_per_unit: edges.len().saturating_sub(1) as f64 / (to - from) }
    }

    fn bin(&self, value: f64) -> usize {
        let scaled = if self.is_log { value.ln() } else { value };
        // Conversions saturate, and NaN becomes 0.
        ((scaled - self.from) * self.bins_per_unit) as usize
    }
}

impl Span {
    pub(super) fn is_one(self) -> bool {
        self.first == self.last
    }

    fn one(cell: usize) -> Self {
        // There are at most 2^24 bins.
        Self { first: cell as u32, last: cell as u32 }
    }

    pub(super) fn cells(self) -> Range<usize> {
        self.first as usize..self.last as usize + 1
    }
}

impl Axis {
    pub(super) fn new(order: KeyOrder, edges: &[Value], scale: BinScale) -> Self {
        let bins = edges.len().saturating_sub(1);
        Self { order, cells: histogram_cells(edges, order), bins, guess: Guess::new(edges, scale) }
    }

    /// Returns the number of bins.
    pub(super) fn bins(&self) -> usize {
        self.bins
    }

    /// Returns the cells of the bins.
    pub(super) fn inner(&self) -> Range<usize> {
        2..self.bins + 2
    }

    /// Returns the cell of NaN, which is the last.
    pub(super) fn nan(&self) -> usize {
        self.bins + 4
    }

    /// Returns whether a cell is that of an infinity.
    pub(super) fn is_infinite(&self, cell: usize) -> bool {
        self.order.data_type().is_float() && (cell == 0 || cell == self.bins + 3)
    }

    /// Returns the cell of a value.
    pub(super) fn cell(&self, ordinal: u64) -> usize {
        if self.order.is_nan(ordinal) {
            return self.nan();
        }
        let guess = self.guess.bin(self.order.value(ordinal).as_f64()).min(self.bins);
        self.cells.of_near(ordinal, guess + 2)
    }

    /// Returns the cells of the values of a closed interval.
    pub(super) fn span(&self, least: u64, greatest: u64) -> Span {
        Span { first: Span::one(self.cell(least)).first, last: Span::one(self.cell(greatest)).last }
    }

    /// Returns the cells of any value, and of NaN if `has_nan`.
    pub(super) fn whole(&self, has_nan: bool) -> Span {
        Span { first: 0, last: Span::one(self.nan() - usize::from(!has_nan)).last }
    }

    /// Returns the span of NaN.
    pub(super) fn nan_span(&self) -> Span {
        Span::one(self.nan())
    }
}

/// The bins of one or two columns.
#[derive(Debug)]
pub(super) struct Grid {
    pub(super) x: Axis,
    pub(super) y: Option<Axis>,
}

impl Grid {
    /// Returns the axes.
    pub(super) fn axes(&self) -> impl Iterator<Item = &Axis> {
        [&self.x].into_iter().chain(&self.y)
    }

    /// Returns the number of pairs of bins.
    pub(super) fn pairs(&self) -> usize {
        self.x.bins * self.y.as_ref().map_or(1, Axis::bins)
    }

    /// Returns the number of places: the cells of one column; or the pairs of bins of two columns, and the places
    /// outside.
    pub(super) fn places(&self) -> usize {
        if self.y.is_some() { self.pairs() + NAN + 1 } else { self.x.nan() + 1 }
    }

    /// Returns why rows are in no bin at the places before the bins, and after them.
    pub(super) fn unbinned(&self) -> (&'static [Unbinned], &'static [Unbinned]) {
        use Unbinned::{Above, Below, Infinite, Nan, NegativeInfinity, Outside, PositiveInfinity};
        match self.y {
            None => (&[NegativeInfinity, Below], &[Above, PositiveInfinity, Nan]),
            Some(_) => (&[], &[Outside, Infinite, Nan]),
        }
    }

    /// Returns the places of infinities and NaN, if no column can have them.
    pub(super) fn impossible(&self) -> Vec<usize> {
        if self.axes().any(|axis| axis.order.data_type().is_float()) {
            return Vec::new();
        }
        match self.y {
            None => vec![0, self.x.nan() - 1, self.x.nan()],
            Some(_) => vec![self.pairs() + INFINITE, self.pairs() + NAN],
        }
    }

    /// Returns the numbers of the bins of x and of y at a place.
    pub(super) fn bin(&self, place: usize) -> Option<[usize; 2]> {
        let bin = place.checked_sub(self.unbinned().0.len()).filter(|bin| *bin < self.pairs())?;
        let lines = self.y.as_ref().map_or(1, Axis::bins);
        Some([bin / lines, bin % lines])
    }

    /// Returns the place of a row in these cells of both axes. One column has only the first.
    pub(super) fn place(&self, x: usize, y: usize) -> usize {
        let Some(other) = &self.y else { return x };
        let (inner_x, inner_y) = (x.wrapping_sub(2), y.wrapping_sub(2));
        if inner_x < self.x.bins && inner_y < other.bins {
            return inner_x * other.bins + inner_y;
        }
        let apart = if x == self.x.nan() || y == other.nan() {
            NAN
        } else if self.x.is_infinite(x) || other.is_infinite(y) {
            INFINITE
        } else {
            OUTSIDE
        };
        self.pairs() + apart
    }

    /// Returns the place of each row, whose columns to count by are at `slots`.
    pub(super) fn locate(&self, rows: &PackedRows, slots: &[usize]) -> Vec<u32> {
        let x = ordinals(rows, slots[0], self.x.order);
        let Some(axis) = &self.y else {
            return x.into_iter().map(|x| self.x.cell(x) as u32).collect();
        };
        let y = ordinals(rows, slots[1], axis.order);
        x.iter().zip(&y).map(|(x, y)| self.place(self.x.cell(*x), axis.cell(*y)) as u32).collect()
    }
}

/// Returns the ordinals of the column at a slot.
pub(super) fn ordinals(rows: &PackedRows, slot: usize, order: KeyOrder) -> Vec<u64> {
    let mut ordinals = Vec::with_capacity(rows.rows);
    order.ordinals(&rows.columns[slot], order.data_type().width(), rows.rows, &mut ordinals);
    ordinals
}
