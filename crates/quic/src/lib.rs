//! One shard's QUIC (RFC 9000, 9001, 9002, 9221, 8899), sans-IO, on quinn-proto.
//!
//! Received batches go in, GSO trains come out; streams, datagrams, events and timers beside them. This crate does
//! no I/O, reads no clock (`now` is a parameter), takes its randomness as a seed and shares nothing between threads but
//! a server's [`Certificates`].
//!
//! quinn-proto is the core. No public item exposes its types: `translate` converts them.
//!
//! A datagram is handed to the core only when its next packets can take it ([`DatagramSource`]); what waits stays
//! with the caller, who bounds and counts it. What the core drops itself, because the path MTU fell or the
//! connection ended, is reported by [`Event::DatagramsDropped`].

mod admission;
mod cap;
mod certificates;
mod classifier;
mod config;
mod congestion;
mod connection;
mod connection_id;
mod counters;
mod endpoint;
mod error;
mod event;
mod front_door;
mod initial;
pub mod limits;
mod memory;
mod no_datagrams;
mod pacer;
mod resets;
mod stream;
mod tls;
mod trace;
mod translate;
mod transmit;
mod transport;
mod unread;

pub use certificates::{Certificates, is_certificate_for, names_of_certificate, public_key_pin};
pub use classifier::{Arrived, ByShard, Class, Classified, Classifier, Kin, OnlyOurs, Run};
pub use config::{
    AcceptParameters, Aead, ClientParameters, ConnectionLimits, EndpointParameters, PeerParameters, Profile,
    ServerParameters,
};
pub use congestion::{PathEstimate, Phase};
pub use connection_id::{Generation, IdLength, STEER_MARK, STEER_ROUNDS, Shard, SteerKey, shard_of};
pub use counters::{ConnectionReport, Counters, IncomingCounters};
pub use endpoint::{Endpoint, Owner, Receiver, Timer};
pub use error::{AcceptError, CloseReason, ConfigurationError, ConnectError, StreamError};
pub use event::{Congestion, ConnectionKey, Event, Incoming, IncomingKey, LimitedBy};
pub use front_door::{CoverTls, FrontDoorClient, FrontDoorIdentity, TrustedRoots};
pub use no_datagrams::NoDatagrams;
pub use packet::{Path, customer_prefix};
pub use stream::{Direction, Read, StreamId};
pub use tls::records;
pub use tls::{KeyIdentity, ServerIdentity, sealing_probe};
pub use trace::{Trace, Tracer};
pub use transmit::{DatagramSource, Outbox, OutgoingTrain};
