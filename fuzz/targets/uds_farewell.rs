//! Fuzz target `uds_farewell`; what it checks is told in `src/uds_farewell.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::uds_farewell::run(data));
