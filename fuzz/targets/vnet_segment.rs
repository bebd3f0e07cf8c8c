//! Fuzz target `vnet_segment`; what it checks is told in `src/vnet_segment.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::vnet_segment::run(data));
