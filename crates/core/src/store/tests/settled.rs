//! Tests that a writer makes the data of earlier processes durable before it adds data.

use std::io;
use std::sync::Arc;

use super::super::{EpochCommit, IfExists};
use super::{contents, ids, job, open, paths, write_epoch};
use crate::storage::{Fault, FaultStorage, MemoryStorage, Storage};

/// The simulator's seed 2 killed a writer after it had created the dataset's folder, but before it had synced the
/// parent folder. The next writer found the folder and wrote into it. A power failure then removed everything.
#[test]
fn what_a_killed_writer_began_is_made_durable_by_the_next_one() {
    let mut seen = 0;
    for at in 0.. {
        let memory = MemoryStorage::new();
        let killed = FaultStorage::with_fault(Arc::new(memory.clone()), Fault::Kill { at, torn: false });
        if open(&(Arc::new(killed) as Arc<dyn Storage>)).is_ok() {
            break;
        }
        // The killed process leaves its unsynced changes, which are still visible.
        job(&(Arc::new(memory.clone()) as Arc<dyn Storage>), 3, IfExists::Error, 3).unwrap();
        assert_eq!(contents(&memory.crash()).get(&3), Some(&ids(3)), "killed at {at}");
        seen += 1;
    }
    assert!(seen > 20, "opening has so many steps");
}

/// If the last sync of a commit fails, the epoch is in place but not durable. A writer that then skips the epoch relies
/// on it.
#[test]
fn an_epoch_that_is_skipped_is_durable() {
    let mut in_place = 0;
    for first in 0..200 {
        let memory = MemoryStorage::new();
        let faulty = FaultStorage::new(Arc::new(memory.clone()));
        let storage: Arc<dyn Storage> = Arc::new(faulty.clone());
        let (_lock, descriptor) = open(&storage).unwrap();
        let first = faulty.counters().operations + first;
        faulty.add_fault(Fault::Fail { first, count: 1, kind: io::ErrorKind::TimedOut });
        let failed = write_epoch(&storage, &descriptor, 3, IfExists::Error, 3).is_err();
        if failed && EpochCommit::begin(&storage, &paths(), &descriptor, 3, IfExists::Skip).unwrap().is_none() {
            in_place += 1;
            assert_eq!(contents(&memory.crash()).get(&3), Some(&ids(3)), "failed at {first}");
        }
    }
    assert!(in_place > 0, "such a failure exists");
}
