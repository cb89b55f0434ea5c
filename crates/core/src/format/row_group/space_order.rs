//! Orders the rows of a memtable by place, so that the records of a page lie close together.
//!
//! The order is that of a k-d tree (libbat, section III.B): rows are divided at the median of their longest axis, until
//! a page is left. The divisions lie between row groups and then between pages, so every page is a box of the tree, and
//! the page indexes of all coordinates prune. Space-filling curves would need no tree, but boxes of the same query read
//! up to twice as many rows in their order, and all of them if one coordinate is far from the others.

use crate::format::row_group::level_intervals::{LevelIntervals, PivotalSample, next_interval, weigh};
use crate::format::row_group::level_sample::{LevelSample, rows_before};
use crate::format::row_group::memtable::Memtable;
use crate::format::row_group::neighbours::CurveBuffers;
use crate::format::row_group::space_points::{Axis, Point, box_of, load};
use crate::schema::Value;

/// Buffers for the order by place, reused between memtables: 16 bytes per row.
#[derive(Debug, Default)]
pub(in crate::format) struct SpaceBuffers {
    points: Vec<Point>,
    /// Empty without levels of detail.
    curve: CurveBuffers,
    /// Sizes of the rows, 8 bytes per row. Empty unless levels are in proportion to a column.
    sizes: Vec<f64>,
}

/// The number of rows of each level of a run, and how levels were sampled if they are in proportion to a column.
pub(in crate::format) type LevelRows = (Vec<usize>, Option<LevelIntervals>);

impl SpaceBuffers {
    /// Replaces `order` by the slots of all rows of a memtable. `units` are the numbers of rows between which rows are
    /// divided, in descending order.
    pub(in crate::format) fn arrange(&mut self, table: &Memtable, units: &[usize], order: &mut Vec<u32>) {
        let axes = load(table, &mut self.points);
        arrange(&axes, &mut self.points, units);
        order.clear();
        order.reserve_exact(self.points.len());
        order.extend(self.points.iter().map(|point| point.slot));
    }

    /// Replaces `order` by the slots of all rows of a memtable, from level 0 to the highest level of detail, and those
    /// of a level by place. `units` returns the numbers of rows between which the rows of a level are divided, for a
    /// level and its number of rows. Returns the number of rows of each level.
    ///
    /// Rows are divided once into pages, and the rows of a page are ordered as neighbours, of which one in each group
    /// moves up. The units of level 0 are rows that stay of full groups, so its pages are boxes of this division.
    pub(in crate::format) fn arrange_levels(
        &mut self,
        table: &Memtable,
        sample: LevelSample,
        units: impl Fn(u8, usize) -> [usize; 2],
        order: &mut Vec<u32>,
    ) -> Vec<usize> {
        let axes = load(table, &mut self.points);
        let staying = self.points.len() - sample.rising_rows(0, self.points.len());
        let [group, page] = units(0, staying).map(rows_before);
        self.order_neighbours(&axes, [group, page]);
        order.clear();
        order.reserve_exact(self.points.len());
        let mut counts = vec![staying];
        let (mut risen, mut taken) = (0, 0);
        for position in sample.rising(0, self.points.len()) {
            order.extend(self.points[taken..position].iter().map(|point| point.slot));
            self.points[risen] = self.points[position];
            (risen, taken) = (risen + 1, position + 1);
        }
        order.extend(self.points[taken..].iter().map(|point| point.slot));
        self.points.truncate(risen);
        for level in 1..=sample.count() {
            let mut risen = 0;
            if level < sample.count() {
                // Those that move up go to the front, in their order. A row that gives way is one that stays.
                for position in sample.rising(level, self.points.len()) {
                    self.points.swap(risen, position);
                    risen += 1;
                }
            }
            counts.push(self.take_staying(&axes, risen, |rows| units(level, rows), order));
        }
        counts
    }

