//! Tests that discarding a failed attempt removes its parts and nothing else.

use super::*;
use crate::storage::{Fault, FaultStorage};
use crate::store::discard_attempt;
use crate::store::epochs::commit_of;

/// Attempts to write or replace epoch 1, on a storage that may fail. Returns the commit and whether it succeeded.
fn attempt(storage: &Arc<dyn Storage>, descriptor: &DatasetDescriptor) -> Option<(uuid::Uuid, bool)> {
    let commit = EpochCommit::begin(storage, &paths(), descriptor, 1, IfExists::Replace).ok()??;
    let identity = commit.identity().commit;
    let written = write_parts(storage, &commit, 7).and_then(|manifest| commit.commit(manifest));
    Some((identity, written.is_ok()))
}

/// Fails every operation of an attempt in turn, alone or with all later operations, and then discards the attempt.
fn sweep(exchange: bool, epochs: &[(u64, u64)]) {
    let (old, new) = (epochs.iter().find(|(epoch, _)| *epoch == 1).map(|(_, seed)| ids(*seed)), Some(ids(7)));
    let other = ids(3);
    let (mut removed, mut kept) = (0, 0);
    for count in [1, u64::MAX] {
        for first in 0.. {
            let memory = dataset(exchange, epochs);
            let storage: Arc<dyn Storage> = Arc::new(memory.clone());
            let (lock, descriptor) = open(&storage).unwrap();
            let fault = FaultStorage::new(Arc::clone(&storage));
            let begun = fault.counters().operations;
            fault.add_fault(Fault::Fail { first: begun + first, count, kind: std::io::ErrorKind::StorageFull });
            let faulty: Arc<dyn Storage> = Arc::new(fault.clone());
            let Some((commit, succeeded)) = attempt(&faulty, &descriptor) else { continue };
            let story = format!("exchange {exchange}, operations from {first} on, {count} of them");
            let folder = paths().attempt(1, commit);
            let is_in_place = commit_of(&*storage, &paths().epoch(1)).unwrap() == Some(commit);
            let holds_old_data = storage.kind(&folder).unwrap().is_some() && is_in_place;
            if succeeded {
                assert!(is_in_place, "{story}");
                if fault.counters().operations <= begun + first {
                    break;
                }
                continue;
            }
            let bytes = discard_attempt(&*storage, &paths(), 1, commit).unwrap();
            assert_eq!(storage.kind(&folder).unwrap().is_some(), holds_old_data, "{story}");
            assert!(!is_in_place || bytes == 0, "{story}");
            if is_in_place {
                kept += 1;
            } else {
                removed += u64::from(bytes > 0);
                assert_eq!(storage.kind(&paths().manifest(1, commit)).unwrap(), None, "{story}");
            }
            lock.release().unwrap();
            // Checks the state that a later process finds, and the state after a power failure.
            for after in [Arc::clone(&storage), Arc::new(memory.crash())] {
                drop(open(&after).unwrap());
                let found = contents(&*after);
                assert_eq!(found.get(&3), Some(&other), "{story}");
                let found = found.get(&1).cloned();
                assert!(found == old || found == new, "{story}: {found:?}");
                assert!(is_in_place || found == old, "{story}");
            }
        }
    }
    assert!(removed > 10 && kept > 0, "{removed} removed, {kept} kept");
}

#[test]
fn what_a_failed_attempt_left_goes_and_nothing_else() {
    for exchange in [true, false] {
        sweep(exchange, &[(1, 2), (3, 3)]);
        sweep(exchange, &[(3, 3)]);
    }
}
