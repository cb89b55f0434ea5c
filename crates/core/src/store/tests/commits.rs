//! Tests commits: accepted and refused manifests, and the effect of each commit.

use std::io;
use std::sync::Arc;

use super::super::{CommitStep, EpochCommit, IfExists, StepOutcome, list_epochs, load_manifest, truncate_after};
use super::{PARTS, contents, dataset, ids, job, open, paths, write_epoch, write_parts};
use crate::error::Error;
use crate::storage::{MemoryStorage, Storage};

fn shared(memory: &MemoryStorage) -> Arc<dyn Storage> {
    Arc::new(memory.clone())
}

#[test]
fn epochs_are_listed_as_numbers_and_found_by_their_commit() {
    let memory = dataset(true, &[(1000, 4), (9, 1), (200, 3), (10, 2)]);
    memory.create_dir_all(&paths().data().join("epoch=007")).unwrap();
    memory.create_dir_all(&paths().data().join("scratch")).unwrap();
    assert_eq!(list_epochs(&memory, &paths()).unwrap(), [9, 10, 200, 1000]);
    let (_lock, descriptor) = open(&shared(&memory)).unwrap();
    let manifest = load_manifest(&memory, &paths(), &descriptor, 200).unwrap();
    assert_eq!((manifest.epoch, manifest.rows(), manifest.parts.len()), (200, 160, PARTS as usize));
    let missing = load_manifest(&memory, &paths(), &descriptor, 11);
    assert!(matches!(missing, Err(Error::EpochMissing { epoch: 11, .. })));
}

#[test]
fn an_existing_epoch_is_an_error_skipped_or_replaced() {
    for exchange in [true, false] {
        let memory = dataset(exchange, &[(5, 1)]);
        let storage = shared(&memory);
        let again = job(&storage, 5, IfExists::Error, 2);
        assert!(matches!(again, Err(Error::EpochExists { epoch: 5, .. })), "{again:?}");
        job(&storage, 5, IfExists::Skip, 2).unwrap();
        assert_eq!(contents(&memory)[&5], ids(1));
        job(&storage, 5, IfExists::Replace, 2).unwrap();
        job(&storage, 6, IfExists::Replace, 3).unwrap();
        let epochs = contents(&memory);
        assert_eq!((&epochs[&5], &epochs[&6]), (&ids(2), &ids(3)));
        assert_eq!(memory.list(&paths().manifests()).unwrap().len(), 2, "the old manifest is gone");
        assert!(memory.list(&paths().unfinished()).unwrap().is_empty(), "the old data is gone");
    }
}

#[test]
fn labels_that_results_could_not_have_are_refused() {
    let memory = dataset(true, &[]);
    let storage = shared(&memory);
    job(&storage, i64::MAX as u64, IfExists::Error, 1).unwrap();
    for if_exists in [IfExists::Error, IfExists::Skip, IfExists::Replace] {
        let refused = job(&storage, 1 << 63, if_exists, 1).unwrap_err();
        assert_eq!(refused.to_string(), "epoch: 9223372036854775808 is above 2^63 - 1: was it negative?");
    }
    assert_eq!(list_epochs(&memory, &paths()).unwrap(), [i64::MAX as u64]);
}

#[test]
fn an_epoch_that_appeared_meanwhile_is_not_overwritten() {
    let memory = dataset(true, &[]);
    let storage = shared(&memory);
    let (_lock, descriptor) = open(&storage).unwrap();
    let slow = EpochCommit::begin(&storage, &paths(), &descriptor, 5, IfExists::Error).unwrap().unwrap();
    let manifest = write_parts(&storage, &slow, 1).unwrap();
    write_epoch(&storage, &descriptor, 5, IfExists::Error, 2).unwrap();
    let late = slow.commit(manifest);
    assert!(matches!(late, Err(Error::EpochExists { epoch: 5, .. })), "{late:?}");
    assert_eq!(contents(&memory)[&5], ids(2));
}

