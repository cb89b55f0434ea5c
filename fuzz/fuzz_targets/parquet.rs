//! Fuzzes Parquet files as a source. See `turbidite_fuzz`.

#![no_main]

libfuzzer_sys::fuzz_target!(init: turbidite_fuzz::let_panics_be_caught(), |data: &[u8]| turbidite_fuzz::sources::parquet(data));