    /// Does as [`SpaceBuffers::arrange_levels`] with levels in proportion to the column `weight`. Returns their
    /// intervals, too.
    ///
    /// A level is a sample of the one below along the order of neighbours, of which as many move up as their
    /// probabilities add up to, so parts of space have their share of it. As many rows of a page move up as their
    /// weights say, so every level is divided anew.
    pub(in crate::format) fn arrange_weighted_levels(
        &mut self,
        table: &Memtable,
        sample: LevelSample,
        weight: usize,
        units: impl Fn(u8, usize) -> [usize; 2],
        order: &mut Vec<u32>,
    ) -> (Vec<usize>, LevelIntervals) {
        let axes = load(table, &mut self.points);
        self.order_neighbours(&axes, units(0, self.points.len()));
        self.load_weights(table, weight);
        let mut intervals = weigh(&mut self.sizes);
        order.clear();
        order.reserve_exact(self.points.len());
        let mut counts = Vec::with_capacity(usize::from(sample.count()) + 1);
        for level in 0..=sample.count() {
            let mut risen = 0;
            if level < sample.count() && !self.points.is_empty() {
                let interval = next_interval(&self.sizes);
                intervals.push(interval);
                self.choose(sample, level, interval);
                for position in 0..self.points.len() {
                    // Rows that move up go to the front, in their order. A row that gives way is one that stays.
                    if self.sizes[position] < 0.0 {
                        self.points.swap(risen, position);
                        self.sizes.swap(risen, position);
                        self.sizes[risen] = interval.max(-self.sizes[risen]);
                        risen += 1;
                    }
                }
            }
            counts.push(self.take_staying(&axes, risen, |rows| units(level, rows), order));
            self.sizes.truncate(risen);
        }
        (counts, intervals)
    }

    /// Takes the points behind the first ones, which move up: arranges them, and appends their slots to `order`.
    /// Returns their number.
    fn take_staying(
        &mut self,
        axes: &[Axis],
        risen: usize,
        units: impl Fn(usize) -> [usize; 2],
        order: &mut Vec<u32>,
    ) -> usize {
        let staying = &mut self.points[risen..];
        let rows = staying.len();
        arrange(axes, staying, &units(rows));
        order.extend(staying.iter().map(|point| point.slot));
        self.points.truncate(risen);
        rows
    }

    /// Chooses the rows of a level that move up, and marks them by negative sizes.
    fn choose(&mut self, sample: LevelSample, level: u8, interval: f64) {
        let mut pivotal = PivotalSample::default();
        for position in 0..self.sizes.len() {
            let probability = self.sizes[position] / interval;
            let taken = if probability < 1.0 {
                pivotal.pass(position, probability, sample.fraction(level, position))
            } else {
                Some(position)
            };
            if let Some(taken) = taken {
                self.sizes[taken] = -self.sizes[taken];
            }
        }
        if let Some(last) = pivotal.finish(sample.fraction(level, self.sizes.len())) {
            self.sizes[last] = -self.sizes[last];
        }
    }

    /// Divides the points between these numbers of rows, and orders the rows of a page as neighbours.
    fn order_neighbours(&mut self, axes: &[Axis], [group, page]: [usize; 2]) {
        arrange(axes, &mut self.points, &[group, page]);
        let pages = self.points.chunks_mut(group.max(1)).flat_map(|group| group.chunks_mut(page.max(1)));
        pages.for_each(|page| self.curve.order(axes, page));
    }

    /// Reads the values of a column of numbers, in the order of the points.
    fn load_weights(&mut self, table: &Memtable, column: usize) {
        let (schema, rows) = (table.schema(), table.slots());
        let (data_type, offset) = (schema.columns()[column].data_type, schema.offset(column));
        let value = |slot: u32| &rows[slot as usize * schema.row_bytes() + offset..];
        self.sizes.clear();
        self.sizes.reserve_exact(self.points.len());
        self.sizes.extend(self.points.iter().map(|point| Value::from_stored(data_type, value(point.slot)).as_f64()));
    }

    /// Frees the memory.
    pub(in crate::format) fn release(&mut self) {
        *self = Self::default();
    }
}

/// Divides the points between units of rows, at medians of the longest axis.
fn arrange(axes: &[Axis], points: &mut [Point], units: &[usize]) {
    let Some((&unit, finer)) = units.split_first() else { return };
    let count = points.len().div_ceil(unit.max(1));
    if count < 2 {
        return arrange(axes, points, finer);
    }
    let middle = count.div_ceil(2) * unit.max(1);
    let axis = longest_axis(axes, points);
    points.select_nth_unstable_by_key(middle, |point| point.coordinates[axis]);
    let (low, high) = points.split_at_mut(middle);
    arrange(axes, low, units);
    arrange(axes, high, units);
}

