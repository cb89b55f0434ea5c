//! Periods of a dataset, and options of another size.

use super::*;
use crate::opening::turbidite_options_init_sized;
use crate::reading::turbidite_reader_periods;

const ROWS: u64 = 100;

fn with_period(period: *const c_char) -> COptions {
    let mut options = COptions::new();
    options.period = period;
    options
}

fn places() -> [CColumn; 3] {
    [column(c"x".as_ptr(), 1), column(c"y".as_ptr(), 1), column(c"id".as_ptr(), 6)]
}

/// Writes an epoch of places on a diagonal from 0 to 100, which is a period of `x`.
fn periodic(key: &CStr) -> Arc<dyn Storage> {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let asked = with_period(c"100,".as_ptr());
    // SAFETY: there are three columns, and all strings are NUL-terminated.
    let schema = unsafe { structs::schema(places().as_ptr(), 3, key.as_ptr(), &asked) }.unwrap();
    let job = LocalJob::open_with(Arc::clone(&storage), "ds", schema, options(1)).unwrap();
    let ids: Vec<u64> = (0..ROWS).collect();
    let places: Vec<f32> = ids.iter().map(|id| *id as f32).collect();
    job.begin_epoch(7).unwrap();
    job.append(0, &[ColumnView::from(&places), ColumnView::from(&places), ColumnView::from(&ids)]).unwrap();
    job.end_epoch().unwrap();
    job.close().unwrap();
    storage
}

fn periods_of(dataset: Dataset) -> [f64; 3] {
    let reader = Box::into_raw(Box::new(CReader::new(dataset)));
    let mut periods = [-1.0; 3];
    // SAFETY: the reader is open until it is closed, and there is room for three numbers.
    unsafe {
        assert_eq!(turbidite_reader_periods(reader, null_mut()), USAGE);
        assert_eq!(turbidite_reader_periods(null(), &raw mut periods), USAGE);
        assert_eq!(turbidite_reader_periods(reader, &raw mut periods), OK, "{}", said());
        turbidite_reader_close(reader);
    }
    periods
}

#[test]
fn boxes_wrap_at_the_periods_of_the_dataset() {
    let storage = periodic(c"space:x,y");
    assert_eq!(periods_of(Dataset::open_with(Arc::clone(&storage), "ds").unwrap()), [100.0, 0.0, 0.0]);
    let names = [c"x".as_ptr(), c"id".as_ptr()];
    let ids = |sides: &CStr, period: *const c_char| {
        let named = CRequest { columns: names.as_ptr(), column_count: 2, ..everything() };
        let request = CRequest { space: sides.as_ptr(), period, ..named };
        answer(&storage, &raw const request).into_iter().map(|(_, id)| id).collect::<Vec<_>>()
    };
    let across: Vec<u64> = (0..5).chain(95..100).collect();
    for (sides, period) in [(c"95:105,:", null()), (c"195:205,:", c",".as_ptr()), (c"y=:,x=-5:5", null())] {
        assert_eq!(ids(sides, period), across, "{sides:?}");
    }
    assert_eq!(ids(c"95:105,:", c"none,".as_ptr()), (95..100).collect::<Vec<_>>());
    assert_eq!(ids(c"95:105,:", c"50,".as_ptr()), (0..5).chain(45..55).chain(95..100).collect::<Vec<_>>());
}

#[test]
fn impossible_periods_are_refused() {
    for (key, period, words) in [
        (c"space:x,y", c"0,", "period: is refused: the periods '0,' are not possible"),
        (c"space:x,y", c"1", "the key has 2 coordinates, not 1"),
        (c"space:x,y", c",", "no coordinate has a period"),
        (c"space:x,y", c"\xff", "UTF-8"),
        (c"x", c"1", "only a key by space has periods"),
    ] {
        let mut dataset = std::ptr::dangling_mut::<CDataset>();
        let asked = with_period(period.as_ptr());
        // SAFETY: there are three columns, and all strings are NUL-terminated.
        let status = unsafe {
            turbidite_open_abi2(c"ds".as_ptr(), places().as_ptr(), 3, key.as_ptr(), &asked, null(), &raw mut dataset)
        };
        assert_eq!(status, USAGE, "{words}");
        assert!(dataset.is_null() && said().contains(words), "{}", said());
    }
}

/// Initialises a struct of as many words of 8 bytes. Returns the size that it states, and whether it is accepted.
fn initialised(words: usize, initialise: impl FnOnce(*mut COptions)) -> (u32, Result<COptions, String>) {
    let mut memory = vec![u64::MAX; words];
    let options = memory.as_mut_ptr().cast::<COptions>();
    initialise(options);
    // SAFETY: the memory has the size that it states, or the size is refused.
    let found = unsafe { structs::request(options.cast_const()) };
    (memory[0] as u32, found.map(Option::unwrap).map_err(|error| error.to_string()))
}

#[test]
fn options_of_another_size_are_refused() {
    let words = size_of::<COptions>() / 8;
    // SAFETY: the memory has the size that is initialised.
    let initialise = |words| initialised(words, |options| unsafe { turbidite_options_init_sized(options, 8 * words) });
    let (bytes, options) = initialise(words);
    assert_eq!(bytes as usize, size_of::<COptions>());
    let options = options.unwrap();
    assert!(options.period.is_null());
    // SAFETY: the strings are NULL.
    assert_eq!(unsafe { options.resolve(3) }.unwrap().pivots, WriteOptions::new(3).pivots);
    for (other, advice) in [
        (2, "call turbidite_options_init first"),
        (words - 1, "call turbidite_options_init first"),
        (words + 1, "turbidite.h of this release"),
    ] {
        let refused = initialise(other).1.err().unwrap();
        assert!(refused.contains("struct_size is") && refused.contains(advice), "{refused}");
    }
}
