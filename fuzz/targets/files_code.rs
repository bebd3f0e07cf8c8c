//! Fuzz target `files_code`; what it checks is told in `src/files_code.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::files_code::run(data));
