//! Fuzzes a whole dataset of changed files, queried and verified: `turbidite_fuzz` says how.

#![no_main]

libfuzzer_sys::fuzz_target!(init: turbidite_fuzz::let_panics_be_caught(), |data: &[u8]| turbidite_fuzz::core::dataset::target(data));
