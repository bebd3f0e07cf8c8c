//! Fuzz target `http3_message`; what it checks is told in `src/http3_message.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::http3_message::run(data));
