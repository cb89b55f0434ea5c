//! Fuzzes a whole dataset of modified files, which is queried and verified. See `turbidite_fuzz`.

#![no_main]

libfuzzer_sys::fuzz_target!(init: turbidite_fuzz::let_panics_be_caught(), |data: &[u8]| turbidite_fuzz::core::dataset::target(data));
