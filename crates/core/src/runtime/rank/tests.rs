//! Tests of ranks on separate threads, like the processes of an MPI job, over mailboxes and storage in memory.

mod attributes;
mod bitmaps;
mod failures;
mod index_add;
mod indexes;
mod overview;
mod panics;
mod refusals;
mod resumed;
mod small_epochs;
mod space_index;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::RankJob;
use crate::error::{Error, ErrorClass, Result};
use crate::query::{Dataset, Query};
use crate::runtime::local::LocalJob;
use crate::runtime::local::mailbox::{MailboxTransport, Mailboxes};
use crate::runtime::{EpochStart, Process, WriteOptions};
use crate::schema::{Column, ColumnView, DataType, Schema};
use crate::shuffle::{Channel, Sent, Transport};
use crate::storage::{Fault, FaultStorage, MemoryStorage, Storage};
use crate::store::{DatasetPaths, EpochRange, IfExists, forged};

/// A timeout that no load of the machine exceeds.
const AMPLE: Duration = Duration::from_secs(300);

fn schema() -> Schema {
    Schema::new(vec![Column::new("key", DataType::U32), Column::new("origin", DataType::U32)], "key").unwrap()
}

fn options(ranks: u32) -> WriteOptions {
    WriteOptions {
        memtable_bytes: 32 << 10,
        credit_timeout: Duration::from_millis(50),
        stall_limit: Some(AMPLE),
        ..WriteOptions::new(ranks)
    }
}

