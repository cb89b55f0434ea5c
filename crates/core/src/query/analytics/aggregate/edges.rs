//! Bins of equal width: `[a, b)`, the last closed.

use crate::expr::Numbers;
use crate::query::analytics::edge_search::EdgeSearch;
use crate::schema::DataType;

/// Marks a row that is in no bin.
pub(super) const OUTSIDE: u32 = u32::MAX;

/// The bins of a number.
#[derive(Debug)]
pub(super) struct Edges {
    /// Edges, one more than bins: those of `numpy.linspace`, rounded to the type of an `f32` column.
    edges: Vec<f64>,
    /// The least integer of each bin, and one more than the greatest of the last.
    integers: Vec<i128>,
    search: EdgeSearch,
}

impl Edges {
    /// Divides the range of a number of this type into bins.
    ///
    /// # Errors
    /// For a range that is not finite and ascending, and for bins that are narrower than numbers of this type.
    pub(super) fn new(from: f64, to: f64, count: usize, data_type: DataType) -> Result<Self, &'static str> {
        let typed = |edge: f64| if data_type == DataType::F32 { f64::from(edge as f32) } else { edge };
        let width = (to - from) / count as f64;
        // If the width is finite, so are all edges.
        if !width.is_finite() || from >= to {
            return Err("bins need a finite ascending range");
        }
        let edges = (0..count).map(|bin| bin as f64 * width + from).chain([to]).map(typed);
        let edges: Vec<f64> = edges.collect();
        if edges.windows(2).any(|ends| ends[0] >= ends[1]) {
            return Err("the bins are narrower than the column's numbers are apart; choose fewer, or a wider range");
        }
        let mut integers: Vec<i128> = edges.iter().map(|edge| edge.ceil() as i128).collect();
        integers[count] = (edges[count].floor() as i128).saturating_add(1);
        let search = EdgeSearch::new(&edges);
        Ok(Self { edges, integers, search })
    }

    /// Returns the number of bins.
    pub(super) fn count(&self) -> usize {
        self.edges.len() - 1
    }

    /// Returns the lower and the upper edge of a bin.
    pub(super) fn ends(&self, bin: usize) -> (f64, f64) {
        (self.edges[bin], self.edges[bin + 1])
    }

    /// Refines the cell of each row: cells of earlier bins are divided by these.
    pub(super) fn refine(&self, numbers: &Numbers, cells: &mut [u32]) {
        let count = self.count() as u32;
        let refine = |cell: &mut u32, bin: u32| {
            *cell = if *cell == OUTSIDE || bin == OUTSIDE { OUTSIDE } else { *cell * count + bin };
        };
        match numbers {
            Numbers::Float(values) => {
                cells.iter_mut().zip(values).for_each(|(cell, value)| refine(cell, self.of_float(*value)));
            }
            Numbers::Whole(values) => {
                cells.iter_mut().zip(values).for_each(|(cell, value)| refine(cell, self.of_integer(*value)));
            }
        }
    }

    #[inline(always)]
    fn of_float(&self, value: f64) -> u32 {
        let last = self.count();
        // `&` instead of `&&` avoids a branch. Comparisons are false for NaN.
        if !((value >= self.edges[0]) & (value <= self.edges[last])) {
            return OUTSIDE;
        }
        self.search.bin(value) as u32
    }

    #[inline(always)]
    fn of_integer(&self, value: i128) -> u32 {
        let last = self.count();
        if value < self.integers[0] || value >= self.integers[last] {
            return OUTSIDE;
        }
        // An integer beyond 2^53 may be rounded to an edge.
        let bin = self.search.bin(value as f64);
        if self.integers[bin] <= value && value < self.integers[bin + 1] {
            return bin as u32;
        }
        self.integers[1..last].partition_point(|least| *least <= value) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bins(edges: &Edges, numbers: &Numbers) -> Vec<u32> {
        let mut cells = vec![0; numbers.floats().len() + numbers.integers().len()];
        edges.refine(numbers, &mut cells);
        cells
    }

    #[test]
    fn bins_are_half_open_and_the_last_is_closed() {
        let edges = Edges::new(0.0, 1.0, 10, DataType::F64).unwrap();
        assert_eq!(edges.ends(3), (0.300_000_000_000_000_04, 0.4));
        let values = vec![0.0, -0.0, 0.3, 0.300_000_000_000_000_04, 1.0, 1.000_000_1, -1e-300, f64::NAN, f64::INFINITY];
        let found = bins(&edges, &Numbers::Float(values));
        assert_eq!(found, [0, 0, 2, 3, 9, OUTSIDE, OUTSIDE, OUTSIDE, OUTSIDE]);
        // As literals of predicates, edges are those of the column's type.
        let edges = Edges::new(0.0, 1.0, 10, DataType::F32).unwrap();
        assert_eq!(bins(&edges, &Numbers::Float(vec![f64::from(0.7f32)])), [7]);
    }

    #[test]
    fn integers_are_compared_exactly() {
        let far = 1i128 << 60;
        let edges = Edges::new(0.0, far as f64, 2, DataType::U64).unwrap();
        let found = bins(&edges, &Numbers::Whole(vec![-1, 0, far / 2 - 1, far / 2, far, far + 1]));
        assert_eq!(found, [OUTSIDE, 0, 0, 1, 1, OUTSIDE]);
        let edges = Edges::new(-0.5, 2.5, 2, DataType::I32).unwrap();
        assert_eq!(bins(&edges, &Numbers::Whole(vec![-1, 0, 1, 2, 3])), [OUTSIDE, 0, 1, 1, OUTSIDE]);
    }

    #[test]
    fn ranges_must_be_finite_and_ascend() {
        for (from, to) in [(1.0, 1.0), (2.0, 1.0), (0.0, f64::INFINITY), (f64::NAN, 1.0), (-1e308, 1e308)] {
            assert!(Edges::new(from, to, 4, DataType::F64).is_err(), "{from} {to}");
        }
        // Floats in 32 bits are even integers there.
        for (count, is_possible) in [(2, true), (4, false)] {
            assert_eq!(Edges::new(16_777_216.0, 16_777_220.0, count, DataType::F32).is_ok(), is_possible);
        }
        assert!(Edges::new(1.0, 1.000_000_000_1, 4, DataType::F32).is_err());
    }
}
