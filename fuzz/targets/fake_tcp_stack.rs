//! Fuzz target `fake_tcp_stack`; what it checks is told in `src/fake_tcp_stack.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::fake_tcp_stack::run(data));
