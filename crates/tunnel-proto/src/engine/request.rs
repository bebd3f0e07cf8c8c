//! One request: a UDP session or a TCP connection through the tunnel.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use masque::capsule::CapsuleReader;
use masque::repair::RepairOffer;
use masque::split::Splitter;
use masque::{MessageReader, Role};

use super::ip::session::IpSession;
use super::life::{Life, RequestStream};
use super::offer::{ContextOffer, Offer};
use super::repair::Repair;

/// Names a request between engine and driver, until it has ended.
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

/// What a request carries.
#[derive(Debug)]
pub(crate) enum Kind {
    Undecided,
    Udp {
        capsules: CapsuleReader,
        splitter: Splitter,
        /// The context of split payloads.
        split: ContextOffer,
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
            split: Offer::offered(offers.split),
            repair: Repair::offered(offers.repair),
            is_probe,
        }
    }

    /// Whether the driver knows of it and hears of its end. Of a client's own IP session it hears in other words.
    pub(crate) fn is_of_driver(&self) -> bool {
        match self {
            Self::Udp { is_probe, .. } => !is_probe,
            Self::Tcp => true,
            Self::Ip(session) => session.owner.is_some(),
            Self::Undecided => false,
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

/// Our side of a request's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sending {
    /// More may follow.
    Open,
    /// It ends after what waits for credit.
    Finishing,
    /// The peer has acknowledged everything, the end included.
    Acknowledged,
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
    pub(crate) life: Life,
    pub(crate) kind: Kind,
    pub(crate) reader: MessageReader,
    /// Received and not yet parsed.
    pub(crate) input: Bytes,
    /// Framed and not yet taken by QUIC.
    pub(crate) output: VecDeque<Bytes>,
    pub(crate) sending: Sending,
    /// Content waits in QUIC that the driver has not read.
    pub(crate) unread: bool,
    /// The peer's side has ended.
    pub(crate) peer_finished: bool,
    /// Server: it has a place among its user's sessions.
    pub(crate) is_counted: bool,
    pub(crate) last_active: Instant,
    /// A UDP session: where [`super::idleness::Idleness`] has it.
    pub(crate) listed: Option<Instant>,
}

impl Request {
    pub(crate) fn new(role: Role, kind: Kind, life: Life, now: Instant) -> Self {
        Self {
            life,
            kind,
            reader: MessageReader::new(role),
            input: Bytes::new(),
            output: VecDeque::new(),
            sending: Sending::Open,
            unread: false,
            peer_finished: false,
            is_counted: false,
            last_active: now,
            listed: None,
        }
    }

    /// Its stream, where it has one that has not ended.
    pub(crate) fn stream(&self) -> Option<RequestStream> {
        self.life.stream()
    }

    /// Whether it is a UDP session of a user.
    pub(crate) fn is_udp(&self) -> bool {
        matches!(self.kind, Kind::Udp { is_probe: false, .. })
    }
}
