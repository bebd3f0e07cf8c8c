//! Fuzz target `hook_answer`; what it checks is told in `src/hook_answer.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::hook_answer::run(data));
