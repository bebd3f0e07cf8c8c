//! Fuzz target `split_fragment`; what it checks is told in `src/split_fragment.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::split_fragment::run(data));
