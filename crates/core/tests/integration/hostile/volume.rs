//! The number of receivers.

use std::path::PathBuf;
use std::sync::Arc;

use turbidite::storage::{MemoryStorage, Storage};
use turbidite::store::DatasetPaths;
use turbidite::{EpochMetrics, LocalJob, Prior, WriteOptions};

use super::RECORDS;
use super::inputs::{Input, Random, Size};
use super::job::{
    APPEND, append_rows, append_rows_of, check_balance, ingest_as, ingest_in_parts, largest_share, open, read_back,
    report, write_epoch,
};

/// Small epochs are received by few ranks, which rotate. An epoch that outgrows its forecast, which is the last epoch,
/// gets more receivers while it is written.
#[test]
fn receivers_follow_the_volume() {
    const RECORD_BYTES: u64 = 12;
    const SMALL: usize = 30_000;
    for ranks in [16, 31] {
        let mut random = Random(9);
        let mut epoch = |records| Input::f32s(Size { records, ranks }, |_| random.lognormal());
        let epochs = [SMALL, SMALL, SMALL * 6, SMALL * 6, RECORDS, RECORDS, SMALL, SMALL, 0, SMALL].map(&mut epoch);
        let all = ingest_in_parts(ranks, SMALL as u64 * RECORD_BYTES, &epochs);
        all.iter().for_each(|metrics| report("by volume", ranks, metrics));
        let receivers: Vec<usize> = all.iter().map(|metrics| metrics.rows_per_receiver.len()).collect();
        let all_ranks = ranks as usize;
        // The first epoch knows of none.
        let (grown, most) = (receivers[2], receivers[4]);
        assert!((4..=8).contains(&grown) && most * 2 > all_ranks, "{receivers:?}");
        assert_eq!(receivers, [all_ranks, 1, grown, 6, most, all_ranks, all_ranks, 1, 1, 1]);
        for metrics in [&all[1], &all[7], &all[9]] {
            assert_eq!(metrics.renegotiations, 0, "one receiver negotiates nothing");
        }
        for metrics in &all {
            assert!(metrics.strays * 50 <= metrics.rows, "{} strays", metrics.strays);
        }
        for metrics in [&all[3], &all[5]] {
            check_balance("by volume, foreseen", ranks, metrics);
            assert!(metrics.renegotiations <= 24, "{}", metrics.renegotiations);
        }
    }
}

/// If one rank wrote the last epoch alone, or begins before the others, these still ask for receivers in time.
#[test]
fn epochs_outgrow_their_receivers_whoever_appends_first() {
    const PARTS: usize = 40;
    let mut random = Random(7);
    let mut epoch = |parts| Input::f32s(Size { records: parts * PART, ranks: RANKS }, |_| random.lognormal());
    let (even, large) = (epoch(1), epoch(PARTS));
    let mut alone = Input { data_type: even.data_type, ranks: vec![Vec::new(); RANKS as usize] };
    alone.ranks[0] = even.ranks.concat();
    for (name, first, head) in [("evenly", &even, 0), ("after one rank", &alone, 0), ("one rank ahead", &even, PART)] {
        let storage: Arc<MemoryStorage> = Arc::new(MemoryStorage::new());
        let mut options = WriteOptions::new(RANKS);
        options.part_bytes = Some(PART as u64 * 12);
        let job = open(storage.clone(), large.data_type, options).unwrap();
        write_epoch(&job, 0, first, APPEND).unwrap();
        write_epoch(&job, 1, first, APPEND).unwrap();
        job.begin_epoch(2).unwrap();
        append_rows_of(&job, &large, 0, 0..head).unwrap();
        let mut rest = Input { data_type: large.data_type, ranks: large.ranks.clone() };
        rest.ranks[0].clear();
        append_rows(&job, &rest, APPEND).unwrap();
        append_rows_of(&job, &large, 0, head..PARTS * PART).unwrap();
        let metrics = job.end_epoch().unwrap();
        job.close().unwrap();
        report(name, RANKS, &metrics);
        let largest = largest_share(&metrics);
        assert!(largest < 2.0, "{name}: {largest}");
        read_back(storage, 2, &large);
    }
}

