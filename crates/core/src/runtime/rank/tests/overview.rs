//! Tests of overviews that any number of processes make.

use std::collections::BTreeMap;
use std::path::PathBuf;

use arrow_array::cast::AsArray;
use arrow_array::types::Float32Type;
use uuid::Uuid;

use super::indexes::check_files;
use super::*;
use crate::index::Overview;
use crate::index_build::{IndexBuild, IndexOptions};
use crate::random::Random;
use crate::shuffle::Topology;
use crate::storage::{FileKind, read_all};
use crate::store::{DatasetDescriptor, truncate_after};

/// Size of the memtables of the overview. A part has up to three of them.
const MEMTABLE_BYTES: usize = 4 << 10;

/// Writes an epoch of a dataset with a level of detail.
fn write(storage: &Arc<dyn Storage>, epoch: u64, rows: usize) {
    let columns = ["x", "y", "energy"].map(|name| Column::new(name, DataType::F32)).to_vec();
    let options = WriteOptions { break_lock: true, levels: 1, ..options(3) };
    let job = LocalJob::open_with(storage.clone(), "ds", Schema::new(columns, "space:x,y").unwrap(), options).unwrap();
    job.begin_epoch(epoch).unwrap();
    let mut random = Random::new(epoch);
    let mut values = || (0..rows).map(|_| random.fraction() as f32).collect::<Vec<_>>();
    let (mut x, y, energy) = (values(), values(), values());
    // In no place, and at level 0.
    x.iter_mut().step_by(100).for_each(|x| *x = f32::NAN);
    for (rank, at) in (0..).zip((0..rows).step_by(5_000)) {
        let rows = at..rows.min(at + 5_000);
        let columns = [&x[rows.clone()], &y[rows.clone()], &energy[rows]].map(ColumnView::from);
        job.append(rank % 3, &columns).unwrap();
    }
    job.end_epoch().unwrap();
    job.close().unwrap();
}

/// Returns the files below a folder.
fn files(storage: &dyn Storage, folder: PathBuf) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in storage.list(&folder).unwrap() {
        let path = folder.join(&entry.name);
        match entry.kind {
            FileKind::Directory => found.extend(files(storage, path)),
            _ => drop(found.insert(path.clone(), read_all(storage, &path, 1 << 30).unwrap())),
        }
    }
    found
}

fn options_of(threads: usize) -> IndexOptions {
    IndexOptions { threads: Some(threads), break_lock: true }
}

fn make(mut build: IndexBuild) {
    build.dataset_build().set_memtable_bytes(MEMTABLE_BYTES);
    for epoch in build.missing().unwrap() {
        build.dataset_build().commit_next_as(Uuid::from_u128(u128::from(epoch) + 1));
        build.build_epoch(epoch, &|_| ()).unwrap();
    }
    build.close().unwrap();
}

#[test]
fn any_number_of_processes_and_threads_makes_the_same_overview() {
    let memory = MemoryStorage::new();
    let storage: Arc<dyn Storage> = Arc::new(memory.clone());
    for (epoch, rows) in [(1, 40_000), (2, 0), (3, 5)] {
        write(&storage, epoch, rows);
    }
    // The identity of the overview is then in all copies of the storage.
    IndexBuild::open_with(storage.clone(), "ds", &Overview.into(), &options_of(1)).unwrap().close().unwrap();
    let index = DatasetPaths::new("ds").index("overview");
    let made = |ranks: u32, threads: usize| {
        let storage: Arc<dyn Storage> = Arc::new(memory.crash());
        match ranks {
            0 => make(IndexBuild::open_with(storage.clone(), "ds", &Overview.into(), &options_of(threads)).unwrap()),
            _ => drop(run(ranks, |rank, transport| {
                let (index, options, place) = (Overview.into(), options_of(threads), (rank, ranks));
                let (shared, one_node) = (storage.clone(), Topology::one_node());
                make(IndexBuild::open_rank_with(shared, "ds", &index, &options, place, one_node, transport).unwrap());
            })),
        }
        check_files(&storage);
        files(&*storage, index.root().to_owned())
    };
    let alone = made(0, 1);
    let parts = alone.keys().filter(|path| path.starts_with(index.epoch(1))).count();
    assert!((4..=6).contains(&parts), "{parts} parts of 5,000 rows of 12 bytes");
    for (ranks, threads) in [(0, 4), (1, 1), (3, 2), (8, 1)] {
        let shared = made(ranks, threads);
        assert!(alone == shared, "{ranks} ranks of {threads} threads");
    }
}

#[test]
fn overviews_have_the_rows_of_the_highest_level() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let (paths, index) = (DatasetPaths::new("ds"), DatasetPaths::new("ds").index("overview"));
    for epoch in [1, 2] {
        write(&storage, epoch, 20_000);
    }
    make(IndexBuild::open_with(storage.clone(), "ds", &Overview.into(), &options_of(2)).unwrap());
    let rows = |root: PathBuf, epoch: u64, level: u8| {
        let dataset = Dataset::open_with(storage.clone(), root).unwrap();
        let manifest = dataset.manifest(epoch).unwrap();
        let mut rows: Vec<[u32; 3]> = Vec::new();
        for (entry, group) in manifest.row_groups.iter().enumerate().filter(|(_, group)| group.level >= level) {
            let pieces = dataset.pieces(&Query::new().epochs(epoch), 1).unwrap();
            assert_eq!(pieces.len(), manifest.row_groups.len());
            let read = dataset.run(&Query::new().epochs(epoch).piece(pieces[entry].clone())).unwrap();
            let before = rows.len();
            for batch in read.map(Result::unwrap) {
                let column = |name| batch.column_by_name(name).unwrap().as_primitive::<Float32Type>().values().to_vec();
                let (x, y, energy) = (column("x"), column("y"), column("energy"));
                rows.extend((0..x.len()).map(|row| [x[row], y[row], energy[row]].map(f32::to_bits)));
            }
            assert_eq!((rows.len() - before) as u64, group.rows);
        }
        rows.sort_unstable();
        rows
    };
    for epoch in [1, 2] {
        let highest = rows(paths.root().to_owned(), epoch, 1);
        assert!((2_400..2_600).contains(&highest.len()), "{}", highest.len());
        assert_eq!(highest, rows(index.root().to_owned(), epoch, 0));
    }
    let descriptor = DatasetDescriptor::read(&*storage, &paths).unwrap();
    assert_eq!(truncate_after(&storage, &paths, &descriptor, 1, false).unwrap().removed, [2]);
    assert_eq!(Dataset::open_with(storage.clone(), index.root()).unwrap().epochs().unwrap(), [1]);
    check_files(&storage);
}
