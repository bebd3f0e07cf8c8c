//! Fuzz target `repair_datagram`; what it checks is told in `src/repair_datagram.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::repair_datagram::run(data));
