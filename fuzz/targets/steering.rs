//! Fuzz target `steering`; what it checks is told in `src/steering.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::steering::run(data));
