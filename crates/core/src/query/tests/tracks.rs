//! Trajectories compared with a scan in memory.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::error::ErrorClass;
use crate::query::{ParticleId, TrackMetrics, TrackProgress, TrackRequest};
use crate::store::EpochRange;

/// Returns an epoch of two parts. Ids may repeat.
fn epoch(epoch: u64, rows: &[(u64, i8)]) -> TestEpoch {
    let record =
        |(id, a): &(u64, i8)| Record { key: (mix(*id) % 64) as f64 / 4.0, a: f32::from(*a), b: *a as i16, id: *id };
    let part = |rank: u32| {
        let rows = rows.iter().skip(rank as usize).step_by(2).map(record).collect();
        (PartId { rank, roll: 0 }, vec![TestRun { kind: RunKind::Regular, rows }])
    };
    TestEpoch { epoch, parts: vec![part(0), part(1)] }
}

fn write(epochs: &[Vec<(u64, i8)>]) -> Dataset {
    let fixture = Fixture::new(DataType::F32, 8, 2);
    for (label, rows) in (0..).zip(epochs) {
        fixture.write(&epoch(10 * label, rows));
    }
    fixture.open()
}

/// Returns the id, epoch and `b` of all rows, in result order, and the metrics.
fn found(dataset: &Dataset, request: &TrackRequest) -> (Vec<(u64, u64, i16)>, TrackMetrics) {
    let mut tracks = dataset.tracks(request, &|_| {}).unwrap();
    let mut rows = Vec::new();
    for batch in &mut tracks {
        let batch = batch.unwrap();
        assert_eq!(batch.schema().field(1).name(), "epoch");
        let column = |name: &str| batch.column_by_name(name).unwrap().as_ref();
        let (ids, epochs) = (column("id").as_primitive::<UInt64Type>(), column("epoch").as_primitive::<Int64Type>());
        let b = column("b").as_primitive::<Int16Type>();
        rows.extend((0..batch.num_rows()).map(|row| (ids.value(row), epochs.value(row) as u64, b.value(row))));
    }
    (rows, tracks.metrics())
}