#[test]
fn a_manifest_that_does_not_fit_the_folder_is_refused() {
    let memory = dataset(true, &[]);
    let storage = shared(&memory);
    let (lock, descriptor) = open(&storage).unwrap();
    let attempt = |change: &dyn Fn(&mut crate::format::EpochManifest, &EpochCommit)| {
        let commit = EpochCommit::begin(&storage, &paths(), &descriptor, 5, IfExists::Error).unwrap().unwrap();
        let mut manifest = write_parts(&storage, &commit, 1).unwrap();
        change(&mut manifest, &commit);
        commit.commit(manifest).unwrap_err().to_string()
    };
    let lacking = attempt(&|manifest, commit| {
        let name = manifest.parts[1].part.file_name();
        memory.remove_file(&commit.directory().join(name)).unwrap();
    });
    assert!(lacking.contains("part-00001.parquet is missing"), "{lacking}");
    let unknown = attempt(&|manifest, _| {
        manifest.parts.pop();
    });
    assert!(unknown.contains("not in the manifest"), "{unknown}");
    let twice = attempt(&|manifest, _| manifest.parts.push(manifest.parts[0]));
    assert!(twice.contains("twice"), "{twice}");
    let other = attempt(&|manifest, _| manifest.epoch = 6);
    assert!(other.contains("epoch 6"), "{other}");
    assert!(list_epochs(&memory, &paths()).unwrap().is_empty());
    lock.release().unwrap();
    job(&storage, 5, IfExists::Error, 3).unwrap();
    assert_eq!(contents(&memory)[&5], ids(3), "attempts that failed are not in the way");
}

/// Runs a commit. `rename` executes the rename that moves the epoch into place.
fn commit_with(
    memory: &MemoryStorage,
    if_exists: IfExists,
    rename: &dyn Fn(&CommitStep) -> StepOutcome,
) -> crate::Result<()> {
    let storage = shared(memory);
    let (_lock, descriptor) = open(&storage).unwrap();
    let commit = EpochCommit::begin(&storage, &paths(), &descriptor, 5, if_exists).unwrap().unwrap();
    let manifest = write_parts(&storage, &commit, 7).unwrap();
    let mut protocol = commit.protocol(&manifest).unwrap();
    while let Some(step) = protocol.step() {
        let outcome = match &step {
            CommitStep::Rename(_, to) if *to == paths().epoch(5) && !protocol.is_committed() => rename(&step),
            _ => step.execute(memory),
        };
        protocol.complete(outcome)?;
    }
    assert!(protocol.is_committed());
    Ok(())
}

fn failed(kind: io::ErrorKind) -> StepOutcome {
    StepOutcome::Failed(Error::Io { operation: "rename", path: paths().data(), source: kind.into() })
}

#[test]
fn a_rename_that_a_network_file_system_repeated_counts_as_done() {
    for kind in [io::ErrorKind::AlreadyExists, io::ErrorKind::NotFound] {
        let memory = dataset(true, &[]);
        commit_with(&memory, IfExists::Error, &|step| {
            assert!(matches!(step.execute(&memory), StepOutcome::Done));
            failed(kind)
        })
        .unwrap();
        assert_eq!(contents(&memory)[&5], ids(7));
    }
}

#[test]
fn a_second_file_system_is_named_as_the_cause() {
    let memory = dataset(true, &[(4, 4)]);
    let error = commit_with(&memory, IfExists::Error, &|_| failed(io::ErrorKind::CrossesDevices)).unwrap_err();
    assert!(error.to_string().contains("different file systems"), "{error}");
    assert_eq!(contents(&memory).into_keys().collect::<Vec<_>>(), [4]);
}

#[test]
fn a_replacement_whose_second_rename_fails_takes_the_old_data_back() {
    let memory = dataset(false, &[(5, 1)]);
    let renames = std::cell::Cell::new(0);
    let error = commit_with(&memory, IfExists::Replace, &|step| {
        renames.set(renames.get() + 1);
        match renames.get() {
            2 => failed(io::ErrorKind::PermissionDenied),
            _ => step.execute(&memory),
        }
    });
    assert!(error.unwrap_err().to_string().contains("rename"));
    assert_eq!(renames.get(), 3, "refused, failed, taken back");
    assert_eq!(contents(&memory)[&5], ids(1));
}

#[test]
fn truncation_removes_what_follows_and_nothing_else() {
    let memory = dataset(true, &[(1, 1), (2, 2), (10, 3), (i64::MAX as u64, 4)]);
    let storage = shared(&memory);
    let (_lock, descriptor) = open(&storage).unwrap();
    assert_eq!(truncate_after(&storage, &paths(), &descriptor, 2, false).unwrap().removed, [10, i64::MAX as u64]);
    assert_eq!(contents(&memory).into_keys().collect::<Vec<_>>(), [1, 2]);
    assert_eq!(memory.list(&paths().manifests()).unwrap().len(), 2);
    assert!(memory.list(&paths().unfinished()).unwrap().is_empty());
    assert!(truncate_after(&storage, &paths(), &descriptor, 2, false).unwrap().removed.is_empty());
    write_epoch(&storage, &descriptor, 10, IfExists::Error, 5).unwrap();
    assert_eq!(contents(&memory.crash())[&10], ids(5));
}
