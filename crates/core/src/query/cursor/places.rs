//! The places of a level's units, and how much of the level has been read at a position.
//!
//! The units of a run are in k-d order, so an implicit binary tree over the units in the order of row groups has small
//! boxes. Runs are ranges of its leaves.

use std::collections::BTreeMap;
use std::ops::Range;

/// A receiver, and the number of its run.
pub(super) type RunId = (u32, u32);

/// The boxes of the units of a level, in the order of row groups.
#[derive(Debug, Default)]
pub(super) struct UnitPlaces {
    coordinates: usize,
    /// Lower and upper bound of each coordinate of each unit. Bounds are NaN if they are unknown.
    bounds: Vec<f64>,
    /// The units of each run.
    runs: BTreeMap<RunId, Range<usize>>,
}

impl UnitPlaces {
    /// Creates the places of no units.
    pub(super) fn new(coordinates: usize) -> Self {
        Self { coordinates, ..Self::default() }
    }

    /// Returns the number of coordinates.
    pub(super) fn coordinates(&self) -> usize {
        self.coordinates
    }

    /// Adds a unit of a run. The units of a run follow each other.
    pub(super) fn push(&mut self, run: RunId, bounds: Option<&[(f64, f64)]>) {
        let unit = self.bounds.len() / (2 * self.coordinates);
        self.runs.entry(run).or_insert(unit..unit).end = unit + 1;
        match bounds {
            Some(bounds) => self.bounds.extend(bounds.iter().flat_map(|(low, high)| [*low, *high])),
            None => self.bounds.extend(std::iter::repeat_n(f64::NAN, 2 * self.coordinates)),
        }
    }
}

/// Rows that may match in units, and those of them whose units have been read.
pub(super) type ReadRows = (u64, u64);

/// A tree of the boxes of a level's units, with the numbers of their rows.
#[derive(Debug)]
pub(super) struct ReadPlaces<'a> {
    places: &'a UnitPlaces,
    /// Boxes of the nodes as in [`UnitPlaces::bounds`]. Node n has the children 2n and 2n + 1, and the last half of the
    /// nodes are the units.
    boxes: Vec<f64>,
    rows: Vec<ReadRows>,
}

impl<'a> ReadPlaces<'a> {
    /// Creates the tree of units with these numbers of rows.
    pub(super) fn new(places: &'a UnitPlaces, units: &[ReadRows]) -> Self {
        let width = 2 * places.coordinates;
        let count = units.len();
        let mut boxes = vec![f64::NAN; count * width];
        boxes.extend_from_slice(&places.bounds);
        let mut rows = vec![(0, 0); count];
        rows.extend_from_slice(units);
        for node in (1..count).rev() {
            let (own, below) = boxes.split_at_mut(2 * node * width);
            let (own, (one, other)) = (&mut own[node * width..], below[..2 * width].split_at(width));
            for side in (0..width).step_by(2) {
                // A NaN is ignored if the other number is none.
                own[side] = one[side].min(other[side]);
                own[side + 1] = one[side + 1].max(other[side + 1]);
            }
            let (one, other) = (rows[2 * node], rows[2 * node + 1]);
            rows[node] = (one.0 + other.0, one.1 + other.1);
        }
        Self { places, boxes, rows }
    }

    /// Returns the share of the level's rows at a position that has been read: of the units that contain it, or of the
    /// nearest one. Only the units of a run are considered, if it is known. `None` if there are none.
    pub(super) fn share_at(&self, position: &[f64], run: Option<RunId>) -> Option<f64> {
        let count = self.rows.len() / 2;
        let units = match run {
            Some(run) => self.places.runs.get(&run)?.clone(),
            None => 0..count,
        };
        let roots = roots(units.start + count, units.end + count);
        let mut found = (0, 0);
        roots.iter().for_each(|root| self.add_containing(*root, position, &mut found));
        if found.0 == 0 {
            let mut nearest = (f64::INFINITY, (0, 0));
            roots.iter().for_each(|root| self.find_nearest(*root, position, &mut nearest));
            found = nearest.1;
        }
        (found.0 > 0).then(|| found.1 as f64 / found.0 as f64)
    }

    fn sides(&self, node: usize) -> impl Iterator<Item = (f64, f64)> {
        let width = 2 * self.places.coordinates;
        self.boxes[node * width..(node + 1) * width].chunks_exact(2).map(|side| (side[0], side[1]))
    }

    fn is_unit(&self, node: usize) -> bool {
        2 * node >= self.rows.len()
    }

    /// Adds the rows of the units that contain a position.
    fn add_containing(&self, node: usize, position: &[f64], found: &mut ReadRows) {
        if !self.sides(node).zip(position).all(|((low, high), at)| low <= *at && *at <= high) {
            return;
        }
        // All units of a point have it: many rows at one position need no search.
        if self.is_unit(node) || self.sides(node).all(|(low, high)| low == high) {
            let (rows, read) = self.rows[node];
            *found = (found.0 + rows, found.1 + read);
        } else {
            self.add_containing(2 * node, position, found);
            self.add_containing(2 * node + 1, position, found);
        }
    }

