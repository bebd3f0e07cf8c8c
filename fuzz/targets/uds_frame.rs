//! Fuzz target `uds_frame`; what it checks is told in `src/uds_frame.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::uds_frame::run(data));
