//! Fuzz target `peer_frame`; what it checks is told in `src/peer_frame.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::peer_frame::run(data));
