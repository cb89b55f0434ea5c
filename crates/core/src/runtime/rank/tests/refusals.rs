//! Tests of rank 0's errors when ranks open a dataset, and of the parts of failed epochs.

use super::*;
use crate::error::Refusal;

const RANKS: u32 = 3;

/// Opens the dataset, writes `epoch` if it is given, and closes the dataset. Returns the result, which is the same on
/// every rank.
fn open_and_write(storage: &Arc<dyn Storage>, options: &WriteOptions, epoch: Option<u64>) -> Result<(), Error> {
    let results = run(RANKS, |rank, transport| -> Result<()> {
        let mut job = open(&Arc::clone(storage), options.clone(), rank, transport)?;
        if let Some(epoch) = epoch {
            job.begin_epoch(epoch)?;
            append(&mut job, rank, 100)?;
            job.end_epoch()?;
        }
        job.close()
    });
    let outcome = |result: &Result<()>| result.as_ref().map_err(|error| (error.to_string(), error.refusal())).copied();
    assert!(results.iter().all(|result| outcome(result) == outcome(&results[0])), "{results:?}");
    results.into_iter().next().unwrap()
}

fn of_source(source: Option<&str>, match_source: bool) -> WriteOptions {
    WriteOptions { source: source.map(str::to_owned), match_source, ..options(RANKS) }
}

#[test]
fn a_dataset_of_another_source_is_refused_where_sources_must_match() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let of = |source: &str| of_source(Some(source), true);
    open_and_write(&storage, &of("watch: electrons"), Some(1)).unwrap();
    open_and_write(&storage, &of("watch: electrons"), Some(2)).unwrap();
    let error = open_and_write(&storage, &of("watch: ions"), Some(3)).unwrap_err();
    assert_eq!(error.refusal(), Some(Refusal::OtherSource));
    let text = error.to_string();
    assert_eq!(text, "rank 0: ds was written from another source: 'watch: electrons', not 'watch: ions'");
    // Sources without a scheme or with another scheme are not compared.
    for source in [None, Some("dumps/run7"), Some("other: ions"), Some("watch")] {
        open_and_write(&storage, &of_source(source, true), None).unwrap();
    }
    open_and_write(&storage, &of_source(Some("watch: ions"), false), Some(3)).unwrap();
    for source in [None, Some("dumps/run7"), Some("copy of a, from watch: electrons")] {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        open_and_write(&storage, &of_source(source, false), None).unwrap();
        open_and_write(&storage, &of("watch: ions"), Some(1)).unwrap();
    }
}

#[test]
fn a_dataset_with_epochs_is_refused_where_it_must_be_empty() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let begin = WriteOptions { must_be_empty: true, ..options(RANKS) };
    open_and_write(&storage, &begin, None).unwrap();
    open_and_write(&storage, &begin, Some(50)).unwrap();
    let error = open_and_write(&storage, &begin, Some(100)).unwrap_err();
    assert_eq!(error.refusal(), Some(Refusal::EpochsExist));
    assert_eq!(error.to_string(), "rank 0: ds has epochs of an earlier run: epoch 50");
    for epoch in [400, 7] {
        open_and_write(&storage, &options(RANKS), Some(epoch)).unwrap();
    }
    let error = open_and_write(&storage, &begin, Some(100)).unwrap_err();
    assert_eq!(error.to_string(), "rank 0: ds has epochs of an earlier run: 3 epochs, 7 to 400");
}

/// Writes two epochs that fail on rank 2 and one that does not. `after` is then called on every rank.
fn fail_twice(after: impl Fn(&mut RankJob) -> u64 + Sync) -> (Arc<dyn Storage>, Vec<u64>) {
    let memory: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let answers = run(RANKS, |rank, transport| {
        let faulty = FaultStorage::new(Arc::clone(&memory));
        let storage: Arc<dyn Storage> = if rank == 2 { Arc::new(faulty.clone()) } else { Arc::clone(&memory) };
        let mut job = open(&storage, options(RANKS), rank, transport).unwrap();
        for epoch in [0, 1] {
            job.begin_epoch(epoch).unwrap();
            faulty.add_fault(Fault::Full { bytes: 10_000 });
            append(&mut job, rank, 20_000).unwrap();
            job.end_epoch().unwrap_err();
            faulty.heal();
        }
        assert!(job.has_failed());
        let answer = after(&mut job);
        assert!(!job.has_failed());
        assert_eq!(job.discard_failed().unwrap(), 0, "there is nothing left to do");
        job.begin_epoch(2).unwrap();
        append(&mut job, rank, 20_000).unwrap();
        job.end_epoch().unwrap();
        job.close().unwrap();
        answer
    });
    assert!(stored(&memory, 2, RANKS).into_iter().all(|keys| keys == expected(20_000)));
    (memory, answers)
}

