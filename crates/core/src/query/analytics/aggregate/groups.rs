//! The groups of rows: by epoch, by integers, by bins.
//!
//! A group is a tuple of the epoch and of integers, and a cell: a bin of each number that is binned. In a piece, groups
//! have places, counted from 1. Place 0 has the rows that are in no bin.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;
use std::sync::Arc;

use crate::error::{Result, UsageError};
use crate::expr::Numbers;
use crate::query::analytics::aggregate::edges::{Edges, OUTSIDE};

/// Maximum number of groups.
pub(super) const MAX_GROUPS: usize = 1_000_000;

/// Marks the place of rows without a group.
pub(super) const NO_GROUP: u32 = u32::MAX;

/// Minimum mean length of runs to process rows run by run.
const MIN_RUN: usize = 16;

/// Maximum size of a direct table of keys.
const MAX_KEYS: u64 = 1 << 18;

/// Number of cells up to which every piece has a place for each cell.
const FEW_CELLS: usize = 1 << 12;

/// A number to group by, as an index of an expression.
#[derive(Debug)]
pub(super) enum GroupKind {
    Epoch,
    /// The physical time of the epoch. Epochs of one time are groups of their own.
    Time,
    Whole {
        expression: usize,
        is_unsigned: bool,
    },
    Bins {
        expression: usize,
        edges: Edges,
    },
}

/// The groups of a request.
#[derive(Debug)]
pub(super) struct Groups {
    /// Names and kinds, in the order of the request.
    pub(super) terms: Vec<(String, GroupKind)>,
    /// Number of cells.
    pub(super) cells: usize,
}

/// A hash of small keys. Collisions need no protection: keys come from the dataset's owner.
#[derive(Debug, Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        // Tables take the highest bits as well as the lowest.
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(29) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// Numbers of distinct keys, in the order of their first use. A key is a number of another table, and a value.
#[derive(Debug, Clone, Default)]
pub(super) struct Interner {
    numbers: HashMap<(u32, u64), u32, BuildHasherDefault<KeyHasher>>,
    pub(super) keys: Vec<(u32, u64)>,
}

impl Interner {
    pub(super) fn number(&mut self, key: (u32, u64)) -> u32 {
        let next = self.keys.len() as u32;
        let number = *self.numbers.entry(key).or_insert(next);
        if number == next {
            self.keys.push(key);
        }
        number
    }
}

/// The places of the rows of a piece.
#[derive(Debug, PartialEq)]
pub(super) enum Placement {
    /// Runs of rows that have the same place: the place, and the end of the rows.
    Runs(Vec<(u32, usize)>),
    Each(Vec<u32>),
}

impl Placement {
    /// Creates the places of rows: as runs, if these are long.
    fn new(places: Vec<u32>) -> Self {
        let changes = places.windows(2).filter(|pair| pair[0] != pair[1]).count();
        if changes.saturating_mul(MIN_RUN) > places.len() {
            return Self::Each(places);
        }
        let mut end = 0;
        let run = |rows: &[u32]| {
            end += rows.len();
            (rows[0], end)
        };
        Self::Runs(places.chunk_by(|one, other| one == other).map(run).collect())
    }

    /// Passes the place of each row and its value to `take`.
    #[inline(always)]
    pub(super) fn each<T>(&self, mut values: impl Iterator<Item = T>, mut take: impl FnMut(usize, T)) {
        match self {
            Self::Each(places) => places.iter().zip(values).for_each(|(place, value)| take(*place as usize, value)),
            Self::Runs(runs) => {
                let mut start = 0;
                for (place, end) in runs {
                    values.by_ref().take(end - start).for_each(|value| take(*place as usize, value));
                    start = *end;
                }
            }
        }
    }

    /// Passes the place and the rows of each run to `take`, if there are runs.
    pub(super) fn each_run(&self, mut take: impl FnMut(usize, Range<usize>)) {
        let Self::Runs(runs) = self else { return };
        let mut start = 0;
        for (place, end) in runs {
            take(*place as usize, start..*end);
            start = *end;
        }
    }
}