    /// Finds the rows of the unit that is nearest to a position, unless the found one is as near.
    fn find_nearest(&self, node: usize, position: &[f64], nearest: &mut (f64, ReadRows)) {
        let distance = self.distance(node, position);
        if distance >= nearest.0 {
            return;
        }
        if self.is_unit(node) {
            *nearest = (distance, self.rows[node]);
            return;
        }
        let children = [2 * node, 2 * node + 1];
        let is_second_nearer = self.distance(children[1], position) < self.distance(children[0], position);
        for child in [usize::from(is_second_nearer), usize::from(!is_second_nearer)] {
            self.find_nearest(children[child], position, nearest);
        }
    }

    fn distance(&self, node: usize, position: &[f64]) -> f64 {
        let along = |((low, high), at): ((f64, f64), &f64)| match low <= *at && *at <= high {
            true => 0.0,
            false if low <= high => (low - at).max(at - high),
            // Bounds are unknown.
            false => f64::INFINITY,
        };
        self.sides(node).zip(position).map(along).fold(0.0, |sum, distance| sum + distance * distance)
    }
}

/// Returns the nodes whose units are those of a range of the last nodes.
fn roots(mut start: usize, mut end: usize) -> Vec<usize> {
    let mut found = Vec::new();
    while start < end {
        if start % 2 == 1 {
            found.push(start);
            start += 1;
        }
        if end % 2 == 1 {
            end -= 1;
            found.push(end);
        }
        (start, end) = (start / 2, end / 2);
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::query::cursor::order::distance;

    type Unit = (RunId, Option<Vec<(f64, f64)>>, ReadRows);

    /// Returns the share of the read rows of all units of a run that contain a position, or of the nearest unit.
    fn searched(units: &[Unit], at: &[f64], run: Option<RunId>) -> Option<f64> {
        let of_run = || units.iter().filter(|unit| run.is_none_or(|run| run == unit.0));
        let mut found = (0, 0);
        let mut nearest = (f64::INFINITY, (0, 0));
        for (_, bounds, rows) in of_run() {
            let Some(bounds) = bounds else { continue };
            let away = distance(at, bounds, &vec![None; at.len()]);
            if away == 0.0 {
                found = (found.0 + rows.0, found.1 + rows.1);
            } else if away < nearest.0 {
                nearest = (away, *rows);
            }
        }
        let found = if found.0 > 0 { found } else { nearest.1 };
        (found.0 > 0).then(|| found.1 as f64 / found.0 as f64)
    }

    fn side() -> impl Strategy<Value = (f64, f64)> {
        (0i32..40, prop::sample::select(vec![0, 0, 1, 3, 9]))
            .prop_map(|(low, width)| (low.into(), (low + width).into()))
    }

    proptest! {
        #[test]
        fn the_tree_finds_what_a_search_finds(
            runs in prop::collection::vec(prop::collection::vec(
                (prop::option::weighted(0.9, prop::collection::vec(side(), 2)), 1u64..9, any::<bool>()), 1..20), 1..4),
            positions in prop::collection::vec(prop::collection::vec(0u32..50, 2), 1..30),
        ) {
            let mut places = UnitPlaces::new(2);
            let mut units = Vec::new();
            for (run, of_run) in (0..).zip(&runs) {
                for (bounds, rows, is_read) in of_run {
                    places.push((run % 2, run), bounds.as_deref());
                    units.push(((run % 2, run), bounds.clone(), (*rows, if *is_read { *rows } else { 0 })));
                }
            }
            let rows: Vec<ReadRows> = units.iter().map(|unit| unit.2).collect();
            let tree = ReadPlaces::new(&places, &rows);
            for position in positions {
                let at = [f64::from(position[0]) + 0.1, f64::from(position[1]) + 0.23];
                for run in [None, Some((0, 0)), Some((1, 1)), Some((0, 9))] {
                    let (found, expected) = (tree.share_at(&at, run), searched(&units, &at, run));
                    // Boxes may be equally near, which leaves the choice.
                    let away = |unit: &&Unit| {
                        unit.1.as_ref().filter(|_| run.is_none_or(|run| run == unit.0)).map(|bounds| distance(&at, bounds, &[None; 2]))
                    };
                    let least = units.iter().filter_map(|unit| away(&unit)).fold(f64::INFINITY, f64::min);
                    let nearest = units.iter().filter(|unit| away(unit) == Some(least)).count();
                    if least == 0.0 || nearest <= 1 {
                        prop_assert_eq!(found, expected, "{:?} in {:?}", at, run);
                    } else {
                        prop_assert!(found.is_some() && expected.is_some());
                    }
                }
            }
        }
    }

    #[test]
    fn many_units_at_one_position_share_it() {
        let mut places = UnitPlaces::new(3);
        let units: Vec<ReadRows> = (0..1000).map(|unit| (4, if unit % 4 == 0 { 4 } else { 0 })).collect();
        units.iter().for_each(|_| places.push((0, 0), Some(&[(1.0, 1.0), (2.0, 2.0), (f64::INFINITY, f64::INFINITY)])));
        let tree = ReadPlaces::new(&places, &units);
        assert_eq!(tree.share_at(&[1.0, 2.0, f64::INFINITY], Some((0, 0))), Some(0.25));
        assert_eq!(tree.share_at(&[1.0, 2.0, f64::INFINITY], None), Some(0.25));
        assert_eq!(tree.share_at(&[1.0, 2.0, 3.0], Some((1, 0))), None);
    }
}
