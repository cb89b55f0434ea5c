//! Bounds of the number of rows at each place of a histogram, from rows that lie somewhere in a rectangle of cells.
//!
//! A rectangle of one cell counts for its cell. The others are added as differences at their corners, and summed up in
//! the end, so that a row group takes as long for wide rectangles as for narrow ones.

use std::ops::Range;

use super::grid::{Axis, Grid, INFINITE, NAN, OUTSIDE, Span};
use super::numbers::{Estimate, Series};

/// Rows that lie somewhere in a rectangle of cells.
#[derive(Debug, Clone, Copy)]
pub(super) struct SpanRows {
    pub(super) x: Span,
    /// `None` for one column.
    pub(super) y: Option<Span>,
    /// Rows that surely match.
    pub(super) surely: u64,
    /// Further rows that may match.
    pub(super) possibly: u64,
}

/// Bounds so far.
#[derive(Debug)]
pub(super) struct GridBounds<'a> {
    grid: &'a Grid,
    /// The cells of the table: all of one column, or the bins of two.
    shape: (Range<usize>, Range<usize>),
    /// Rows that are surely in each cell.
    least: Vec<u64>,
    /// Differences of the further rows that may be in each cell, with a column and a row more than there are cells.
    more: Vec<u64>,
    /// Differences of the expected number of these.
    expected: Vec<f64>,
    /// Rows of two columns that are in no bin.
    apart: [Sum; NAN + 1],
    rows: Sum,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    least: u64,
    expected: f64,
    most: u64,
}

impl Sum {
    fn add(&mut self, surely: u64, possibly: u64, expected: f64) {
        self.least = self.least.saturating_add(surely);
        self.most = self.most.saturating_add(surely).saturating_add(possibly);
        self.expected += expected;
    }

    fn bounded(self) -> Estimate<u64> {
        bounded(self.least, self.expected, self.most)
    }
}

fn bounded(least: u64, expected: f64, most: u64) -> Estimate<u64> {
    let most = most.max(least);
    Estimate::within(least, (expected.round() as u64).clamp(least, most), most)
}

impl<'a> GridBounds<'a> {
    pub(super) fn new(grid: &'a Grid) -> Self {
        let shape = match &grid.y {
            None => (0..grid.x.nan() + 1, 0..1),
            Some(y) => (grid.x.inner(), y.inner()),
        };
        let (cells, corners) = (shape.0.len() * shape.1.len(), (shape.0.len() + 1) * (shape.1.len() + 1));
        let (least, more, expected) = (vec![0; cells], vec![0; corners], vec![0.0; corners]);
        Self { grid, shape, least, more, expected, apart: [Sum::default(); NAN + 1], rows: Sum::default() }
    }

    /// Adds the number of rows of a row group: those that surely match, and further ones that may.
    pub(super) fn add_rows(&mut self, surely: u64, possibly: u64) {
        self.rows.add(surely, possibly, surely as f64 + possibly as f64 / 2.0);
    }

    /// Adds rows that lie somewhere in a rectangle of cells.
    pub(super) fn add(&mut self, rows: &SpanRows) {
        let SpanRows { x, y, surely, possibly } = *rows;
        let (columns, lines) = (clipped(x.cells(), &self.shape.0), clipped(y_cells(y), &self.shape.1));
        let inner = columns.len() * lines.len();
        let is_one = x.is_one() && y.is_none_or(Span::is_one);
        let weight = surely as f64 + possibly as f64 / 2.0;
        if let Some(y) = y {
            self.add_apart((x, y), (surely, possibly), inner, weight);
        }
        if inner == 0 {
            return;
        }
        let (mut more, mut expected) = (possibly, possibly as f64 / 2.0);
        if is_one {
            let cell = columns.start * self.shape.1.len() + lines.start;
            self.least[cell] = self.least[cell].saturating_add(surely);
            if possibly == 0 {
                return;
            }
        } else {
            more = surely.saturating_add(possibly);
            expected = weight / (x.cells().len() * y_cells(y).len()) as f64;
        }
        let stride = self.shape.1.len() + 1;
        for (column, line, is_added) in [
            (columns.start, lines.start, true),
            (columns.start, lines.end, false),
            (columns.end, lines.start, false),
            (columns.end, lines.end, true),
        ] {
            let corner = column * stride + line;
            let (more, expected) = if is_added { (more, expected) } else { (more.wrapping_neg(), -expected) };
            self.more[corner] = self.more[corner].wrapping_add(more);
            self.expected[corner] += expected;
        }
    }

    /// Adds rows of two columns to the places that are no bin.
    fn add_apart(&mut self, (x, y): (Span, Span), (surely, possibly): (u64, u64), inner: usize, weight: f64) {
        let Some(other) = &self.grid.y else { return };
        let may_be = places_apart((&self.grid.x, x), (other, y));
        let kinds = may_be.iter().filter(|may_be| **may_be).count() + usize::from(inner > 0);
        let all = (x.cells().len() * y.cells().len()) as f64;
        for (place, sum) in self.apart.iter_mut().enumerate().filter(|(place, _)| may_be[*place]) {
            if kinds == 1 {
                sum.add(surely, possibly, weight);
            } else {
                // Infinities and NaN are expected to be rare among other values.
                let share = if place == OUTSIDE { 1.0 - inner as f64 / all } else { 0.0 };
                sum.add(0, surely.saturating_add(possibly), weight * share);
            }
        }
    }