/// The groups of the rows of a piece.
#[derive(Debug)]
pub(super) struct Located {
    pub(super) placement: Placement,
    /// Number of places.
    pub(super) count: usize,
    keys: Keys,
}

impl Located {
    /// Creates the only group of some rows.
    pub(super) fn in_one_group(rows: usize) -> Self {
        Self { placement: Placement::Runs(vec![(1, rows)]), count: 2, keys: Keys::Cells }
    }
}

#[derive(Debug)]
enum Keys {
    /// A place has the cell before it.
    Cells,
    /// The keys of each integer, and of the cells, each with a number of the list before.
    Listed(Vec<Vec<(u32, u64)>>),
}

/// The code of an integer, which ascends with it.
pub(super) fn code(value: i128, is_unsigned: bool) -> Option<u64> {
    match is_unsigned {
        true => u64::try_from(value).ok(),
        false => i64::try_from(value).ok().map(|value| value.cast_unsigned() ^ (1 << 63)),
    }
}

/// Returns the integer of a code.
pub(super) fn integer(code: u64, is_unsigned: bool) -> i128 {
    if is_unsigned { code.into() } else { (code ^ (1 << 63)).cast_signed().into() }
}

/// Refuses more groups than there may be.
fn check_count(groups: usize) -> Result<()> {
    if groups <= MAX_GROUPS {
        return Ok(());
    }
    let what =
        format!("there are more than {MAX_GROUPS} groups; use fewer bins, epochs or integers, such as id % 1000");
    Err(UsageError::Option { option: "by", what }.into())
}

impl Groups {
    fn of_integers(&self) -> impl Iterator<Item = (&String, usize, bool)> {
        self.terms.iter().filter_map(|(name, kind)| match kind {
            GroupKind::Whole { expression, is_unsigned } => Some((name, *expression, *is_unsigned)),
            _ => None,
        })
    }

    /// Returns whether the groups are epochs, or have one.
    pub(super) fn has_epoch(&self) -> bool {
        self.terms.iter().any(|(_, kind)| matches!(kind, GroupKind::Epoch | GroupKind::Time))
    }

    /// Returns the groups of `rows` rows.
    ///
    /// # Errors
    /// A usage error for an integer of more than 64 bits.
    pub(super) fn locate(&self, numbers: &[Numbers], rows: usize) -> Result<Located> {
        let has_integers = self.of_integers().next().is_some();
        if !has_integers && self.cells == 1 && self.binned().next().is_none() {
            return Ok(Located::in_one_group(rows));
        }
        let mut cells = vec![0u32; rows];
        for (expression, edges) in self.binned() {
            edges.refine(&numbers[expression], &mut cells);
        }
        if !has_integers && self.cells <= FEW_CELLS.max(rows) {
            // The place of the rows outside is 0.
            cells.iter_mut().for_each(|cell| *cell = cell.wrapping_add(1));
            let placement = Placement::new(cells);
            return Ok(Located { placement, count: self.cells + 1, keys: Keys::Cells });
        }
        self.list(numbers, cells)
    }

    fn binned(&self) -> impl Iterator<Item = (usize, &Edges)> {
        self.terms.iter().filter_map(|(_, kind)| match kind {
            GroupKind::Bins { expression, edges } => Some((*expression, edges)),
            _ => None,
        })
    }

