//! Tests of what rank 0's host hears of errors that all ranks return, and when.

use std::path::Path;
use std::sync::Mutex;

use super::*;
use crate::runtime::{Background, Host, ProcessResources};

const RANKS: u32 = 3;

/// A host that records the errors it hears of.
#[derive(Debug, Default)]
struct Listening {
    process: Process,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Host for Listening {
    fn now(&self) -> Duration {
        self.process.now()
    }

    fn pause(&self, longest: Duration, background: &Background, seen: u64) {
        self.process.pause(longest, background, seen);
    }

    fn resources(&self) -> Arc<ProcessResources> {
        self.process.resources()
    }

    fn start(&self, background: &Arc<Background>) -> std::io::Result<Box<dyn Send>> {
        self.process.start(background)
    }

    fn failed(&self, error: &Error) {
        self.heard.lock().unwrap().push(error.to_string());
    }
}

/// Runs `program` on all ranks, which returns an error on each. Checks that a rank that returns has been heard of, that
/// rank 0 alone hears, and each error once. Returns the error.
fn heard(
    storage: &Arc<dyn Storage>,
    columns: impl Fn(u32) -> Schema + Sync,
    program: impl Fn(u32, &mut RankJob) -> Result<()> + Sync,
) -> String {
    let all: Arc<Mutex<Vec<String>>> = Arc::default();
    let errors = run(RANKS, |rank, transport| {
        let heard = if rank == 0 { Arc::clone(&all) } else { Arc::default() };
        let host = Arc::new(Listening { heard: Arc::clone(&heard), ..Listening::default() });
        let opened = RankJob::open_on(host, Arc::clone(storage), "ds", columns(rank), options(RANKS), rank, transport);
        let error = opened.and_then(|mut job| program(rank, &mut job)).unwrap_err().to_string();
        assert!(all.lock().unwrap().contains(&error), "rank {rank} returns before rank 0 has heard of it: {error}");
        assert!(rank == 0 || heard.lock().unwrap().is_empty());
        error
    });
    let heard = all.lock().unwrap().clone();
    assert_eq!(heard, [errors[0].clone()]);
    assert!(errors.iter().all(|error| *error == errors[0]), "{errors:?}");
    errors.into_iter().next().unwrap()
}

fn same(_: u32) -> Schema {
    schema()
}

#[test]
fn rank_0_hears_of_an_error_before_any_rank_returns_it() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    for _ in 0..20 {
        let failed = heard(&storage, same, |rank, job| {
            job.begin_epoch(7)?;
            if rank == 2 {
                job.refuse("its file is cut".to_owned())?;
            }
            job.end_epoch().map(drop)
        });
        assert_eq!(failed, "epoch 7 failed on rank 2: its file is cut");
    }
    let exists = heard(&storage, same, |rank, job| {
        job.begin_epoch(8)?;
        append(job, rank, 10)?;
        job.end_epoch()?;
        job.begin_epoch(8).map(drop)
    });
    assert!(exists.starts_with("rank 0: epoch 8 already exists"), "{exists}");
}

#[test]
fn rank_0_hears_of_a_commit_that_fails() {
    let storage = FaultStorage::new(Arc::new(MemoryStorage::new()));
    let shared: Arc<dyn Storage> = Arc::new(storage.clone());
    let failed = heard(&shared, same, |rank, job| {
        job.begin_epoch(1)?;
        if rank == 0 {
            storage.add_fault(Fault::Full { bytes: 0 });
        }
        job.end_epoch().map(drop)
    });
    assert!(failed.starts_with("epoch 1 failed on rank 0: cannot write "), "{failed}");
}

