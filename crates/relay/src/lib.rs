//! Carries UDP in packets that look like TCP (specs/fake-tcp.md), for whatever speaks UDP: a pair of relays, one on
//! each side of a network that is unkind to UDP.
//!
//! The relay near the clients ([`Direction::UdpToTcp`]) opens a connection for each UDP peer, and another one, from
//! another port, when that ends; the other relay ([`Direction::TcpToUdp`]) has a UDP socket towards the target for each
//! connection. Each worker is a thread with sockets of its own, over which the kernel spreads peers and
//! connections; a flow stays at its worker, in order. Datagrams move in batches: a train in is a super-segment out.
//!
//! [`Relay::open`] opens all sockets, [`Opened::start`] begins, [`Relay::counters`] tells, [`Relay::stop`] ends all
//! connections in order.

mod client;
mod counters;
mod flows;
pub mod limits;
mod relay;
mod server;
mod trains;
mod worker;

pub use counters::Counters;
pub use fake_tcp_socket::{Key, Profile};
pub use packet::FewAtATime;
pub use relay::{Config, Direction, Opened, Relay};
pub use worker::News;
