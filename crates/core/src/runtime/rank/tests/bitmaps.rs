//! Tests of bitmap indexes that ranks make of their own parts.

use super::indexes::{check_files, indexed, run_indexed};
use super::*;
use crate::index_build::{IndexBuild, IndexOptions, IndexedRows, drop_index_with};
use crate::shuffle::Topology;

/// Returns the sidecars of an index, by the names of their folders and files.
fn sidecars(storage: &Arc<dyn Storage>, name: &str) -> Vec<(String, Vec<u8>)> {
    let root = DatasetPaths::new("ds").index(name).root().to_owned();
    let mut found = Vec::new();
    for folder in storage.list(&root).unwrap().into_iter().filter(|entry| entry.name.contains('.')) {
        let path = root.join(&folder.name);
        for file in storage.list(&path).unwrap_or_default() {
            let content = crate::storage::read_all(&**storage, &path.join(&file.name), 1 << 30).unwrap();
            found.push((format!("{}/{}", folder.name, file.name), content));
        }
    }
    found
}

fn add_again(storage: &Arc<dyn Storage>, definition: &str) {
    let definition: crate::index::SecondaryIndex = definition.parse().unwrap();
    let options = IndexOptions::default();
    let build = IndexBuild::open_with(Arc::clone(storage), "ds", &definition, &options).unwrap();
    assert_eq!(build.missing().unwrap(), Vec::<u64>::new());
    build.close().unwrap();
    drop_index_with(storage, "ds", &definition.name(), &options).unwrap();
    let mut build = IndexBuild::open_with(Arc::clone(storage), "ds", &definition, &options).unwrap();
    for epoch in build.missing().unwrap() {
        build.build_epoch(epoch, &|_| ()).unwrap();
    }
    build.close().unwrap();
}

/// Bitmap indexes need no connection, whether there are indexes of entries or not.
#[test]
fn each_rank_writes_the_sidecars_of_its_parts() {
    for (ranks, indexes) in [(1, &["bitmap:key"][..]), (4, &["bitmap:key,origin"]), (3, &["origin", "bitmap:origin"])] {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let connections = indexes.iter().filter(|text| !text.starts_with("bitmap:")).count();
        let metrics = run_indexed(ranks, connections, |rank, transport| -> Result<_> {
            let mut job = open(&storage, indexed(ranks, indexes), rank, transport)?;
            for epoch in 0..3 {
                job.begin_epoch(epoch)?;
                // The last epoch has no records.
                append(&mut job, rank, if epoch == 2 { 0 } else { 40_000 + rank })?;
                job.end_epoch()?;
            }
            job.close()
        });
        metrics.into_iter().for_each(|ended| ended.unwrap());
        check_files(&storage);
        for definition in indexes.iter().filter(|text| text.starts_with("bitmap:")) {
            let in_situ = sidecars(&storage, definition);
            assert!(in_situ.len() > 2, "{definition}");
            add_again(&storage, definition);
            assert!(in_situ == sidecars(&storage, definition), "{ranks} ranks, {definition}");
        }
    }
}

#[test]
fn a_sidecar_that_cannot_be_written_fails_the_epoch_on_all_ranks() {
    let memory: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let outcomes = run(3, |rank, transport| {
        // Only rank 1 cannot create files in the folder of the index.
        let faults = FaultStorage::new(Arc::clone(&memory));
        let storage: Arc<dyn Storage> = Arc::new(faults.clone());
        let mut job = open(&storage, indexed(3, &["bitmap:key"]), rank, transport).unwrap();
        job.begin_epoch(0).unwrap();
        if rank == 1 {
            let path = "ds/_turbidite/index/bitmap:key/_turbidite/tmp";
            faults.add_fault(Fault::Refuse { path: path.into(), kind: std::io::ErrorKind::StorageFull });
        }
        append(&mut job, rank, 40_000).unwrap();
        let failed = job.end_epoch().map(|_| ());
        faults.heal();
        job.begin_epoch(1).unwrap();
        append(&mut job, rank, 10_000).unwrap();
        job.end_epoch().unwrap();
        job.close().unwrap();
        failed
    });
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Err(Error::EpochFailed { epoch: 0, .. }))));
    let epochs: std::collections::BTreeSet<String> =
        sidecars(&memory, "bitmap:key").iter().map(|(name, _)| name.split('.').next().unwrap().to_owned()).collect();
    assert_eq!(epochs.into_iter().collect::<Vec<_>>(), ["1"]);
}

