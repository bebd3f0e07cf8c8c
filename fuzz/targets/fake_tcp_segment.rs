//! Fuzz target `fake_tcp_segment`; what it checks is told in `src/fake_tcp_segment.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::fake_tcp_segment::run(data));
