//! Tests the reuse of memtables. The tests of the runtimes and `tests/sim` check the writer's output.

use std::path::Path;

use uuid::Uuid;

use super::*;
use crate::format::{EncodeBuffers, PartIdentity, PartOptions};
use crate::schema::{Column, DataType};
use crate::storage::{MemoryStorage, Storage};
use crate::writer::factory::PartFactory;

const MEMTABLE_BYTES: usize = 1 << 20;

/// A writer of rows with one 8-byte key, and the factory that executes its tasks.
struct Fixture {
    writer: Writer,
    factory: PartFactory,
}

impl Fixture {
    fn new() -> Self {
        Self::with(MEMTABLES)
    }

    fn with(memtables: usize) -> Self {
        let schema = Arc::new(Schema::new(vec![Column::new("key", DataType::U64)], "key").unwrap());
        let storage = MemoryStorage::new();
        storage.create_dir_all(Path::new("/epoch")).unwrap();
        let options = WriterOptions {
            rank: 0,
            memtable_bytes: MEMTABLE_BYTES,
            run_rows: MAX_RUN_ROWS,
            row_groups_per_run: 4,
            row_groups_per_part: 1024,
            memtables,
        };
        let factory = PartFactory {
            storage: Arc::new(storage),
            directory: "/epoch".into(),
            schema: Arc::clone(&schema),
            options: PartOptions::default(),
            identity: PartIdentity { dataset: Uuid::nil(), commit: Uuid::nil(), epoch: 0 },
            taps: Vec::new(),
        };
        Self { writer: Writer::new(options, schema), factory }
    }

    fn push(&mut self, bytes: usize) {
        let rows: Vec<u8> = (0..bytes as u64 / 8).flat_map(|key| (key * 0x9E37_79B9 % 10_007).to_le_bytes()).collect();
        self.writer.push(RunKind::Regular, &rows);
    }

    /// Starts the next task.
    fn begin(&mut self) -> Task {
        self.writer.next_task().expect("a full memtable is to be written")
    }

    fn end(&mut self, task: Task) {
        self.writer.complete(self.factory.execute(task, &mut EncodeBuffers::new()));
    }

    /// Returns the address of the rows in the active memtable.
    fn memory(&self) -> *const u8 {
        self.writer.active[slot(RunKind::Regular)].as_ref().unwrap().pieces().next().unwrap().as_ptr()
    }
}

/// Rows of a memtable that stays in use are not moved to a spare one. Moving them would free memory that is allocated
/// again a moment later.
#[test]
fn a_memtable_that_was_begun_to_be_kept_is_kept() {
    let mut fixture = Fixture::new();
    fixture.push(MEMTABLE_BYTES);
    let task = fixture.begin();
    fixture.push(MEMTABLE_BYTES / 4);
    let memory = fixture.memory();
    fixture.end(task);
    assert_eq!(fixture.memory(), memory, "rows stay where they are");
    assert_eq!(fixture.writer.spare.len(), 1, "the other one waits for its turn");
}

#[test]
fn a_memtable_that_was_begun_beyond_two_is_given_up() {
    let mut fixture = Fixture::new();
    fixture.push(MEMTABLE_BYTES);
    let task = fixture.begin();
    fixture.push(MEMTABLE_BYTES);
    assert!(!fixture.writer.accepts(), "a full one waits");
    fixture.push(MEMTABLE_BYTES / 4);
    let memory = fixture.memory();
    fixture.end(task);
    assert_ne!(fixture.memory(), memory, "its rows were moved");
    assert!(fixture.writer.spare.is_empty());
    let active = fixture.writer.active[slot(RunKind::Regular)].as_ref().unwrap();
    assert_eq!((active.bytes(), active.reserves()), (MEMTABLE_BYTES / 4, true));
}

/// A flush of strays uses no regular memtable, so the second regular memtable is not temporary.
#[test]
fn a_second_regular_memtable_is_begun_to_be_kept_while_strays_are_written() {
    let mut fixture = Fixture::new();
    fixture.writer.push(RunKind::Stray, &vec![7; MEMTABLE_BYTES / SIDE_FRACTION]);
    let task = fixture.begin();
    fixture.push(MEMTABLE_BYTES);
    assert!(!fixture.writer.accepts(), "a full one waits");
    fixture.push(MEMTABLE_BYTES / 4);
    let memory = fixture.memory();
    fixture.end(task);
    let task = fixture.begin();
    fixture.end(task);
    assert_eq!(fixture.memory(), memory, "rows stay where they are");
    assert_eq!(fixture.writer.spare.len(), 1);
}

/// Records that arrive while the only memtable is flushed are held up to a quarter of its size, and are then the first
/// ones of the next run.
#[test]
fn the_only_memtable_takes_what_was_held_while_it_was_flushed() {
    let held = MEMTABLE_BYTES / HELD_FRACTION;
    let mut fixture = Fixture::with(1);
    fixture.push(MEMTABLE_BYTES);
    let task = fixture.begin();
    assert!(fixture.writer.accepts(), "entries arrive while others are flushed");
    fixture.push(held - 8);
    assert!(fixture.writer.accepts());
    fixture.push(8);
    assert!(!fixture.writer.accepts(), "no more than a quarter is held");
    let memory = fixture.memory();
    assert!(fixture.writer.resident_bytes() <= held, "the other one is being flushed");
    fixture.end(task);
    assert_ne!(fixture.memory(), memory, "its rows were moved");
    assert!(fixture.writer.accepts() && fixture.writer.spare.is_empty());
    let active = fixture.writer.active[slot(RunKind::Regular)].as_ref().unwrap();
    assert_eq!((active.bytes(), active.reserves()), (held, true));
    // The run has a whole memtable of records, although some were held.
    fixture.push(MEMTABLE_BYTES - held);
    let task = fixture.begin();
    fixture.push(8);
    fixture.writer.finish();
    fixture.end(task);
    while let Some(task) = fixture.writer.next_task() {
        fixture.end(task);
    }
    assert!(fixture.writer.is_finished());
    let outcome = std::mem::replace(&mut fixture, Fixture::with(1)).writer.into_outcome();
    assert_eq!(outcome.spare.len(), 1, "the memtable is kept for the next epoch");
    let mut rows = [0; 3];
    outcome.runs.iter().for_each(|group| rows[group.run as usize] += group.rows);
    let full = MEMTABLE_BYTES as u64 / 8;
    // A memtable with buckets may have room for some keys but not for others.
    assert!(rows[0] == full && rows[1] > full - full / 50, "{rows:?}");
    assert_eq!(rows.iter().sum::<u64>(), 2 * full + 1, "{rows:?}");
}
