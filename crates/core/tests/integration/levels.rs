//! Tests of levels of detail: every record once at one level, an eighth of each run one level up, parts in the folders
//! of their levels.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::support::places::{ROOT, ROWS, Records, options, schema, verify};
use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use turbidite::format::{EpochManifest, RowGroupEntry, RunKind, SealedRun, scan_seals};
use turbidite::storage::{Fault, FaultStorage, MemoryStorage, Storage};
use turbidite::store::{DatasetDescriptor, DatasetPaths, IfExists, list_epochs, load_manifest, salvage, verify_on};
use turbidite::{Column, DataType, Dataset, Error, LocalJob, Query, Schema, VerifyOptions, WriteOptions};

const KEY: &str = "space:x,y,z";

fn with_levels(levels: u8) -> WriteOptions {
    let mut options = options();
    (options.levels, options.part_bytes) = (levels, Some(0));
    options
}

fn open(storage: &Arc<MemoryStorage>, options: WriteOptions) -> Result<LocalJob, Error> {
    LocalJob::open_with(storage.clone(), ROOT, schema(KEY), options)
}

fn write_epoch(job: &LocalJob, epoch: u64, records: &Records) {
    job.begin_epoch(epoch).unwrap();
    records.append(job);
    job.end_epoch().unwrap();
}

fn write(options: WriteOptions, epochs: &[Records]) -> Arc<MemoryStorage> {
    let storage = Arc::new(MemoryStorage::new());
    let job = open(&storage, options).unwrap();
    (0..).zip(epochs).for_each(|(epoch, records)| write_epoch(&job, epoch, records));
    job.close().unwrap();
    storage
}

fn describe(storage: &MemoryStorage) -> DatasetDescriptor {
    DatasetDescriptor::read(storage, &DatasetPaths::new(ROOT)).unwrap()
}

fn manifest(storage: &MemoryStorage, epoch: u64) -> EpochManifest {
    load_manifest(storage, &DatasetPaths::new(ROOT), &describe(storage), epoch).unwrap()
}

fn numbers(storage: &Arc<MemoryStorage>, query: &Query) -> Vec<u32> {
    let dataset = Dataset::open_with(storage.clone() as Arc<dyn Storage>, ROOT).unwrap();
    let mut numbers = Vec::new();
    for batch in dataset.run(&query.clone().columns(["number"])).unwrap() {
        numbers.extend_from_slice(batch.unwrap().column(0).as_primitive::<UInt32Type>().values());
    }
    numbers.sort_unstable();
    numbers
}

