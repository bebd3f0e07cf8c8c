//! Fuzz target `config_file`; what it checks is told in `src/config_file.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::config_file::run(data));
