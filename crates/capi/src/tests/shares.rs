//! Boxes and shares: which rows they contain, and how mistakes are refused.

use super::*;
use crate::reading::turbidite_reader_bytes_read;
use crate::structs::CTrackMetrics;
use crate::trajectories::turbidite_tracks;

/// Writes two epochs: records 0 to 499 and 500 to 799.
fn two_epochs() -> Arc<dyn Storage> {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let job = LocalJob::open_with(Arc::clone(&storage), "ds", schema(), options(1)).unwrap();
    for (epoch, ids) in [(1, 0..500), (2, 500..800)] {
        let (energies, ids): (Vec<f32>, Vec<u64>) = ids.map(record).unzip();
        job.begin_epoch(epoch).unwrap();
        job.append(0, &[ColumnView::from(&energies), ColumnView::from(&ids)]).unwrap();
        job.end_epoch().unwrap();
    }
    job.close().unwrap();
    storage
}

fn open(storage: &Arc<dyn Storage>) -> *mut CReader {
    Box::into_raw(Box::new(CReader::new(Dataset::open_with(Arc::clone(storage), "ds").unwrap())))
}

#[test]
fn a_box_contains_its_rows() {
    let storage = two_epochs();
    let mut request = everything();
    request.space = c"energy=10:20,id=:700".as_ptr();
    let expected = |within: &dyn Fn(f32, u64) -> bool| {
        (0..800).map(record).filter(|&(energy, id)| within(energy, id)).collect::<Vec<_>>()
    };
    let plain = expected(&|energy, id| (10.0..20.0).contains(&energy) && id < 700);
    assert!(!plain.is_empty());
    assert_eq!(answer(&storage, &raw const request), plain);
    request.space = c"energy=45:55,id=:".as_ptr();
    request.period = c"50,".as_ptr();
    request.filter = c"id < 600".as_ptr();
    let wrapped = expected(&|energy, id| (energy % 50.0 >= 45.0 || energy % 50.0 < 5.0) && id < 600);
    assert!(wrapped.len() > plain.len());
    assert_eq!(answer(&storage, &raw const request), wrapped);
}

#[test]
fn shares_contain_every_row_once_and_bytes_are_counted() {
    let storage = two_epochs();
    let filter = c"energy >= 10";
    for (shares, filter, ordered) in [(1, null(), 0), (3, null(), 1), (8, null(), 0), (3, filter.as_ptr(), 1)] {
        let mut request = CRequest { filter, ordered, ..everything() };
        let whole = answer(&storage, &raw const request);
        request.shares = shares;
        let each: Vec<_> = (0..shares)
            .map(|share| {
                request.share = share;
                answer(&storage, &raw const request)
            })
            .collect();
        let sizes = each.iter().map(Vec::len);
        let mut together: Vec<_> = each.iter().flatten().copied().collect();
        together.sort_by_key(|&(_, id)| id);
        assert_eq!(together, whole);
        assert!(!filter.is_null() || sizes.clone().max().unwrap() - sizes.min().unwrap() <= 1);
    }
    let reader = open(&storage);
    let mut request = everything();
    let mut rows = 0;
    let mut bytes = Vec::new();
    for (share, shares) in [(0, 0), (0, 2), (1, 2)] {
        (request.share, request.shares) = (share, shares);
        let mut stream = FFI_ArrowArrayStream::empty();
        // SAFETY: the reader is open, and the stream may be overwritten.
        unsafe {
            let before = turbidite_reader_bytes_read(reader);
            assert_eq!(turbidite_query(reader, &raw const request, &raw mut stream), OK, "{}", said());
            let batches = ArrowArrayStreamReader::from_raw(&raw mut stream).unwrap();
            rows += batches.map(|batch| batch.unwrap().num_rows()).sum::<usize>();
            bytes.push(turbidite_reader_bytes_read(reader) - before);
        }
    }
    assert_eq!(rows, 1600);
    // Two shares read the pages of the cut twice.
    assert!(bytes[0] >= 800 * 12 && bytes[0] <= bytes[1] + bytes[2] && bytes[1].max(bytes[2]) < bytes[0], "{bytes:?}");
    // SAFETY: the reader is open, and NULL is allowed.
    unsafe {
        turbidite_reader_close(reader);
        assert_eq!(turbidite_reader_bytes_read(null()), 0);
    }
}

