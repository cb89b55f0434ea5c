//! Calls with wrong arguments or in the wrong order: each is refused with a message, and no memory is read.

use super::*;
use crate::opening::turbidite_options_init_sized;
use crate::reading::turbidite_reader_open_abi2;
use crate::status::{turbidite_abi_version, turbidite_version};
use crate::trajectories::{turbidite_get, turbidite_tracks};
use crate::writing::{turbidite_end_epoch_start, turbidite_end_epoch_wait, turbidite_truncate_after};

#[test]
fn null_is_refused_everywhere() {
    assert!(said().contains("no call"));
    // SAFETY: all pointers are NULL or valid.
    unsafe {
        turbidite_options_init_sized(null_mut(), 8);
        let none = null_mut::<CDataset>();
        assert_eq!(turbidite_open_abi2(c"ds".as_ptr(), null(), 0, null(), null(), null(), null_mut()), USAGE);
        assert_eq!(turbidite_begin_epoch(none, 0), USAGE);
        assert_eq!(turbidite_append(none, null(), 0, 0), USAGE);
        assert_eq!(turbidite_append_rows(none, null(), 12, 1), USAGE);
        assert_eq!(turbidite_renegotiate(none), USAGE);
        assert_eq!(turbidite_progress(none), USAGE);
        assert_eq!(turbidite_end_epoch(none, null_mut()), USAGE);
        assert_eq!(turbidite_end_epoch_start(none), USAGE);
        assert_eq!(turbidite_end_epoch_wait(none, null_mut()), USAGE);
        assert_eq!(turbidite_truncate_after(none, 0), USAGE);
        assert!(said().contains("dataset"));
        assert_eq!(turbidite_close(none), OK);
        let mut reader = std::ptr::dangling_mut::<CReader>();
        assert_eq!(turbidite_reader_open_abi2(null(), &raw mut reader), USAGE);
        assert!(reader.is_null() && said().contains("path"));
        assert_eq!(turbidite_reader_open_abi2(c"ds".as_ptr(), null_mut()), USAGE);
        assert_eq!(turbidite_query(null_mut(), null(), null_mut()), USAGE);
        let mut stream = FFI_ArrowArrayStream::empty();
        assert_eq!(turbidite_query(null_mut(), null(), &raw mut stream), USAGE);
        assert_eq!(turbidite_get(null_mut(), null(), &raw mut stream, null_mut()), USAGE);
        assert_eq!(turbidite_tracks(null_mut(), null(), null_mut(), null_mut()), USAGE);
        assert!(said().contains("request"));
        turbidite_reader_close(null_mut());
        assert_eq!(CStr::from_ptr(turbidite_version()).to_str(), Ok(env!("CARGO_PKG_VERSION")));
    }
    assert_eq!(turbidite_abi_version(), 2);
}

#[test]
fn impossible_opens_are_refused() {
    let mut options = COptions::new();
    // SAFETY: the struct is a local variable.
    unsafe { turbidite_options_init_sized(&raw mut options, size_of::<COptions>()) };
    let mut broken = options;
    broken.struct_size = 8;
    let (good, key) = (columns(), c"energy".as_ptr());
    let untyped = [column(c"energy".as_ptr(), 99)];
    let unnamed = [column(null(), 1)];
    let garbled = [column(c"\xff".as_ptr(), 1)];
    type Case<'a> = (*const c_char, &'a [CColumn], *const c_char, &'a COptions, &'a str);
    let cases: [Case; 9] = [
        (null(), &good, key, &options, "path"),
        (c"".as_ptr(), &good, key, &options, "path: is empty"),
        (c"\xff".as_ptr(), &good, key, &options, "UTF-8"),
        (c"ds".as_ptr(), &[], key, &options, "columns"),
        (c"ds".as_ptr(), &good, null(), &options, "key"),
        (c"ds".as_ptr(), &good, key, &broken, "struct_size"),
        (c"ds".as_ptr(), &untyped, key, &options, "TURBIDITE_F32"),
        (c"ds".as_ptr(), &unnamed, key, &options, "name"),
        (c"ds".as_ptr(), &garbled, key, &options, "UTF-8"),
    ];
    for (path, columns, key, options, words) in cases {
        let mut dataset = std::ptr::dangling_mut::<CDataset>();
        // SAFETY: strings are NUL-terminated or NULL, and the number of columns is correct.
        let status = unsafe {
            turbidite_open_abi2(path, columns.as_ptr(), columns.len(), key, options, null(), &raw mut dataset)
        };
        assert_eq!(status, USAGE, "{words}");
        assert!(dataset.is_null() && said().contains(words), "{}", said());
    }
}

