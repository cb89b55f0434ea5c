//! Tests that a dataset has one writer at a time, and that dead writers are taken over. Uses real processes.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Barrier};

use super::super::lock::forged;
use super::super::{DatasetPaths, LockNotice, WriterLock, lock_holder};
use crate::error::{Error, Refusal};
use crate::storage::{Fault, FaultStorage, FileSystem, MemoryStorage, Storage};

/// Environment variable with the path of the dataset, for child processes of these tests.
const CHILD: &str = "TURBIDITE_TEST_LOCK_CHILD";

fn paths() -> DatasetPaths {
    DatasetPaths::new("/ds")
}

/// Returns the number of a process that has just ended.
fn ended_process() -> u32 {
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    child.id()
}

/// Returns the parent of this process, which is another running process.
fn parent() -> forged::Holder {
    let process = rustix::process::getppid().unwrap().as_raw_nonzero().get().unsigned_abs();
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let started = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace().nth(19).unwrap().parse().unwrap();
    forged::Holder { process, started: Some(started), ..forged::Holder::this() }
}

fn memory_with_lock(holder: &forged::Holder) -> Arc<dyn Storage> {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    storage.create_dir_all(&paths().control()).unwrap();
    forged::place(&*storage, &paths().lock(), holder);
    storage
}

fn locked_by(result: crate::Result<(WriterLock, Option<LockNotice>)>) -> String {
    match result {
        Err(Error::Locked { holder, .. }) => holder,
        other => panic!("{other:?}"),
    }
}

/// Starts a child process that holds the lock of `root` until it is killed. The child is the test binary. Its test
/// `child` acquires the lock if the variable is set, and does nothing otherwise.
fn start_child(root: &std::path::Path) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "store::tests::locks::child", "--nocapture"])
        .env(CHILD, root)
        .env("SLURM_JOB_ID", "4711")
        .stdout(Stdio::piped())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(|line| line.ok()).any(|line| line.contains("lock is held")), "the child did not start");
    child
}

#[test]
fn child() {
    let Some(root) = std::env::var_os(CHILD) else { return };
    let storage: Arc<dyn Storage> = Arc::new(FileSystem::new());
    let lock = WriterLock::acquire(&storage, &DatasetPaths::new(root), false).unwrap();
    println!("lock is held");
    // Blocks until the parent kills this process, or until the parent ends and thereby closes the pipe.
    let _ = std::io::stdin().read_line(&mut String::new());
    drop(lock);
}

#[test]
fn a_running_writer_is_respected_and_a_dead_one_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    let paths = DatasetPaths::new(folder.path().join("ds"));
    let storage: Arc<dyn Storage> = Arc::new(FileSystem::new());
    let mut child = start_child(paths.root());
    let holder = locked_by(WriterLock::acquire(&storage, &paths, false));
    assert_eq!(locked_by(WriterLock::acquire(&storage, &paths, true)), holder, "not even on request");
    assert!(
        holder.contains(&format!("is running: pid {}", child.id())) && holder.contains("SLURM_JOB_ID 4711"),
        "{holder}"
    );
    assert_eq!(lock_holder(&*storage, &paths).unwrap().unwrap().process, child.id());

    child.kill().unwrap();
    // Waits until the child has ended, but leaves it a zombie.
    let id = rustix::process::Pid::from_child(&child);
    let options = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
    rustix::process::waitid(rustix::process::WaitId::Pid(id), options).unwrap();
    let (lock, notice) = WriterLock::acquire(&storage, &paths, false).unwrap();
    assert!(matches!(&notice, Some(LockNotice::TakenOver(holder)) if holder.process == child.id()), "{notice:?}");
    child.wait().unwrap();
    lock.check().unwrap();
    lock.release().unwrap();
    assert_eq!(lock_holder(&*storage, &paths).unwrap(), None);
    assert_eq!(std::fs::read_dir(paths.control()).unwrap().count(), 0, "nothing is left");
    let (_lock, notice) = WriterLock::acquire(&storage, &paths, false).unwrap();
    assert_eq!(notice, None);
}