/// Runs `program` on every rank and returns the results in the order of the ranks.
fn run<T: Send>(ranks: u32, program: impl Fn(u32, Box<dyn Transport + Send>) -> T + Sync) -> Vec<T> {
    let mailboxes = Arc::new(Mailboxes::new(ranks, 4));
    std::thread::scope(|scope| {
        let spawn = |rank| {
            let (program, link) = (&program, MailboxTransport { rank, mailboxes: Arc::clone(&mailboxes) });
            scope.spawn(move || program(rank, Box::new(link)))
        };
        let threads: Vec<_> = (0..ranks).map(spawn).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Opens the dataset in `storage` as one rank of a job, in a process of its own.
fn open(
    storage: &Arc<dyn Storage>,
    options: WriteOptions,
    rank: u32,
    transport: Box<dyn Transport + Send>,
) -> Result<RankJob> {
    RankJob::open_on(Arc::new(Process::new()), Arc::clone(storage), "ds", schema(), options, rank, transport)
}

fn append(job: &mut RankJob, rank: u32, rows: u32) -> Result<()> {
    let bytes: Vec<u8> = (0..rows)
        .flat_map(|row| [(row.wrapping_mul(0x9E37_79B9) >> 8).to_le_bytes(), rank.to_le_bytes()].concat())
        .collect();
    for chunk in bytes.chunks(8 * 1000) {
        let len = chunk.len() / 8;
        let view = |offset: usize| ColumnView::new(&chunk[offset..], 8, len, DataType::U32);
        job.append(&[view(0)?, view(4)?])?;
    }
    Ok(())
}

/// Returns every rank's keys in an epoch, sorted.
fn stored(storage: &Arc<dyn Storage>, epoch: u64, ranks: u32) -> Vec<Vec<u32>> {
    let dataset = Dataset::open_with(Arc::clone(storage), "ds").unwrap();
    let mut found = vec![Vec::new(); ranks as usize];
    for batch in dataset.run(&Query::new().epochs(EpochRange::one(epoch))).unwrap() {
        let batch = batch.unwrap();
        let column = |name: &str| {
            let column = batch.column_by_name(name).unwrap();
            column.as_any().downcast_ref::<arrow_array::UInt32Array>().unwrap().values().to_vec()
        };
        for (key, origin) in column("key").into_iter().zip(column("origin")) {
            found[origin as usize].push(key);
        }
    }
    found.iter_mut().for_each(|keys| keys.sort_unstable());
    found
}

fn expected(rows: u32) -> Vec<u32> {
    let mut keys: Vec<u32> = (0..rows).map(|row| row.wrapping_mul(0x9E37_79B9) >> 8).collect();
    keys.sort_unstable();
    keys
}

#[test]
fn ranks_write_epochs_together() {
    for ranks in [1, 2, 3, 7, 16] {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let metrics = run(ranks, |rank, transport| -> Result<_> {
            let mut job = open(&storage, options(ranks), rank, transport)?;
            let mut metrics = Vec::new();
            for epoch in 0..3 {
                assert_eq!(job.begin_epoch(epoch)?, EpochStart::Started);
                append(&mut job, rank, 5000 + rank)?;
                if epoch == 1 {
                    job.renegotiate()?;
                    job.start_end_epoch()?;
                    metrics.push(job.wait_end_epoch()?);
                } else {
                    metrics.push(job.end_epoch()?);
                }
            }
            job.close()?;
            Ok(metrics)
        });
        let metrics: Vec<_> = metrics.into_iter().map(Result::unwrap).collect();
        let total = u64::from((0..ranks).map(|rank| 5000 + rank).sum::<u32>());
        for epoch in 0..3 {
            assert_eq!(metrics[0][epoch].rows, total);
            let others = metrics.iter().map(|rank| (rank[epoch].rows, &rank[epoch].rows_per_receiver));
            assert!(others.clone().all(|one| one == others.clone().next().unwrap()), "all ranks know the same");
            let found = stored(&storage, epoch as u64, ranks);
            for (rank, keys) in (0..).zip(found) {
                assert_eq!(keys, expected(5000 + rank), "{ranks} ranks, epoch {epoch}, rank {rank}");
            }
        }
    }
}

/// A connection that must not be used after the process has begun to end.
struct Ending {
    link: MailboxTransport,
    ends: Arc<AtomicBool>,
}

impl Ending {
    fn check(&self) {
        assert!(!self.ends.load(Ordering::SeqCst), "the transport was used while the process ended");
    }
}

impl Transport for Ending {
    fn send(&mut self, to: u32, channel: Channel, message: Vec<u8>) -> Sent {
        self.check();
        self.link.send(to, channel, message)
    }

    fn poll(&mut self, channel: Channel) -> Option<Vec<u8>> {
        self.check();
        self.link.poll(channel)
    }

    fn abandon(&mut self) {
        self.check();
        self.link.abandon();
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.check();
    }
}

#[test]
fn an_abandoned_job_gives_up_the_lock_without_a_call_of_the_transport() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let mailboxes = Arc::new(Mailboxes::new(1, 4));
    for in_epoch in [false, true] {
        let ends = Arc::new(AtomicBool::new(false));
        let link = MailboxTransport { rank: 0, mailboxes: Arc::clone(&mailboxes) };
        let transport = Box::new(Ending { link, ends: Arc::clone(&ends) });
        // Opening the dataset again requires the lock that the first job held.
        let mut job = open(&storage, options(1), 0, transport).unwrap();
        job.begin_epoch(u64::from(in_epoch)).unwrap();
        append(&mut job, 0, 5000).unwrap();
        if !in_epoch {
            job.end_epoch().unwrap();
        }
        ends.store(true, Ordering::SeqCst);
        job.abandon().unwrap();
    }
    let locked = crate::store::lock_holder(&*storage, &DatasetPaths::new("ds")).unwrap();
    assert_eq!(locked, None);
}

#[test]
fn what_fails_on_one_rank_fails_on_all_and_the_next_epoch_works() {
    let memory = Arc::new(MemoryStorage::new());
    let ranks = 4;
    let results = run(ranks, |rank, transport| -> Result<_> {
        // Rank 2 has its own disk, which is full during the first epoch.
        let faulty = Arc::new(FaultStorage::new(Arc::clone(&memory) as Arc<dyn Storage>));
        let storage: Arc<dyn Storage> = if rank == 2 { Arc::clone(&faulty) as _ } else { Arc::clone(&memory) as _ };
        let mut job = open(&storage, options(ranks), rank, transport)?;
        job.begin_epoch(0)?;
        faulty.add_fault(Fault::Full { bytes: 10_000 });
        append(&mut job, rank, 20_000)?;
        let failed = job.end_epoch().map_err(|error| (error.class(), error.to_string()));
        faulty.heal();
        job.begin_epoch(1)?;
        append(&mut job, rank, 20_000)?;
        job.end_epoch()?;
        job.close()?;
        Ok(failed.map(drop))
    });
    let first = results[0].as_ref().unwrap().clone().unwrap_err();
    assert_eq!(first.0, ErrorClass::Failed);
    assert!(first.1.starts_with("epoch 0 failed on rank 2: "), "{}", first.1);
    for result in &results {
        assert_eq!(result.as_ref().unwrap().as_ref().unwrap_err(), &first, "the same on every rank");
    }
    let storage: Arc<dyn Storage> = memory;
    assert_eq!(Dataset::open_with(Arc::clone(&storage), "ds").unwrap().epochs().unwrap(), [1]);
    assert!(stored(&storage, 1, ranks).into_iter().all(|keys| keys == expected(20_000)));
}

#[test]
fn refusals_are_the_same_everywhere() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let ranks = 3;
    let texts = run(ranks, |rank, transport| {
        let mut job = open(&storage, options(ranks), rank, transport).unwrap();
        for epoch in [10, 20, 30] {
            job.begin_epoch(epoch).unwrap();
            append(&mut job, rank, 100).unwrap();
            job.end_epoch().unwrap();
        }
        let exists = job.begin_epoch(20).unwrap_err();
        assert_eq!(job.replace_epoch(20).unwrap(), EpochStart::Started, "its own epoch, whatever the options say");
        append(&mut job, rank, 7).unwrap();
        assert_eq!(job.end_epoch().unwrap().rows, 7 * u64::from(ranks));
        assert_eq!(job.truncate_after(10).unwrap(), [20, 30]);
        job.begin_epoch(20).unwrap();
        job.end_epoch().unwrap();
        job.close().unwrap();
        exists.to_string()
    });
    assert!(texts[0].contains("epoch 20 already exists") && texts.iter().all(|text| *text == texts[0]), "{texts:?}");

    let other = || Schema::new(vec![Column::new("key", DataType::F64)], "key").unwrap();
    for (odd, schema_of_odd) in [(0, other()), (1, other()), (2, other())] {
        let texts = run(ranks, |rank, transport| {
            let schema = if rank == odd { schema_of_odd.clone() } else { schema() };
            let opened = RankJob::open_on(
                Arc::new(Process::new()),
                Arc::clone(&storage),
                "ds",
                schema,
                options(ranks),
                rank,
                transport,
            );
            opened.map(drop).unwrap_err().to_string()
        });
        assert!(texts[0].contains("'key' is") && texts.iter().all(|text| *text == texts[0]), "{texts:?}");
    }

    let skipped = run(ranks, |rank, transport| {
        let options = WriteOptions { if_exists: IfExists::Skip, ..options(ranks) };
        let mut job = open(&storage, options, rank, transport).unwrap();
        let start = job.begin_epoch(10).unwrap();
        assert!(matches!(job.append(&[]), Err(Error::Usage(_))), "a skipped epoch takes nothing");
        assert_eq!(job.replace_epoch(10).unwrap(), EpochStart::Started);
        job.end_epoch().unwrap();
        start
    });
    assert_eq!(skipped, [EpochStart::Skipped; 3]);
}

/// Found by the simulator: only the beginning of an epoch checked whether this job still held the lock.
#[test]
fn a_job_whose_lock_was_broken_removes_nothing() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let break_lock = || forged::break_lock(forged::elsewhere(), &storage, &DatasetPaths::new("ds")).unwrap();
    let mut job =
        RankJob::open_alone_on(Arc::new(Process::new()), Arc::clone(&storage), "ds", schema(), options(1)).unwrap();
    for epoch in [1, 2] {
        job.begin_epoch(epoch).unwrap();
        job.end_epoch().unwrap();
    }
    let broken = break_lock();
    let error = job.truncate_after(1).unwrap_err();
    assert!(error.to_string().contains("broke this writer's lock"), "{error}");
    drop((job, broken));

    let local = LocalJob::open_with(Arc::clone(&storage), "ds", schema(), options(1)).unwrap();
    let broken = break_lock();
    assert!(matches!(local.truncate_after(1), Err(Error::Locked { .. })));
    assert!(matches!(local.begin_epoch(3), Err(Error::Locked { .. })));
    drop((local, broken));
    assert_eq!(storage.list(&DatasetPaths::new("ds").unfinished()).unwrap(), [], "no attempt was begun");
    assert_eq!(Dataset::open_with(storage, "ds").unwrap().epochs().unwrap(), [1, 2]);
}

