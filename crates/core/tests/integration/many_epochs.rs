//! Cost of datasets with many small epochs: operations of the storage are counted, and are linear in the epochs.

use std::sync::Arc;

use crate::support::indexed::{Record, add, records, threads, write, write_on};
use turbidite::query::{ParticleId, TrackRequest, Use};
use turbidite::storage::{FaultStorage, MemoryStorage, Storage, StorageCounters};
use turbidite::store::{DatasetPaths, verify_on};
use turbidite::{Dataset, EpochSet, IndexBuild, Query, VerifyOptions};

/// Number of rows of an epoch.
const ROWS: u32 = 300;

/// A request that is made once of a dataset that has just been opened.
type Request = fn(&Arc<dyn Storage>, &Dataset);

fn epochs(labels: std::ops::Range<u64>) -> Vec<(u64, Vec<Record>)> {
    labels.map(|epoch| (epoch, records(epoch, ROWS))).collect()
}

/// Writes a dataset of some epochs with an index.
fn written(epochs_of: u64) -> Arc<MemoryStorage> {
    let storage = Arc::new(MemoryStorage::new());
    write(&storage, "energy", &epochs(0..epochs_of));
    add(&storage, "id");
    storage
}

/// Returns the operations of a request of a dataset, without those of opening it.
fn cost(storage: &Arc<MemoryStorage>, request: Request) -> StorageCounters {
    let counting = FaultStorage::new(storage.clone());
    let shared: Arc<dyn Storage> = Arc::new(counting.clone());
    let dataset = Dataset::open_with(shared.clone(), "/ds").unwrap();
    let before = counting.counters();
    request(&shared, &dataset);
    let after = counting.counters();
    StorageCounters {
        operations: after.operations - before.operations,
        reads: after.reads - before.reads,
        lists: after.lists - before.lists,
        listed: after.listed - before.listed,
        opens: after.opens - before.opens,
        ..StorageCounters::default()
    }
}

fn count(_: &Arc<dyn Storage>, dataset: &Dataset) {
    assert!(dataset.count(&Query::new().filter("energy > 500").threads(1)).unwrap().0 > 0);
}

fn count_by_manifests(_: &Arc<dyn Storage>, dataset: &Dataset) {
    assert!(dataset.count(&Query::new().threads(1)).unwrap().0 > 0);
}

fn track(dataset: &Dataset, access: Use) -> u64 {
    let ids = [ParticleId::from(7), ParticleId::from(301)];
    let request = TrackRequest::of_ids(ids, "id").rows(Query::new().using(access).threads(1));
    dataset.tracks(&request, &|_| ()).unwrap().metrics().rows
}

fn get(_: &Arc<dyn Storage>, dataset: &Dataset) {
    assert!(track(dataset, Use::Automatic) > 0);
}

fn get_by_index(_: &Arc<dyn Storage>, dataset: &Dataset) {
    assert!(track(dataset, Use::named("id")) > 0);
}

fn every_manifest(_: &Arc<dyn Storage>, dataset: &Dataset) {
    dataset.epochs().unwrap().into_iter().for_each(|epoch| drop(dataset.manifest(epoch).unwrap()));
}

fn missing(storage: &Arc<dyn Storage>, _: &Dataset) {
    let build = IndexBuild::open_with(storage.clone(), "/ds", &"id".parse().unwrap(), &threads(1)).unwrap();
    assert_eq!(build.missing().unwrap(), Vec::<u64>::new());
    build.close().unwrap();
}

