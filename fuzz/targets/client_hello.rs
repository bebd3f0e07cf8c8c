//! Fuzz target `client_hello`; what it checks is told in `src/client_hello.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::client_hello::run(data));