#[test]
fn more_shares_than_rows_have_the_same_columns() {
    let storage = two_epochs();
    let mut request = everything();
    request.shares = u64::MAX;
    // The first of so many shares has no row.
    let reader = open(&storage);
    let mut stream = FFI_ArrowArrayStream::empty();
    // SAFETY: the reader is open, and the stream may be overwritten.
    let batches = unsafe {
        assert_eq!(turbidite_query(reader, &raw const request, &raw mut stream), OK, "{}", said());
        turbidite_reader_close(reader);
        ArrowArrayStreamReader::from_raw(&raw mut stream).unwrap()
    };
    let names: Vec<_> =
        arrow_array::RecordBatchReader::schema(&batches).fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names, ["energy", "id", "epoch"]);
    assert_eq!(batches.count(), 0);
    request.share = u64::MAX - 1;
    assert_eq!(answer(&storage, &raw const request).len(), 1);
}

#[test]
fn mistakes_name_their_cause() {
    let storage = two_epochs();
    let reader = open(&storage);
    let refused = |change: &dyn Fn(&mut CRequest), status: i32, words: &str| {
        let mut request = everything();
        change(&mut request);
        let mut stream = FFI_ArrowArrayStream::empty();
        // SAFETY: the reader is open, and a request of another size is refused by its size.
        let found = unsafe { turbidite_query(reader, &raw const request, &raw mut stream) };
        assert_eq!(found, status, "{words}");
        assert!(said().contains(words), "{}, not {words}", said());
        assert!(stream.release.is_none());
    };
    let sharing = |share, shares, words: &str| {
        refused(&|request| (request.share, request.shares) = (share, shares), USAGE, words);
    };
    sharing(3, 3, "share: there is no share 3 of 3; shares are counted from 0");
    sharing(u64::MAX, 8, "share: there is no share 18446744073709551615 of 8");
    sharing(1, 0, "shares: is 0, but share is 1; set shares to the number of shares");
    let ordering = |column: &CStr, ordered, shares, words: &str| {
        let change = |request: &mut CRequest| {
            (request.order_by, request.ordered, request.shares) = (column.as_ptr(), ordered, shares);
            request.limit = if shares == 0 { 5 } else { 0 };
        };
        refused(&change, USAGE, words);
    };
    ordering(c"id", 1, 0, "order_by: is stated, but ordered is not 0");
    ordering(c"speed", 0, 0, "no column 'speed'");
    ordering(c"id", 0, 2, "cannot be made of a query in the order of a column");
    for (space, words) in [
        (c"", "box '': the side is empty"),
        (c"energy", "box 'energy': a column and '=' are missing"),
        (c"energy=5:5", "box 'energy=5:5': the side is empty"),
        (c"energy=9:5", "box 'energy=9:5': the bounds are in descending order"),
        (c"energy=nan:5", "box 'energy=nan:5': a bound is NaN"),
        (c"energy=0:inf", "the bound 'inf' is infinite"),
        (c"x=0:5", "there is no column 'x'; the columns are energy, id"),
        (c"energy=0:5,energy=5:9", "two sides of 'energy'"),
        (c"\xff", "box: is not UTF-8"),
    ] {
        refused(&|request| request.space = space.as_ptr(), USAGE, words);
    }
    for (period, words) in [
        (c"nan", "period 'nan': a period is finite and above zero"),
        (c"0", "period '0': a period is finite and above zero"),
        (c"-1", "period '-1': a period is finite and above zero"),
        (c"inf", "period 'inf': a period is finite and above zero"),
        (c"L", "period 'L': 'L' is neither a number nor 'none'"),
        (c"5,5", "period '5,5': the box has 1 side, not 2"),
        (c"\xff", "period: is not UTF-8"),
    ] {
        let periodic = |request: &mut CRequest| {
            request.space = c"energy=0:3".as_ptr();
            request.period = period.as_ptr();
        };
        refused(&periodic, USAGE, words);
    }
    refused(&|request| request.period = c"5".as_ptr(), USAGE, "period: there is no box");
    refused(
        &|request| (request.limit, request.shares) = (5, 2),
        USAGE,
        "share: cannot be made of a query with a limit",
    );
    let epoch = |request: &mut CRequest| (request.epochs, request.shares) = (c"9".as_ptr(), 2);
    refused(&epoch, FAILED, "epoch 9 does not exist");
    // Sizes that no header has had.
    for size in [0, 4, 48, 80, 87, 89, u32::MAX] {
        let words = format!("request: struct_size is {size}, not 88; set it to sizeof(turbidite_request)");
        refused(&|request| request.struct_size = size, USAGE, &words);
    }
    // SAFETY: the reader is open.
    unsafe { turbidite_reader_close(reader) };
}

