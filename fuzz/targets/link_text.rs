//! Fuzz target `link_text`; what it checks is told in `src/link_text.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::link_text::run(data));
