#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| turbidite_fuzz::sources::layout(data));