/// Returns the number of attempts whose folders exist.
fn attempts(storage: &Arc<dyn Storage>) -> usize {
    storage.list(&DatasetPaths::new("ds").unfinished()).unwrap().len()
}

#[test]
fn parts_of_failed_epochs_stay_until_they_are_discarded() {
    let (storage, bytes) = fail_twice(|job| job.discard_failed().unwrap());
    assert_eq!(attempts(&storage), 0);
    // The parts are those of ranks 0 and 1 in two epochs. Rank 0 has removed all of them.
    assert!(bytes[0] > 2 * 10_000 && bytes[1..] == [0, 0], "{bytes:?}");

    let (storage, _) = fail_twice(|job| {
        job.keep_failed();
        0
    });
    assert_eq!(attempts(&storage), 2);
}

/// Returns the sizes of the files of failed epochs, in order.
fn left_by_failures(storage: &Arc<dyn Storage>) -> Vec<u64> {
    let paths = DatasetPaths::new("ds");
    let mut sizes = Vec::new();
    for attempt in storage.list(&paths.unfinished()).unwrap() {
        let folder = paths.unfinished().join(attempt.name);
        let parts = storage.list(&folder).unwrap();
        sizes.extend(parts.iter().map(|part| storage.open(&folder.join(&part.name)).unwrap().bytes()));
    }
    sizes.sort_unstable();
    sizes
}

/// Writes an epoch while the disk has room for `bytes` only. Returns the error.
fn fill_up(faulty: &FaultStorage, bytes: u64, write: impl Fn() -> Result<()>) -> String {
    faulty.add_fault(Fault::Full { bytes });
    let error = write().unwrap_err().to_string();
    faulty.heal();
    error
}

/// A run that did not fit stayed, with megabytes that nothing could read, so that the next epoch did not fit either.
#[test]
fn a_full_disk_is_left_without_useless_files() {
    let faulty = FaultStorage::new(Arc::new(MemoryStorage::new()));
    let storage: Arc<dyn Storage> = Arc::new(faulty.clone());
    // A run of this job takes about 40,000 bytes: the first limit is met in the first run, the other in a later one.
    for (bytes, salvageable) in [(20_000, false), (100_000, true)] {
        let options = WriteOptions { memtable_bytes: 40_000, ..options(1) };
        let job = std::cell::RefCell::new(
            RankJob::open_alone_on(Arc::new(Process::new()), Arc::clone(&storage), "ds", schema(), options.clone())
                .unwrap(),
        );
        let error = fill_up(&faulty, bytes, || {
            let mut job = job.borrow_mut();
            job.begin_epoch(0)?;
            append(&mut job, 0, 60_000)?;
            job.end_epoch().map(drop)
        });
        assert!(error.starts_with("epoch 0 failed on rank 0: cannot write ds/_turbidite/tmp/0."), "{error}");
        let left = left_by_failures(&storage);
        assert_eq!(attempts(&storage), usize::from(salvageable), "{left:?}");
        assert!(left.iter().all(|size| *size > 0 && *size <= bytes && size % 4096 == 0), "{left:?}");
        job.borrow_mut().discard_failed().unwrap();
        job.into_inner().close().unwrap();

        let local = LocalJob::open_with(Arc::clone(&storage), "ds", schema(), options).unwrap();
        let rows = vec![1; 8 * 60_000];
        let view = |offset: usize| ColumnView::new(&rows[offset..], 8, 60_000, DataType::U32).unwrap();
        let error = fill_up(&faulty, bytes, || {
            local.begin_epoch(0)?;
            local.append(0, &[view(0), view(4)])?;
            local.end_epoch().map(drop)
        });
        assert!(error.contains("cannot write ds/_turbidite/tmp/0."), "{error}");
        assert_eq!(attempts(&storage), usize::from(salvageable));
        local.discard_failed().unwrap();
        local.close().unwrap();
    }
}

