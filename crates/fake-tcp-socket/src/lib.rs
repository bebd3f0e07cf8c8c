//! Sockets that carry datagrams in packets that look like TCP (specs/fake-tcp.md): the state machine of [`fake_tcp`]
//! over [`packet_io::RawSocket`]s, with an interface like that of UDP sockets.
//!
//! [`FakeTcpSocket::listen`] accepts connections at a port, one socket for each worker; [`FakeTcpSocket::connect`] is
//! one connection, which is opened again when it ends; [`FakeTcpSocket::towards`] opens many to one peer. Trains go out
//! as super-segments, and super-segments come in as trains. Neither firewall nor routes of the machine are changed, and
//! nothing remains when the process ends; the capability CAP_NET_RAW is all that is needed.
//!
//! The caller watches the descriptor, receives, and runs the timer ([`FakeTcpSocket::poll_timeout`]).

mod client;
mod heads;
mod held;
mod hop;
pub mod limits;
mod locals;
mod opening;
mod packets;
mod peers;
mod socket;

pub use fake_tcp::{CloseReason, ConnectionId, Counters, Event, Key, Profile};
pub use held::Held;
pub use socket::{FakeTcpSocket, Options};