#[test]
fn a_second_writer_of_the_same_process_is_refused() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let (lock, notice) = WriterLock::acquire(&storage, &paths(), false).unwrap();
    assert_eq!(notice, None);
    assert!(locked_by(WriterLock::acquire(&storage, &paths(), false)).contains("process"));
    drop(lock);
    WriterLock::acquire(&storage, &paths(), false).unwrap();
}

#[test]
fn only_what_is_certainly_gone_is_taken_over() {
    let gone = forged::Holder { process: ended_process(), ..forged::Holder::this() };
    let taken = [
        gone.clone(),
        forged::Holder { started: Some(1), ..forged::Holder::this() },
        forged::Holder { boot: "an earlier boot".to_owned(), ..forged::Holder::this() },
    ];
    for holder in taken {
        let storage = memory_with_lock(&holder);
        let (_lock, notice) = WriterLock::acquire(&storage, &paths(), false).unwrap();
        assert!(matches!(notice, Some(LockNotice::TakenOver(_))), "{holder:?}");
    }
    let kept = [
        (forged::Holder { started: None, ..parent() }, "the start time is unknown"),
        (forged::Holder { host: "elsewhere".to_owned(), ..gone.clone() }, "it is on another host"),
        (forged::Holder { namespace: "pid:[1]".to_owned(), ..gone.clone() }, "it is in another PID namespace"),
        (forged::Holder { boot: String::new(), ..gone }, "the boot of its host is unknown"),
    ];
    for (holder, reason) in kept {
        let storage = memory_with_lock(&holder);
        let error = WriterLock::acquire(&storage, &paths(), false).unwrap_err();
        let text = error.to_string();
        let expected = format!("/ds/_turbidite/lock is locked by process {} on ", holder.process);
        assert!(text.starts_with(&expected) && text.contains("which cannot be checked from here"), "{text}");
        assert!(text.contains(reason) && text.contains(", since 20") && text.contains(" UTC, "), "{text}");
        assert_eq!(error.refusal(), Some(Refusal::Locked), "{text}");
        let (_lock, notice) = WriterLock::acquire(&storage, &paths(), true).unwrap();
        assert!(matches!(notice, Some(LockNotice::Broken(Some(_)))), "{holder:?}");
    }
}

/// Breaking the lock of a running writer would lose its epochs.
#[test]
fn a_lock_of_a_running_process_is_never_broken() {
    let running = forged::Holder { job: Some("SLURM_JOB_ID 4711".to_owned()), ..parent() };
    // A lock may lack its time and the copy of the library.
    let undated = forged::Holder { taken: None, copy: None, ..running.clone() };
    for holder in [running, undated] {
        let storage = memory_with_lock(&holder);
        for break_lock in [false, true] {
            let error = WriterLock::acquire(&storage, &paths(), break_lock).unwrap_err();
            let text = error.to_string();
            let (host, process) = (&holder.host, holder.process);
            let expected = format!(
                "/ds/_turbidite/lock is locked by a writer that is running: pid {process} on {host} (SLURM_JOB_ID 4711)"
            );
            assert!(text.starts_with(&expected) && text.ends_with("; wait until it ends, or end it"), "{text}");
            assert_eq!(text.contains(", since 20"), holder.taken.is_some(), "{text}");
            assert_eq!(error.refusal(), None, "nothing recommends to break it: {text}");
            assert_eq!(lock_holder(&*storage, &paths()).unwrap().as_ref(), Some(&holder));
            assert_eq!(storage.list(&paths().control()).unwrap().len(), 1, "nothing is left beside the lock");
        }
    }
}

