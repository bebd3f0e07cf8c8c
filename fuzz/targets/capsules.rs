//! Fuzz target `capsules`; what it checks is told in `src/capsules.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::capsules::run(data));