/// Rank 0 writes the part of an epoch without records. The sidecars' folder stayed if it could not.
#[test]
fn no_sidecars_are_left_if_the_part_without_records_cannot_be_written() {
    let faults = FaultStorage::new(Arc::new(MemoryStorage::new()));
    let storage: Arc<dyn Storage> = Arc::new(faults.clone());
    let mut job =
        RankJob::open_alone_on(Arc::new(Process::new()), storage, "ds", schema(), indexed(1, &["bitmap:key"])).unwrap();
    let unfinished = DatasetPaths::new("ds").index("bitmap:key").unfinished();
    let left = || faults.list(&unfinished).unwrap_or_default().len();
    job.begin_epoch(0).unwrap();
    assert_eq!(left(), 1);
    let path = DatasetPaths::new("ds").unfinished();
    faults.add_fault(Fault::Refuse { path, kind: std::io::ErrorKind::StorageFull });
    let error = job.end_epoch().unwrap_err();
    assert!(error.to_string().starts_with("epoch 0 failed on rank 0: cannot create ds/_turbidite/tmp/"), "{error}");
    assert_eq!(left(), 0);
    faults.heal();
    job.close().unwrap();
}

#[test]
fn bitmap_indexes_that_cannot_be_made_are_refused_on_all_ranks() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let refused = |indexes: &[&[&str]], expected: &str| {
        let errors = run(3, |rank, transport| {
            let own = indexes[rank as usize % indexes.len()];
            open(&storage, indexed(3, own), rank, transport).unwrap_err()
        });
        assert!(errors.iter().all(|error| error.to_string().contains(expected)), "{expected}: {errors:?}");
    };
    refused(&[&["bitmap:nothing"]], "'nothing'");
    refused(&[&["bitmap:key"], &[]], "bitmap:key");
    refused(&[&[], &["bitmap:nothing"]], "'nothing'");
    for job in run(3, |rank, transport| open(&storage, indexed(3, &["bitmap:key"]), rank, transport)) {
        job.unwrap().close().unwrap();
    }
    refused(&[&["bitmap:key,precision=4"]], "drop it first");
}

#[test]
fn ranks_that_share_out_parts_write_the_bytes_of_one_process() {
    const DEFINITION: &str = "bitmap:key,origin";
    let memory: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let written = run(5, |rank, transport| -> Result<()> {
        let mut job = open(&memory, WriteOptions { part_bytes: Some(0), ..options(5) }, rank, transport)?;
        for epoch in 0..3 {
            job.begin_epoch(epoch)?;
            append(&mut job, rank, if epoch == 2 { 0 } else { 20_000 })?;
            job.end_epoch()?;
        }
        job.close()
    });
    written.into_iter().for_each(|ended| ended.unwrap());
    let add = |fails_on: Option<u32>| {
        run(3, |rank, transport| -> Result<Vec<IndexedRows>> {
            let faults = FaultStorage::new(Arc::clone(&memory));
            let storage: Arc<dyn Storage> = Arc::new(faults.clone());
            let (definition, options) = (DEFINITION.parse()?, IndexOptions::default());
            let one_node = Topology::one_node();
            let mut build =
                IndexBuild::open_rank_with(storage, "ds", &definition, &options, (rank, 3), one_node, transport)?;
            if fails_on == Some(rank) {
                let path = format!("ds/_turbidite/index/{DEFINITION}/_turbidite/tmp");
                faults.add_fault(Fault::Refuse { path: path.into(), kind: std::io::ErrorKind::StorageFull });
            }
            let built = build.missing()?.into_iter().map(|epoch| build.build_epoch(epoch, &|_| ())).collect();
            build.close()?;
            built
        })
    };
    for failing in [0, 1, 2] {
        let outcomes = add(Some(failing));
        assert!(outcomes.iter().all(Result::is_err), "rank {failing}: {outcomes:?}");
        assert_eq!(sidecars(&memory, DEFINITION), [], "rank {failing}");
    }
    let outcomes: Vec<_> = add(None).into_iter().map(Result::unwrap).collect();
    assert!(outcomes.iter().all(|all| *all == outcomes[0]), "{outcomes:?}");
    assert_eq!(outcomes[0].iter().map(|epoch| epoch.rows).collect::<Vec<_>>(), [100_000, 100_000, 0]);
    let shared = sidecars(&memory, DEFINITION);
    let bytes: usize = shared.iter().map(|(_, content)| content.len()).sum();
    assert_eq!(outcomes[0].iter().map(|epoch| epoch.bytes).sum::<u64>(), bytes as u64);
    add_again(&memory, DEFINITION);
    assert!(shared == sidecars(&memory, DEFINITION));
    check_files(&memory);
}
