//! One request: a UDP session or a TCP connection through the tunnel.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use masque::capsule::CapsuleReader;
use masque::repair::RepairOffer;
use masque::split::Splitter;
use masque::{MessageReader, Role, Target};
use quic::{ConnectionKey, StreamId};

use super::ip::session::IpSession;
use super::repair::Repair;

/// Names a request between engine and driver, until it is released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub(crate) usize);

impl RequestId {
    /// The request of an [`index`](Self::index).
    #[must_use]
    pub fn from_index(index: usize) -> Self {
        Self(index)
    }

    /// A small number for tables indexed by request.
    #[must_use]
    pub fn index(self) -> usize {
        self.0
    }
}

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Server: its headers have not come.
    Headers,
    /// Client: no stream for it yet.
    Queued,
    /// Client: sent, not answered.
    Sent,
    /// Server: the driver opens the target.
    Opening,
    /// Answered with success.
    Open,
    /// Client: answered with a failure; its source is not asked for again before `until`.
    Refused { until: Instant },
    /// The driver is done with it; the peer has not acknowledged everything.
    Closing,
    /// Over; the driver has been told.
    Ended,
}

/// What a request carries.
#[derive(Debug)]
pub(crate) enum Kind {
    Undecided,
    Udp {
        capsules: CapsuleReader,
        splitter: Splitter,
        /// The context of split payloads: offered while the request is not answered, then agreed on or `None`.
        split: Option<u64>,
        /// Agreed on by both sides.
        split_agreed: bool,
        repair: Repair,
        /// The client's token check: no datagrams, no session.
        is_probe: bool,
    },
    Tcp,
    Ip(Box<IpSession>),
}

impl Kind {
    pub(crate) fn udp(offers: Offers, is_probe: bool) -> Self {
        Self::Udp {
            capsules: CapsuleReader::new(),
            splitter: Splitter::new(),
            split: offers.split,
            split_agreed: false,
            repair: Repair::offered(offers.repair),
            is_probe,
        }
    }

    /// The repair of datagrams, where the kind can have it.
    pub(crate) fn repair(&mut self) -> Option<&mut Repair> {
        match self {
            Self::Udp { repair, .. } => Some(repair),
            Self::Ip(session) => Some(&mut session.repair),
            Self::Tcp | Self::Undecided => None,
        }
    }
}

/// Extensions that a client offers with a UDP session.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Offers {
    /// The context of split payloads.
    pub(crate) split: Option<u64>,
    pub(crate) repair: Option<RepairOffer>,
}

#[derive(Debug)]
pub struct Request {
    pub(crate) connection: Option<ConnectionKey>,
    pub(crate) stream: Option<StreamId>,
    pub(crate) kind: Kind,
    pub(crate) phase: Phase,
    /// Client: where to.
    pub(crate) target: Option<Target>,
    pub(crate) reader: MessageReader,
    /// Received and not yet parsed.
    pub(crate) input: Bytes,
    /// Parsed content that the driver has not taken.
    pub(crate) body: VecDeque<Bytes>,
    /// Framed and not yet taken by QUIC.
    pub(crate) output: VecDeque<Bytes>,
    /// The stream ends after `output`.
    pub(crate) finishing: bool,
    /// The peer has acknowledged our side, its end included.
    pub(crate) acknowledged: bool,
    /// Content waits in QUIC that the driver has not read.
    pub(crate) unread: bool,
    /// The peer's side has ended.
    pub(crate) peer_finished: bool,
    pub(crate) last_active: Instant,
    /// The driver has heard of it, and has to release it.
    pub(crate) known_to_driver: bool,
}

impl Request {
    pub(crate) fn new(role: Role, kind: Kind, phase: Phase, now: Instant) -> Self {
        Self {
            connection: None,
            stream: None,
            kind,
            phase,
            target: None,
            reader: MessageReader::new(role),
            input: Bytes::new(),
            body: VecDeque::new(),
            output: VecDeque::new(),
            finishing: false,
            acknowledged: false,
            unread: false,
            peer_finished: false,
            last_active: now,
            known_to_driver: false,
        }
    }

    /// Whether it is a UDP session of a user.
    pub(crate) fn is_udp(&self) -> bool {
        matches!(self.kind, Kind::Udp { is_probe: false, .. })
    }
}
