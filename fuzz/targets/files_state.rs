//! Fuzz target `files_state`; what it checks is told in `src/files_state.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::files_state::run(data));
