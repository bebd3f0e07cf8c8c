//! Fuzz target `initial_frames`; what it checks is told in `src/initial_frames.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::initial_frames::run(data));