/// An epoch that is replaced between the call and the read of its rows is not mixed with the others.
#[test]
fn a_replaced_epoch_ends_the_stream_with_an_error() {
    let storage = two_epochs();
    let reader = open(&storage);
    let request = CRequest { shares: 1, ..everything() };
    let mut stream = FFI_ArrowArrayStream::empty();
    // SAFETY: the reader is open, and the stream may be overwritten.
    let mut batches = unsafe {
        assert_eq!(turbidite_query(reader, &raw const request, &raw mut stream), OK, "{}", said());
        turbidite_reader_close(reader);
        ArrowArrayStreamReader::from_raw(&raw mut stream).unwrap()
    };
    let mut replacing = options(1);
    replacing.if_exists = turbidite::IfExists::Replace;
    let job = LocalJob::open_with(Arc::clone(&storage), "ds", schema(), replacing).unwrap();
    job.begin_epoch(2).unwrap();
    job.append(0, &[ColumnView::from(&[1f32][..]), ColumnView::from(&[1u64][..])]).unwrap();
    job.end_epoch().unwrap();
    job.close().unwrap();
    let error = batches.find_map(Result::err).unwrap().to_string();
    assert!(error.contains("epoch 2"), "{error}");
    assert!(batches.next().is_none());
}

#[test]
fn boxes_select_the_particles_to_follow() {
    let reader = open(&two_epochs());
    let ids = [17u64];
    let views = [CView { data: ids.as_ptr().cast(), stride: 8, data_type: 6, width: 0 }];
    let follow = |change: &dyn Fn(&mut CTrackRequest)| {
        let mut request = track_request(&views, 1);
        request.listed.ids = null();
        request.at = 1;
        change(&mut request);
        let mut metrics = ShortMetrics { struct_size: size_of::<ShortMetrics>() as u32, epochs: 0, ids: 0 };
        let mut stream = FFI_ArrowArrayStream::empty();
        let short = (&raw mut metrics).cast::<CTrackMetrics>();
        // SAFETY: the reader is open, and views and strings are valid.
        let status = unsafe { turbidite_tracks(reader, &raw const request, &raw mut stream, short) };
        (status, metrics.ids)
    };
    let count =
        |within: &dyn Fn(f32) -> bool| (0..500).map(record).filter(|&(energy, _)| within(energy)).count() as u64;
    let inside = count(&|energy| (10.0..20.0).contains(&energy));
    assert_eq!(follow(&|request| request.space = c"energy=10:20".as_ptr()), (OK, inside));
    let both = |request: &mut CTrackRequest| {
        request.space = c"energy=45:55".as_ptr();
        request.period = c"50".as_ptr();
        request.of = c"energy < 80".as_ptr();
    };
    let wrapped = count(&|energy| (energy % 50.0 >= 45.0 || energy % 50.0 < 5.0) && energy < 80.0);
    assert_eq!(follow(&both), (OK, wrapped));
    for (change, words) in [
        (&(|_: &mut CTrackRequest| ()) as &dyn Fn(&mut CTrackRequest), "ids: is NULL, and so are of and box"),
        (&|request| request.period = c"5".as_ptr(), "ids: is NULL, and so are of and box"),
        (&|request| (request.of, request.period) = (c"id < 5".as_ptr(), c"5".as_ptr()), "period: there is no box"),
        (&|request| request.space = c"energy=5:5".as_ptr(), "box 'energy=5:5': the side is empty"),
        (&|request| (request.listed.ids, request.space) = (views.as_ptr(), c"id=0:5".as_ptr()), "box: excludes ids"),
        (&|request| (request.listed.ids, request.period) = (views.as_ptr(), c"5".as_ptr()), "period: excludes ids"),
    ] {
        assert_eq!(follow(change).0, USAGE, "{words}");
        assert!(said().contains(words), "{}, not {words}", said());
    }
    // SAFETY: the reader is open.
    unsafe { turbidite_reader_close(reader) };
}
