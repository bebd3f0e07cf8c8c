//! Fuzz target `http3_connection`; what it checks is told in `src/http3_connection.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::http3_connection::run(data));