/// Nobody writes any more under a lock whose file could not be removed.
#[test]
fn a_lock_that_this_process_could_not_remove_is_taken_over_by_it() {
    let memory = Arc::new(MemoryStorage::new());
    let faults = FaultStorage::new(memory.clone());
    let storage: Arc<dyn Storage> = Arc::new(faults.clone());
    let (lock, _) = WriterLock::acquire(&storage, &paths(), false).unwrap();
    locked_by(WriterLock::acquire(&storage, &paths(), true));
    let first = faults.counters().operations;
    faults.add_fault(Fault::Fail { first, count: u64::MAX, kind: std::io::ErrorKind::Other });
    lock.release().unwrap_err();
    faults.heal();
    let left = lock_holder(&*storage, &paths()).unwrap().unwrap();
    assert!(left.has_ended());
    let (lock, notice) = WriterLock::acquire(&storage, &paths(), false).unwrap();
    assert_eq!(notice, Some(LockNotice::LeftOver(left)));
    lock.release().unwrap();
    // Another copy of the library in this process may still hold its lock.
    let copied = forged::Holder { copy: Some("another copy".to_owned()), ..forged::Holder::this() };
    let storage = memory_with_lock(&copied);
    for break_lock in [false, true] {
        assert!(locked_by(WriterLock::acquire(&storage, &paths(), break_lock)).contains("of this job"));
    }
}

/// Two datasets of one job may have the same folder by mistake. Breaking the lock would mix their records.
#[test]
fn a_lock_of_the_same_job_is_never_broken() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let refused = |holder: forged::Holder, storage: &Arc<dyn Storage>| {
        for break_lock in [false, true] {
            match WriterLock::acquire_as(holder.clone(), storage, &paths(), break_lock) {
                Err(error @ Error::Locked { may_be_broken: false, .. }) => {
                    let text = error.to_string();
                    assert!(
                        text.contains("of this job; if two datasets have the same folder, give each its own"),
                        "{text}"
                    );
                    assert_eq!(error.refusal(), None, "nothing recommends to break it");
                }
                other => panic!("{other:?}"),
            }
        }
    };
    let (lock, _) = WriterLock::acquire(&storage, &paths(), false).unwrap();
    refused(forged::Holder::this(), &storage);
    lock.check().unwrap();
    lock.release().unwrap();
    let other = parent();
    let of_job = |job: &str| forged::Holder { job: Some(job.to_owned()), ..other.clone() };
    let launched = |launch: &str| forged::Holder { job: None, launch: Some(launch.to_owned()), ..other.clone() };
    let me = forged::Holder {
        job: Some("PBS_JOBID 7".to_owned()),
        launch: Some("process 5 of 3".to_owned()),
        ..forged::Holder::this()
    };
    for holder in [
        of_job("PBS_JOBID 7"),
        forged::Holder { host: "elsewhere".to_owned(), ..of_job("PBS_JOBID 7") },
        launched("process 5 of 3"),
    ] {
        refused(me.clone(), &memory_with_lock(&holder));
    }
    let elsewhere = |holder: forged::Holder| forged::Holder { host: "elsewhere".to_owned(), ..holder };
    for (holder, may_break) in [
        (of_job("PBS_JOBID 8"), false),
        (launched("process 5 of 4"), false),
        (elsewhere(of_job("PBS_JOBID 8")), true),
        (elsewhere(launched("process 5 of 3")), true),
        (elsewhere(forged::Holder { job: None, ..other.clone() }), true),
    ] {
        let storage = memory_with_lock(&holder);
        match WriterLock::acquire_as(me.clone(), &storage, &paths(), false) {
            Err(Error::Locked { may_be_broken, .. }) => assert_eq!(may_be_broken, may_break, "{holder:?}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(forged::break_lock(me.clone(), &storage, &paths()).is_ok(), may_break, "{holder:?}");
    }
    // The lock of a dead process of the same job is taken over.
    let gone = forged::Holder { process: ended_process(), ..of_job("PBS_JOBID 7") };
    WriterLock::acquire_as(me, &memory_with_lock(&gone), &paths(), false).unwrap();
}

#[test]
fn a_lock_that_cannot_be_read_is_somebodys() {
    for content in [&b""[..], b"{}", b"{\"token\":\"../../etc\"}"] {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        storage.create_dir_all(&paths().control()).unwrap();
        storage.create(&paths().lock()).unwrap().write_at(0, content).unwrap();
        locked_by(WriterLock::acquire(&storage, &paths(), false));
        let (lock, notice) = WriterLock::acquire(&storage, &paths(), true).unwrap();
        assert_eq!(notice, Some(LockNotice::Broken(None)));
        lock.check().unwrap();
    }
}

#[test]
fn a_writer_whose_lock_was_broken_notices_and_does_not_release_the_new_one() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let (first, _) = WriterLock::acquire(&storage, &paths(), false).unwrap();
    let (second, notice) = forged::break_lock(forged::elsewhere(), &storage, &paths()).unwrap();
    assert!(matches!(notice, Some(LockNotice::Broken(Some(_)))));
    assert!(matches!(first.check(), Err(Error::Locked { .. })));
    first.release().unwrap();
    second.check().unwrap();
    second.release().unwrap();
    assert_eq!(lock_holder(&*storage, &paths()).unwrap(), None);
}

