//! Fuzzes dataset.json, the lock, names in folders: `turbidite_fuzz` says how.

#![no_main]

libfuzzer_sys::fuzz_target!(init: turbidite_fuzz::let_panics_be_caught(), |data: &[u8]| turbidite_fuzz::core::descriptor::target(data));
