//! Fuzz target `ip_packet`; what it checks is told in `src/ip_packet.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::ip_packet::run(data));
