//! Fuzzes a dataset with levels of detail in proportion to a column and with periods. See `turbidite_fuzz`.

#![no_main]

libfuzzer_sys::fuzz_target!(init: turbidite_fuzz::let_panics_be_caught(), |data: &[u8]| turbidite_fuzz::core::levels::target(data));
