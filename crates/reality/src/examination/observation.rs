//! What a visit to a cover sees.

use std::time::Duration;

use super::messages::{CertificateMessage, ServerHello};

/// How a visit ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The handshake is complete.
    Complete,
    /// Nobody answered.
    Silent,
    /// The server lists other versions of QUIC.
    OtherVersions,
    /// It asks for another hello.
    HelloRetry,
    /// It closed the connection, with this error code where one could be read.
    Closed(Option<u64>),
    /// What it sent is against TLS, for the reason given.
    Failed(String),
    /// It stopped in the middle.
    Incomplete,
}

/// What a visit saw.
#[derive(Clone, Debug)]
pub struct Observation {
    /// How it ended.
    pub end: End,
    /// From the hello to the first datagram.
    pub first_answer: Option<Duration>,
    /// From the hello to the whole ServerHello.
    pub answer: Option<Duration>,
    /// Whether the address had to be proved first.
    pub is_retry: bool,
    /// Bytes of the connection ID that the server chose.
    pub id_bytes: Option<usize>,
    /// Bytes of each datagram of the first flight.
    pub flight: Vec<usize>,
    /// What is visible of the server's TLS.
    pub hello: Option<ServerHello>,
    /// Its Certificate message.
    pub certificate: Option<CertificateMessage>,
    /// Whether the chain is valid for the name, or why not; `None` where no certificate came.
    pub chain: Option<Result<(), String>>,
    /// `max_idle_timeout`, in milliseconds.
    pub idle_timeout_ms: Option<u64>,
    /// Whether it sends clients to another address.
    pub has_preferred_address: bool,
}

impl Observation {
    pub(super) fn new() -> Self {
        Self {
            end: End::Incomplete,
            first_answer: None,
            answer: None,
            is_retry: false,
            id_bytes: None,
            flight: Vec::new(),
            hello: None,
            certificate: None,
            chain: None,
            idle_timeout_ms: None,
            has_preferred_address: false,
        }
    }
}
