//! The progress of requests, compared with the row groups that manifests list, and cancellation.

use super::*;
use crate::error::Error;
use crate::query::{QuantilesRequest, QueryProgress, TrackRequest};

/// Writes three epochs of two parts, each with 32 row groups of 16 rows. Keys ascend from part to part.
fn dataset() -> Dataset {
    let fixture = Fixture::new(DataType::F64, 4, 4);
    for epoch in 0..3 {
        let record =
            |id: u64| Record { key: (id / 4) as f64 / 4.0, a: id as f32, b: (id % 7) as i16, id: 1000 * epoch + id };
        let run = |rank: u64, run: u64| {
            let first = 512 * rank + 64 * run;
            TestRun { kind: RunKind::Regular, rows: (first..first + 64).map(record).collect() }
        };
        let part = |rank: u32| (PartId { rank, roll: 0 }, (0..8).map(|number| run(rank.into(), number)).collect());
        fixture.write(&TestEpoch { epoch, parts: vec![part(0), part(1)] });
    }
    fixture.open()
}

/// Returns the number of row groups whose keys reach a value, by the manifests.
fn reaching(dataset: &Dataset, least: f64, epochs: &[u64]) -> u64 {
    let key = dataset.schema().key_index();
    let manifests = epochs.iter().map(|epoch| dataset.manifest(*epoch).unwrap());
    let reaches = |group: &crate::format::RowGroupEntry| group.columns[key].range.unwrap().1.as_f64() >= least;
    manifests.map(|manifest| manifest.row_groups.iter().filter(|group| reaches(group)).count() as u64).sum()
}

/// Runs a request, and returns the total of its progress, which must be done.
fn total(dataset: &Dataset, request: impl FnOnce(&Dataset)) -> u64 {
    let progress = Arc::new(QueryProgress::counting());
    request(&dataset.watched(&progress));
    assert_eq!(progress.done(), progress.total());
    // Nothing is hidden by the bound of `done`.
    assert_eq!(progress.raw_done(), progress.total());
    progress.total()
}

#[test]
fn requests_end_at_the_row_groups_of_their_plan() {
    let dataset = dataset();
    let all = reaching(&dataset, f64::MIN, &[0, 1, 2]);
    let some = reaching(&dataset, 50.0, &[0, 1, 2]);
    let one = reaching(&dataset, 50.0, &[1]);
    assert!(0 < one && one < some && some < all && all >= 96, "{one} {some} {all}");
    for threads in [1, 3] {
        for ordered in [false, true] {
            for (filter, expected) in [("energy >= 50", some), ("energy >= 1000", 0), ("a > -1", all)] {
                let query = Query::new().filter(filter).threads(threads).ordered(ordered);
                let read = |dataset: &Dataset| dataset.run(&query).unwrap().for_each(|batch| drop(batch.unwrap()));
                assert_eq!(total(&dataset, read), expected, "{filter}");
                let count = |dataset: &Dataset| {
                    dataset.count(&query).unwrap();
                };
                assert_eq!(total(&dataset, count), expected, "{filter}");
            }
        }
        let bare = Query::new().columns::<[String; 0]>([]).threads(threads);
        let read = |dataset: &Dataset| dataset.run(&bare).unwrap().for_each(|batch| drop(batch.unwrap()));
        assert_eq!(total(&dataset, read), all);
        let query = Query::new().filter("energy >= 50").threads(threads);
        let grid = |query: &Query, dataset: &Dataset| {
            let bins = Bins::new(4);
            drop(dataset.histogram(&of_column(query, "a", &bins, Source::Exact).by("b", bins.clone())).unwrap());
        };
        assert_eq!(total(&dataset, |dataset| grid(&query, dataset)), 2 * some, "the range takes another pass");
        assert_eq!(total(&dataset, |dataset| grid(&Query::new(), dataset)), all);
        let tracks = TrackRequest::new("energy >= 50", 1, "id").rows(Query::new().threads(threads));
        assert_eq!(total(&dataset, |dataset| drop(dataset.tracks(&tracks, &|_| {}).unwrap())), one + all);
        let none = TrackRequest::new("energy >= 50 and a < 0", 1, "id").rows(Query::new().threads(threads));
        assert_eq!(total(&dataset, |dataset| drop(dataset.tracks(&none, &|_| {}).unwrap())), all);
    }
    let first = Query::new().epochs(1);
    let exact = |dataset: &Dataset| {
        drop(dataset.histogram(&of_column(&first, "b", &Bins::new(3), Source::Exact)).unwrap());
    };
    assert_eq!(total(&dataset, exact), reaching(&dataset, f64::MIN, &[1]), "every row group has all values of b");
    let bounded = |dataset: &Dataset| {
        drop(dataset.histogram(&of_column(&first, "b", &Bins::new(3), Source::Bounds)).unwrap());
    };
    assert_eq!(total(&dataset, bounded), 0);
}