fn verify(storage: &Arc<dyn Storage>, _: &Dataset) {
    let mut options = VerifyOptions::default();
    options.threads = 1;
    let report = verify_on(storage, &DatasetPaths::new("/ds"), &options, &|_| ()).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

#[test]
fn requests_take_time_in_proportion_to_the_epochs() {
    let few = written(20);
    let twice = written(40);
    let thrice = written(60);
    for (name, request) in [
        ("count", count as Request),
        ("count by manifests", count_by_manifests),
        ("get", get),
        ("get by index", get_by_index),
        ("every manifest", every_manifest),
        ("index add", missing),
        ("verify", verify),
    ] {
        let [one, two, three] = [&few, &twice, &thrice].map(|storage| cost(storage, request));
        for (what, of) in [
            ("entries of folders", (|cost: &StorageCounters| cost.listed) as fn(&StorageCounters) -> u64),
            ("opened files", |cost| cost.opens),
            ("operations", |cost| cost.operations),
        ] {
            let [one, two, three] = [&one, &two, &three].map(of);
            // Epochs differ in the pages that a request reads.
            let most = (two - one) + (two - one) / 8;
            assert!(three - two <= most, "{name}: {one}, {two}, {three} {what}");
        }
    }
}

/// A count lists the epochs and the manifests, and opens a manifest and the parts of each epoch. A predicate may be one
/// of an index, whose description is read once.
#[test]
fn a_count_lists_two_folders_and_opens_each_file_once() {
    let storage = written(30);
    let dataset = Dataset::open_with(storage.clone(), "/ds").unwrap();
    let parts = |epoch| dataset.manifest(epoch).unwrap().parts.len() as u64;
    let files = 30 + dataset.epochs().unwrap().into_iter().map(parts).sum::<u64>();
    for request in [count as Request, count_by_manifests, get] {
        let cost = cost(&storage, request);
        assert_eq!((cost.lists, cost.listed), (2, 60));
        assert!((60..=files + 1).contains(&cost.opens), "{} files of {files}", cost.opens);
    }
}

/// An index of many small epochs is opened for none of them, since that would take longer than a scan.
#[test]
fn a_small_epoch_is_scanned() {
    let storage = written(30);
    let dataset = Dataset::open_with(storage.clone(), "/ds").unwrap();
    let query = Query::new().filter("id = 7").threads(1);
    let mut stream = dataset.run(&query).unwrap();
    let rows: usize = stream.by_ref().map(|batch| batch.unwrap().num_rows()).sum();
    assert!(rows > 0 && stream.metrics().entries_read == 0);
    let mut stream = dataset.run(&query.using(Use::named("id"))).unwrap();
    let by_index: usize = stream.by_ref().map(|batch| batch.unwrap().num_rows()).sum();
    assert!(by_index == rows && stream.metrics().entries_read > 0);
}

/// Writing an epoch lists only its own folder.
#[test]
fn writing_an_epoch_does_not_list_the_others() {
    let listed = |replaced: bool| {
        let added = |existing: u64| {
            let storage = Arc::new(MemoryStorage::new());
            write(&storage, "energy", &epochs(0..existing));
            let first = if replaced { 0 } else { existing };
            let of = |count: u64| {
                let counting = Arc::new(FaultStorage::new(Arc::new((*storage).clone())));
                write_on(counting.clone(), "energy", &epochs(first..first + count));
                counting.counters().listed
            };
            let (one, ten) = (of(1), of(10));
            ten - one
        };
        (added(20), added(60))
    };
    for replaced in [false, true] {
        let (few, many) = listed(replaced);
        assert!(many <= few, "{few} entries of folders among 20 epochs, {many} among 60");
    }
}

/// A choice of epochs reads no others.
#[test]
fn epochs_are_chosen_by_strides_lists_and_from_the_end() {
    let storage = written(30);
    let dataset = Dataset::open_with(storage, "/ds").unwrap();
    for (text, expected) in
        [("0..29..10", &[0, 10, 20][..]), ("3,5", &[3, 5]), ("last,-2", &[28, 29]), ("-2..last", &[28, 29])]
    {
        let set: EpochSet = text.parse().unwrap();
        assert_eq!(dataset.select(set.clone()).unwrap(), expected, "{text}");
        let rows = dataset.count(&Query::new().epochs(set)).unwrap().0;
        assert_eq!(rows, expected.len() as u64 * u64::from(ROWS), "{text}");
    }
    let error = dataset.count(&Query::new().epochs("3,77".parse::<EpochSet>().unwrap())).unwrap_err();
    assert!(error.to_string().contains("epoch 77 does not exist"), "{error}");
}
