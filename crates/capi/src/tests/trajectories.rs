//! Requests for the rows of particles, and their metrics.

use super::*;
use crate::structs::CTrackMetrics;
use crate::trajectories::{turbidite_get, turbidite_tracks};

#[test]
fn corrupt_rows_are_an_error_that_names_the_part() {
    let memory: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let job = LocalJob::open_with(Arc::clone(&memory), "ds", schema(), options(1)).unwrap();
    let (energies, ids): (Vec<f32>, Vec<u64>) = (0..100).map(record).unzip();
    job.begin_epoch(1).unwrap();
    job.append(0, &[ColumnView::from(&energies), ColumnView::from(&ids)]).unwrap();
    job.end_epoch().unwrap();
    job.close().unwrap();
    let path = "ds/data/epoch=1/part-00000.parquet".into();
    let corrupt = FaultStorage::with_fault(memory, Fault::Flip { path, offset: 100, mask: 1 });
    let reader = Box::into_raw(Box::new(CReader::new(Dataset::open_with(Arc::new(corrupt), "ds").unwrap())));
    let views = [CView { data: ids.as_ptr().cast(), stride: 8, data_type: 6, width: 0 }];
    let request = track_request(&views, ids.len());
    let mut metrics = ShortMetrics { struct_size: size_of::<ShortMetrics>() as u32, epochs: 77, ids: 77 };
    let mut stream = FFI_ArrowArrayStream::empty();
    // SAFETY: the reader is open, and the view has the stated number of ids.
    unsafe {
        let short = (&raw mut metrics).cast::<CTrackMetrics>();
        assert_eq!(turbidite_tracks(reader, &raw const request, &raw mut stream, short), CORRUPTION);
        turbidite_reader_close(reader);
    }
    assert!(said().contains("part-00000.parquet"), "{}", said());
    assert_eq!((metrics.epochs, metrics.ids), (77, 77));
    assert!(stream.release.is_none());
}

#[test]
fn ids_and_metrics_of_exact_sizes() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let job = LocalJob::open_with(Arc::clone(&storage), "ds", schema(), options(1)).unwrap();
    for epoch in [1, 2] {
        let (energies, ids): (Vec<f32>, Vec<u64>) = (0..100 * epoch).map(record).unzip();
        job.begin_epoch(epoch).unwrap();
        job.append(0, &[ColumnView::from(&energies), ColumnView::from(&ids)]).unwrap();
        job.end_epoch().unwrap();
    }
    job.close().unwrap();
    let reader = Box::into_raw(Box::new(CReader::new(Dataset::open_with(storage, "ds").unwrap())));
    // Ids are 12 bytes apart, and the last id ends the buffer. The first two are missing in one and both epochs.
    let ids: Vec<u8> =
        [150_u64, 900, 7, 42].iter().flat_map(|id| [&id.to_le_bytes()[..], &[0xEE; 4]].concat()).collect();
    let ids = ids[..3 * 12 + 8].to_vec();
    let views = [CView { data: ids.as_ptr().cast(), stride: 12, data_type: 6, width: 0 }];
    let mut request = track_request(&views, 4);
    request.listed.limit = 3;
    let mut metrics = ShortMetrics { struct_size: size_of::<ShortMetrics>() as u32, epochs: 0, ids: 0 };
    let short = (&raw mut metrics).cast::<CTrackMetrics>();
    let mut stream = FFI_ArrowArrayStream::empty();
    // Requests that consist of their size.
    let (none, other) = (0_u32, size_of::<CTrackRequest>() as u32);
    // SAFETY: the reader is open, the views have the stated number of ids, and a request of another size is refused.
    let batches = unsafe {
        for size in [&raw const none, &raw const other] {
            assert_eq!(turbidite_get(reader, size.cast(), &raw mut stream, null_mut()), USAGE);
            assert!(said().contains("sizeof(turbidite_get_request)"), "{}", said());
        }
        assert_eq!(turbidite_tracks(reader, &raw const request, &raw mut stream, short), OK, "{}", said());
        turbidite_reader_close(reader);
        ArrowArrayStreamReader::from_raw(&raw mut stream).unwrap()
    };
    let rows = |batch: RecordBatch| {
        let ids = batch.column(0).as_any().downcast_ref::<UInt64Array>().unwrap().values().to_vec();
        let epochs = batch.column(1).as_any().downcast_ref::<Int64Array>().unwrap().values().to_vec();
        let energies = batch.column(2).as_any().downcast_ref::<Float32Array>().unwrap().values().to_vec();
        ids.into_iter().zip(epochs).zip(energies).collect::<Vec<_>>()
    };
    let found: Vec<_> = batches.flat_map(|batch| rows(batch.unwrap())).collect();
    assert_eq!(found, [((7, 1), record(7).0), ((7, 2), record(7).0), ((42, 1), record(42).0)]);
    assert_eq!((metrics.epochs, metrics.ids), (2, 4));
}
