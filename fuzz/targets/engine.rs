//! Fuzz target `engine`; what it checks is told in `src/engine.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::engine::run(data));