#[test]
fn of_many_that_take_over_at_once_one_gets_it() {
    const THREADS: usize = 8;
    let process = ended_process();
    let folder = tempfile::tempdir().unwrap();
    for round in 0..60 {
        let (storage, paths): (Arc<dyn Storage>, _) = match round % 2 {
            0 => (Arc::new(MemoryStorage::new()), paths()),
            _ => (Arc::new(FileSystem::new()), DatasetPaths::new(folder.path().join(round.to_string()))),
        };
        storage.create_dir_all(&paths.control()).unwrap();
        forged::place(&*storage, &paths.lock(), &forged::Holder { process, ..forged::Holder::this() });
        let (start, end) = (Barrier::new(THREADS), Barrier::new(THREADS));
        // If a thread failed here, the others would wait for it at the barrier. Results are therefore checked after all
        // threads have finished, and no lock is released before.
        let attempt = || {
            start.wait();
            let result = WriterLock::acquire(&storage, &paths, false);
            let checked = result.as_ref().map_or(Ok(()), |(lock, _)| lock.check());
            end.wait();
            (result.map(|_| ()), checked)
        };
        let results: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(attempt)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let won = |result: &crate::Result<()>| match result {
            Ok(()) => true,
            Err(Error::Locked { .. }) => false,
            Err(error) => panic!("round {round}: {error}"),
        };
        assert!(results.iter().filter(|(result, _)| won(result)).count() <= 1, "round {round}");
        assert!(results.iter().all(|(_, checked)| checked.is_ok()), "round {round}");
        let (_lock, _) = WriterLock::acquire(&storage, &paths, false).unwrap();
    }
}

#[test]
fn a_takeover_that_dies_anywhere_is_taken_over() {
    let gone = forged::Holder { process: ended_process(), ..forged::Holder::this() };
    let second = forged::Holder { process: ended_process(), ..forged::Holder::this() };
    let mut at = 0;
    loop {
        let inner = memory_with_lock(&gone);
        let storage = FaultStorage::with_fault(inner.clone(), Fault::Kill { at, torn: true });
        let finished = forged::acquire(&storage, &paths().lock(), &second).is_ok();
        let (lock, _) = WriterLock::acquire(&inner, &paths(), false).unwrap();
        lock.check().unwrap();
        lock.release().unwrap();
        assert_eq!(lock_holder(&*inner, &paths()).unwrap(), None, "killed at {at}");
        if finished {
            break;
        }
        at += 1;
    }
    assert!(at > 10, "the sweep covers something");
}

/// A lock that stayed would keep everybody from freeing space with `truncate`.
#[test]
fn a_lock_is_released_on_a_full_disk() {
    for bytes in [0, 1, 100] {
        let memory = Arc::new(MemoryStorage::new());
        let faults = FaultStorage::new(memory.clone());
        let storage: Arc<dyn Storage> = Arc::new(faults.clone());
        let (lock, _) = WriterLock::acquire(&storage, &paths(), false).unwrap();
        faults.add_fault(Fault::Full { bytes });
        WriterLock::acquire(&storage, &DatasetPaths::new("/other"), false).unwrap_err();
        lock.release().unwrap();
        for paths in [paths(), DatasetPaths::new("/other")] {
            assert!(memory.list(&paths.control()).unwrap().is_empty(), "{bytes} bytes fit");
        }
    }
}
