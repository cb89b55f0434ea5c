//! Sorting of fixed-width rows by a `u64` key, in bounded memory.
//!
//! Rows are collected until they fill the memory budget. They are then sorted, and appended as one run to an unnamed
//! file. At the end the runs are merged. Each run is read through a share of the same budget. Rows that fit the budget
//! are never written to disk. Rows with equal keys stay in the order of their arrival.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::PathBuf;

use crate::error::Result;
use crate::storage::ScratchFile;

/// Size of the key before each row of a run, in bytes.
const KEY_BYTES: usize = size_of::<u64>();

/// Memory per row in addition to the row itself, in bytes: its key and its number.
const ENTRY_BYTES: usize = size_of::<(u64, u32)>();

/// Number of bytes that are buffered before they are appended to a run.
const WRITE_BYTES: usize = 1 << 20;

/// A sorter that accepts rows in any order.
#[derive(Debug)]
pub(super) struct Sorter {
    row_bytes: usize,
    /// Maximum number of rows in memory.
    most_rows: usize,
    folder: PathBuf,
    rows: Vec<u8>,
    entries: Vec<(u64, u32)>,
    spilled: Option<Spilled>,
}

/// Sorted runs on disk.
#[derive(Debug)]
struct Spilled {
    file: ScratchFile,
    runs: Vec<Run>,
}

/// The unread rest of a run.
#[derive(Debug, Clone, Copy)]
struct Run {
    offset: u64,
    rows: usize,
}

impl Sorter {
    /// Creates a sorter that holds about `budget_bytes` in memory, and writes further rows to a file in `folder`.
    pub(super) fn new(row_bytes: usize, budget_bytes: usize, folder: PathBuf) -> Self {
        let most_rows = (budget_bytes / (row_bytes + ENTRY_BYTES)).clamp(1, u32::MAX as usize);
        Self { row_bytes, most_rows, folder, rows: Vec::new(), entries: Vec::new(), spilled: None }
    }

    /// Adds a row. `write` appends the row's bytes to the buffer that it gets.
    ///
    /// # Errors
    /// An I/O error while rows are written to disk.
    pub(super) fn push(&mut self, key: u64, write: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        if self.entries.len() == self.most_rows {
            self.spill()?;
        }
        // `most_rows` fits 32 bits.
        self.entries.push((key, self.entries.len() as u32));
        write(&mut self.rows);
        debug_assert_eq!(self.rows.len(), self.entries.len() * self.row_bytes);
        Ok(())
    }

    /// Writes all rows in memory to disk as one sorted run.
    fn spill(&mut self) -> Result<()> {
        if self.entries.is_empty() {
            return Ok(());
        }
        self.entries.sort_unstable();
        let spilled = match &mut self.spilled {
            Some(spilled) => spilled,
            None => self.spilled.insert(Spilled { file: ScratchFile::create(&self.folder)?, runs: Vec::new() }),
        };
        spilled.runs.push(Run { offset: spilled.file.bytes(), rows: self.entries.len() });
        let mut packed = Vec::with_capacity(WRITE_BYTES + KEY_BYTES + self.row_bytes);
        for (key, place) in self.entries.drain(..) {
            packed.extend_from_slice(&key.to_le_bytes());
            packed.extend_from_slice(&self.rows[place as usize * self.row_bytes..][..self.row_bytes]);
            if packed.len() >= WRITE_BYTES {
                spilled.file.append(&packed)?;
                packed.clear();
            }
        }
        spilled.file.append(&packed)?;
        self.rows.clear();
        Ok(())
    }

    /// Returns all rows in order.
    ///
    /// # Errors
    /// An I/O error while rows are written to disk or read from it.
    pub(super) fn finish(mut self) -> Result<Sorted> {
        if self.spilled.is_some() {
            self.spill()?;
        }
        let Some(Spilled { file, runs }) = self.spilled else {
            self.entries.sort_unstable();
            return Ok(Sorted::InMemory { row_bytes: self.row_bytes, rows: self.rows, entries: self.entries, next: 0 });
        };
        let budget_rows = self.most_rows / runs.len().max(1);
        let mut merge = Merge {
            file,
            row_bytes: self.row_bytes,
            window_rows: budget_rows.max(1),
            windows: Vec::new(),
            heads: BinaryHeap::new(),
        };
        for (number, run) in runs.into_iter().enumerate() {
            merge.windows.push(Window { run, bytes: Vec::new(), at: 0 });
            merge.refill(number)?;
        }
        Ok(Sorted::Merged(merge))
    }
}

/// The sorted rows.
#[derive(Debug)]
pub(super) enum Sorted {
    /// All rows are in memory.
    InMemory { row_bytes: usize, rows: Vec<u8>, entries: Vec<(u64, u32)>, next: usize },
    /// The rows are merged from runs on disk.
    Merged(Merge),
}

