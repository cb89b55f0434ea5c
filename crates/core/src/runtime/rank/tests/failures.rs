//! Tests of what a listener hears of errors that all ranks return, and when.

use std::path::Path;
use std::sync::Mutex;

use super::*;
use crate::runtime::{Background, Host, Listener};

const RANKS: u32 = 3;

/// Records the errors it hears of.
#[derive(Debug, Default)]
struct Heard(Mutex<Vec<String>>);

impl Listener for Heard {
    fn failed(&self, error: &Error) {
        self.0.lock().unwrap().push(error.to_string());
    }

    fn waits(&self, _: &Error) {}
}

fn heard_by(heard: &Arc<Heard>) -> WriteOptions {
    WriteOptions { listener: Some(Arc::clone(heard) as Arc<dyn Listener>), ..options(RANKS) }
}

/// Runs `program` on all ranks, which returns an error on each. Checks that a rank that returns has been heard of, that
/// rank 0 alone hears, and each error once. Returns the error.
fn heard(
    storage: &Arc<dyn Storage>,
    columns: impl Fn(u32) -> Schema + Sync,
    program: impl Fn(u32, &mut RankJob) -> Result<()> + Sync,
) -> String {
    let of_ranks: [Arc<Heard>; RANKS as usize] = Default::default();
    let errors = run(RANKS, |rank, transport| {
        let (host, options) = (Arc::new(Process::new()), heard_by(&of_ranks[rank as usize]));
        let opened = RankJob::open_on(host, Arc::clone(storage), "ds", columns(rank), options, rank, transport);
        let error = opened.and_then(|mut job| program(rank, &mut job)).unwrap_err().to_string();
        let is_heard = of_ranks[0].0.lock().unwrap().contains(&error);
        assert!(is_heard, "rank {rank} returns before rank 0 has heard of it: {error}");
        error
    });
    assert!(of_ranks[1..].iter().all(|heard| heard.0.lock().unwrap().is_empty()));
    let heard = of_ranks[0].0.lock().unwrap().clone();
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
    let texts = run(RANKS, |rank, transport| {
        let cause = Error::Refused { rank, class: ErrorClass::Usage, refusal: None, cause: format!("{rank} refuses") };
        let heard = Arc::default();
        let error = RankJob::refuse_open(heard_by(&heard), rank, transport, cause);
        assert_eq!(heard.0.lock().unwrap().len(), usize::from(rank == 0));
        error.to_string()
    });
    assert_eq!(texts, ["rank 0: 0 refuses"; RANKS as usize]);
}

/// A host on which a minute passes in no time.
#[derive(Debug, Default)]
struct Hurried(Process);

impl Host for Hurried {
    fn now(&self) -> Duration {
        self.0.now() * 1000
    }

    fn pause(&self, longest: Duration, background: &Background, seen: u64) {
        self.0.pause(longest, background, seen);
    }

    fn start(&self, background: &Arc<Background>) -> std::io::Result<Box<dyn Send>> {
        self.0.start(background)
    }
}

/// Records that `begin_epoch` waits. Other calls may wait as long on a busy machine.
#[derive(Debug, Default)]
struct Waited(Mutex<Option<String>>);

impl Listener for Waited {
    fn failed(&self, _: &Error) {}

    fn waits(&self, stall: &Error) {
        if stall.to_string().contains(" in begin_epoch ") {
            *self.0.lock().unwrap() = Some(stall.to_string());
        }
    }
}

#[test]
fn a_call_that_waits_for_long_says_so_and_goes_on() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let waited: Arc<Waited> = Arc::default();
    run(2, |rank, transport| {
        let listener = (rank == 1).then(|| Arc::clone(&waited) as Arc<dyn Listener>);
        let options = WriteOptions { stall_limit: None, listener, ..options(2) };
        let host = Arc::new(Hurried::default());
        let mut job = RankJob::open_on(host, Arc::clone(&storage), "ds", schema(), options, rank, transport).unwrap();
        while rank == 0 && waited.0.lock().unwrap().is_none() {
            std::thread::yield_now();
        }
        job.begin_epoch(1).unwrap();
        job.end_epoch().unwrap();
    });
    let said = waited.0.lock().unwrap().clone().unwrap();
    assert!(said.starts_with("rank 1 has waited ") && said.contains(" without progress"), "{said}");
}
