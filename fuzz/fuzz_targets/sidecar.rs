//! Fuzzes the sidecars of bitmap indexes. See `turbidite_fuzz`.

#![no_main]

libfuzzer_sys::fuzz_target!(init: turbidite_fuzz::let_panics_be_caught(), |data: &[u8]| turbidite_fuzz::core::sidecar::target(data));
