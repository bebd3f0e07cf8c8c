//! Fuzz target `helper_call`; what it checks is told in `src/helper_call.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::helper_call::run(data));
