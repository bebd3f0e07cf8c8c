//! Fuzz target `http_request`; what it checks is told in `src/http_request.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::http_request::run(data));