/// Returns the axis along which the points' bounding box is longest.
fn longest_axis(axes: &[Axis], points: &[Point]) -> usize {
    let lengths = axes.iter().zip(box_of(points)).map(|(axis, interval)| axis.length(interval));
    let longest = lengths.enumerate().max_by(|(_, one), (_, other)| one.total_cmp(other));
    longest.map_or(0, |(axis, _)| axis)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::random::Random;
    use crate::schema::{Column, DataType, Levels, Schema};

    fn schema() -> Arc<Schema> {
        let columns = vec![
            Column::new("number", DataType::U32),
            Column::new("x", DataType::F64),
            Column::new("y", DataType::F32),
            Column::new("z", DataType::I16),
        ];
        Arc::new(Schema::new(columns, "space:x,y,z").unwrap())
    }

    /// Returns whether a range of rows is divided at units as a k-d tree divides them: some axis separates the halves.
    fn is_divided(places: &[[f64; 3]], units: &[usize]) -> bool {
        let divided: Vec<[usize; 2]> = units.iter().map(|unit| [*unit; 2]).collect();
        is_left_of_division(places, places.len(), &divided)
    }

    /// Returns whether the `places` that are left of `rows` divided rows lie as the tree has divided all of them. Of
    /// each unit of rows, this many places are left: fewer of the last one.
    fn is_left_of_division(places: &[[f64; 3]], rows: usize, units: &[[usize; 2]]) -> bool {
        let Some((&[unit, left], finer)) = units.split_first() else { return true };
        let count = rows.div_ceil(unit);
        if count < 2 {
            return is_left_of_division(places, rows, finer);
        }
        let middle = count.div_ceil(2);
        let (low, high) = places.split_at((middle * left).min(places.len()));
        let is_separated = (0..3).any(|axis| {
            let most = low.iter().map(|place| place[axis]).fold(f64::NEG_INFINITY, f64::max);
            let least = high.iter().map(|place| place[axis]).fold(f64::INFINITY, f64::min);
            // Coordinates of 64 bits are compared by 32 bits of their ordinals' span.
            most <= least || (most - least) <= 1e-4 * most.abs().max(1e-4)
        });
        is_separated
            && is_left_of_division(low, middle * unit, units)
            && is_left_of_division(high, rows - middle * unit, units)
    }

    fn coordinate() -> impl Strategy<Value = f64> {
        prop_oneof![
            4 => -100.0..100.0f64,
            1 => Just(0.0),
            1 => Just(7.0),
            1 => prop::sample::select(vec![1e30, f64::INFINITY, f64::NEG_INFINITY, -1e-30]),
        ]
    }

    proptest! {
        #[test]
        fn pages_are_boxes_of_a_tree(
            places in prop::collection::vec((coordinate(), coordinate(), -9i16..9), 1..700),
            page_rows in 1usize..40,
            group_pages in 1usize..5,
            capacity in prop::sample::select(vec![1usize << 16, 1 << 20]),
        ) {
            let schema = schema();
            let mut table = Memtable::new(Arc::clone(&schema), capacity);
            for (number, (x, y, z)) in (0u32..).zip(&places) {
                let (y, number) = (*y as f32, number.to_le_bytes());
                table.push(&[&number[..], &x.to_le_bytes(), &y.to_le_bytes(), &z.to_le_bytes()].concat());
            }
            let units = [page_rows * group_pages, page_rows];
            let (mut buffers, mut order) = (SpaceBuffers::default(), vec![9]);
            buffers.arrange(&table, &units, &mut order);
            let row = |slot: u32| &table.slots()[slot as usize * schema.row_bytes()..];
            let mut numbers: Vec<u32> =
                order.iter().map(|slot| u32::from_le_bytes(*row(*slot).first_chunk().unwrap())).collect();
            let place = |number: &u32| {
                let (x, y, z) = places[*number as usize];
                [x, f64::from(y as f32), f64::from(z)]
            };
            let arranged: Vec<[f64; 3]> = numbers.iter().map(place).collect();
            prop_assert!(is_divided(&arranged, &units));
            numbers.sort_unstable();
            prop_assert!(numbers.iter().copied().eq(0..places.len() as u32), "every row is there once");
        }
    }

    /// Creates a memtable of numbered rows.
    fn numbered(places: impl Iterator<Item = (f64, f32, i16)>) -> Memtable {
        let mut table = Memtable::new(schema(), 1 << 23);
        for (number, (x, y, z)) in (0u32..).zip(places) {
            table.push(&[&number.to_le_bytes()[..], &x.to_le_bytes(), &y.to_le_bytes(), &z.to_le_bytes()].concat());
        }
        table
    }

    /// Returns the numbers of the rows in the order of `arrange_levels`, and the number of rows of each level.
    fn numbers_of_levels(table: &Memtable, seed: u64, levels: u8, units: [usize; 2]) -> (Vec<u32>, Vec<usize>) {
        let sample = LevelSample::of_run(Levels { count: levels, seed }, 3, 1, 4);
        let mut order = vec![9];
        let counts = SpaceBuffers::default().arrange_levels(table, sample, |_, _| units, &mut order);
        let row = |slot: &u32| &table.slots()[*slot as usize * table.schema().row_bytes()..];
        (order.iter().map(|slot| u32::from_le_bytes(*row(slot).first_chunk().unwrap())).collect(), counts)
    }

    proptest! {
        #[test]
        fn pages_of_every_level_are_boxes_of_a_tree(
            places in prop::collection::vec((coordinate(), coordinate(), -9i16..9), 1..900),
            page_groups in 1usize..6,
            group_pages in 1usize..5,
            levels in 1u8..4,
            seed in 0u64..99,
        ) {
            let table = numbered(places.iter().map(|(x, y, z)| (*x, *y as f32, *z)));
            let units = [7 * page_groups * group_pages, 7 * page_groups];
            let (mut numbers, counts) = numbers_of_levels(&table, seed, levels, units);
            let place = |number: &u32| {
                let (x, y, z) = places[*number as usize];
                [x, f64::from(y as f32), f64::from(z)]
            };
            let (lowest, mut higher) = numbers.split_at(counts[0]);
            let lowest: Vec<[f64; 3]> = lowest.iter().map(place).collect();
            prop_assert!(is_left_of_division(&lowest, places.len(), &units.map(|left| [left / 7 * 8, left])));
            for count in &counts[1..] {
                let (level, rest) = higher.split_at(*count);
                let arranged: Vec<[f64; 3]> = level.iter().map(place).collect();
                prop_assert!(is_divided(&arranged, &units));
                higher = rest;
            }
            prop_assert_eq!(counts.len(), usize::from(levels) + 1);
            for level in 1..counts.len() {
                let (lower, upper) = (counts[level - 1..].iter().sum::<usize>(), counts[level..].iter().sum::<usize>());
                prop_assert!((lower / 8..=lower.div_ceil(8)).contains(&upper), "{:?}", counts);
            }
            numbers.sort_unstable();
            prop_assert!(numbers.iter().copied().eq(0..places.len() as u32), "every row is there once");
        }
    }

    fn even_places(axes: usize, rows: usize) -> Vec<[f64; 3]> {
        let mut random = Random::new(axes as u64);
        let mut coordinate = |axis: usize| if axis < axes { random.fraction() } else { 0.5 };
        (0..rows).map(|_| [0, 1, 2].map(&mut coordinate)).collect()
    }

    fn table_of(places: &[[f64; 3]]) -> Memtable {
        let scaled = |coordinate: f64| coordinate * 30_000.0;
        numbered(places.iter().map(|[x, y, z]| (scaled(*x), scaled(*y) as f32, scaled(*z) as i16)))
    }

    /// The statistic has a mean of 1 if each of 200 seeds moves each row up with a probability of one in eight. Its
    /// standard deviation is 0.03 at the first level, and 0.04 at the second.
    #[test]
    fn no_row_is_preferred_at_any_level() {
        const ROWS: usize = 4099;
        const SEEDS: u64 = 200;
        let table = table_of(&even_places(3, ROWS));
        let mut risen = [vec![0u32; ROWS], vec![0u32; ROWS]];
        for seed in 0..SEEDS {
            let (numbers, counts) = numbers_of_levels(&table, seed, 2, [2048, 128]);
            for (level, risen) in risen.iter_mut().enumerate() {
                let first: usize = counts[..=level].iter().sum();
                numbers[first..].iter().for_each(|number| risen[*number as usize] += 1);
            }
        }
        for (risen, share) in risen.iter().zip([1.0 / 8.0, 1.0 / 64.0]) {
            let (mean, variance) = (SEEDS as f64 * share, SEEDS as f64 * share * (1.0 - share));
            let spread: f64 = risen.iter().map(|count| (f64::from(*count) - mean).powi(2) / variance).sum();
            let spread = spread / ROWS as f64;
            assert!((spread - 1.0).abs() < 0.15, "{spread} at a share of {share}");
            let most = risen.iter().map(|count| (f64::from(*count) - mean).abs() / variance.sqrt()).fold(0.0, f64::max);
            assert!(most < 6.5, "a row is {most} standard deviations from the mean at a share of {share}");
        }
    }

    /// Returns the error of the number of sampled rows in a cell, over that of a random sample.
    fn count_error(axes: usize, level: u8, seeds: u64) -> f64 {
        // Cells of 40 rows of the sample. They are displaced, so they are no boxes of the tree.
        let share = 8f64.powi(-i32::from(level));
        let cells = [8.0, 4.0][axes - 2];
        let places = even_places(axes, (40.0 / share * f64::powi(cells, axes as i32)) as usize);
        let table = table_of(&places);
        let cell = |place: &[f64; 3]| {
            let inside = |coordinate: &f64| {
                Some(((coordinate - 0.37 / cells) * cells).floor()).filter(|at| (0.0..cells - 1.0).contains(at))
            };
            place[..axes].iter().try_fold(0, |number, coordinate| Some(number * 8 + inside(coordinate)? as usize))
        };
        let cell_of: Vec<Option<usize>> = places.iter().map(cell).collect();
        let mut rows = vec![0.0; 512];
        cell_of.iter().flatten().for_each(|cell| rows[*cell] += 1.0);
        let (mut squares, mut random_squares) = (0.0, 0.0);
        for seed in 0..seeds {
            let (numbers, counts) = numbers_of_levels(&table, seed, level, [61_320, 2044]);
            let mut sampled = vec![0.0; rows.len()];
            let first: usize = counts[..usize::from(level)].iter().sum();
            let sample = numbers[first..].iter().filter_map(|number| cell_of[*number as usize]);
            sample.for_each(|cell| sampled[cell] += 1.0);
            for (sampled, rows) in sampled.iter().zip(&rows) {
                squares += (sampled - rows * share).powi(2);
                random_squares += rows * share * (1.0 - share);
            }
        }
        f64::sqrt(squares / random_squares)
    }

    #[test]
    fn a_level_has_the_same_share_of_every_place() {
        for (axes, level, seeds, most) in [(2, 1, 20, 0.5), (3, 1, 20, 0.7), (2, 2, 3, 0.75), (3, 2, 3, 0.75)] {
            let error = count_error(axes, level, seeds);
            println!("{axes} axes, 1 in {}: {error:.3} of the error of a random sample", 8u32.pow(u32::from(level)));
            assert!(error < most, "{axes} axes, level {level}: {error}");
        }
    }

    /// The span of the ordinals of these coordinates, with NaN, has more than 64 bits.
    #[test]
    fn the_longest_axis_may_have_nan_and_both_infinities() {
        let schema = schema();
        let mut table = Memtable::new(Arc::clone(&schema), 1 << 16);
        let strange = [f64::NEG_INFINITY, f64::NAN, 0.0, f64::INFINITY];
        for number in 0..64u32 {
            let x = strange[number as usize % 4];
            table.push(&[&number.to_le_bytes()[..], &x.to_le_bytes(), &2f32.to_le_bytes(), &[0, 0]].concat());
        }
        let axis = Axis::new(&table, 1).unwrap();
        assert_eq!((axis.value(0), axis.value(u32::MAX)), (f64::NEG_INFINITY, f64::INFINITY));
        let mut order = Vec::new();
        SpaceBuffers::default().arrange(&table, &[16], &mut order);
        assert!(order[..16].iter().all(|slot| slot % 4 == 0), "the first quarter is at negative infinity: {order:?}");
    }

    #[test]
    fn rows_that_are_not_in_any_place_are_last_along_their_axis() {
        let schema = schema();
        let mut table = Memtable::new(Arc::clone(&schema), 1 << 16);
        for number in 0..100u32 {
            let x = if number % 2 == 0 { f64::NAN } else { f64::from(number) };
            let row = [&number.to_le_bytes()[..], &x.to_le_bytes(), &1f32.to_le_bytes(), &0i16.to_le_bytes()].concat();
            table.push(&row);
        }
        let mut order = Vec::new();
        SpaceBuffers::default().arrange(&table, &[50], &mut order);
        let x = |slot: &u32| {
            let offset = *slot as usize * schema.row_bytes() + schema.offset(1);
            Value::from_stored(DataType::F64, &table.slots()[offset..]).as_f64()
        };
        assert!(order[..50].iter().all(|slot| !x(slot).is_nan()) && order[50..].iter().all(|slot| x(slot).is_nan()));
    }
}
