//! Fuzz target `control_messages`; what it checks is told in `src/control_messages.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::control_messages::run(data));
