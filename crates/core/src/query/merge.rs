//! Merging sorted sources by key: which rows come next, from which source.
//!
//! Pure bookkeeping over key ordinals; the rows themselves are moved afterwards, column by column. A source is known by
//! its *rank* (its place in the order of ties) and the *slot* it occupies while open. The two and the ordinal form one
//! 128-bit number, so the heap compares once.

use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use super::column::Stretch;

/// An ordinal and the rank of the source that has it: the order of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position(u128);

impl Position {
    /// The position of a row of source `rank` with this key.
    pub(super) fn new(ordinal: u64, rank: u32) -> Self {
        Self(u128::from(ordinal) << 64 | u128::from(rank) << 32)
    }

    fn in_slot(self, slot: u32) -> Self {
        Self(self.0 | u128::from(slot))
    }

    fn slot(self) -> u32 {
        self.0 as u32
    }

    fn rank(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// The keys of a source's rows that are in memory.
#[derive(Debug, Default)]
struct Window {
    ordinals: Vec<u64>,
    next: usize,
}

/// Why [`Merger::advance`] stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pause {
    /// As many rows as were asked for.
    Full,
    /// The source in this slot has no more rows in memory; it was taken out.
    Dry(u32),
    /// The next row lies at this position, beyond the bound.
    Bound(Position),
    /// No source is left.
    Empty,
}

/// The open sources.
#[derive(Debug, Default)]
pub(super) struct Merger {
    /// Bitwise complements of positions, so that the largest is the next.
    heads: BinaryHeap<u128>,
    windows: Vec<Window>,
}

impl Merger {
    /// Puts a source into a slot, with the (ascending) keys of its rows in memory, of which there must be some.
    pub(super) fn insert(&mut self, slot: u32, rank: u32, ordinals: Vec<u64>) {
        if self.windows.len() <= slot as usize {
            self.windows.resize_with(slot as usize + 1, Window::default);
        }
        if let Some(first) = ordinals.first() {
            self.heads.push(!Position::new(*first, rank).in_slot(slot).0);
        }
        self.windows[slot as usize] = Window { ordinals, next: 0 };
    }

    /// Appends stretches of at most `rows` rows in order, none at or beyond `bound`, until something is needed.
    pub(super) fn advance(&mut self, rows: usize, bound: Option<Position>, out: &mut Vec<Stretch>) -> Pause {
        let mut open = rows;
        let alone = self.heads.len() == 1;
        while open > 0 {
            let Some(mut head) = self.heads.peek_mut() else { return Pause::Empty };
            let position = Position(!*head);
            if bound.is_some_and(|bound| position >= bound) {
                return Pause::Bound(position);
            }
            let slot = position.slot();
            let window = &mut self.windows[slot as usize];
            let start = window.next;
            let mut taken = 1;
            if alone {
                let most = open.min(window.ordinals.len() - start);
                taken = match bound {
                    None => most,
                    Some(bound) => window.ordinals[start..start + most]
                        .partition_point(|ordinal| Position::new(*ordinal, position.rank()).in_slot(slot) < bound),
                };
            }
            window.next += taken;
            open -= taken;
            match out.last_mut() {
                Some(last) if last.source == slot && (last.start + last.rows) as usize == start => {
                    last.rows += taken as u32;
                }
                _ => out.push(Stretch { source: slot, start: start as u32, rows: taken as u32 }),
            }
            match window.ordinals.get(window.next) {
                Some(ordinal) => *head = !Position::new(*ordinal, position.rank()).in_slot(slot).0,
                None => {
                    PeekMut::pop(head);
                    return Pause::Dry(slot);
                }
            }
        }
        Pause::Full
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn rows_come_in_order_of_key_source_and_row(
            mut sources in prop::collection::vec(prop::collection::vec(0u64..20, 1..30), 1..6),
            steps in prop::collection::vec(1usize..9, 1..50),
            bound in prop::option::of((0u64..20, 0u32..6)),
        ) {
            for source in &mut sources {
                source.sort_unstable();
            }
            let mut expected: Vec<(u64, u32, u32)> = sources.iter().zip(0..)
                .flat_map(|(source, rank)| source.iter().zip(0..).map(move |(key, row)| (*key, rank, row)))
                .filter(|(key, rank, _)| bound.is_none_or(|bound| (*key, *rank) < bound))
                .collect();
            expected.sort_unstable();
            let mut merger = Merger::default();
            // Slots in another order than ranks.
            let slots = sources.len() as u32;
            for (rank, source) in (0..).zip(&sources) {
                merger.insert(slots - 1 - rank, rank, source.clone());
            }
            let bound = bound.map(|(key, rank)| Position::new(key, rank));
            let mut merged = Vec::new();
            let mut steps = steps.iter().cycle();
            loop {
                let mut out = Vec::new();
                let asked = *steps.next().unwrap();
                let pause = merger.advance(asked, bound, &mut out);
                prop_assert!(out.iter().map(|stretch| stretch.rows as usize).sum::<usize>() <= asked);
                for stretch in out {
                    let rank = slots - 1 - stretch.source;
                    for row in stretch.start..stretch.start + stretch.rows {
                        merged.push((sources[rank as usize][row as usize], rank, row));
                    }
                }
                match pause {
                    Pause::Empty | Pause::Bound(_) => break,
                    Pause::Full | Pause::Dry(_) => {}
                }
            }
            prop_assert_eq!(merged, expected);
        }
    }

    #[test]
    fn a_dry_source_is_named_and_can_go_on() {
        let mut merger = Merger::default();
        merger.insert(0, 0, vec![1, 5]);
        merger.insert(1, 1, vec![2, 3]);
        let mut out = Vec::new();
        assert_eq!(merger.advance(10, None, &mut out), Pause::Dry(1));
        merger.insert(1, 1, vec![4, 9]);
        out.clear();
        assert_eq!(merger.advance(10, None, &mut out), Pause::Dry(0));
        assert_eq!(out, [Stretch { source: 1, start: 0, rows: 1 }, Stretch { source: 0, start: 1, rows: 1 }]);
        assert_eq!(
            merger.advance(10, Some(Position::new(9, 1)), &mut out),
            Pause::Bound(Position::new(9, 1).in_slot(1))
        );
        assert_eq!(merger.advance(10, None, &mut out), Pause::Dry(1));
        assert_eq!(merger.advance(10, None, &mut out), Pause::Empty);
    }
}
