//! Fuzz target `proxy_negotiation`; what it checks is told in `src/proxy_negotiation.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::proxy_negotiation::run(data));
