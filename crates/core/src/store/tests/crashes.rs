//! Kills jobs before every storage operation. Epochs stay complete, and the next writer continues.

use std::sync::Arc;

use super::super::{IfExists, VerifyOptions, truncate_after, verify_on};
use super::{contents, dataset, ids, job, open, paths};
use crate::storage::{Fault, FaultStorage, MemoryStorage, Storage};

type Job = fn(&Arc<dyn Storage>) -> crate::Result<()>;

/// Returns the number of storage operations that a job on a copy of `base` performs.
fn operations(base: &MemoryStorage, run: Job) -> u64 {
    let storage = FaultStorage::new(Arc::new(base.crash()));
    run(&(Arc::new(storage.clone()) as Arc<dyn Storage>)).unwrap();
    storage.counters().operations
}

/// Runs a job on copies of `base`, and kills it before every operation. Calls `check` with each storage that may
/// remain, whether the job succeeded, and the number of the operation.
fn kill_everywhere(base: &MemoryStorage, run: Job, mut check: impl FnMut(MemoryStorage, bool, u64)) {
    let operations = operations(base, run);
    assert!(operations > 20, "the sweep covers something");
    for at in 0..=operations {
        for torn in [false, true] {
            let memory = base.crash();
            let storage = FaultStorage::with_fault(Arc::new(memory.clone()), Fault::Kill { at, torn });
            let done = run(&(Arc::new(storage) as Arc<dyn Storage>)).is_ok();
            assert_eq!(done, at == operations, "a kill is noticed");
            for seed in 0..4 {
                check(memory.crash_keeping(at * 8 + seed), done, at);
            }
            check(memory.crash(), done, at);
            check(memory, done, at);
        }
    }
}

/// Writes epoch 9 as the next writer. Checks that verification then reports no findings.
fn next_writer(memory: &MemoryStorage, at: u64) {
    let storage: Arc<dyn Storage> = Arc::new(memory.clone());
    job(&storage, 9, IfExists::Error, 90).unwrap_or_else(|error| panic!("killed at {at}: {error}"));
    let report = verify_on(&storage, &paths(), &VerifyOptions { threads: 1, ..VerifyOptions::default() }, &|_| ());
    let report = report.unwrap();
    assert!(report.is_clean(), "killed at {at}: {:?}", report.findings);
    let epochs = contents(memory);
    assert_eq!(epochs[&9], ids(90));
    let manifests = memory.list(&paths().manifests()).unwrap();
    assert_eq!(manifests.len(), epochs.len(), "one manifest for each epoch");
    for entry in memory.list(&paths().unfinished()).unwrap() {
        assert!(!entry.name.contains(".re"), "killed at {at}: {} is still there", entry.name);
    }
    for entry in memory.list(&paths().control()).unwrap() {
        assert!(!entry.name.starts_with("lock."), "killed at {at}: {} is still there", entry.name);
    }
}

#[test]
fn a_killed_new_epoch_is_there_or_not() {
    let base = dataset(true, &[(1, 1), (2, 2)]);
    let mut seen = [0, 0];
    kill_everywhere(
        &base,
        |storage| job(storage, 3, IfExists::Error, 3),
        |memory, done, at| {
            let epochs = contents(&memory);
            assert_eq!((&epochs[&1], &epochs[&2]), (&ids(1), &ids(2)), "killed at {at}");
            let there = epochs.contains_key(&3);
            assert!(there || !done, "killed at {at}: a committed epoch was lost");
            if there {
                assert_eq!(epochs[&3], ids(3), "killed at {at}");
            }
            seen[usize::from(there)] += 1;
            next_writer(&memory, at);
            assert_eq!(contents(&memory).contains_key(&3), there, "the next writer neither adds nor removes it");
        },
    );
    assert!(seen[0] > 100 && seen[1] > 5, "both outcomes occur: {seen:?}");
}

#[test]
fn a_killed_first_epoch_leaves_a_folder_one_can_start_in() {
    let base = MemoryStorage::new();
    let operations = operations(&base, |storage| job(storage, 3, IfExists::Error, 3));
    for at in 0..operations {
        let memory = base.crash();
        let storage = FaultStorage::with_fault(Arc::new(memory.clone()), Fault::Kill { at, torn: at % 2 == 1 });
        job(&(Arc::new(storage) as Arc<dyn Storage>), 3, IfExists::Error, 3).unwrap_err();
        for survivor in [memory.crash(), memory.crash_keeping(at), memory.crash_keeping(at + 1000), memory] {
            let storage: Arc<dyn Storage> = Arc::new(survivor.clone());
            job(&storage, 3, IfExists::Skip, 3).unwrap_or_else(|error| panic!("killed at {at}: {error}"));
            assert_eq!(contents(&survivor)[&3], ids(3));
            next_writer(&survivor, at);
        }
    }
}

