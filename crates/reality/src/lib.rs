//! The front door, sans-IO (specs/qr1.md): tells clients with a link from strangers, and sends strangers to the cover.
//!
//! - [`credentials`]: the keys of servers and users.
//! - [`client_hello`]: a reader of TLS ClientHello messages.
//! - [`long_header`], [`initial`], [`frames`], [`hello_assembly`]: from a datagram to the hello in it.
//! - [`authenticator`]: the 32 bytes of a random that only the server recognises, and the keys that follow.
//! - [`guard`], [`handshakes`]: what may reach QUIC of a handshake that was taken over.
//! - [`replay`]: which hellos were accepted before.
//! - [`door`]: a shard's decisions about datagrams that belong to no connection.
//! - [`examination`]: what a cover is like, and whether it can be one.
//!
//! The crate reads no clock and opens no socket; seeds and times are parameters. What it reads is hostile: memory and
//! work are bounded by [`limits`], and nothing makes it panic.

pub mod authenticator;
pub mod client_hello;
pub mod credentials;
pub mod door;
pub mod examination;
pub mod frames;
pub mod guard;
pub mod handshakes;
pub mod hello_assembly;
pub mod initial;
mod kdf;
pub mod limits;
pub mod long_header;
mod protection;
pub mod replay;
#[cfg(test)]
mod test_hellos;
#[cfg(test)]
mod test_initials;
