//! Fuzz target `initial`; what it checks is told in `src/initial.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::initial::run(data));
