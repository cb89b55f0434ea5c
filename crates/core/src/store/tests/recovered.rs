//! Tests listing and salvage of epochs that were never committed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;

use super::super::{EpochCommit, IfExists, Recovery, recover, salvage};
use super::{
    RUN_ROWS, contents, context, dataset, ids, memtable, open, options, paths, schema, write_epoch, write_parts,
};
use crate::error::{Error, ErrorClass};
use crate::format::{PartId, PartWriter};
use crate::storage::{ALIGNMENT, Fault, FaultStorage, MemoryStorage, Storage, read_all};

const PART: PartId = PartId { rank: 0, roll: 0 };

fn out() -> PathBuf {
    PathBuf::from("/salvaged")
}

/// Returns the ids in all Parquet files of a folder, read by the parquet crate.
fn salvaged_ids(storage: &dyn Storage, folder: &Path) -> Vec<u64> {
    let mut ids = Vec::new();
    for entry in storage.list(folder).unwrap() {
        let content = read_all(storage, &folder.join(entry.name), 1 << 20).unwrap();
        let reader = SerializedFileReader::new(Bytes::from(content)).unwrap();
        ids.extend(reader.get_row_iter(None).unwrap().map(|row| row.unwrap().get_ulong(1).unwrap()));
    }
    ids.sort_unstable();
    ids
}

/// Begins epoch 7 and dies after `runs` runs of one part, before the footer.
fn die_after_runs(storage: &Arc<dyn Storage>, runs: u32, seed: u64) -> EpochCommit {
    let (_lock, descriptor) = open(storage).unwrap();
    let commit = EpochCommit::begin(storage, &paths(), &descriptor, 7, IfExists::Replace).unwrap().unwrap();
    let directory = commit.directory();
    let mut writer =
        PartWriter::create(storage.clone(), &directory, PART, schema(), options(), commit.identity()).unwrap();
    for (run, ids) in ids(seed).chunks(RUN_ROWS as usize).take(runs as usize).enumerate() {
        writer.append_run(&memtable(ids), context(run as u32)).unwrap();
    }
    commit
}

#[test]
fn sealed_runs_are_listed_recovered_and_kept_apart() {
    let memory = dataset(true, &[(1, 1)]);
    let storage: Arc<dyn Storage> = Arc::new(memory.clone());
    let attempt = die_after_runs(&storage, 2, 7);
    let (lock, descriptor) = open(&storage).unwrap();
    let found = salvage::list(&memory, &paths(), &descriptor).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].epoch, found[0].runs(), found[0].rows()), (7, 2, 2 * RUN_ROWS));
    assert_eq!(found[0].directory, attempt.directory());

    let salvaged = salvage::recover_into(&storage, &paths(), &descriptor, &found[0], &out()).unwrap();
    assert_eq!((salvaged.parts, salvaged.runs, salvaged.rows), (1, 2, 2 * RUN_ROWS));
    assert!(salvaged.corrupt.is_empty());
    assert_eq!(salvaged.directory, out().join("epoch=7"));
    assert_eq!(salvaged_ids(&memory.crash(), &salvaged.directory), ids(7)[..2 * RUN_ROWS as usize]);
    assert_eq!(contents(&memory).into_keys().collect::<Vec<_>>(), [1], "the dataset is as it was");

    let again = salvage::recover_into(&storage, &paths(), &descriptor, &found[0], &out());
    assert!(matches!(again, Err(Error::Io { ref source, .. }) if source.kind() == std::io::ErrorKind::AlreadyExists));
    let inside = salvage::recover_into(&storage, &paths(), &descriptor, &found[0], &paths().data());
    assert_eq!(inside.unwrap_err().class(), ErrorClass::Usage);

    write_epoch(&storage, &descriptor, 7, IfExists::Error, 77).unwrap();
    assert_eq!(salvage::list(&memory, &paths(), &descriptor).unwrap(), found, "a later success removes nothing");
    salvage::discard(&memory, &found[0]).unwrap();
    assert!(salvage::list(&memory, &paths(), &descriptor).unwrap().is_empty());
    lock.release().unwrap();
}

#[test]
fn a_salvage_that_died_is_begun_anew() {
    let base = dataset(true, &[]);
    die_after_runs(&(Arc::new(base.clone()) as Arc<dyn Storage>), 2, 7);
    let mut at = 0;
    loop {
        // The changes so far are treated as durable: only the salvage is killed.
        let memory = base.clone();
        let storage: Arc<dyn Storage> = Arc::new(memory.clone());
        let descriptor = super::DatasetDescriptor::read(&memory, &paths()).unwrap();
        let found = salvage::list(&memory, &paths(), &descriptor).unwrap();
        let faulty: Arc<dyn Storage> =
            Arc::new(FaultStorage::with_fault(storage.clone(), Fault::Kill { at, torn: true }));
        let finished = salvage::recover_into(&faulty, &paths(), &descriptor, &found[0], &out()).is_ok();
        let folder = out().join("epoch=7");
        if memory.kind(&folder).unwrap().is_none() {
            salvage::recover_into(&storage, &paths(), &descriptor, &found[0], &out()).unwrap();
        }
        assert_eq!(salvaged_ids(&memory, &folder), ids(7)[..2 * RUN_ROWS as usize], "killed at {at}");
        memory.remove_dir_all(&out()).unwrap();
        if finished {
            break;
        }
        at += 1;
    }
    assert!(at > 10, "the sweep covers something");
}