#[test]
fn ranks_that_begin_different_epochs_are_told() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let texts = run(3, |rank, transport| {
        let mut job = open(&storage, options(3), rank, transport).unwrap();
        job.begin_epoch(if rank == 1 { 6 } else { 5 }).unwrap();
        append(&mut job, rank, 1000).unwrap();
        job.end_epoch().unwrap_err().to_string()
    });
    assert!(texts.iter().all(|text| text.contains("rank 1 began epoch 6, but rank 0 began 5")), "{texts:?}");
}

#[test]
fn a_token_passed_from_rank_to_rank_does_not_hang() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let ranks = 4;
    let done: Vec<AtomicBool> = (0..ranks).map(|_| AtomicBool::new(false)).collect();
    let metrics = run(ranks, |rank, transport| {
        let mut job = open(&storage, options(ranks), rank, transport).unwrap();
        job.begin_epoch(0).unwrap();
        // The program waits elsewhere, so this rank's engine is not driven.
        while rank > 0 && !done[rank as usize - 1].load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        append(&mut job, rank, 200_000).unwrap();
        done[rank as usize].store(true, Ordering::SeqCst);
        job.end_epoch().unwrap()
    });
    assert!(metrics[0].spills > 0, "what nobody took stays where it was");
    assert!(stored(&storage, 0, ranks).into_iter().all(|keys| keys == expected(200_000)));
}

