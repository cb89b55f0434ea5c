//! The cells of histograms of one and two columns, and the places that their rows are counted at.

use std::ops::Range;

use crate::query::analytics::bins::{Cells, histogram_cells};
use crate::query::analytics::edge_search::EdgeSearch;
use crate::query::analytics::numbers::Unbinned;
use crate::query::scan::read::PackedRows;
use crate::schema::{DataType, KeyOrder, Value};

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
    /// The first and the last edge. Of no edges, no value lies between.
    ends: (f64, f64),
    search: EdgeSearch,
}

/// Consecutive cells of an axis: numbered as [`histogram_cells`] orders them, with the cell of NaN after the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) first: u32,
    pub(super) last: u32,
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
    pub(super) fn new(order: KeyOrder, edges: &[Value]) -> Self {
        let (bins, cells) = (edges.len().saturating_sub(1), histogram_cells(edges, order));
        let floats: Vec<f64> = edges.iter().map(|edge| edge.as_f64()).collect();
        match floats[..] {
            [first, .., last] => Self { order, cells, bins, ends: (first, last), search: EdgeSearch::new(&floats) },
            _ => {
                let ends = (f64::INFINITY, f64::NEG_INFINITY);
                Self { order, cells, bins, ends, search: EdgeSearch::new(&[0.0; 2]) }
            }
        }
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
        let value = self.order.value(ordinal).as_f64();
        if self.order.data_type().is_float() {
            return if self.order.is_nan(ordinal) { self.nan() } else { self.cell_of_float(value) };
        }
        self.cells.of_near(ordinal, self.search.bin(value) + 2)
    }

    /// Returns the cell of a float.
    #[inline(always)]
    fn cell_of_float(&self, value: f64) -> usize {
        let (first, last) = self.ends;
        // `&` instead of `&&` avoids a branch. Comparisons are false for NaN.
        if (value >= first) & (value <= last) {
            return self.search.bin(value) + 2;
        }
        match value {
            _ if value.is_nan() => self.nan(),
            _ if value < first => usize::from(value != f64::NEG_INFINITY),
            _ => self.bins + 2 + usize::from(value == f64::INFINITY),
        }
    }

    /// Returns the cell of each row of the column at a slot.
    fn cells(&self, rows: &PackedRows, slot: usize) -> Vec<u32> {
        let bytes = &rows.columns[slot];
        match self.order.data_type() {
            DataType::F64 => {
                let values = bytes.as_chunks::<8>().0.iter().map(|bytes| f64::from_le_bytes(*bytes));
                values.map(|value| self.cell_of_float(value) as u32).collect()
            }
            DataType::F32 => {
                let values = bytes.as_chunks::<4>().0.iter().map(|bytes| f64::from(f32::from_le_bytes(*bytes)));
                values.map(|value| self.cell_of_float(value) as u32).collect()
            }
            _ => ordinals(rows, slot, self.order).into_iter().map(|ordinal| self.cell(ordinal) as u32).collect(),
        }
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
        let mut cells = self.x.cells(rows, slots[0]);
        if let Some(axis) = &self.y {
            let of_y = axis.cells(rows, slots[1]);
            cells.iter_mut().zip(of_y).for_each(|(x, y)| *x = self.place(*x as usize, y as usize) as u32);
        }
        cells
    }
}

/// Returns the ordinals of the column at a slot.
pub(super) fn ordinals(rows: &PackedRows, slot: usize, order: KeyOrder) -> Vec<u64> {
    let mut ordinals = Vec::with_capacity(rows.rows);
    order.ordinals(&rows.columns[slot], order.data_type().width(), rows.rows, &mut ordinals);
    ordinals
}