impl Sorted {
    /// Passes the next row to `take`, and returns its result. Returns `None` at the end.
    ///
    /// # Errors
    /// An I/O error while rows are read from disk.
    pub(super) fn next<T>(&mut self, take: impl FnOnce(u64, &[u8]) -> T) -> Result<Option<T>> {
        match self {
            Self::InMemory { row_bytes, rows, entries, next } => {
                let Some((key, place)) = entries.get(*next) else { return Ok(None) };
                *next += 1;
                Ok(Some(take(*key, &rows[*place as usize * *row_bytes..][..*row_bytes])))
            }
            Self::Merged(merge) => merge.next(take),
        }
    }
}

/// A merge of runs on disk, with a window of each run in memory.
#[derive(Debug)]
pub(super) struct Merge {
    file: ScratchFile,
    row_bytes: usize,
    window_rows: usize,
    windows: Vec<Window>,
    /// Next key and number of each run that has rows. Among equal keys, the earlier run comes first.
    heads: BinaryHeap<Reverse<(u64, usize)>>,
}

#[derive(Debug)]
struct Window {
    /// The rows that are not in memory yet.
    run: Run,
    bytes: Vec<u8>,
    at: usize,
}

impl Merge {
    /// Reads the next rows of a run if its window is used up, and adds the run's next key to the heap.
    fn refill(&mut self, number: usize) -> Result<()> {
        let entry_bytes = KEY_BYTES + self.row_bytes;
        let window = &mut self.windows[number];
        if window.at == window.bytes.len() {
            let rows = self.window_rows.min(window.run.rows);
            window.bytes.resize(rows * entry_bytes, 0);
            self.file.read_at(window.run.offset, &mut window.bytes)?;
            window.run = Run { offset: window.run.offset + window.bytes.len() as u64, rows: window.run.rows - rows };
            window.at = 0;
        }
        if let Some(key) = window.bytes[window.at..].first_chunk() {
            self.heads.push(Reverse((u64::from_le_bytes(*key), number)));
        }
        Ok(())
    }

    fn next<T>(&mut self, take: impl FnOnce(u64, &[u8]) -> T) -> Result<Option<T>> {
        let Some(Reverse((key, number))) = self.heads.pop() else { return Ok(None) };
        let window = &mut self.windows[number];
        let row = &window.bytes[window.at + KEY_BYTES..][..self.row_bytes];
        let taken = take(key, row);
        window.at += KEY_BYTES + self.row_bytes;
        self.refill(number)?;
        Ok(Some(taken))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Sorts rows that contain their own numbers. Returns keys and numbers, and whether rows were spilled.
    fn sorted(keys: &[u64], row_bytes: usize, budget_bytes: usize) -> (Vec<(u64, u64)>, bool) {
        let folder = tempfile::tempdir().unwrap();
        let mut sorter = Sorter::new(row_bytes, budget_bytes, folder.path().to_owned());
        for (number, key) in (0u64..).zip(keys) {
            sorter
                .push(*key, |rows| {
                    rows.extend_from_slice(&number.to_le_bytes());
                    rows.resize(rows.len() + row_bytes - 8, number as u8);
                })
                .unwrap();
            assert!(sorter.rows.len() <= budget_bytes.max(row_bytes), "memory is bounded");
        }
        let mut rows = sorter.finish().unwrap();
        let spilled = matches!(rows, Sorted::Merged(_));
        let mut found = Vec::new();
        let read = |key, row: &[u8]| {
            let number = u64::from_le_bytes(*row.first_chunk().unwrap());
            assert!(row.len() == row_bytes && row[8..].iter().all(|byte| *byte == number as u8));
            (key, number)
        };
        while let Some(one) = rows.next(read).unwrap() {
            found.push(one);
        }
        (found, spilled)
    }

    proptest! {
        #[test]
        fn rows_come_sorted_and_equal_keys_in_order(
            keys in prop::collection::vec(0u64..40, 0..300),
            row_bytes in 8usize..30,
            budget_bytes in 1usize..6000,
        ) {
            let mut expected: Vec<(u64, u64)> = keys.iter().copied().zip(0..).collect();
            expected.sort();
            let (found, spilled) = sorted(&keys, row_bytes, budget_bytes);
            prop_assert_eq!(found, expected);
            let fits = keys.len() <= (budget_bytes / (row_bytes + ENTRY_BYTES)).max(1);
            prop_assert_eq!(spilled, !fits);
        }
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let mut sorter = Sorter::new(8, 0, PathBuf::from("/nowhere/at/all"));
        sorter.push(1, |rows| rows.extend_from_slice(&[0; 8])).unwrap();
        let refused = sorter.push(2, |_| {}).unwrap_err().to_string();
        assert!(refused.contains("/nowhere/at/all"), "{refused}");
    }
}
