//! Orders the rows of a page along a curve, so that rows that follow each other are neighbours.
//!
//! A page's box is halved along its longest side, again and again, into 1,024 cells. Their numbers are Gray codes of
//! the halves: cells that follow each other differ in one half, so they mostly touch. Rows are distributed over the
//! cells in one pass. Dividing them at medians down to a few rows would take three times as long, for a sample that is
//! hardly better.

use crate::format::row_group::space_points::{Axis, Point, box_of};
use crate::schema::MAX_AXES;

/// Bits of the number of a cell.
const CELL_BITS: usize = 10;

/// Buffers for the order along a curve, reused between pages: 18 bytes per row of a page.
#[derive(Debug, Default)]
pub(super) struct CurveBuffers {
    cells: Vec<u16>,
    ordered: Vec<Point>,
}

/// One axis of the cells of a box.
#[derive(Debug, Clone, Copy)]
struct Side {
    low: f64,
    /// Number of intervals per unit of length.
    scale: f64,
    /// Contribution of a row's interval to the number of its cell.
    codes: [u16; 1 << CELL_BITS],
    /// Number of the last interval.
    last: usize,
}

impl Side {
    fn code(&self, coordinate: f64) -> u16 {
        // A cast of NaN is 0, and one beyond the type its largest number.
        let interval = ((coordinate - self.low) * self.scale) as usize;
        self.codes[interval.min(self.last)]
    }
}

/// Returns the number whose Gray code has these bits. That of an exclusive or is the exclusive or of the numbers.
fn of_gray_code(bits: u16) -> u16 {
    [1, 2, 4, 8].into_iter().fold(bits, |bits, shift| bits ^ bits >> shift)
}

/// Divides a box with these sides into cells, and returns the sides.
fn divide(sides: [(f64, f64); MAX_AXES]) -> [Side; MAX_AXES] {
    let mut lengths = sides.map(|(low, length)| if low.is_finite() && length.is_finite() { length } else { 0.0 });
    // The bit of a cell's number for each halving of an axis, from the first.
    let mut bits = [[0u16; CELL_BITS]; MAX_AXES];
    let mut halvings = [0; MAX_AXES];
    for bit in (0..CELL_BITS).rev() {
        let axis = (0..MAX_AXES).max_by(|one, other| lengths[*one].total_cmp(&lengths[*other])).unwrap_or(0);
        bits[axis][halvings[axis]] = 1 << bit;
        halvings[axis] += 1;
        lengths[axis] /= 2.0;
    }
    std::array::from_fn(|axis| {
        let (count, (low, length)) = (halvings[axis], sides[axis]);
        let scale = if length > 0.0 && length.is_finite() { f64::from(1u32 << count) / length } else { 0.0 };
        let mut codes = [0; 1 << CELL_BITS];
        for (interval, code) in codes[..1 << count].iter_mut().enumerate() {
            let set = (0..count).filter(|halving| interval >> (count - 1 - halving) & 1 == 1);
            *code = of_gray_code(set.map(|halving| bits[axis][halving]).fold(0, |all, bit| all | bit));
        }
        Side { low, scale, codes, last: (1 << count) - 1 }
    })
}

impl CurveBuffers {
    /// Orders the points of a page.
    pub(super) fn order(&mut self, axes: &[Axis], points: &mut [Point]) {
        let mut lengths = [(0.0, 0.0); MAX_AXES];
        for ((side, axis), interval) in lengths.iter_mut().zip(axes).zip(box_of(points)) {
            *side = (axis.value(interval.0), axis.length(interval));
        }
        let sides = divide(lengths);
        let mut ends = [0u32; 1 << CELL_BITS];
        self.cells.clear();
        self.cells.extend(points.iter().map(|point| {
            let codes = axes.iter().zip(&sides).zip(point.coordinates);
            // The bits of the axes differ, and the numbers of Gray codes add up without carry.
            let cell = codes.fold(0, |cell, ((axis, side), place)| cell ^ side.code(axis.value(place)));
            ends[usize::from(cell)] += 1;
            cell
        }));
        let mut before = 0;
        for end in &mut ends {
            before += std::mem::replace(end, before);
        }
        self.ordered.clear();
        self.ordered.extend_from_slice(points);
        for (point, cell) in self.ordered.iter().zip(&self.cells) {
            let place = &mut ends[usize::from(*cell)];
            points[*place as usize] = *point;
            *place += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_that_follow_each_other_touch_mostly() {
        // Twice as long as wide, and flat: 5 halvings of the first axis, and 5 of the second.
        let sides = divide([(-3.0, 64.0), (1.0, 32.0), (7.0, 0.0)]);
        assert_eq!([0, 1, 2].map(|axis: usize| sides[axis].last), [31, 31, 0]);
        let mut places = vec![None; 1 << CELL_BITS];
        for first in 0..32u8 {
            for second in 0..32u8 {
                let coordinates = [-2.0 + 2.0 * f64::from(first), 1.5 + f64::from(second), 7.0];
                let cell = sides.iter().zip(coordinates).fold(0, |cell, (side, place)| cell ^ side.code(place));
                assert_eq!(places[usize::from(cell)].replace((first, second)), None, "two cells have the same number");
            }
        }
        let places: Vec<(u8, u8)> = places.into_iter().map(Option::unwrap).collect();
        let distance = |pair: &[(u8, u8)]| pair[0].0.abs_diff(pair[1].0) + pair[0].1.abs_diff(pair[1].1);
        assert!(places.windows(2).all(|pair| pair[0].0 == pair[1].0 || pair[0].1 == pair[1].1), "one half differs");
        let touching = places.windows(2).filter(|pair| distance(pair) == 1).count();
        assert!(touching > 600, "{touching} of 1,023 steps lead to a cell that touches");
    }

    #[test]
    fn strange_boxes_are_divided() {
        for side in
            [(0.0, 0.0), (f64::NEG_INFINITY, f64::INFINITY), (f64::NAN, 0.0), (-1e308, f64::INFINITY), (0.0, 1e-320)]
        {
            let sides = divide([side, (0.0, 1.0), side]);
            for coordinate in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -1e308, 1e300] {
                let cell = sides.iter().fold(0, |cell, side| cell ^ side.code(coordinate));
                assert!(usize::from(cell) < 1 << CELL_BITS, "{side:?}, {coordinate}");
            }
        }
    }
}
