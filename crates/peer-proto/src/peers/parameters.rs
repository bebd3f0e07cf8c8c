//! What the peers of a socket are made of, and the codes of this protocol.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use quic::{KeyIdentity, Profile};

use crate::id::PeerId;
use crate::limits::{
    ACCEPTED_WINDOW_BYTES_MAX, ENDPOINT_RECEIVE_BYTES_MAX, MESSAGE_BYTES_MAX, SEND_BYTES_MAX,
};

/// Error codes of connections and streams (PEER-16); programs use others below 0xff00.
pub mod code {
    /// The peer breaks a rule.
    pub const PROTOCOL: u32 = 0xff01;
    /// The peer's key is not wanted here.
    pub const REFUSED: u32 = 0xff02;
    /// A message's deadline passed.
    pub const EXPIRED: u32 = 0xff03;
    /// A message is longer than this end takes.
    pub const TOO_LARGE: u32 = 0xff04;
    /// A message comes too slowly for an end that is short of room.
    pub const STALLED: u32 = 0xff05;
    /// As many of those that connected to this end send much as may.
    pub const CROWDED: u32 = 0xff06;
    /// As many connections as may wait for this end's program.
    pub const QUEUE_FULL: u32 = 0xff07;
}

/// What the peers of a socket need.
#[derive(Clone, Debug)]
pub struct Parameters {
    /// Who we are.
    pub identity: KeyIdentity,
    /// Who may connect; `None`: everybody.
    pub allowed: Option<BTreeSet<PeerId>>,
    /// Throughput against delay.
    pub profile: Profile,
    /// Largest UDP payload that we send and take, in bytes; path MTU discovery finds what passes.
    pub udp_payload_max: u16,
    /// Largest UDP payload that the interface towards an address carries, in bytes, whatever its port; the answer is
    /// remembered for [`crate::limits::PAYLOAD_TIME`].
    pub udp_payload_to: fn(SocketAddr) -> u16,
    /// Longest message that is taken from a peer, or for sending, in bytes.
    pub message_bytes_max: usize,
    /// Bytes of messages that wait or are under way to one peer.
    pub send_bytes_max: usize,
    /// Bytes of messages that came and are not read, of all peers together.
    pub receive_bytes_max: usize,
    /// What QUIC may keep of peers that connected to us, together, in bytes: room for one of them at least
    /// ([`crate::limits::ACCEPTED_WINDOW_BYTES_MAX`]).
    pub accepted_window_bytes_max: usize,
    /// Window of a stream, and what a connection may have sent and unacknowledged of streams, in bytes:
    /// [`quic::limits::STREAM_WINDOW_BYTES`] to [`quic::limits::STREAM_WINDOW_BYTES_MAX`]. A connection has twice as
    /// much of [`Self::accepted_window_bytes_max`].
    pub stream_window_bytes: u32,
    /// How long a connection lives in silence: at most 30 s, and no longer than the other end wants.
    pub idle_timeout: Duration,
    /// Seed of keys and connection IDs; from the operating system outside tests.
    pub seed: [u8; 32],
}

impl Parameters {
    /// The defaults, for this key pair.
    #[must_use]
    pub fn new(identity: KeyIdentity, seed: [u8; 32]) -> Self {
        Self {
            identity,
            allowed: None,
            profile: Profile::Throughput,
            udp_payload_max: 1_452,
            udp_payload_to: |_| u16::MAX,
            message_bytes_max: MESSAGE_BYTES_MAX,
            send_bytes_max: SEND_BYTES_MAX,
            receive_bytes_max: ENDPOINT_RECEIVE_BYTES_MAX,
            accepted_window_bytes_max: ACCEPTED_WINDOW_BYTES_MAX,
            stream_window_bytes: quic::limits::STREAM_WINDOW_BYTES,
            idle_timeout: quic::limits::IDLE_TIMEOUT,
            seed,
        }
    }
}
