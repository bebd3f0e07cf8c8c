//! Fuzz target `coalesce`; what it checks is told in `src/coalesce.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::coalesce::run(data));
