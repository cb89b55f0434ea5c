//! The bins of floats among ascending edges: equal widths, equal ratios, or any.
//!
//! A table has the bin at which the search begins in each slot of the range. Slots are even in the values or in their
//! bits, which are nearly logarithms: whichever separates the edges. A value is then compared with one or two edges.

/// Number of slots for each edge.
const SLOTS_PER_EDGE: usize = 4;

/// Maximum number of slots: 256 KiB.
const MAX_SLOTS: usize = 1 << 16;

/// Finds the bins of floats.
#[derive(Debug)]
pub(super) struct EdgeSearch {
    /// The upper edge of each bin, infinite for the last, which is closed.
    uppers: Vec<f64>,
    slots: Slots,
    /// The bin of the least value of each slot.
    firsts: Vec<u32>,
}

/// A monotone map of values to slots.
#[derive(Debug, Clone, Copy)]
struct Slots {
    is_by_bits: bool,
    from: f64,
    per_unit: f64,
    last: usize,
}

impl Slots {
    fn new(edges: &[f64], is_by_bits: bool) -> Self {
        let count = (edges.len() * SLOTS_PER_EDGE).min(MAX_SLOTS);
        let from = edges[0];
        let unit = Self { is_by_bits, from, per_unit: 1.0, last: 0 };
        Self { per_unit: count as f64 / unit.distance(edges[edges.len() - 1]), last: count - 1, ..unit }
    }

    #[inline(always)]
    fn distance(self, value: f64) -> f64 {
        if self.is_by_bits {
            // Bits of positive floats ascend with them. Others are outside the range.
            value.to_bits().cast_signed().wrapping_sub(self.from.to_bits().cast_signed()) as f64
        } else {
            value - self.from
        }
    }

    #[inline(always)]
    fn of(self, value: f64) -> usize {
        // Conversions saturate, and NaN becomes 0.
        ((self.distance(value) * self.per_unit) as usize).min(self.last)
    }

    /// Returns the number of edges that share a slot with another.
    fn collisions(self, edges: &[f64]) -> usize {
        edges.windows(2).filter(|ends| self.of(ends[0]) == self.of(ends[1])).count()
    }
}

impl EdgeSearch {
    /// Creates a search among at least two edges. Neither end is NaN.
    pub(super) fn new(edges: &[f64]) -> Self {
        let mut slots = Slots::new(edges, false);
        if edges[0] > 0.0 {
            let by_bits = Slots::new(edges, true);
            if by_bits.collisions(edges) < slots.collisions(edges) {
                slots = by_bits;
            }
        }
        let last = edges.len() - 2;
        let uppers = edges[1..=last].iter().copied().chain([f64::INFINITY]).collect();
        // Values of an edge's own slot may be below it.
        let mut firsts = vec![0u32; slots.last + 1];
        for edge in &edges[1..=last] {
            if let Some(first) = firsts.get_mut(slots.of(*edge) + 1) {
                *first += 1;
            }
        }
        for slot in 1..firsts.len() {
            firsts[slot] += firsts[slot - 1];
        }
        Self { uppers, slots, firsts }
    }

    /// Returns the bin of a value between the first and the last edge, or any bin of another finite value. The last
    /// bin is closed.
    #[inline(always)]
    pub(super) fn bin(&self, value: f64) -> usize {
        let first = self.firsts[self.slots.of(value)] as usize;
        let bin = first + usize::from(value >= self.uppers[first]);
        if value < self.uppers[bin] { bin } else { self.search(value, bin) }
    }

    #[cold]
    fn search(&self, value: f64, from: usize) -> usize {
        let last = self.uppers.len() - 1;
        from + self.uppers[from..last].partition_point(|edge| *edge <= value)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn edges() -> impl Strategy<Value = Vec<f64>> {
        let any = prop::collection::vec(-10.0..10.0, 2..40);
        let positive = prop::collection::vec((-30.0..30.0).prop_map(f64::exp2), 2..40);
        let wide = prop::collection::vec(prop::sample::select(vec![-f64::MAX, -1.0, 0.0, 1e-300, 1.0, f64::MAX]), 2..9);
        prop_oneof![any, positive, wide].prop_map(|mut edges| {
            edges.sort_by(f64::total_cmp);
            edges.dedup();
            if edges.len() == 1 {
                edges.push(edges[0]);
            }
            edges
        })
    }

    proptest! {
        /// Edges, their neighbours and values between them are in the bins that a search of all edges finds.
        #[test]
        fn values_are_in_the_bins_between_edges(edges in edges(), shares in prop::collection::vec(0.0..1.0, 8)) {
            let search = EdgeSearch::new(&edges);
            let (least, most) = (edges[0], edges[edges.len() - 1]);
            let between = |share: &f64| least * (1.0 - share) + most * share;
            let values = edges.iter().flat_map(|edge| [edge.next_down(), *edge, edge.next_up()]);
            for value in values.chain(shares.iter().map(between)).filter(|value| (least..=most).contains(value)) {
                let expected = edges[1..edges.len() - 1].iter().filter(|edge| **edge <= value).count();
                prop_assert_eq!(search.bin(value), expected, "{} of {:?}", value, edges);
            }
        }
    }

    #[test]
    fn slots_separate_edges_of_equal_ratios() {
        let edges: Vec<f64> = (0..=300).map(|edge| f64::powf(10.0, f64::from(edge) / 50.0)).collect();
        let search = EdgeSearch::new(&edges);
        assert!(search.slots.is_by_bits && search.slots.collisions(&edges) == 0);
        for outside in [-1e300, -1.0, -0.0, 1e300] {
            assert!(search.bin(outside) < 300, "{outside}");
        }
        let even: Vec<f64> = (1..=300).map(f64::from).collect();
        let search = EdgeSearch::new(&even);
        assert!(!search.slots.is_by_bits && search.slots.collisions(&even) == 0);
    }
}
