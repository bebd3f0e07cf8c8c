//! Fuzz target `undo_list`; what it checks is told in `src/undo_list.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::undo_list::run(data));