/// A rank's connection that accepts no records while others append.
struct Deaf {
    transport: Box<dyn Transport + Send>,
    appending: Arc<AtomicU32>,
}

impl Transport for Deaf {
    fn send(&mut self, to: u32, channel: Channel, message: Vec<u8>) -> Sent {
        self.transport.send(to, channel, message)
    }

    fn poll(&mut self, channel: Channel) -> Option<Vec<u8>> {
        let is_deaf = channel != Channel::Control && self.appending.load(Ordering::SeqCst) > 0;
        if is_deaf { None } else { self.transport.poll(channel) }
    }
}

#[test]
fn a_rank_that_stands_still_costs_the_others_one_timeout() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let appending = Arc::new(AtomicU32::new(2));
    let credit_timeout = Duration::from_secs(1);
    let waited = run(3, |rank, transport| {
        let transport = match rank {
            2 => Box::new(Deaf { transport, appending: Arc::clone(&appending) }),
            _ => transport,
        };
        let options = WriteOptions { credit_timeout, ..options(3) };
        let mut job = open(&storage, options, rank, transport).unwrap();
        job.begin_epoch(0).unwrap();
        let begun = Instant::now();
        if rank == 2 {
            while job.driver.endpoint().engine.table_version() == 0 {
                job.progress().unwrap();
            }
            // The rank has taken part in a table and accepted no record. The other two still exchange their records.
            while appending.load(Ordering::SeqCst) > 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        } else {
            append(&mut job, rank, 1_000_000).unwrap();
            appending.fetch_sub(1, Ordering::SeqCst);
        }
        let waited = begun.elapsed();
        let metrics = job.end_epoch().unwrap();
        assert!(metrics.spills > 500_000, "{metrics:?}");
        waited
    });
    // Each rank had some eighty batches that were not accepted. Each of them could cost a wait.
    assert!(waited.iter().all(|&waited| waited < 60 * credit_timeout), "{waited:?}");
    let rows: usize = stored(&storage, 0, 3).iter().map(Vec::len).sum();
    assert_eq!(rows, 2_000_000);
}