    /// Lists the groups that rows have.
    fn list(&self, numbers: &[Numbers], cells: Vec<u32>) -> Result<Located> {
        let (mut levels, mut before) = (Vec::new(), 1);
        let mut places: Vec<u32> = cells.iter().map(|cell| if *cell == OUTSIDE { OUTSIDE } else { 0 }).collect();
        let mut codes = Vec::with_capacity(cells.len());
        for (name, expression, is_unsigned) in self.of_integers() {
            codes.clear();
            for (place, value) in places.iter().zip(numbers[expression].integers()) {
                match code(*value, is_unsigned) {
                    Some(code) => codes.push(code),
                    None if *place == OUTSIDE => codes.push(0),
                    None => {
                        let what = format!(
                            "{name} is {value}, which exceeds 64 bits; group by less of it, as by its remainder"
                        );
                        return Err(UsageError::Option { option: "by", what }.into());
                    }
                }
            }
            let keys = number(&mut places, before, &codes);
            before = keys.len();
            levels.push(keys);
        }
        codes.clear();
        codes.extend(cells.iter().map(|cell| u64::from(*cell)));
        levels.push(number(&mut places, before, &codes));
        // The place of the rows outside is 0.
        places.iter_mut().for_each(|place| *place = place.wrapping_add(1));
        let count = levels.last().map_or(0, Vec::len) + 1;
        Ok(Located { placement: Placement::new(places), count, keys: Keys::Listed(levels) })
    }
}

/// Replaces the number of each row, one of `before`, by that of its key, which is this number and a code. Returns the
/// keys in the order of their numbers.
fn number(numbers: &mut [u32], before: usize, codes: &[u64]) -> Vec<(u32, u64)> {
    let inside = || numbers.iter().zip(codes).filter(|(number, _)| **number != OUTSIDE).map(|(_, code)| *code);
    let (least, most) = inside().fold((u64::MAX, 0), |(least, most), code| (least.min(code), most.max(code)));
    let width = most.saturating_sub(least).saturating_add(1);
    let mut keys = Vec::new();
    let size = width.saturating_mul(before as u64);
    if size <= MAX_KEYS.min(FEW_CELLS.max(numbers.len()) as u64 * 4) {
        let mut table = vec![OUTSIDE; size as usize];
        for (number, code) in numbers.iter_mut().zip(codes).filter(|(number, _)| **number != OUTSIDE) {
            let found = &mut table[*number as usize * width as usize + (code - least) as usize];
            if *found == OUTSIDE {
                *found = keys.len() as u32;
                keys.push((*number, *code));
            }
            *number = *found;
        }
        return keys;
    }
    let mut interner = Interner::default();
    for (number, code) in numbers.iter_mut().zip(codes).filter(|(number, _)| **number != OUTSIDE) {
        *number = interner.number((*number, *code));
    }
    interner.keys
}

/// The groups that have been found: all cells of each tuple.
#[derive(Debug, Clone)]
pub(super) struct FoundGroups {
    cells: usize,
    /// The keys of the epochs' numbers, and of each integer.
    levels: Vec<Interner>,
}

impl FoundGroups {
    /// Creates the groups that appear without rows: of these numbers of epochs, if there are no integers.
    ///
    /// # Errors
    /// A usage error for too many groups.
    pub(super) fn new(groups: &Groups, epochs: usize) -> Result<Self> {
        let integers = groups.of_integers().count();
        let mut found = Self { cells: groups.cells, levels: vec![Interner::default(); integers + 1] };
        if integers == 0 {
            let tuples = if groups.has_epoch() { epochs } else { 1 };
            check_count(tuples.saturating_mul(groups.cells))?;
            (0..tuples).for_each(|tuple| {
                found.levels[0].number((0, tuple as u64));
            });
        }
        Ok(found)
    }

    /// Returns the number of groups.
    pub(super) fn count(&self) -> usize {
        self.tuples() * self.cells
    }

    fn tuples(&self) -> usize {
        self.levels.last().map_or(0, |level| level.keys.len())
    }

    /// Adds the groups of a piece, which belong to the epoch with a number. Returns the group of each place.
    ///
    /// # Errors
    /// A usage error for too many groups.
    pub(super) fn add(&mut self, epoch: usize, located: &Located) -> Result<Arc<[u32]>> {
        let root = self.levels[0].number((0, epoch as u64));
        // There are at most 2^20 groups.
        let cells = self.cells as u32;
        let Keys::Listed(lists) = &located.keys else {
            let first = root * cells;
            return Ok([NO_GROUP].into_iter().chain(first..first + (located.count - 1) as u32).collect());
        };
        let mut numbers = vec![root];
        let (of_cells, of_integers) = lists.split_last().unwrap_or((&lists[0], &[]));
        for (level, list) in self.levels[1..].iter_mut().zip(of_integers) {
            numbers = list.iter().map(|(before, code)| level.number((numbers[*before as usize], *code))).collect();
            check_count(level.keys.len())?;
        }
        check_count(self.tuples().saturating_mul(self.cells))?;
        let group = |(tuple, cell): &(u32, u64)| numbers[*tuple as usize] * cells + *cell as u32;
        Ok([NO_GROUP].into_iter().chain(of_cells.iter().map(group)).collect())
    }

