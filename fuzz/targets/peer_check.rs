//! Fuzz target `peer_check`; what it checks is told in `src/peer_check.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::peer_check::run(data));