#[test]
fn a_rank_that_never_comes_ends_in_an_error() {
    /// Records whether the connection was abandoned.
    struct Watched(Box<dyn Transport + Send>, Arc<AtomicBool>);

    impl Transport for Watched {
        fn send(&mut self, to: u32, channel: Channel, message: Vec<u8>) -> Sent {
            assert!(!self.1.load(Ordering::SeqCst), "nothing is sent after that");
            self.0.send(to, channel, message)
        }

        fn poll(&mut self, channel: Channel) -> Option<Vec<u8>> {
            assert!(!self.1.load(Ordering::SeqCst), "nothing is polled after that");
            self.0.poll(channel)
        }

        fn abandon(&mut self) {
            self.1.store(true, Ordering::SeqCst);
        }
    }

    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let results = run(3, |rank, transport| {
        let abandoned = Arc::new(AtomicBool::new(false));
        let transport = Box::new(Watched(transport, Arc::clone(&abandoned)));
        let mut job = open(&storage, options(3), rank, transport).unwrap();
        job.begin_epoch(0).unwrap();
        append(&mut job, rank, 1000).unwrap();
        if rank == 1 {
            return None;
        }
        // The limit is set only now, since ranks may wait for each other earlier on a busy machine.
        job.driver.stall_limit = Some(Duration::from_millis(300));
        let error = job.end_epoch().unwrap_err();
        assert!(abandoned.load(Ordering::SeqCst), "closing the transport must not wait either");
        assert!(matches!(job.begin_epoch(1), Err(Error::Usage(_))), "the job is not used after that");
        assert!(matches!(job.progress(), Err(Error::Usage(_))));
        job.close().unwrap();
        Some(error)
    });
    assert!(matches!(results[0], Some(Error::Stalled { rank: 0, call: "end_epoch", .. })), "{:?}", results[0]);
    assert!(results[1].is_none() && matches!(results[2], Some(Error::Stalled { rank: 2, .. })));
    assert!(Dataset::open_with(storage, "ds").unwrap().epochs().unwrap().is_empty());
}

#[test]
fn a_broken_transport_is_an_error() {
    /// A transport that passes messages until it fails.
    struct Failing(MailboxTransport, u32);

    impl Transport for Failing {
        fn send(&mut self, to: u32, channel: Channel, message: Vec<u8>) -> Sent {
            self.1 = self.1.saturating_sub(1);
            if self.1 == 0 { Sent::Accepted } else { self.0.send(to, channel, message) }
        }

        fn poll(&mut self, channel: Channel) -> Option<Vec<u8>> {
            self.0.poll(channel)
        }

        fn failure(&self) -> Option<&str> {
            (self.1 == 0).then_some("the network is down")
        }
    }

    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let link = MailboxTransport { rank: 0, mailboxes: Arc::new(Mailboxes::new(1, 4)) };
    let mut job = open(&storage, options(1), 0, Box::new(Failing(link, 20))).unwrap();
    job.begin_epoch(0).unwrap();
    let error = append(&mut job, 0, 100_000).and_then(|()| job.end_epoch().map(drop)).unwrap_err();
    assert!(error.to_string().contains("the network is down"), "{error}");
}

/// Returns a schema with rows so wide that bytes, not rows, limit a memtable.
fn wide_schema() -> Schema {
    Schema::new(vec![Column::new("key", DataType::U32), Column::new("rest", DataType::FixedBytes(60))], "key").unwrap()
}

fn append_wide(job: &mut RankJob, rows: std::ops::Range<u32>) {
    for row in rows.step_by(1000) {
        let keys = (row..row + 1000).map(|row| row.wrapping_mul(0x9E37_79B9));
        let bytes: Vec<u8> = keys.flat_map(|key| [&key.to_le_bytes()[..], &[7; 60]].concat()).collect();
        let views = [
            ColumnView::new(&bytes, 64, 1000, DataType::U32).unwrap(),
            ColumnView::new(&bytes[4..], 64, 1000, DataType::FixedBytes(60)).unwrap(),
        ];
        job.append(&views).unwrap();
    }
}