#[test]
fn ranks_with_different_schemas_create_nothing() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    for odd in 0..RANKS {
        let columns = |rank: u32| {
            let key = Column::new("key", DataType::U32);
            if rank == odd { Schema::new(vec![key], "key").unwrap() } else { schema() }
        };
        let error = heard(&storage, columns, |_, _| Ok(()));
        let (has, asked, names) = if odd == 0 { (1, 2, 1) } else { (2, 1, odd) };
        let expected = format!(
            "rank {names}: schema: is not that of rank 0: it has {has} columns, but {asked} were requested here"
        );
        assert_eq!(error, expected);
        assert_eq!(storage.kind(Path::new("ds")).unwrap(), None);
    }
}

#[test]
fn a_dataset_without_epochs_may_be_removed_for_another_schema() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    run(RANKS, |rank, transport| open(&storage, options(RANKS), rank, transport).unwrap().close().unwrap());
    let other = |_| Schema::new(vec![Column::new("key", DataType::U64)], "key").unwrap();
    let error = heard(&storage, other, |_, _| Ok(()));
    assert!(error.ends_with("; it has no epochs: remove it, unless it has records to salvage"), "{error}");
    run(RANKS, |rank, transport| {
        let mut job = open(&storage, options(RANKS), rank, transport).unwrap();
        job.begin_epoch(0).unwrap();
        job.end_epoch().unwrap();
    });
    let error = heard(&storage, other, |_, _| Ok(()));
    assert!(error.ends_with("was requested"), "{error}");
}

#[test]
fn negative_epochs_are_refused() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let error = heard(&storage, same, |_, job| job.begin_epoch(-100i64 as u64).map(drop));
    assert_eq!(error, "rank 0: epoch: 18446744073709551516 is above 2^63 - 1: was it negative?");
}

#[test]
fn ranks_that_all_refuse_to_open_are_told_of_the_first() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let texts = run(RANKS, |rank, transport| {
        let cause = Error::Refused { rank, class: ErrorClass::Usage, refusal: None, cause: format!("{rank} refuses") };
        let host = Arc::new(Listening::default());
        let heard = Arc::clone(&host.heard);
        let error = RankJob::refuse_open(host, Arc::clone(&storage), options(RANKS), rank, transport, cause);
        assert_eq!(heard.lock().unwrap().len(), usize::from(rank == 0));
        error.to_string()
    });
    assert_eq!(texts, ["rank 0: 0 refuses"; RANKS as usize]);
}

/// A host on which a minute passes in no time, and which records that `begin_epoch` waits. Other calls may wait as long
/// on a busy machine.
#[derive(Debug, Default)]
struct Hurried {
    process: Process,
    stall: Arc<Mutex<Option<String>>>,
}

impl Host for Hurried {
    fn now(&self) -> Duration {
        self.process.now() * 1000
    }

    fn pause(&self, longest: Duration, background: &Background, seen: u64) {
        self.process.pause(longest, background, seen);
    }

    fn start(&self, background: &Arc<Background>) -> std::io::Result<Box<dyn Send>> {
        self.process.start(background)
    }

    fn waits(&self, stall: &Error) {
        if stall.to_string().contains(" in begin_epoch ") {
            *self.stall.lock().unwrap() = Some(stall.to_string());
        }
    }
}

#[test]
fn a_call_that_waits_for_long_says_so_and_goes_on() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let stalls: [Arc<Mutex<Option<String>>>; 2] = Default::default();
    run(2, |rank, transport| {
        let host = Arc::new(Hurried { stall: Arc::clone(&stalls[rank as usize]), ..Hurried::default() });
        let options = WriteOptions { stall_limit: None, ..options(2) };
        let mut job = RankJob::open_on(host, Arc::clone(&storage), "ds", schema(), options, rank, transport).unwrap();
        if rank == 0 {
            while stalls[1].lock().unwrap().is_none() {
                std::thread::yield_now();
            }
        }
        job.begin_epoch(1).unwrap();
        job.end_epoch().unwrap();
    });
    let said = stalls[1].lock().unwrap().clone().unwrap();
    assert!(said.starts_with("rank 1 has waited ") && said.contains(" without progress"), "{said}");
}
