//! Fuzz target `rendezvous_message`; what it checks is told in `src/rendezvous_message.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::rendezvous_message::run(data));
