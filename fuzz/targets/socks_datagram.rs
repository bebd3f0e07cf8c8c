//! Fuzz target `socks_datagram`; what it checks is told in `src/socks_datagram.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::socks_datagram::run(data));
