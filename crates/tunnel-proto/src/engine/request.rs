//! One request: a UDP session or a TCP connection through the tunnel.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Instant;

use bytes::Bytes;
use masque::{MessageReader, Role, Target};

use super::body::TcpConnection;
use super::bound::BoundSession;
use super::client::moved_session::MovedSession;
use super::client::token_check::TokenCheck;
use super::handler::{Handler, Undecided};
use super::ip::session::IpSession;
use super::life::{Life, RequestStream};
use super::repair::Repair;
use super::service::ServiceSession;
use super::udp::UdpSession;
use crate::access::UserId;

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

/// Who shares a number of places fairly with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Holder {
    Nobody,
    /// Of a server.
    User(UserId),
    /// Whose program or network uses a client.
    Machine(IpAddr),
}

/// What a request carries.
#[derive(Debug)]
pub(crate) enum Kind {
    Undecided(Undecided),
    TokenCheck(TokenCheck),
    Udp(UdpSession),
    /// Client: the other stream of a UDP session that moves to another connection.
    Moved(Box<MovedSession>),
    Tcp(TcpConnection),
    Ip(Box<IpSession>),
    Service(Box<ServiceSession>),
    Bound(Box<BoundSession>),
}

impl Kind {
    pub(crate) fn handler(&self) -> &dyn Handler {
        match self {
            Self::Undecided(undecided) => undecided,
            Self::TokenCheck(check) => check,
            Self::Udp(session) => session,
            Self::Moved(moved) => &**moved,
            Self::Tcp(connection) => connection,
            Self::Ip(session) => &**session,
            Self::Service(session) => &**session,
            Self::Bound(session) => &**session,
        }
    }

    pub(crate) fn handler_mut(&mut self) -> &mut dyn Handler {
        match self {
            Self::Undecided(undecided) => undecided,
            Self::TokenCheck(check) => check,
            Self::Udp(session) => session,
            Self::Moved(moved) => &mut **moved,
            Self::Tcp(connection) => connection,
            Self::Ip(session) => &mut **session,
            Self::Service(session) => &mut **session,
            Self::Bound(session) => &mut **session,
        }
    }

    /// Whether HTTP Datagrams belong to it.
    pub(crate) fn takes_datagrams(&self) -> bool {
        match self {
            Self::Udp(_) | Self::Moved(_) | Self::Ip(_) | Self::Service(_) | Self::Bound(_) => true,
            Self::Undecided(_) | Self::TokenCheck(_) | Self::Tcp(_) => false,
        }
    }

    /// The repair of datagrams, where the kind can have it.
    pub(crate) fn repair(&mut self) -> Option<&mut Repair> {
        match self {
            Self::Udp(session) => Some(&mut session.repair),
            Self::Moved(moved) => Some(&mut moved.session.repair),
            Self::Ip(session) => Some(&mut session.repair),
            Self::Undecided(_) | Self::TokenCheck(_) | Self::Tcp(_) | Self::Service(_) | Self::Bound(_) => {
                None
            }
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
    /// Server: whose it is.
    pub(crate) user: Option<UserId>,
    /// Client: the machine whose UDP session it is.
    pub(crate) machine: Option<IpAddr>,
    pub(crate) last_active: Instant,
    /// Client: where it leads, while it may have to be asked for again.
    pub(crate) target: Option<Target>,
    /// Client: its other stream, while it moves to another connection.
    pub(crate) moved: Option<RequestId>,
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
            user: None,
            machine: None,
            last_active: now,
            target: None,
            moved: None,
        }
    }

    /// Its stream, where it has one that has not ended.
    pub(crate) fn stream(&self) -> Option<RequestStream> {
        self.life.stream()
    }

    /// Whether it is a UDP session: it ends when it is idle, and its place may be taken.
    pub(crate) fn is_udp(&self) -> bool {
        matches!(self.kind, Kind::Udp(_))
    }

    /// Whose place it takes.
    pub(crate) fn holder(&self) -> Holder {
        match (self.user, self.machine) {
            (Some(user), _) => Holder::User(user),
            (None, Some(machine)) => Holder::Machine(machine),
            (None, None) => Holder::Nobody,
        }
    }

    /// Whether the driver reads what follows the headers.
    pub(crate) fn is_read_by_driver(&self) -> bool {
        self.kind.handler().is_read_by_driver()
    }
}