#[test]
fn nothing_is_counted_that_nobody_wants_to_know() {
    let dataset = dataset();
    let progress = Arc::new(QueryProgress::new());
    dataset.watched(&progress).count(&Query::new()).unwrap();
    assert_eq!((progress.done(), progress.total()), (0, 0));
}

#[test]
fn the_row_groups_of_returned_rows_are_done() {
    let dataset = dataset();
    let progress = Arc::new(QueryProgress::counting());
    // One thread reads nothing ahead, and a batch has the rows of one row group.
    let query = Query::new().threads(1).batch_rows(16).columns(["id"]);
    let mut last = 0;
    for (number, batch) in (1..).zip(dataset.watched(&progress).run(&query).unwrap()) {
        let rows = batch.unwrap().num_rows();
        assert_eq!(rows, 16);
        assert!(progress.done() >= last && progress.done() <= number, "{} of {number}", progress.done());
        last = progress.done();
    }
    assert_eq!((last + 1, progress.done()), (progress.total(), progress.total()), "the end closes the last one");
}

#[test]
fn cancelled_requests_end() {
    let dataset = dataset();
    let cancelled = || {
        let progress = Arc::new(QueryProgress::new());
        progress.cancel();
        dataset.watched(&progress)
    };
    let is_cancelled = |error: Error| matches!(error, Error::Cancelled);
    let bins = Bins::new(4);
    for threads in [1, 3] {
        for ordered in [false, true] {
            let query = Query::new().threads(threads).ordered(ordered);
            let mut stream = cancelled().run(&query).unwrap();
            assert!(stream.next().is_some_and(|batch| is_cancelled(batch.unwrap_err())) && stream.next().is_none());
            let progress = Arc::new(QueryProgress::counting());
            let mut stream = dataset.watched(&progress).run(&query.clone().batch_rows(16)).unwrap();
            assert_eq!(stream.next().unwrap().unwrap().num_rows(), 16);
            progress.cancel();
            // Rows that were read before may follow.
            let mut rest = stream.by_ref().skip_while(Result::is_ok);
            assert!(is_cancelled(rest.next().unwrap().unwrap_err()) && rest.next().is_none());
        }
        let query = Query::new().filter("a > 0").threads(threads);
        assert!(is_cancelled(cancelled().count(&query).unwrap_err()));
        assert!(is_cancelled(
            cancelled().histogram(&of_column(&query, "a", &bins, Source::Exact).by("b", bins.clone())).unwrap_err()
        ));
        let tracks = TrackRequest::new("energy >= 50", 1, "id").rows(Query::new().threads(threads));
        assert!(is_cancelled(cancelled().tracks(&tracks, &|_| {}).unwrap_err()));
        let progress = Arc::new(QueryProgress::new());
        let between = dataset.watched(&progress).tracks(&tracks, &|_| progress.cancel());
        assert!(is_cancelled(between.unwrap_err()), "in the second scan");
    }
    let first = Query::new().epochs(1);
    for source in [Source::Bounds, Source::Exact] {
        assert!(is_cancelled(cancelled().histogram(&of_column(&first, "b", &bins, source)).unwrap_err()));
        assert!(is_cancelled(
            cancelled().quantiles(&QuantilesRequest::new(first.clone(), "b", &[0.5]).source(source)).unwrap_err()
        ));
    }
    assert_eq!(dataset.count(&Query::new()).unwrap().0, 3 * 1024, "the dataset stays open");
}