/// Returns the expected rows, sorted by id and epoch (ties as a multiset), and the expected metrics.
fn expected(epochs: &[Vec<(u64, i8)>], ids: impl Iterator<Item = u64>) -> (Vec<(u64, u64, i16)>, TrackMetrics) {
    let mut counts: BTreeMap<u64, Vec<u64>> = ids.map(|id| (id, vec![0; epochs.len()])).collect();
    let mut rows = Vec::new();
    for (label, epoch) in epochs.iter().enumerate() {
        for (id, a) in epoch {
            if let Some(count) = counts.get_mut(id) {
                count[label] += 1;
                rows.push((*id, 10 * label as u64, i16::from(*a)));
            }
        }
    }
    rows.sort_unstable();
    let each = || counts.values().flatten();
    let metrics = TrackMetrics {
        ids: counts.len() as u64,
        epochs: epochs.len() as u64,
        rows: rows.len() as u64,
        incomplete_ids: counts.values().filter(|count| count.contains(&0)).count() as u64,
        absent_ids: counts.values().filter(|count| count.iter().all(|rows| *rows == 0)).count() as u64,
        missing: each().filter(|count| **count == 0).count() as u64,
        duplicates: each().map(|count| count.saturating_sub(1)).sum(),
        ..TrackMetrics::default()
    };
    (rows, metrics)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn tracks_are_what_a_scan_finds(
        epochs in prop::collection::vec(prop::collection::vec((0u64..40, any::<i8>()), 0..80), 1..5),
        at in any::<prop::sample::Index>(),
        above in any::<i8>(),
        sort_bytes in 1usize..3000,
        threads in 1usize..4,
    ) {
        let dataset = write(&epochs);
        let at = at.index(epochs.len());
        let matching = epochs[at].iter().filter(|(_, a)| *a > above).map(|(id, _)| *id);
        let (rows, metrics) = expected(&epochs, matching);
        let request = TrackRequest::new(format!("a > {above}"), 10 * at as u64, "id").sort_bytes(sort_bytes);
        let rows_of = |query: Query| request.clone().rows(query.threads(threads));
        let (mut all, stated) = found(&dataset, &rows_of(Query::new()));
        let in_order: Vec<(u64, u64)> = all.iter().map(|(id, epoch, _)| (*id, *epoch)).collect();
        prop_assert!(in_order.is_sorted());
        let (first, _) = found(&dataset, &rows_of(Query::new().limit(7).columns(["b"])));
        prop_assert_eq!(&first[..], &all[..all.len().min(7)]);
        all.sort_unstable();
        prop_assert_eq!(all, rows);
        prop_assert_eq!(TrackMetrics { read: metrics.read, ..stated }, metrics);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn tracks_of_a_list_are_what_a_scan_finds(
        epochs in prop::collection::vec(prop::collection::vec((0u64..40, any::<i8>()), 0..80), 1..5),
        ids in prop::collection::vec(prop_oneof![0u64..45, any::<u64>()], 0..20),
    ) {
        let dataset = write(&epochs);
        let (rows, metrics) = expected(&epochs, ids.iter().copied());
        let (mut all, stated) = found(&dataset, &TrackRequest::of_ids(ids, "id"));
        let in_order: Vec<(u64, u64)> = all.iter().map(|(id, epoch, _)| (*id, *epoch)).collect();
        prop_assert!(in_order.is_sorted());
        all.sort_unstable();
        prop_assert_eq!(all, rows);
        prop_assert_eq!(TrackMetrics { read: metrics.read, ..stated }, metrics);
    }
}

#[test]
fn opaque_ids_of_a_list_are_found() {
    let dataset = write(&[vec![(1, 5), (2, 6), (300, 7)], vec![(2, 1), (300, 1), (300, 2)]]);
    let tag = |id: u64| Record { key: 0.0, a: 0.0, b: 0, id }.tag().to_vec();
    let (mut rows, metrics) =
        found(&dataset, &TrackRequest::of_ids([tag(300), tag(5)], "tag").rows(Query::new().columns(["id", "b"])));
    rows.sort_unstable();
    assert_eq!(rows, [(300, 0, 7), (300, 10, 1), (300, 10, 2)]);
    assert_eq!((metrics.ids, metrics.absent_ids, metrics.incomplete_ids, metrics.missing), (2, 1, 1, 2));
}

#[test]
fn opaque_ids_are_followed_too() {
    let epochs = vec![vec![(1, 5), (2, 6), (300, 7)], vec![(2, 1), (300, 1), (300, 2)]];
    let dataset = write(&epochs);
    let request = TrackRequest::new("a > 5", 0, "tag").rows(Query::new().columns(["epoch", "id", "b"]));
    let (rows, metrics) = found(&dataset, &request);
    // Tags begin with the low bytes of the id: 2 for id 2, and 44 and 1 for id 300.
    assert_eq!(rows[..2], [(2, 0, 6), (2, 10, 1)]);
    assert_eq!(rows[2], (300, 0, 7));
    assert_eq!((rows.len(), metrics.ids, metrics.missing, metrics.duplicates), (5, 2, 0, 1));
}

#[test]
fn pages_without_any_of_the_ids_are_not_read() {
    // The key equals the id, so ids are clustered like keys.
    let fixture = Fixture::new(DataType::F64, 16, 1);
    for label in 0..3 {
        let record = |id: u64| Record { key: id as f64, a: id as f32, b: 0, id };
        let rows = (0..4000).map(record).collect();
        let parts = vec![(PartId { rank: 0, roll: 0 }, vec![TestRun { kind: RunKind::Regular, rows }])];
        fixture.write(&TestEpoch { epoch: label, parts });
    }
    let dataset = fixture.open();
    let all = dataset.tracks(&TrackRequest::new("true", 0, "id"), &|_| {}).unwrap().metrics();
    let few = dataset.tracks(&TrackRequest::new("a >= 1000 AND a < 1010", 0, "id"), &|_| {}).unwrap().metrics();
    assert_eq!((all.rows, few.rows, few.missing), (12_000, 30, 0));
    // The test compares pages instead of bytes, since reads include gaps this short.
    assert!(few.read.pages_read * 20 < all.read.pages_read, "{} of {}", few.read.pages_read, all.read.pages_read);
}

#[test]
fn epochs_are_chosen_and_progress_is_told() {
    let dataset = write(&[vec![(1, 9)], vec![(2, 9)], vec![(1, 3)], vec![]]);
    let request = TrackRequest::new("a > 5", 0, "id").rows(Query::new().epochs(EpochRange { first: 10, last: 30 }));
    let stated = std::cell::RefCell::new(Vec::new());
    let tell = |progress: TrackProgress| stated.borrow_mut().push((progress.done_epochs, progress.epochs));
    let tracks = dataset.tracks(&request, &tell).unwrap();
    let metrics = tracks.metrics();
    assert_eq!((metrics.rows, metrics.missing, metrics.incomplete_ids), (1, 2, 1));
    assert_eq!(stated.into_inner(), [(0, 3), (1, 3), (2, 3), (3, 3)]);
}

#[test]
fn nothing_that_matches_is_an_answer() {
    let dataset = write(&[vec![(1, 9)], vec![(1, 9)]]);
    for of in ["a > 100", "a > nan", "false"] {
        let (rows, metrics) = found(&dataset, &TrackRequest::new(of, 10, "id"));
        assert_eq!((rows.len(), metrics.ids, metrics.missing, metrics.epochs), (0, 0, 0, 2), "{of}");
    }
}

#[test]
fn requests_that_cannot_be_met_are_refused() {
    let dataset = write(&[vec![(1, 9)]]);
    let refused = |request: &TrackRequest| dataset.tracks(request, &|_| {}).unwrap_err();
    for (request, words) in [
        (TrackRequest::new("a > 1", 0, "ident"), "no column 'ident'"),
        (TrackRequest::new("a > 1", 0, "epoch"), "identifies timesteps"),
        (TrackRequest::new("a > 1", 0, "a"), "'a' is f32; ids must be integers"),
        (TrackRequest::new("a >", 0, "id"), "expected an expression"),
        (TrackRequest::new("a > 1", 0, "id").rows(Query::new().columns(["a", "a"])), "listed twice"),
        (TrackRequest::new("a > 1", 0, "id").rows(Query::new().threads(0)), "at least 1"),
        (TrackRequest::of_ids([1], "id").rows(Query::new().filter("a > 1")), "no predicate, box, order or piece"),
        (TrackRequest::of_ids([1], "id").rows(Query::new().within("a=0:1")), "no predicate, box, order or piece"),
        (TrackRequest::of_ids([1], "id").rows(Query::new().ordered(true)), "no predicate, box, order or piece"),
        (
            TrackRequest::of_ids([1.into(), ParticleId::Whole(-1)], "id"),
            "-1 is no possible value of 'id', which is u64",
        ),
        (TrackRequest::of_ids([vec![1]], "id"), "x'01' is no possible value of 'id'"),
        (TrackRequest::of_ids([vec![1]], "tag"), "x'01' is no possible value of 'tag'"),
        (TrackRequest::of_ids([1], "a"), "'a' is f32; ids must be integers"),
        (TrackRequest::of_ids(0..1_000_001, "id"), "more than 1000000 particles are listed"),
    ] {
        let error = refused(&request);
        assert_eq!(error.class(), ErrorClass::Usage, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
    let missing = refused(&TrackRequest::new("a > 1", 7, "id"));
    assert!(missing.to_string().contains("epoch 7 does not exist"), "{missing}");
    let request = TrackRequest::new("a > 1", 0, "id").rows(Query::new().epochs(vec![0, 99]));
    assert!(refused(&request).to_string().contains("epoch 99 does not exist"));
}
