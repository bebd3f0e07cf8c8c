//! One shard's QUIC (RFC 9000, 9001, 9002, 9221, 8899), sans-IO, on quinn-proto.
//!
//! Received batches go in, GSO trains come out; streams, datagrams, events and timers beside them. This crate does
//! no I/O, reads no clock (`now` is a parameter), takes its randomness as a seed and shares nothing between threads.
//!
//! A datagram is handed to quinn-proto only when its next transmit can take it ([`DatagramSource`]); what waits stays
//! with the caller, who bounds and counts it. What quinn-proto still gives up by itself, because the path MTU fell or
//! the connection ended, is reported by [`Event::DatagramsDropped`].

mod admission;
mod cap;
mod config;
mod congestion;
mod connection;
mod connection_id;
mod counters;
mod endpoint;
mod event;
pub mod limits;
mod pacer;
mod tls;
mod transmit;

pub use admission::prefix as customer_prefix;
pub use config::{Aead, ClientParameters, EndpointParameters, Profile, ServerParameters};
pub use congestion::{PathEstimate, Phase};
pub use connection_id::{STEER_ROUNDS, STEER_TAG, Shard, SteerKey, shard_of};
pub use counters::{ConnectionReport, Counters};
pub use endpoint::{Endpoint, Path, Receiver, Timer};
pub use event::{CloseReason, ConnectionKey, Event, Read, StreamError};
pub use quinn_proto::{Dir, Side, StreamId};
pub use tls::{ConfigurationError, public_key_pin, sealing_probe};
pub use transmit::{DatagramSource, Outbox, OutgoingTrain};
