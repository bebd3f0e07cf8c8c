//! HTTP/3 and MASQUE for both roles, sans-IO: exactly what a UDP, TCP and IP proxy needs of RFC 9114, 9204,
//! 9297, 9298 and 9484.
//!
//! The crate owns no stream, no socket and no clock. The caller hands in the bytes of each QUIC stream, in any
//! chunks, and writes out the bytes that it gets back; time enters as a parameter. Everything from the peer is
//! hostile: nothing is buffered before its length is known to lie within [`limits`], and no input makes it panic.
//!
//! - [`Connection`]: control and QPACK streams, SETTINGS, GOAWAY, [`HeldBack`] of one connection.
//! - [`MessageReader`]: the receive half of one request stream; [`headers_frame`] and [`data_frame_header`] make the
//!   send half.
//! - [`request`] and [`response`]: building and parsing CONNECT and CONNECT-UDP.
//! - [`ip`]: CONNECT-IP: requests, addresses, routes.
//! - [`datagram`], [`capsule`], [`split`]: UDP payloads in DATAGRAM frames, in capsules, in several frames.
//! - [`bind`]: one CONNECT-UDP request that reaches many addresses.
//! - [`binding`]: what proves that a request belongs to the hello of its connection.
//! - [`repair`]: the negotiation of parity for datagrams.
//! - [`listen`]: requests for connections that come to a port of the server.

pub mod bind;
pub mod binding;
pub mod capsule;
mod connection;
mod context_field;
pub mod datagram;
mod error;
mod frame;
mod headers;
mod held_back;
pub mod ip;
pub mod limits;
pub mod listen;
mod message;
pub mod qpack;
pub mod repair;
pub mod request;
pub mod response;
mod server_shard;
mod settings;
pub mod split;
mod target;

pub use connection::{Connection, Event, Role, UniDisposition};
pub use error::{Code, ConnectionError, MessageError};
pub use frame::{data_frame_header, headers_frame};
pub use headers::{Field, HeaderList};
pub use held_back::HeldBack;
pub use message::{Item, MessageReader};
pub use server_shard::ServerShard;
pub use settings::Settings;
pub use target::{Target, TargetError};