/// One receiver needs no table, and no record waits for one.
#[test]
fn one_receiver_negotiates_nothing() {
    let mut random = Random(5);
    let mut options = WriteOptions::new(4);
    options.receivers = 1;
    let size = Size { records: RECORDS / 10, ranks: 4 };
    let metrics = ingest_as(options, &[Input::f32s(size, |_| random.lognormal())]);
    assert_eq!((metrics[0].renegotiations, metrics[0].rows_per_receiver.clone()), (0, vec![RECORDS as u64 / 10]));
}

const RANKS: u32 = 16;

/// Number of records of a part. The options' part size follows from it.
const PART: usize = 10_000;

/// A dataset whose epochs have one, three and two parts.
struct Earlier {
    storage: Arc<MemoryStorage>,
    options: WriteOptions,
    epochs: [Input; 3],
}

impl Earlier {
    fn written() -> Self {
        let mut random = Random(12);
        let mut options = WriteOptions::new(RANKS);
        options.part_bytes = Some(PART as u64 * 12);
        let size = |parts| Size { records: parts * PART, ranks: RANKS };
        let epochs = [1, 3, 2].map(|parts| Input::f32s(size(parts), |_| random.lognormal()));
        let earlier = Self { storage: Arc::new(MemoryStorage::new()), options, epochs };
        let job = earlier.job();
        for (epoch, input) in (0..).zip(&earlier.epochs) {
            write_epoch(&job, epoch, input, APPEND).unwrap();
        }
        job.close().unwrap();
        earlier
    }

    fn job(&self) -> LocalJob {
        open(self.storage.clone(), self.epochs[0].data_type, self.options.clone()).unwrap()
    }

    /// Writes an epoch of two parts, and returns its number of receivers.
    fn write(&self, job: &LocalJob, epoch: u64) -> usize {
        let metrics: EpochMetrics = write_epoch(job, epoch, &self.epochs[2], APPEND).unwrap();
        check_balance("after an earlier job", RANKS, &metrics);
        read_back(self.storage.clone(), epoch, &self.epochs[2]);
        metrics.rows_per_receiver.len()
    }

    fn manifest(&self, epoch: u64) -> PathBuf {
        let folder = DatasetPaths::new("/ds").manifests();
        let mut names = self.storage.list(&folder).unwrap().into_iter().map(|entry| entry.name);
        folder.join(names.find(|name| name.starts_with(&format!("{epoch}."))).unwrap())
    }
}

/// The last epoch that remains determines the number of receivers of a job's first epoch.
#[test]
fn a_job_begins_with_the_volume_of_the_greatest_epoch() {
    let earlier = Earlier::written();
    let job = earlier.job();
    assert_eq!(earlier.write(&job, 3), 2);
    // Epoch 1 has three parts. The epoch of two parts after it is expected to have as many, and the next one is not.
    job.truncate_after(1).unwrap();
    assert_eq!([2, 3].map(|epoch| earlier.write(&job, epoch)), [3, 2]);
    job.truncate_after(0).unwrap();
    job.close().unwrap();
    let job = earlier.job();
    job.expect_rows(5 * PART as u64);
    assert_eq!(earlier.write(&job, 1), 5, "a stated number counts more");
    job.close().unwrap();
}

/// Earlier epochs are never needed, and `Prior::None` makes an epoch independent of them.
#[test]
fn a_job_begins_without_earlier_epochs_that_cannot_be_read() {
    let mut earlier = Earlier::written();
    for defect in ["missing", "cut short", "corrupt"] {
        let path = earlier.manifest(2);
        let file = earlier.storage.open(&path).unwrap();
        let mut bytes = vec![0; file.bytes() as usize];
        file.read_at(0, &mut bytes).unwrap();
        match defect {
            "cut short" => bytes.truncate(bytes.len() / 2),
            _ => bytes.iter_mut().for_each(|byte| *byte ^= 0x55),
        }
        earlier.storage.remove_file(&path).unwrap();
        if defect != "missing" {
            earlier.storage.create(&path).unwrap().write_at(0, &bytes).unwrap();
        }
        let job = earlier.job();
        assert_eq!(earlier.write(&job, 3), RANKS as usize, "{defect}");
        job.close().unwrap();
        earlier = Earlier::written();
    }
    earlier.options.prior = Prior::None;
    let job = earlier.job();
    assert_eq!([3, 4].map(|epoch| earlier.write(&job, epoch)), [RANKS as usize; 2]);
    job.close().unwrap();
}
