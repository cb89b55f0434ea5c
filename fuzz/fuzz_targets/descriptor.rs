//! Fuzzes dataset.json, the lock, and names in folders. See `turbidite_fuzz`.

#![no_main]

libfuzzer_sys::fuzz_target!(init: turbidite_fuzz::let_panics_be_caught(), |data: &[u8]| turbidite_fuzz::core::descriptor::target(data));
