//! Fuzz target `name_message`; what it checks is told in `src/name_message.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::name_message::run(data));
