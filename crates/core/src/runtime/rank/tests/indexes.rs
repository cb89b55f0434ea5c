//! Tests of indexes that ranks make while they write records.

use std::collections::VecDeque;
use std::path::Path;

use super::*;
use crate::index::SecondaryIndex;
use crate::index_build::{IndexBuild, IndexOptions};
use crate::store::{VerifyOptions, verify_on};

/// A rank's connection, with further ones for indexes.
struct Bundle {
    transport: Box<dyn Transport + Send>,
    further: VecDeque<Box<dyn Transport + Send>>,
}

impl Transport for Bundle {
    fn send(&mut self, to: u32, channel: Channel, message: Vec<u8>) -> Sent {
        self.transport.send(to, channel, message)
    }

    fn poll(&mut self, channel: Channel) -> Option<Vec<u8>> {
        self.transport.poll(channel)
    }

    fn take_further(&mut self) -> Option<Box<dyn Transport + Send>> {
        self.further.pop_front()
    }
}

/// Runs `program` on every rank, with connections for as many indexes.
pub(super) fn run_indexed<T: Send>(
    ranks: u32,
    indexes: usize,
    program: impl Fn(u32, Box<dyn Transport + Send>) -> T + Sync,
) -> Vec<T> {
    let mailboxes: Vec<_> = (0..indexes).map(|_| Arc::new(Mailboxes::new(ranks, 4))).collect();
    run(ranks, |rank, transport| {
        let further =
            |mailboxes: &Arc<Mailboxes>| Box::new(MailboxTransport { rank, mailboxes: Arc::clone(mailboxes) }) as _;
        program(rank, Box::new(Bundle { transport, further: mailboxes.iter().map(further).collect() }))
    })
}

pub(super) fn indexed(ranks: u32, indexes: &[&str]) -> WriteOptions {
    let indexes = indexes.iter().map(|text| text.parse().unwrap()).collect();
    WriteOptions { indexes, ..options(ranks) }
}

/// Returns the entries of an epoch of an index: values, parts, rows and the first carried column, in order.
fn entries(storage: &Arc<dyn Storage>, name: &str, epoch: u64) -> Vec<[u32; 4]> {
    let index = DatasetPaths::new(Path::new("ds")).index(name);
    let dataset = Dataset::open_with(Arc::clone(storage), index.root()).unwrap();
    let mut found = Vec::new();
    for batch in dataset.run(&Query::new().epochs(EpochRange::one(epoch))).unwrap() {
        let batch = batch.unwrap();
        assert_eq!(batch.schema().field(0).name(), name);
        let column = |position: usize| {
            let column = batch.column(position).as_any().downcast_ref::<arrow_array::UInt32Array>();
            column.map_or_else(|| vec![0; batch.num_rows()], |column| column.values().to_vec())
        };
        // Without carried columns, the epoch is the fourth.
        let [values, parts, rows, carried] = [0, 1, 2, 3].map(column);
        found.extend((0..values.len()).map(|at| [values[at], parts[at], rows[at], carried[at]]));
    }
    found.sort_unstable();
    found
}

/// Checks that an index has the entries that a second pass over the records makes.
fn check_index(storage: &Arc<dyn Storage>, definition: &str, epochs: &[u64]) {
    let parsed: SecondaryIndex = definition.parse().unwrap();
    let mut build = IndexBuild::open_with(Arc::clone(storage), "ds", &parsed, &IndexOptions::default()).unwrap();
    assert_eq!(build.missing().unwrap(), Vec::<u64>::new());
    for &epoch in epochs {
        let found = entries(storage, &parsed.name(), epoch);
        build.build_epoch(epoch, &|_| ()).unwrap();
        assert!(found == entries(storage, &parsed.name(), epoch), "{definition}, epoch {epoch}: {}", found.len());
    }
    build.close().unwrap();
}

