//! The crate from outside: real sockets, real processes, other users.

mod calls;
mod common;
mod errors;
mod killed;