    /// Returns the codes of a group: the number of its epoch, its integers, and its cell.
    pub(super) fn codes(&self, group: usize) -> (usize, Vec<u64>, usize) {
        let (mut number, cell) = ((group / self.cells) as u32, group % self.cells);
        let mut integers = vec![0; self.levels.len() - 1];
        for (level, code) in self.levels[1..].iter().zip(&mut integers).rev() {
            (number, *code) = level.keys[number as usize];
        }
        (self.levels[0].keys[number as usize].1 as usize, integers, cell)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::DataType;

    #[test]
    fn long_runs_are_found() {
        let places: Vec<u32> = (0..100).map(|row| u32::from(row >= 70)).collect();
        let placement = Placement::new(places.clone());
        assert_eq!(placement, Placement::Runs(vec![(0, 70), (1, 100)]));
        let mut found = Vec::new();
        placement.each(0..100, |place, row| found.push((place as u32, row)));
        assert!(found.iter().enumerate().all(|(row, one)| *one == (places[row], row)));
        assert_eq!(Placement::new(vec![]), Placement::Runs(vec![]));
    }

    #[test]
    fn near_and_far_integers_are_numbered_alike() {
        let near = number(&mut [0, 0, OUTSIDE, 1, 0], 2, &[5, 3, 0, 5, 5]);
        let far = number(&mut [0, 0, OUTSIDE, 1, 0], 2, &[5 << 40, 3 << 40, 0, 5 << 40, 5 << 40]);
        assert_eq!(near, [(0, 5), (0, 3), (1, 5)]);
        assert_eq!(far, near.iter().map(|(before, code)| (*before, code << 40)).collect::<Vec<_>>());
    }

    #[test]
    fn integers_and_bins_have_groups_in_all_pieces() {
        let edges = Edges::new(0.0, 2.0, 2, DataType::F64).unwrap();
        let whole = GroupKind::Whole { expression: 0, is_unsigned: false };
        let terms = vec![("n".to_owned(), whole), ("x".to_owned(), GroupKind::Bins { expression: 1, edges })];
        let groups = Groups { terms, cells: 2 };
        let mut found = FoundGroups::new(&groups, 1).unwrap();
        let piece = |n: Vec<i128>, x: Vec<f64>| {
            let rows = n.len();
            groups.locate(&[Numbers::Whole(n), Numbers::Float(x)], rows).unwrap()
        };
        let one = piece(vec![7, -1, 7, 7], vec![0.5, 1.5, 1.5, 9.0]);
        assert_eq!(one.placement, Placement::Each(vec![1, 2, 3, 0]));
        assert_eq!(found.add(0, &one).unwrap()[..], [NO_GROUP, 0, 3, 1]);
        let other = piece(vec![-1, 3], vec![0.5, 0.5]);
        assert_eq!(found.add(0, &other).unwrap()[..], [NO_GROUP, 2, 4]);
        assert_eq!(
            found.add(0, &piece(vec![5], vec![-1.0])).unwrap()[..],
            [NO_GROUP],
            "rows outside the bins make no group"
        );
        assert_eq!(found.count(), 6);
        let codes = |group| {
            let (epoch, codes, cell) = found.codes(group);
            (epoch, integer(codes[0], false), cell)
        };
        assert_eq!([codes(1), codes(2), codes(4)], [(0, 7, 1), (0, -1, 0), (0, 3, 0)]);
    }
}