pub(super) fn check_files(storage: &Arc<dyn Storage>) {
    let report = verify_on(storage, &DatasetPaths::new("ds"), &VerifyOptions::default(), &|_| ()).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

#[test]
fn entries_are_shuffled_while_records_are_written() {
    for ranks in [1, 3, 8] {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let metrics = run_indexed(ranks, 2, |rank, transport| -> Result<_> {
            let mut job = open(&storage, indexed(ranks, &["hash:origin,with=key", "key"]), rank, transport)?;
            let mut rows = Vec::new();
            for epoch in 0..3 {
                job.begin_epoch(epoch)?;
                // In the last epoch, some ranks have no records.
                let own = if epoch == 2 && rank % 2 == 0 { 0 } else { 40_000 + rank };
                append(&mut job, rank, own)?;
                job.start_end_epoch()?;
                rows.push(job.wait_end_epoch()?.rows);
            }
            job.close()?;
            Ok(rows)
        });
        let rows = metrics.into_iter().map(Result::unwrap).collect::<Vec<_>>();
        assert!(rows.iter().all(|all| *all == rows[0]), "{rows:?}");
        check_files(&storage);
        for name in ["origin", "key"] {
            let found: Vec<u64> = (0..3).map(|epoch| entries(&storage, name, epoch).len() as u64).collect();
            assert_eq!(found, rows[0], "{ranks} ranks, {name}");
        }
        check_index(&storage, "hash:origin,with=key", &[0, 1, 2]);
        check_index(&storage, "key", &[0, 1, 2]);
    }
}

/// Entries of so many bytes that an append of thousands would not take them in their order. Appends are taken in part
/// while a table is negotiated.
#[test]
fn wide_entries_are_made_once_for_each_record() {
    const RANKS: u32 = 4;
    let names: Vec<String> = (0..24).map(|number| format!("c{number}")).collect();
    let schema = || {
        let mut columns = vec![Column::new("key", DataType::U32), Column::new("origin", DataType::U32)];
        columns.extend(names.iter().map(|name| Column::new(name, DataType::F64)));
        Schema::new(columns, "key").unwrap()
    };
    let definition = format!("origin,with=key,with={}", names.join(",with="));
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let ended = run_indexed(RANKS, 1, |rank, transport| -> Result<u64> {
        let options = WriteOptions { memtable_bytes: 4 << 20, ..indexed(RANKS, &[&definition]) };
        let process = Arc::new(Process::new());
        let mut job = RankJob::open_on(process, Arc::clone(&storage), "ds", schema(), options, rank, transport)?;
        job.begin_epoch(0)?;
        for chunk in 0..12u32 {
            let keys: Vec<u32> = (0..1000).map(|row| (chunk * 1000 + row).wrapping_mul(0x9E37_79B9)).collect();
            let numbers: Vec<f64> = keys.iter().map(|key| f64::from(*key)).collect();
            let origins = vec![rank; keys.len()];
            let mut views = vec![ColumnView::from(&keys), ColumnView::from(&origins)];
            views.extend(names.iter().map(|_| ColumnView::from(&numbers)));
            job.append(&views)?;
        }
        job.start_end_epoch()?;
        let rows = job.wait_end_epoch()?.rows;
        job.close()?;
        Ok(rows)
    });
    assert!(ended.into_iter().all(|rows| rows.unwrap() == u64::from(RANKS) * 12_000));
    check_files(&storage);
    check_index(&storage, &definition, &[0]);
}

/// Rank 1 begins the indexes' epochs long after the others have sent it records, which it has encoded by then.
#[test]
fn entries_wait_for_a_rank_that_begins_late() {
    /// A connection that delivers nothing until it is opened.
    struct Gate(Box<dyn Transport + Send>, Arc<AtomicBool>);

    impl Transport for Gate {
        fn send(&mut self, to: u32, channel: Channel, message: Vec<u8>) -> Sent {
            self.0.send(to, channel, message)
        }

        fn poll(&mut self, channel: Channel) -> Option<Vec<u8>> {
            if self.1.load(Ordering::SeqCst) { self.0.poll(channel) } else { None }
        }
    }

    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let mailboxes = Arc::new(Mailboxes::new(2, 4));
    let is_open = Arc::new(AtomicBool::new(true));
    let barrier = std::sync::Barrier::new(2);
    let rows = run(2, |rank, transport| {
        let link = Box::new(MailboxTransport { rank, mailboxes: Arc::clone(&mailboxes) });
        let further: Box<dyn Transport + Send> =
            if rank == 1 { Box::new(Gate(link, Arc::clone(&is_open))) } else { link };
        let bundle = Bundle { transport, further: [further].into() };
        let mut job = open(&storage, indexed(2, &["origin"]), rank, Box::new(bundle)).unwrap();
        barrier.wait();
        is_open.store(false, Ordering::SeqCst);
        barrier.wait();
        job.begin_epoch(0).unwrap();
        if rank == 0 {
            append(&mut job, rank, 100_000).unwrap();
            is_open.store(true, Ordering::SeqCst);
        }
        job.end_epoch().unwrap().rows
    });
    assert_eq!(rows, [100_000, 100_000]);
    check_index(&storage, "origin", &[0]);
}

#[test]
fn an_index_that_cannot_be_stored_fails_the_epoch_on_all_ranks() {
    let memory: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let faults = FaultStorage::new(Arc::clone(&memory));
    let storage: Arc<dyn Storage> = Arc::new(faults.clone());
    let barrier = std::sync::Barrier::new(3);
    let outcomes = run_indexed(3, 1, |rank, transport| {
        let mut job = open(&storage, indexed(3, &["origin"]), rank, transport).unwrap();
        let mut outcomes = Vec::new();
        for epoch in 0..4 {
            // In epoch 1, parts of the index cannot be written; in epoch 2, its epoch cannot begin.
            barrier.wait();
            if rank == 0 {
                faults.heal();
                let path = match epoch {
                    1 => Some("ds/_turbidite/index/origin/data"),
                    2 => Some("ds/_turbidite/index/origin"),
                    _ => None,
                };
                if let Some(path) = path {
                    faults.add_fault(Fault::Refuse { path: path.into(), kind: std::io::ErrorKind::StorageFull });
                }
            }
            barrier.wait();
            job.begin_epoch(epoch).unwrap();
            append(&mut job, rank, 20_000).unwrap();
            outcomes.push(job.end_epoch().map(|metrics| metrics.rows).map_err(|error| error.to_string()));
            barrier.wait();
            if job.has_failed() {
                job.discard_failed().unwrap();
            }
        }
        outcomes
    });
    assert!(outcomes.iter().all(|rank| *rank == outcomes[0]), "{outcomes:?}");
    let [Ok(60_000), Err(first), Err(second), Ok(60_000)] = &outcomes[0][..] else { panic!("{:?}", outcomes[0]) };
    assert!(first.contains("origin") && second.contains("origin"), "{first}; {second}");
    assert_eq!(Dataset::open_with(Arc::clone(&memory), "ds").unwrap().epochs().unwrap(), [0, 3]);
    check_index(&memory, "origin", &[0, 3]);
}

#[test]
fn a_failed_replacement_keeps_the_old_entries() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let replaced = run_indexed(2, 1, |rank, transport| {
        let options = WriteOptions { if_exists: IfExists::Replace, ..indexed(2, &["key"]) };
        let mut job = open(&storage, options, rank, transport).unwrap();
        job.begin_epoch(0).unwrap();
        append(&mut job, rank, 10_000).unwrap();
        job.end_epoch().unwrap();
        job.begin_epoch(0).unwrap();
        append(&mut job, rank, 30_000).unwrap();
        if rank == 1 {
            job.refuse("the records are wrong".to_owned()).unwrap();
        }
        let error = job.end_epoch().unwrap_err();
        job.discard_failed().unwrap();
        job.begin_epoch(1).unwrap();
        job.end_epoch().unwrap();
        assert_eq!(job.truncate_after(0).unwrap(), [1]);
        error.to_string()
    });
    assert!(replaced.iter().all(|error| error.contains("the records are wrong")), "{replaced:?}");
    assert_eq!(entries(&storage, "key", 0).len(), 20_000);
    check_index(&storage, "key", &[0]);
}