/// Kills a replacement of epoch 2 before every operation.
fn replacement(exchange: bool) {
    let base = dataset(exchange, &[(1, 1), (2, 2)]);
    let mut seen = [0, 0, 0];
    kill_everywhere(
        &base,
        |storage| job(storage, 2, IfExists::Replace, 22),
        |memory, done, at| {
            let epochs = contents(&memory);
            assert_eq!(epochs[&1], ids(1), "killed at {at}");
            let outcome = match epochs.get(&2) {
                Some(found) if *found == ids(2) => 0,
                Some(found) if *found == ids(22) => 1,
                None => 2,
                Some(other) => panic!("killed at {at}: a mixture {other:?}"),
            };
            assert!(outcome == 1 || !done, "killed at {at}: a committed epoch was lost");
            assert!(outcome != 2 || !exchange, "killed at {at}: the epoch is missing");
            seen[outcome] += 1;
            if outcome == 2 {
                kill_recovery(&memory, at);
            }
            next_writer(&memory, at);
            let after = &contents(&memory)[&2];
            match outcome {
                0 => assert_eq!(*after, ids(2), "killed at {at}"),
                1 => assert_eq!(*after, ids(22), "killed at {at}"),
                _ => assert!(*after == ids(2) || *after == ids(22), "killed at {at}"),
            }
        },
    );
    assert!(seen[0] > 100 && seen[1] > 5 && (seen[2] > 0) != exchange, "all outcomes occur: {seen:?}");
}

/// Also kills the writer that would complete a replacement, before every operation.
fn kill_recovery(memory: &MemoryStorage, first: u64) {
    let settled = memory.crash();
    if contents(&settled).contains_key(&2) {
        return;
    }
    let run: Job = |storage| open(storage)?.0.release();
    for at in 0..operations(&settled, run) {
        let copy = settled.crash();
        let storage = FaultStorage::with_fault(Arc::new(copy.clone()), Fault::Kill { at, torn: false });
        run(&(Arc::new(storage) as Arc<dyn Storage>)).unwrap_err();
        for survivor in [copy.crash(), copy.crash_keeping(at), copy] {
            next_writer(&survivor, at);
            let after = &contents(&survivor)[&2];
            assert!(*after == ids(2) || *after == ids(22), "killed at {first}, then at {at}");
        }
    }
}

#[test]
fn a_killed_replacement_leaves_the_old_epoch_or_the_new() {
    replacement(true);
}

#[test]
fn a_killed_replacement_without_exchange_is_completed_by_the_next_writer() {
    replacement(false);
}

#[test]
fn a_killed_truncation_leaves_a_prefix() {
    let base = dataset(true, &[(1, 1), (2, 2), (3, 3), (10, 10), (20, 20)]);
    let truncate: Job = |storage| {
        let (lock, descriptor) = open(storage)?;
        assert_eq!(truncate_after(storage, &paths(), &descriptor, 2, false)?.removed, [3, 10, 20]);
        lock.release()
    };
    let mut lengths = std::collections::BTreeSet::new();
    kill_everywhere(&base, truncate, |memory, done, at| {
        let epochs = contents(&memory);
        let labels: Vec<u64> = epochs.keys().copied().collect();
        assert_eq!(labels, [1, 2, 3, 10, 20][..labels.len()], "killed at {at}");
        assert!(labels.len() >= 2 && (labels.len() == 2 || !done), "killed at {at}");
        assert!(epochs.iter().all(|(epoch, found)| *found == ids(*epoch)), "killed at {at}");
        lengths.insert(labels.len());
        next_writer(&memory, at);
        let mut after: Vec<u64> = contents(&memory).into_keys().collect();
        after.retain(|epoch| *epoch != 9);
        assert_eq!(after, labels, "the next writer removes no more");
    });
    assert_eq!(lengths.into_iter().collect::<Vec<_>>(), [2, 3, 4, 5]);
}

#[test]
fn one_failed_operation_leaves_old_or_new_without_any_recovery() {
    let kinds = [std::io::ErrorKind::PermissionDenied, std::io::ErrorKind::StorageFull];
    for (exchange, kind) in [true, false].into_iter().flat_map(|exchange| kinds.map(|kind| (exchange, kind))) {
        let base = dataset(exchange, &[(1, 1), (2, 2)]);
        let run: Job = |storage| job(storage, 2, IfExists::Replace, 22);
        let mut failures = 0;
        for first in 0..operations(&base, run) {
            let memory = base.crash();
            let storage = FaultStorage::with_fault(Arc::new(memory.clone()), Fault::Fail { first, count: 1, kind });
            let result = run(&(Arc::new(storage.clone()) as Arc<dyn Storage>));
            let epochs = contents(&memory);
            let (old, new) = (epochs[&2] == ids(2), epochs[&2] == ids(22));
            assert!(epochs[&1] == ids(1) && (old || new), "failed at {first}");
            assert!(result.is_err() || new, "failed at {first}: success without the epoch");
            failures += u32::from(result.is_err());
            next_writer(&memory, first);
        }
        // A lock is released on a full disk, too.
        let least = if kind == std::io::ErrorKind::StorageFull { 40 } else { 50 };
        assert!(failures > least, "{kind}: {failures}");
    }
}