/// Records that cannot be appended make the epoch fail, and the next one may begin.
#[test]
fn what_does_not_fit_is_refused_with_its_epoch() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let dataset = open_alone(&storage);
    let (energies, ids): (Vec<f32>, Vec<u64>) = (0..10).map(record).unzip();
    let good = || views(energies.as_ptr().cast(), 4, ids.as_ptr().cast(), 8);
    let changed = |index: usize, change: fn(&mut CView)| {
        let mut views = good();
        change(&mut views[index]);
        views
    };
    let cases = [
        (changed(0, |view| view.stride = 2), 10, "column 'energy': the stride of 2 bytes is less than the 4 bytes"),
        (changed(1, |view| view.data = null()), 10, "column 'id': the address of the values is NULL"),
        (changed(0, |view| view.data_type = 0), 10, "column 'energy': the view has no type"),
        (changed(0, |view| view.data_type = 2), 10, "column 'energy': the values are f64, but the column is f32"),
        (changed(1, |view| view.data_type = 4), 0, "column 'id': the values are i64, but the column is u64"),
        (
            changed(1, |view| (view.data_type, view.width) = (11, 8)),
            10,
            "column 'id': the values are fixed_bytes(8), but",
        ),
        (changed(0, |view| view.data_type = 99), 10, "column 'energy': 99 is not one of TURBIDITE_F32"),
        (good(), usize::MAX, "column 'energy': 18446744073709551615 rows exceed the address space"),
    ];
    // SAFETY: the handle is open. The views have the stated number of rows, or are refused.
    unsafe {
        for (epoch, (views, rows, words)) in cases.iter().enumerate() {
            let expected = format!("ds: epoch {epoch}, rank 0: {words}");
            assert_eq!(turbidite_begin_epoch(dataset, epoch as u64), OK);
            assert_eq!(turbidite_append(dataset, good().as_ptr(), 2, 10), OK);
            assert_eq!(turbidite_append(dataset, views.as_ptr(), 2, *rows), USAGE, "{words}");
            assert!(said().contains(&expected), "{} lacks {expected}", said());
            assert_eq!(turbidite_end_epoch(dataset, null_mut()), FAILED, "{words}");
            assert!(said().contains(words), "{}", said());
        }
        let expect = |status: i32, words: &str| assert!(status != OK && said().contains(words), "{}", said());
        expect(
            turbidite_append(dataset, good().as_ptr(), 2, 10),
            "ds: epoch: none has begun; call turbidite_begin_epoch first",
        );
        assert_eq!(turbidite_begin_epoch(dataset, 50), OK);
        expect(turbidite_append(dataset, good().as_ptr(), 1, 10), "1 views were given, but the schema has 2 columns");
        expect(turbidite_append(dataset, null(), 2, 10), "columns is NULL");
        expect(turbidite_append_rows(dataset, null(), 12, 1), "rank 0: the address of the values is NULL");
        expect(turbidite_append_rows(dataset, energies.as_ptr().cast(), 16, 1), "row_bytes is 16, but the columns");
        expect(turbidite_end_epoch(dataset, null_mut()), "epoch 50 failed on rank 0");
        assert_eq!(turbidite_begin_epoch(dataset, 51), OK);
        // One value for all records.
        assert_eq!(turbidite_append(dataset, changed(0, |view| view.stride = 0).as_ptr(), 2, 10), OK, "{}", said());
        assert_eq!(turbidite_end_epoch(dataset, null_mut()), OK, "{}", said());
        assert_eq!(turbidite_close(dataset), OK);
    }
    assert_eq!(answer(&storage, null()), (0..10).map(|id| (record(0).0, id)).collect::<Vec<_>>());
}
