//! Attributes of epochs: those of rank 0 are kept, replacements have their own, and rows have the time.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};

use super::*;
use crate::query::{AggregateRequest, TrackRequest};

/// Writes epochs 1 to 3, of which each rank states another time, and nobody that of epoch 2.
fn written(storage: &Arc<dyn Storage>) {
    run(3, |rank, transport| {
        let mut job = open(storage, options(3), rank, transport).unwrap();
        let early = job.set_attribute("time", 1.0, Some("s")).unwrap_err();
        assert_eq!(early.to_string(), "set_attribute is not allowed outside an epoch");
        for epoch in 1..=3 {
            job.begin_epoch(epoch).unwrap();
            append(&mut job, rank, 500).unwrap();
            if epoch != 2 {
                job.set_attribute("time", f64::from(rank + 1) * epoch as f64, Some("ns")).unwrap();
            }
            // A mistake is returned on the rank that makes it, and the epoch does not fail.
            job.set_attribute("dt", f64::NAN, None).unwrap_err();
            job.end_epoch().unwrap();
        }
        job.close().unwrap();
    });
}

#[test]
fn the_attributes_of_rank_0_are_kept() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    written(&storage);
    let dataset = Dataset::open_with(Arc::clone(&storage), "ds").unwrap();
    let times = || [1, 2, 3].map(|epoch| dataset.attributes(epoch).unwrap().time().to_bits());
    assert_eq!(times(), [1e-9, f64::NAN, 3e-9].map(f64::to_bits));
    assert!(dataset.attributes(2).unwrap().is_empty());
    assert!(matches!(dataset.attributes(4), Err(Error::EpochMissing { epoch: 4, .. })));
    let replacing = WriteOptions { if_exists: IfExists::Replace, ..options(1) };
    let job = LocalJob::open_with(Arc::clone(&storage), "ds", schema(), replacing).unwrap();
    job.set_attribute("time", 1.0, None).unwrap_err();
    job.begin_epoch(3).unwrap();
    job.set_attribute("time", 7.0, None).unwrap();
    job.set_attribute("time", 8.0, None).unwrap();
    job.end_epoch().unwrap();
    job.begin_epoch(1).unwrap();
    job.end_epoch().unwrap();
    job.close().unwrap();
    assert_eq!(times(), [f64::NAN, f64::NAN, 8.0].map(f64::to_bits), "those of a replaced epoch are gone");
}

#[test]
fn rows_and_groups_have_the_time_of_their_epoch() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    written(&storage);
    let dataset = Dataset::open_with(storage, "ds").unwrap();
    let expected = [0, 1e-9f64.to_bits(), f64::NAN.to_bits(), 3e-9f64.to_bits()];
    let check = |batches: &mut dyn Iterator<Item = Result<arrow_array::RecordBatch>>| {
        let mut rows = 0;
        for batch in batches {
            let batch = batch.unwrap();
            let column = |name: &str| batch.column_by_name(name).unwrap();
            let (times, epochs) = (column("time").as_primitive::<Float64Type>(), column("epoch"));
            for (time, epoch) in times.values().iter().zip(epochs.as_primitive::<Int64Type>().values()) {
                assert_eq!(time.to_bits(), expected[*epoch as usize]);
                rows += 1;
            }
        }
        rows
    };
    let query = || Query::new().columns(["time", "key", "epoch"]);
    for query in [query(), query().ordered(true), query().ordered_by("origin"), query().batch_rows(17)] {
        assert_eq!(check(&mut dataset.run(&query).unwrap()), 4500);
    }
    // Few rows of many row groups are joined to one batch.
    let few = query().filter("key < 600000");
    let found = check(&mut dataset.run(&few).unwrap());
    assert!((1..450).contains(&found), "{found}");
    let request = TrackRequest::new("origin = 1", 2, "key").rows(Query::new().columns(["origin", "TIME"]));
    let mut tracks = dataset.tracks(&request, &|_| ()).unwrap();
    let schema = tracks.schema();
    assert_eq!(
        schema.fields().iter().map(|field| field.name()).collect::<Vec<_>>(),
        ["key", "epoch", "origin", "time"]
    );
    assert!(check(&mut tracks) >= 1500);
    let request = AggregateRequest::new(Query::new()).by("epoch").by("time").aggregate("n = count()");
    let table = dataset.aggregate(&request).unwrap().table;
    assert_eq!(check(&mut std::iter::once(Ok(table))), 3);
    for wrong in ["times", "epoch_time"] {
        let refused = dataset.run(&Query::new().columns([wrong])).err().unwrap().to_string();
        assert!(refused.contains(&format!("there is no column '{wrong}'")), "{refused}");
    }
    let twice = dataset.run(&Query::new().columns(["time", "Time"])).err().unwrap().to_string();
    assert_eq!(twice, "columns: 'Time' is listed twice");
}

/// A stored column keeps its name, and its values.
#[test]
fn a_stored_column_called_time_wins() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let columns = vec![Column::new("Time", DataType::U32), Column::new("x", DataType::U32)];
    let schema = Schema::new(columns, "x").unwrap();
    let job = LocalJob::open_with(Arc::clone(&storage), "ds", schema, options(1)).unwrap();
    job.begin_epoch(1).unwrap();
    job.append(0, &[ColumnView::from(&[5u32][..]), ColumnView::from(&[6u32][..])]).unwrap();
    job.set_attribute("time", 2.5, None).unwrap();
    job.end_epoch().unwrap();
    job.close().unwrap();
    let dataset = Dataset::open_with(storage, "ds").unwrap();
    let query = Query::new().columns(["time", "epoch_time"]);
    let batch = dataset.run(&query).unwrap().next().unwrap().unwrap();
    assert_eq!(batch.schema().field(0).name(), "Time");
    assert_eq!(batch.column(0).as_primitive::<arrow_array::types::UInt32Type>().values(), &[5]);
    assert_eq!(batch.column(1).as_primitive::<Float64Type>().values(), &[2.5]);
}