fn findings(storage: &Arc<MemoryStorage>) -> String {
    let storage = storage.clone() as Arc<dyn Storage>;
    let report = verify_on(&storage, &DatasetPaths::new(ROOT), &VerifyOptions::default(), &|_| ()).unwrap();
    report.findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Checks that of the rows of each run, an eighth is one level up: at most one more or less for an incomplete group.
fn check_shares(manifest: &EpochManifest, levels: u8) {
    let mut runs: BTreeMap<(u32, u32), Vec<u64>> = BTreeMap::new();
    for group in &manifest.row_groups {
        let rows = runs.entry((group.part.rank, group.run)).or_insert_with(|| vec![0; 1 + usize::from(levels)]);
        rows[usize::from(group.level)] += group.rows;
        assert!(group.kind != RunKind::NanKey || group.level == 0, "rows that are in no place have no neighbours");
    }
    let nan_runs: Vec<(u32, u32)> = manifest
        .row_groups
        .iter()
        .filter(|group| group.kind == RunKind::NanKey)
        .map(|group| (group.part.rank, group.run))
        .collect();
    for (run, rows) in runs.iter().filter(|(run, _)| !nan_runs.contains(run)) {
        for level in 1..rows.len() {
            let (lower, upper) = (rows[level - 1..].iter().sum::<u64>(), rows[level..].iter().sum::<u64>());
            assert!((lower / 8..=lower.div_ceil(8)).contains(&upper), "{run:?}, level {level}: {rows:?}");
        }
    }
}

#[test]
fn records_are_at_one_level_wherever_they_are() {
    for levels in [1, 3, 6] {
        let one_point = Records::new(vec![[3.0, 4.0, 5.0]; ROWS]);
        let few = Records::new(vec![[1.0; 3], [2.0; 3], [f64::NAN; 3]]);
        let epochs = [Records::hostile(1), one_point, Records::new(Vec::new()), few, Records::hostile(2)];
        let storage = write(with_levels(levels), &epochs);
        assert_eq!(findings(&storage), "");
        let described = describe(&storage).schema.levels().unwrap();
        assert!(described.count == levels && described.seed < 1 << 53);
        for (epoch, records) in (0..).zip(&epochs) {
            assert_eq!(numbers(&storage, &Query::new().epochs(epoch)), records.number);
            let query = Query::new().epochs(epoch).within("0:400,10:700,-3:77");
            let inside = |row: &usize| {
                (0.0..400.0).contains(&records.x[*row])
                    && (10.0..700.0).contains(&records.y[*row])
                    && (-3..77).contains(&records.z[*row])
            };
            let expected: Vec<u32> = (0..records.number.len()).filter(inside).map(|row| records.number[row]).collect();
            assert_eq!(numbers(&storage, &query), expected);
            let manifest = manifest(&storage, epoch);
            check_shares(&manifest, levels);
            let listed: Vec<(u32, u32)> = manifest.parts.iter().map(|part| (part.part.rank, part.part.roll)).collect();
            assert!(listed.windows(2).all(|pair| pair[0] < pair[1]), "rank and roll identify a part: {listed:?}");
            for entry in &manifest.parts {
                let path = DatasetPaths::new(ROOT).epoch(epoch).join(format!("level={}", entry.level));
                assert!(storage.kind(&path.join(entry.part.file_name())).unwrap().is_some());
            }
        }
        let most = manifest(&storage, 0).parts.iter().map(|part| part.level).max();
        assert!(most.is_some_and(|most| most == levels.min(3) || most > 2), "{most:?} of {levels} levels are used");
    }
}

fn weighted(column: &str) -> WriteOptions {
    let mut options = with_levels(2);
    options.level_weight = Some(column.to_owned());
    options
}

/// Coordinates are weights as good as any: floats with NaN and infinities, integers of both signs.
#[test]
fn levels_may_be_in_proportion_to_any_column_of_numbers() {
    let few = Records::new(vec![[1.0; 3], [2.0; 3], [f64::NAN; 3]]);
    let epochs = [Records::hostile(1), Records::new(Vec::new()), few, Records::new(vec![[3.0; 3]; 5_000])];
    for weight in ["number", "x", "y", "z"] {
        let storage = write(weighted(weight), &epochs);
        assert_eq!(findings(&storage), "");
        assert_eq!(describe(&storage).schema.level_weight_name(), Some(weight));
        let text = storage.open(&DatasetPaths::new(ROOT).descriptor()).unwrap();
        let mut bytes = vec![0; text.bytes() as usize];
        text.read_at(0, &mut bytes).unwrap();
        let text: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(text["requires"], serde_json::json!(["levels", "level_weights"]));
        assert_eq!(text["levels"]["weight"], weight);
        for (epoch, records) in (0..).zip(&epochs) {
            assert_eq!(numbers(&storage, &Query::new().epochs(epoch)), records.number);
            let mut runs: BTreeMap<(u32, u32), [u64; 3]> = BTreeMap::new();
            for group in &manifest(&storage, epoch).row_groups {
                let stated = group.intervals.as_ref().map(|intervals| intervals.stands_for(1, f64::NAN));
                assert_eq!(stated.is_some(), group.level > 0, "level {}", group.level);
                // A row without a valid weight stands for the mean size's share: 8, or less if others are certain.
                assert!(stated.is_none_or(|rows| (1.0..=8.001).contains(&rows)), "{stated:?}");
                if group.kind != RunKind::NanKey {
                    runs.entry((group.part.rank, group.run)).or_default()[usize::from(group.level)] += group.rows;
                }
            }
            for (run, rows) in runs {
                for level in 1..rows.len() {
                    let (lower, upper) = (rows[level - 1..].iter().sum::<u64>(), rows[level..].iter().sum::<u64>());
                    assert!(upper.abs_diff(lower / 8) <= 2, "{run:?}, level {level}: {rows:?}");
                }
            }
        }
    }
}

#[test]
fn jobs_go_on_with_the_weight_that_a_dataset_has() {
    let storage = write(weighted("number"), &[Records::even(1, 0.0, 10.0)]);
    for options in [with_levels(0), with_levels(2), weighted("number")] {
        let mut options = options;
        options.if_exists = IfExists::Replace;
        let job = open(&storage, options).unwrap();
        write_epoch(&job, 1, &Records::even(2, 0.0, 10.0));
        write_epoch(&job, 2, &Records::even(3, 0.0, 10.0));
        job.truncate_after(1).unwrap();
        job.close().unwrap();
        assert_eq!(findings(&storage), "");
        let groups = manifest(&storage, 1).row_groups;
        assert!(groups.iter().any(|group| group.level == 2 && group.intervals.is_some()));
    }
    let mut auto = weighted("x");
    (auto.levels, auto.levels_if_new) = (0, 3);
    let (even, none) = (write(with_levels(2), &[]), write(with_levels(0), &[]));
    for (storage, options, cause) in [
        (&storage, weighted("x"), "in proportion to 'number', but levels in proportion to 'x' were requested"),
        (&storage, auto.clone(), "in proportion to 'number', but levels in proportion to 'x'"),
        (&even, weighted("x"), "are even, but levels in proportion to 'x' were requested"),
        (&even, auto.clone(), "are even, but"),
        (&none, auto, "has no levels of detail, but levels in proportion to 'x' were requested"),
    ] {
        let refused = open(storage, options).unwrap_err().to_string();
        assert!(refused.contains(cause), "{refused}");
    }
}

#[test]
fn weights_that_cannot_be_are_refused() {
    let storage = Arc::new(MemoryStorage::new());
    let mut lone = options();
    lone.level_weight = Some("x".to_owned());
    let refused = open(&storage, lone).unwrap_err().to_string();
    assert!(refused.contains("there are no levels of detail; state their number"), "{refused}");
    let refused = open(&storage, weighted("energy")).unwrap_err().to_string();
    assert!(refused.contains("'energy': it is not one of the columns"), "{refused}");
    let mut columns = schema(KEY).columns().to_vec();
    columns.push(Column::new("name", DataType::FixedBytes(9)));
    let schema = Schema::new(columns, KEY).unwrap();
    let refused = LocalJob::open_with(storage.clone(), ROOT, schema, weighted("name")).unwrap_err().to_string();
    assert!(refused.contains("'name': it has byte strings"), "{refused}");
    assert!(storage.kind(Path::new(ROOT)).unwrap().is_none(), "nothing was created");
}

#[test]
fn wrong_intervals_of_a_manifest_are_found() {
    let storage = write(weighted("number"), &[Records::even(1, 0.0, 100.0)]);
    let (paths, descriptor, stated) = (DatasetPaths::new(ROOT), describe(&storage), manifest(&storage, 0));
    let path = paths.manifest(0, stated.commit);
    let replace = |change: &dyn Fn(&mut RowGroupEntry)| {
        let mut changed = stated.clone();
        changed.row_groups.to_mut().iter_mut().filter(|group| group.level > 0).for_each(change);
        storage.remove_file(&path).unwrap();
        let encoded = changed.encode(&descriptor.schema).unwrap();
        storage.create(&path).unwrap().write_at(0, &encoded).unwrap();
        findings(&storage)
    };
    let other = stated.row_groups.iter().filter(|group| group.level == 2).last().unwrap().intervals.clone();
    let found = replace(&|group: &mut RowGroupEntry| {
        if group.level == 2 {
            group.intervals.clone_from(&other);
        }
    });
    assert!(found.contains("seal of run") && found.contains("does not match the run"), "{found}");
    let name = path.file_name().unwrap().to_str().unwrap();
    let without = |group: &mut RowGroupEntry| group.intervals = None;
    let of_other_level = |group: &mut RowGroupEntry| group.intervals.clone_from(&other);
    for change in [&without as &dyn Fn(&mut RowGroupEntry), &of_other_level] {
        let found = replace(change);
        assert!(found.contains("a row group has intervals that no sample has") && found.contains(name), "{found}");
        let dataset = Dataset::open_with(storage.clone() as Arc<dyn Storage>, ROOT).unwrap();
        let read = dataset.run(&Query::new()).and_then(|stream| stream.collect::<Result<Vec<_>, _>>());
        assert!(read.unwrap_err().to_string().contains(name));
    }
    assert_eq!(replace(&|_| ()), "");
}

#[test]
fn parts_of_all_levels_roll_over_together() {
    let mut options = with_levels(2);
    (options.row_groups_per_part, options.row_groups_per_run) = (3, 2);
    let records = [Records::even(3, 0.0, 100.0)];
    let storage = write(options, &records);
    verify(&storage);
    assert_eq!(numbers(&storage, &Query::new().epochs(0)), records[0].number);
    let parts = manifest(&storage, 0).parts;
    let of_rank = |rank| parts.iter().filter(move |entry| entry.part.rank == rank);
    assert!((0..8).any(|rank| of_rank(rank).filter(|entry| entry.level == 2).count() > 1), "{parts:?}");
    for rank in 0..8 {
        assert!(of_rank(rank).zip(0..).all(|(entry, roll)| entry.part.roll == roll), "rolls have no gaps: {parts:?}");
    }
}

#[test]
fn jobs_go_on_with_the_levels_that_a_dataset_has() {
    let epochs = [Records::even(1, 0.0, 10.0), Records::hostile(2)];
    let storage = write(with_levels(2), &epochs[..1]);
    let seed = describe(&storage).schema.levels();
    let mut options = with_levels(0);
    options.if_exists = IfExists::Replace;
    let job = open(&storage, options).unwrap();
    write_epoch(&job, 1, &epochs[1]);
    write_epoch(&job, 0, &epochs[1]);
    job.begin_epoch(2).unwrap();
    epochs[0].append(&job);
    job.abort_epoch("a test".to_owned()).unwrap();
    write_epoch(&job, 3, &epochs[0]);
    job.truncate_after(2).unwrap();
    job.close().unwrap();
    open(&storage, with_levels(2)).unwrap().close().unwrap();
    verify(&storage);
    assert_eq!(describe(&storage).schema.levels(), seed);
    assert_eq!(list_epochs(&*storage, &DatasetPaths::new(ROOT)).unwrap(), [0, 1]);
    for epoch in 0..2 {
        check_shares(&manifest(&storage, epoch), 2);
        assert_eq!(numbers(&storage, &Query::new().epochs(epoch)), epochs[1].number);
    }
    let refused = open(&storage, with_levels(3)).unwrap_err().to_string();
    assert!(refused.contains("it has 2 levels, but 3 were requested"), "{refused}");
}

#[test]
fn levels_of_new_datasets_are_no_request_to_others() {
    let mut options = with_levels(0);
    options.levels_if_new = 2;
    let storage = write(options.clone(), &[Records::even(1, 0.0, 10.0)]);
    let levels = describe(&storage).schema.levels();
    assert_eq!(levels.map(|levels| levels.count), Some(2));
    check_shares(&manifest(&storage, 0), 2);
    options.levels_if_new = 3;
    let flat = write(with_levels(0), &[]);
    for (storage, levels) in [(&storage, levels), (&flat, None)] {
        open(storage, options.clone()).unwrap().close().unwrap();
        assert_eq!(describe(storage).schema.levels(), levels);
    }
    let storage = Arc::new(MemoryStorage::new());
    let refused = LocalJob::open_with(storage.clone(), ROOT, schema("x"), options).unwrap_err().to_string();
    assert!(refused.contains("whose key is by space"), "{refused}");
    assert!(storage.kind(Path::new(ROOT)).unwrap().is_none(), "nothing was created");
}

#[test]
fn levels_that_cannot_be_are_refused() {
    let storage = Arc::new(MemoryStorage::new());
    let refused = open(&storage, with_levels(7)).unwrap_err().to_string();
    assert!(refused.contains("1 to 6") && refused.contains("7 with the key 'space:x,y,z'"), "{refused}");
    for key in ["x", "hash:number"] {
        let refused = LocalJob::open_with(storage.clone(), ROOT, schema(key), with_levels(2)).unwrap_err().to_string();
        assert!(refused.contains("whose key is by space") && refused.contains(key), "{refused}");
    }
    assert!(storage.kind(Path::new(ROOT)).unwrap().is_none(), "nothing was created");
    let flat = write(options(), &[]);
    let refused = open(&flat, with_levels(1)).unwrap_err().to_string();
    assert!(refused.contains("it has no levels of detail, but 1 were requested"), "{refused}");
}

#[test]
fn a_column_called_level_is_not_hidden() {
    let columns = ["Level", "y"].map(|name| Column::new(name, DataType::F32)).to_vec();
    let schema = Schema::new(columns, "space:Level,y").unwrap();
    let storage = Arc::new(MemoryStorage::new());
    let job = LocalJob::open_with(storage.clone(), ROOT, schema, with_levels(1)).unwrap();
    job.begin_epoch(5).unwrap();
    let values: Vec<f32> = (0..100u8).map(f32::from).collect();
    job.append(0, &[turbidite::ColumnView::from(&values), turbidite::ColumnView::from(&values)]).unwrap();
    job.end_epoch().unwrap();
    job.close().unwrap();
    verify(&storage);
    let folders: Vec<String> =
        storage.list(&DatasetPaths::new(ROOT).epoch(5)).unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(folders, ["level_=0", "level_=1"]);
}

#[test]
fn parts_in_other_folders_are_found() {
    let storage = write(with_levels(2), &[Records::even(1, 0.0, 10.0)]);
    let paths = DatasetPaths::new(ROOT);
    let entry = *manifest(&storage, 0).parts.iter().find(|entry| entry.level == 1).unwrap();
    let name = entry.part.file_name();
    let (own, other) = (paths.epoch(0).join("level=1").join(&name), paths.epoch(0).join("level=2").join(&name));
    storage.rename(&own, &other).unwrap();
    let found = findings(&storage);
    assert!(found.contains(&format!("level=2/{name}")) && found.contains("not part of the epoch"), "{found}");
    assert!(found.contains(&format!("level=1/{name}")), "the missing file is named: {found}");
    storage.rename(&other, &own).unwrap();
    verify(&storage);
    // A manifest that states another level, with the part where it says.
    let descriptor = describe(&storage);
    let mut stated = manifest(&storage, 0);
    stated.parts.iter_mut().filter(|part| part.part == entry.part).for_each(|part| part.level = 2);
    stated.row_groups.to_mut().iter_mut().filter(|group| group.part == entry.part).for_each(|group| group.level = 2);
    storage.rename(&own, &other).unwrap();
    let path = paths.manifest(0, stated.commit);
    let replace = |stated: &EpochManifest| {
        storage.remove_file(&path).unwrap();
        let encoded = stated.encode(&descriptor.schema).unwrap();
        storage.create(&path).unwrap().write_at(0, &encoded).unwrap();
    };
    replace(&stated);
    let found = findings(&storage);
    assert!(found.contains("seal of run") && found.contains(&name), "{found}");
    let dataset = Dataset::open_with(storage.clone() as Arc<dyn Storage>, ROOT).unwrap();
    let read = dataset.run(&Query::new()).and_then(|stream| stream.collect::<Result<Vec<_>, _>>());
    let error = read.unwrap_err().to_string();
    assert!(error.contains("it is of level 1, the manifest states 2") && error.contains(&name), "{error}");
    // Levels that the dataset does not have, and row groups and parts that contradict each other.
    stated.parts.iter_mut().filter(|part| part.part == entry.part).for_each(|part| part.level = 3);
    replace(&stated);
    assert!(findings(&storage).contains("a row group has another level than its part"), "{}", findings(&storage));
    stated.row_groups.to_mut().iter_mut().filter(|group| group.part == entry.part).for_each(|group| group.level = 3);
    replace(&stated);
    assert!(findings(&storage).contains("has the level 3, but the highest is 2"), "{}", findings(&storage));
}

#[test]
fn flipped_bytes_are_found_at_every_level() {
    let mut records = Records::even(6, 0.0, 50.0);
    records.truncate(900);
    let mut options = WriteOptions::new(8);
    (options.levels, options.page_rows, options.receivers) = (2, 32, 1);
    let storage = write(options, &[records]);
    let all = numbers(&storage, &Query::new());
    let parts = manifest(&storage, 0).parts;
    assert!(all.len() == 900 && parts.iter().map(|part| part.level).eq(0..3), "{parts:?}");
    let schema = describe(&storage).schema;
    for entry in &parts {
        let path = DatasetPaths::new(ROOT).part(0, entry, &schema);
        let content = storage.open(&path).unwrap();
        for offset in (u64::from(entry.part.roll)..entry.bytes).step_by(61) {
            let fault = Fault::Flip { path: path.clone(), offset, mask: 1 << (offset % 8) };
            let corrupted: Arc<dyn Storage> = Arc::new(FaultStorage::with_fault(storage.clone(), fault));
            let report = verify_on(&corrupted, &DatasetPaths::new(ROOT), &VerifyOptions::default(), &|_| ()).unwrap();
            let mut byte = [0];
            content.read_at(offset, &mut byte).unwrap();
            assert!(!report.is_clean() || byte == [0], "byte {offset} of {}", path.display());
            let read = || -> Result<usize, Error> {
                let dataset = Dataset::open_with(Arc::clone(&corrupted), ROOT)?;
                let batches = dataset.run(&Query::new())?.collect::<Result<Vec<_>, _>>()?;
                Ok(batches.iter().map(|batch| batch.num_rows()).sum())
            };
            match read() {
                Ok(rows) => assert_eq!(rows, all.len()),
                Err(error) => assert!(error.to_string().contains(&entry.part.file_name()), "{error}"),
            }
        }
    }
}

#[test]
fn killed_epochs_are_salvaged_at_their_levels() {
    salvage_epoch(with_levels(2));
}

#[test]
fn killed_epochs_are_salvaged_with_the_intervals_of_their_levels() {
    salvage_epoch(weighted("number"));
}

fn salvage_epoch(options: WriteOptions) {
    let records = [Records::even(4, 0.0, 100.0), Records::even(5, 0.0, 100.0), Records::even(6, 0.0, 100.0)];
    let storage = write(options, &records);
    let (paths, descriptor) = (DatasetPaths::new(ROOT), describe(&storage));
    let is_weighted = descriptor.schema.level_weight().is_some();
    // As if the job had been killed before it committed the last epoch.
    let written = manifest(&storage, 2);
    let commit = written.commit;
    storage.rename(&paths.epoch(2), &paths.attempt(2, commit)).unwrap();
    storage.remove_file(&paths.manifest(2, commit)).unwrap();
    // The attempt outlives the next writer, since it has sealed runs.
    open(&storage, with_levels(2)).unwrap().close().unwrap();
    let unfinished = salvage::list(&*storage, &paths, &descriptor).unwrap();
    let of_level = |level| unfinished[0].parts.iter().filter(move |part| part.level == level);
    let rows = |level| of_level(level).flat_map(|part| &part.runs).map(SealedRun::rows).sum::<u64>();
    assert!(unfinished.len() == 1 && rows(0) > 8 * rows(2) && rows(2) > 0, "{} rows", unfinished[0].rows());
    let out = Path::new("/salvaged");
    let salvaged =
        salvage::recover_into(&(storage.clone() as Arc<dyn Storage>), &paths, &descriptor, &unfinished[0], out);
    let salvaged = salvaged.unwrap();
    assert_eq!(salvaged.rows, unfinished[0].rows());
    let mut found = 0;
    for level in 0..3u8 {
        let folder = out.join(format!("epoch=2/level={level}"));
        for entry in storage.list(&folder).unwrap() {
            let path = folder.join(&entry.name);
            let file = storage.open(&path).unwrap();
            let runs = scan_seals(&*file, &path, &descriptor.schema).unwrap();
            assert!(!runs.is_empty() && runs.iter().all(|run| run.level == level));
            for run in &runs {
                let same = |group: &&RowGroupEntry| (group.part, group.run) == (run.part, run.run);
                let group = written.row_groups.iter().find(same).unwrap();
                assert_eq!(
                    (run.intervals, run.intervals.is_some()),
                    (group.intervals.as_deref().copied(), is_weighted && level > 0)
                );
            }
            found += runs.iter().map(SealedRun::rows).sum::<u64>();
        }
    }
    assert_eq!(found, salvaged.rows);
    salvage::discard(&*storage, &unfinished[0]).unwrap();
    verify(&storage);
}