/// Files that cannot be removed when the epoch fails are removed before the next one begins.
#[test]
fn useless_files_are_removed_before_the_next_epoch_at_the_latest() {
    let faulty = FaultStorage::new(Arc::new(MemoryStorage::new()));
    let storage: Arc<dyn Storage> = Arc::new(faulty.clone());
    let mut job =
        RankJob::open_alone_on(Arc::new(Process::new()), Arc::clone(&storage), "ds", schema(), options(1)).unwrap();
    job.begin_epoch(0).unwrap();
    let first = faulty.counters().operations;
    faulty.add_fault(Fault::Fail { first, count: u64::MAX, kind: std::io::ErrorKind::StorageFull });
    append(&mut job, 0, 1_000).unwrap();
    job.end_epoch().unwrap_err();
    faulty.heal();
    assert_eq!(attempts(&storage), 1);
    job.begin_epoch(1).unwrap();
    assert_eq!(attempts(&storage), 1, "that of epoch 1");
    append(&mut job, 0, 1_000).unwrap();
    job.end_epoch().unwrap();
    assert_eq!((attempts(&storage), left_by_failures(&storage)), (0, Vec::new()));
    job.close().unwrap();
}

#[test]
fn a_job_whose_lock_was_broken_discards_nothing() {
    let storage = FaultStorage::new(Arc::new(MemoryStorage::new()));
    let shared: Arc<dyn Storage> = Arc::new(storage.clone());
    let mut job =
        RankJob::open_alone_on(Arc::new(Process::new()), Arc::clone(&shared), "ds", schema(), options(1)).unwrap();
    job.begin_epoch(0).unwrap();
    append(&mut job, 0, 20_000).unwrap();
    job.refuse("the program says so".to_owned()).unwrap();
    job.end_epoch().unwrap_err();
    assert_eq!(attempts(&shared), 1);
    storage.remove_file(&DatasetPaths::new("ds").lock()).unwrap();
    assert!(matches!(job.discard_failed(), Err(Error::Locked { .. })));
    assert_eq!(attempts(&shared), 1);
}

/// The error named the rank twice: "failed on rank 1: rank 1: …".
#[test]
fn a_failure_names_its_rank_once() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let texts = run(RANKS, |rank, transport| {
        let mut job = open(&storage, options(RANKS), rank, transport).unwrap();
        job.begin_epoch(0).unwrap();
        if rank == 1 {
            job.refuse("its file is cut".to_owned()).unwrap();
        }
        job.end_epoch().unwrap_err().to_string()
    });
    assert_eq!(texts, ["epoch 0 failed on rank 1: its file is cut"; RANKS as usize]);
    // A rank that cannot open the dataset may report an error of another operation.
    let texts = run(RANKS, |rank, transport| {
        let cause = Error::Refused { rank, class: ErrorClass::Failed, refusal: None, cause: "no memory".to_owned() };
        match rank {
            1 => RankJob::refuse_open(options(RANKS), rank, transport, cause).to_string(),
            _ => open(&storage, options(RANKS), rank, transport).map(drop).unwrap_err().to_string(),
        }
    });
    assert_eq!(texts, ["rank 1: no memory"; RANKS as usize]);
}

/// The other ranks waited for the one whose levels do not fit the schema.
#[test]
fn levels_that_one_rank_cannot_make_are_refused_on_all_ranks() {
    for wrong in 0..2 {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let texts = run(2, |rank, transport| {
            let levels = if rank == wrong { 3 } else { 0 };
            open(&storage, WriteOptions { levels, ..options(2) }, rank, transport).map(drop).unwrap_err().to_string()
        });
        assert!(texts.iter().all(|text| text.contains("levels of detail") && *text == texts[0]), "{texts:?}");
        assert!(storage.list(std::path::Path::new("ds")).is_err(), "no dataset is created");
    }
}

#[test]
fn an_epoch_that_one_process_refuses_fails_and_can_be_discarded() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let job = LocalJob::open_with(Arc::clone(&storage), "ds", schema(), options(2)).unwrap();
    assert!(matches!(job.refuse(String::new()), Err(Error::Usage(_))));
    job.begin_epoch(0).unwrap();
    let bytes = vec![0; 8 * 50_000];
    let view = |offset: usize| ColumnView::new(&bytes[offset..], 8, 50_000, DataType::U32).unwrap();
    job.append(1, &[view(0), view(4)]).unwrap();
    job.refuse("the source is cut".to_owned()).unwrap();
    let error = job.end_epoch().unwrap_err();
    assert_eq!(error.to_string(), "epoch 0 failed on rank 0: the source is cut");
    assert_eq!(attempts(&storage), 1);
    job.discard_failed().unwrap();
    assert_eq!(attempts(&storage), 0);
    job.begin_epoch(0).unwrap();
    job.append(1, &[view(0), view(4)]).unwrap();
    assert_eq!(job.end_epoch().unwrap().rows, 50_000);
    assert_eq!(job.discard_failed().unwrap(), 0);
    job.close().unwrap();
}
