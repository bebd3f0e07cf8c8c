//! Fuzz target `name_lookup`; what it checks is told in `src/name_lookup.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::name_lookup::run(data));
