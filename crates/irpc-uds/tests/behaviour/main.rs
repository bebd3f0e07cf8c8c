//! The crate from outside: real sockets, real processes, other users.

mod calls;
mod common;
mod errors;
mod killed;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod memory;
