#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| turbidite_fuzz::core::manifest::target(data));
