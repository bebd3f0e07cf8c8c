//! Fuzz target `uds_handshake`; what it checks is told in `src/uds_handshake.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::uds_handshake::run(data));
