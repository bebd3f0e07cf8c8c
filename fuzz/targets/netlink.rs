//! Fuzz target `netlink`; what it checks is told in `src/netlink.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::netlink::run(data));
