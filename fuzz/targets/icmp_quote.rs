//! Fuzz target `icmp_quote`; what it checks is told in `src/icmp_quote.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::icmp_quote::run(data));
