//! Fuzz target `files_manifest`; what it checks is told in `src/files_manifest.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::files_manifest::run(data));