    /// Returns the bounds of the number of rows.
    pub(super) fn rows(&self) -> Estimate<u64> {
        self.rows.bounded()
    }

    /// Returns the bounds of each place of the grid.
    pub(super) fn places(mut self) -> Series<u64> {
        let (columns, lines) = (self.shape.0.len(), self.shape.1.len());
        let stride = lines + 1;
        let mut places = Series::with_capacity(self.grid.places());
        for column in 0..columns {
            let (mut more, mut expected) = (0u64, 0.0);
            for line in 0..lines {
                let corner = column * stride + line;
                if column > 0 {
                    self.more[corner] = self.more[corner].wrapping_add(self.more[corner - stride]);
                    self.expected[corner] += self.expected[corner - stride];
                }
                more = more.wrapping_add(self.more[corner]);
                expected += self.expected[corner];
                let least = self.least[column * lines + line];
                places.push(bounded(least, least as f64 + expected, least.saturating_add(more)));
            }
        }
        if self.grid.y.is_some() {
            self.apart.map(Sum::bounded).into_iter().for_each(|sum| places.push(sum));
        }
        places
    }
}

fn y_cells(y: Option<Span>) -> Range<usize> {
    y.map_or(0..1, Span::cells)
}

/// Returns the cells of a range that are in a table, counted from its first.
fn clipped(cells: Range<usize>, table: &Range<usize>) -> Range<usize> {
    let (start, end) = (cells.start.max(table.start), cells.end.min(table.end));
    if start < end { start - table.start..end - table.start } else { 0..0 }
}

/// Returns which of the places that are no bin a row may be at.
fn places_apart((x_axis, x): (&Axis, Span), (y_axis, y): (&Axis, Span)) -> [bool; NAN + 1] {
    let mut may_be = [false; NAN + 1];
    let sides = [(x_axis, x.cells()), (y_axis, y.cells())];
    may_be[NAN] = sides.iter().any(|(axis, cells)| cells.contains(&axis.nan()));
    // The cells of values other than NaN.
    let sides = sides.map(|(axis, cells)| (axis, cells.start..cells.end.min(axis.nan())));
    if sides.iter().any(|(_, cells)| cells.is_empty()) {
        return may_be;
    }
    may_be[INFINITE] = sides.iter().any(|(axis, cells)| cells.clone().any(|cell| axis.is_infinite(cell)));
    let finite = sides.map(|(axis, cells)| {
        let start = cells.start + usize::from(axis.is_infinite(cells.start));
        let end = cells.end - usize::from(axis.is_infinite(cells.end - 1));
        (axis, start..end)
    });
    let is_finite = finite.iter().all(|(_, cells)| !cells.is_empty());
    may_be[OUTSIDE] = is_finite
        && finite.iter().any(|(axis, cells)| cells.start < axis.inner().start || cells.end > axis.inner().end);
    may_be
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::schema::{DataType, Value};

    fn axis(data_type: DataType, edges: &[i32]) -> Axis {
        let order = crate::schema::KeyOrder::new(data_type).unwrap();
        let edges: Vec<Value> = edges.iter().map(|edge| Value::Float(f64::from(*edge))).collect();
        Axis::new(order, &edges)
    }

    proptest! {
        /// Checks with a loop over the cells of each rectangle: a place has at least the rows that can be nowhere else,
        /// and at most those that can be there.
        #[test]
        fn rectangles_bound_their_cells(
            rectangles in prop::collection::vec(((0usize..8, 0usize..4), (0usize..7, 0usize..4), 0u64..5, 0u64..3), 0..30),
            is_two in any::<bool>(),
        ) {
            let grid = Grid { x: axis(DataType::F32, &[-2, 0, 1, 5]), y: is_two.then(|| axis(DataType::I16, &[0, 3, 9])) };
            let (mut least, mut most) = (vec![0; grid.places()], vec![0; grid.places()]);
            let mut bounds = GridBounds::new(&grid);
            for &((x, wide), (y, high), surely, possibly) in &rectangles {
                let span = |from: usize, length: usize, last: usize| Span { first: from as u32, last: (from + length).min(last) as u32 };
                let x = span(x, wide, grid.x.nan());
                let y = grid.y.as_ref().map(|axis| span(y, high, axis.nan()));
                bounds.add_rows(surely, possibly);
                bounds.add(&SpanRows { x, y, surely, possibly });
                let cells = x.cells().flat_map(|x| y_cells(y).map(move |y| (x, y)));
                let mut places: Vec<usize> = cells.map(|(x, y)| grid.place(x, y)).collect();
                places.sort_unstable();
                places.dedup();
                places.iter().for_each(|place| most[*place] += surely + possibly);
                if let [place] = places[..] {
                    least[place] += surely;
                }
            }
            let sums = bounds.rows();
            prop_assert_eq!(sums.least, rectangles.iter().map(|one| one.2).sum::<u64>());
            prop_assert_eq!(sums.most, rectangles.iter().map(|one| one.2 + one.3).sum::<u64>());
            for (place, found) in bounds.places().iter().enumerate() {
                prop_assert_eq!((found.least, found.most), (least[place], most[place]), "place {}", place);
                prop_assert!(found.least <= found.estimate && found.estimate <= found.most);
            }
        }
    }
}
