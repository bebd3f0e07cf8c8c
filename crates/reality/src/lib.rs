//! The front door, sans-IO (specs/qr1.md): tells clients with a link from strangers, and sends strangers to the cover.
//!
//! - [`credentials`]: the keys of servers and users.
//! - [`client_hello`]: a reader of TLS ClientHello messages.
//! - [`authenticator`]: the 32 bytes of a random that only the server recognises, and the keys that follow.
//!
//! The crate reads no clock and opens no socket; seeds and times are parameters. What it reads is hostile: memory and
//! work are bounded by [`limits`], and nothing makes it panic.

pub mod authenticator;
pub mod client_hello;
pub mod credentials;
mod kdf;
pub mod limits;
#[cfg(test)]
mod test_hellos;