#[test]
fn datasets_of_one_process_stay_within_the_memory_of_one() {
    const SPECIES: usize = 3;
    const BUDGET: usize = 2 * (7 << 20) + (1 << 20);
    let memory = Arc::new(MemoryStorage::new());
    let process = Arc::new(Process::new());
    let path = |species: usize| format!("species-{species}");
    let open = |species| {
        let storage = Arc::clone(&memory);
        RankJob::open_alone_on(process.clone(), storage, path(species), wide_schema(), WriteOptions::new(1)).unwrap()
    };
    let mut jobs: Vec<RankJob> = (0..SPECIES).map(open).collect();
    let within_budget = |jobs: &[RankJob]| {
        // The memory of a background write is released when the write ends.
        let deadline = Instant::now() + AMPLE;
        let resident = || jobs.iter().map(RankJob::resident_bytes).sum::<usize>();
        while resident() > BUDGET {
            assert!(Instant::now() < deadline, "{} bytes are resident", resident());
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    // The first dataset fills its memtables while it is alone. The others then claim their shares, and end first.
    jobs[0].begin_epoch(0).unwrap();
    append_wide(&mut jobs[0], 0..200_000);
    // The memory of a memtable is not counted while the memtable is written.
    let deadline = Instant::now() + AMPLE;
    while jobs[0].resident_bytes() <= 6 << 20 {
        assert!(Instant::now() < deadline, "{} bytes are resident", jobs[0].resident_bytes());
        std::thread::sleep(Duration::from_millis(1));
    }
    jobs[1].begin_epoch(0).unwrap();
    jobs[2].begin_epoch(0).unwrap();
    within_budget(&jobs);
    for begin in (0..300_000).step_by(20_000) {
        for job in &mut jobs[1..] {
            append_wide(job, begin..begin + 20_000);
        }
        within_budget(&jobs);
    }
    append_wide(&mut jobs[0], 200_000..300_000);
    within_budget(&jobs);
    jobs[2].end_epoch().unwrap();
    jobs[0].end_epoch().unwrap();
    append_wide(&mut jobs[1], 300_000..600_000);
    jobs[1].end_epoch().unwrap();
    let spare = jobs[0].resident_bytes();
    assert!(
        jobs[1..].iter().all(|job| job.resident_bytes().abs_diff(spare) < 1 << 20),
        "the same for all: it is common"
    );
    // One dataset is dropped in the middle of its epoch. The others continue.
    jobs[1].begin_epoch(1).unwrap();
    append_wide(&mut jobs[1], 0..500_000);
    drop(jobs.remove(1));
    jobs[1].begin_epoch(1).unwrap();
    append_wide(&mut jobs[1], 0..300_000);
    jobs[1].end_epoch().unwrap();
    jobs.into_iter().for_each(|job| job.close().unwrap());

    let rows = |species, epoch| {
        let storage: Arc<dyn Storage> = Arc::clone(&memory) as _;
        let dataset = Dataset::open_with(storage, path(species)).unwrap();
        let batches = dataset.run(&Query::new().epochs(EpochRange::one(epoch))).unwrap();
        let mut keys: Vec<u32> = Vec::new();
        for batch in batches {
            let batch = batch.unwrap();
            let column = batch.column_by_name("key").unwrap();
            keys.extend(column.as_any().downcast_ref::<arrow_array::UInt32Array>().unwrap().values());
        }
        keys.sort_unstable();
        let mut expected: Vec<u32> = (0..keys.len() as u32).map(|row| row.wrapping_mul(0x9E37_79B9)).collect();
        expected.sort_unstable();
        assert!(keys == expected, "species {species}, epoch {epoch}: each row once");
        keys.len()
    };
    assert_eq!([rows(0, 0), rows(1, 0), rows(2, 0), rows(2, 1)], [300_000, 600_000, 300_000, 300_000]);
}

#[test]
fn ranks_busy_with_different_datasets_do_not_wait_for_each_other() {
    let memory: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let mailboxes: Vec<_> = (0..2).map(|_| Arc::new(Mailboxes::new(2, 4))).collect();
    let program = &|rank: u32| -> Result<u64> {
        let process = Arc::new(Process::new());
        let open = |name: &str, mailboxes: &Arc<Mailboxes>| {
            let link = Box::new(MailboxTransport { rank, mailboxes: Arc::clone(mailboxes) });
            let options = WriteOptions { credit_timeout: 2 * AMPLE, ..options(2) };
            RankJob::open_on(process.clone(), Arc::clone(&memory), name, schema(), options, rank, link)
        };
        let (mut one, mut other) = (open("one", &mailboxes[0])?, open("ds", &mailboxes[1])?);
        one.begin_epoch(0)?;
        other.begin_epoch(0)?;
        if rank == 1 {
            // Half of the records are for rank 0, which is ending the other dataset's epoch.
            append(&mut other, rank, 200_000)?;
        }
        one.end_epoch()?;
        other.end_epoch()?;
        let spills = other.metrics().spills;
        one.close()?;
        other.close()?;
        Ok(spills)
    };
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|rank| scope.spawn(move || program(rank))).collect();
        for thread in threads {
            assert_eq!(thread.join().unwrap().unwrap(), 0, "records stayed on their rank");
        }
    });
    assert!(begun.elapsed() < AMPLE, "{:?}", begun.elapsed());
    let storage = Arc::clone(&memory);
    assert_eq!(stored(&storage, 0, 2), [Vec::new(), expected(200_000)]);
}
