//! Fuzzes the messages that a `RankJob` receives from its peers. See `turbidite_fuzz`.

#![no_main]

libfuzzer_sys::fuzz_target!(init: turbidite_fuzz::let_panics_be_caught(), |data: &[u8]| turbidite_fuzz::core::rank::target(data));