/// Each call may come from another thread, one at a time. Entries fill their feeds several times.
#[test]
fn a_handle_moves_from_thread_to_thread() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let rows = run_indexed(2, 1, |rank, transport| {
        let mut job = open(&storage, indexed(2, &["origin"]), rank, transport).unwrap();
        let elsewhere = |call: &mut (dyn FnMut() + Send)| {
            std::thread::scope(|scope| scope.spawn(call).join()).unwrap();
        };
        job.begin_epoch(0).unwrap();
        elsewhere(&mut || append(&mut job, rank, 400_000).unwrap());
        elsewhere(&mut || job.start_end_epoch().unwrap());
        let mut rows = 0;
        elsewhere(&mut || rows = job.wait_end_epoch().unwrap().rows);
        rows
    });
    assert_eq!(rows, [800_000; 2]);
    check_index(&storage, "origin", &[0]);
}

/// A call that is refused leaves the open epoch and its entries alone.
#[test]
fn an_epoch_that_cannot_begin_inside_another_discards_nothing() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let rows = run_indexed(2, 1, |rank, transport| {
        let mut job = open(&storage, indexed(2, &["hash:origin"]), rank, transport).unwrap();
        job.begin_epoch(0).unwrap();
        for _ in 0..5 {
            append(&mut job, rank, 30_000).unwrap();
            assert!(matches!(job.begin_epoch(1), Err(Error::Usage(_))));
            assert!(matches!(job.replace_epoch(0), Err(Error::Usage(_))));
        }
        job.end_epoch().unwrap().rows
    });
    assert_eq!(rows, [300_000; 2]);
    check_index(&storage, "hash:origin", &[0]);
}

#[test]
fn ranks_that_disagree_about_indexes_are_refused() {
    let open_all = |indexes: usize, definitions: fn(u32) -> Vec<&'static str>| {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let errors = run_indexed(3, indexes, |rank, transport| {
            open(&storage, indexed(3, &definitions(rank)), rank, transport).unwrap_err().to_string()
        });
        assert!(errors.iter().all(|error| *error == errors[0]), "{errors:?}");
        errors.into_iter().next().unwrap()
    };
    let error = open_all(1, |rank| if rank == 2 { vec!["hash:key"] } else { vec!["key"] });
    assert!(error.contains("[hash:key] here, [key] on rank 0"), "{error}");
    let error = open_all(1, |_| vec!["key", "origin"]);
    assert!(error.contains("2 indexes need a connection each"), "{error}");
}