#[test]
fn a_corrupt_run_is_left_out_and_named() {
    let storage: Arc<dyn Storage> = Arc::new(dataset(true, &[]));
    die_after_runs(&storage, 3, 7);
    let (_lock, descriptor) = open(&storage).unwrap();
    let found = salvage::list(&*storage, &paths(), &descriptor).unwrap();
    let second = found[0].parts[0].runs[1].row_groups[0];
    let flip = Fault::Flip { path: PathBuf::from(PART.file_name()), offset: second.offset + 50, mask: 4 };
    let faulty: Arc<dyn Storage> = Arc::new(FaultStorage::with_fault(storage.clone(), flip));
    // The new file has the same name, but the fault must not apply when it is read.
    let salvaged = salvage::recover_into(&faulty, &paths(), &descriptor, &found[0], &out()).unwrap();
    assert_eq!((salvaged.runs, salvaged.rows, salvaged.corrupt.len()), (2, 2 * RUN_ROWS, 1));
    assert!(salvaged.corrupt[0].to_string().contains("run 1"), "{}", salvaged.corrupt[0]);
    let mut expected = ids(7)[..3 * RUN_ROWS as usize].to_vec();
    expected.drain(RUN_ROWS as usize..2 * RUN_ROWS as usize);
    assert_eq!(salvaged_ids(&*storage, &salvaged.directory), expected);
}

#[test]
fn the_next_writer_keeps_sealed_runs_and_removes_the_rest() {
    let memory = dataset(true, &[(1, 1)]);
    let storage: Arc<dyn Storage> = Arc::new(memory.clone());
    let empty = die_after_runs(&storage, 0, 7);
    let sealed = die_after_runs(&storage, 1, 8);
    let torn = die_after_runs(&storage, 0, 9);
    let mut file = memory.create(&torn.directory().join("part-00003.parquet")).unwrap();
    file.write_at(0, &[7; 3 * ALIGNMENT + 5]).unwrap();
    let complete = {
        let (_lock, descriptor) = open(&storage).unwrap();
        let commit = EpochCommit::begin(&storage, &paths(), &descriptor, 3, IfExists::Error).unwrap().unwrap();
        write_parts(&storage, &commit, 3).unwrap();
        commit
    };
    let manifest = paths().manifest(3, complete.identity().commit);
    memory.create(&manifest).unwrap();
    let (_lock, descriptor) = super::WriterLock::acquire(&storage, &paths(), true)
        .map(|(lock, _)| (lock, super::DatasetDescriptor::read(&memory, &paths()).unwrap()))
        .unwrap();
    let recovery = recover(&storage, &paths(), &descriptor).unwrap();
    // The first of the empty attempts was deleted when the second writer opened.
    let expected = Recovery { removed_folders: 0, removed_manifests: 1, unfinished: vec![3, 7], ..Recovery::default() };
    assert_eq!(recovery, expected);
    for (attempt, kept) in [(empty, false), (sealed, true), (torn, false), (complete, true)] {
        assert_eq!(memory.kind(&attempt.directory()).unwrap().is_some(), kept, "{attempt:?}");
    }
    assert_eq!(recover(&storage, &paths(), &descriptor).unwrap().removed_manifests, 0, "once is enough");
    assert_eq!(contents(&memory).into_keys().collect::<Vec<_>>(), [1]);
}

#[test]
fn an_exchanged_epoch_is_no_unfinished_one() {
    // A replacement that is killed after the exchange leaves the old data in the attempt's folder.
    let memory: MemoryStorage = dataset(true, &[(7, 1)]);
    let storage: Arc<dyn Storage> = Arc::new(memory.clone());
    let (_lock, descriptor) = open(&storage).unwrap();
    let commit = EpochCommit::begin(&storage, &paths(), &descriptor, 7, IfExists::Replace).unwrap().unwrap();
    let manifest = write_parts(&storage, &commit, 2).unwrap();
    let mut protocol = commit.protocol(&manifest).unwrap();
    while !protocol.is_committed() {
        let step = protocol.step().unwrap();
        protocol.complete(step.execute(&memory)).unwrap();
    }
    assert!(memory.kind(&commit.directory()).unwrap().is_some());
    assert!(salvage::list(&memory, &paths(), &descriptor).unwrap().is_empty());
    assert_eq!(contents(&memory)[&7], ids(2));
    assert_eq!(recover(&storage, &paths(), &descriptor).unwrap().removed_folders, 1);
    assert_eq!(contents(&memory)[&7], ids(2));
}
