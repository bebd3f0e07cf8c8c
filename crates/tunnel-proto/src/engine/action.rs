//! What the engine asks of its driver.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use masque::listen::ListenPath;
use masque::response::ProxyError;
use masque::{ServerShard, Target};
use quic::{CloseReason, ConnectionKey};

use super::{Assignment, Owner, RequestId};
use crate::access::{Exclusion, Reach, UserId};
use crate::client::AttemptId;
use crate::config::Protocol;

/// One thing to do, in order.
#[derive(Debug, PartialEq)]
pub enum Action<A> {
    /// TCP: bytes, an end or a reset can be read with [`super::Engine::read_body`].
    BodyReadable {
        /// Which request.
        request: RequestId,
    },
    /// TCP: everything that was given to [`super::Engine::write_body`] has left; more is welcome.
    BodyWritable {
        /// Which request.
        request: RequestId,
    },
    /// The request is over, and its ID may be used again: close its socket.
    Ended {
        /// Which request.
        request: RequestId,
        /// How it ended.
        ending: Ending,
    },
    /// What only one role asks for: a [`ClientAction`] or a [`ServerAction`].
    Role(A),
}

/// What a client asks of its driver.
#[derive(Debug, PartialEq)]
pub enum ClientAction {
    /// The server opened the target.
    Established {
        /// Which request.
        request: RequestId,
    },
    /// A bound socket has a context to that of another peer ([`super::Engine::open_context`]).
    ContextOpen {
        /// The bound socket's request.
        request: RequestId,
        /// The other peer's socket.
        address: SocketAddr,
    },
    /// The server refused such a context, or ended it: the other peer's socket is gone.
    ContextClosed {
        /// The bound socket's request.
        request: RequestId,
        /// The other peer's socket.
        address: SocketAddr,
    },
    /// The server refused a UDP session; its datagrams are dropped for a while, then it ends.
    Refused {
        /// Which request.
        request: RequestId,
        /// HTTP status.
        status: u16,
        /// What the proxy said about the cause.
        error: Option<ProxyError>,
    },
    /// The handshake of an attempt is complete, and the certificate is the pinned one: [`super::Engine::choose`] makes it
    /// the connection.
    Connected {
        /// Which attempt.
        attempt: AttemptId,
    },
    /// The handshake of an attempt is complete, and the genuine site of the server's cover answered (specs/qr1.md, QR1-19):
    /// the attempt rests, and is closed with [`super::Engine::abandon`].
    Redirected {
        /// Which attempt.
        attempt: AttemptId,
    },
    /// The server took the token on the connection.
    Up {
        /// Smoothed round-trip time.
        rtt: Duration,
        /// The server's shard that the connection is on, where it says so.
        shard: Option<ServerShard>,
    },
    /// The server did not take the token.
    TokenRefused {
        /// 401 or 407.
        status: u16,
    },
    /// The connection is gone, or an attempt.
    Lost {
        /// Which one.
        attempt: AttemptId,
        /// Why.
        reason: CloseReason,
    },
    /// The server takes no new requests on the connection: another one should take its place, which
    /// [`super::Engine::choose`] allows beside it.
    GoingAway,
    /// A connection whose place another one took carries nothing any more: [`super::Engine::abandon`] ends it.
    Done {
        /// Which one.
        attempt: AttemptId,
    },
    /// Addresses and routes, for the first time in this session or changed.
    Assigned {
        /// What they are.
        assignment: Assignment,
    },
    /// The server refused the IP session.
    IpRefused {
        /// HTTP status.
        status: u16,
        /// What the proxy said about the cause.
        error: Option<ProxyError>,
    },
    /// The IP session is over.
    IpLost,
}

/// What a server asks of its driver.
#[derive(Debug, PartialEq)]
pub enum ServerAction {
    /// Resolve and open a target for an authorized request, then call [`super::Engine::accept`],
    /// or [`super::Engine::end`] with [`super::End::Refused`].
    Open {
        /// For which request.
        request: RequestId,
        /// UDP or TCP.
        protocol: Protocol,
        /// What the user asked for.
        target: Target,
        /// Which of the addresses of its name the user may reach.
        reach: Reach,
    },
    /// A user's client asks for the next connection that comes to an address of the server, where the user may listen:
    /// call [`super::Engine::accept`] once the server listens there, [`super::Engine::connection_came`] with the
    /// connection, or [`super::Engine::end`] with [`super::End::Refused`].
    Listen {
        /// Which request.
        request: RequestId,
        /// Whose it is.
        user: UserId,
        /// The connection that it came on.
        connection: ConnectionKey,
        /// Which client, and where.
        path: ListenPath,
    },
    /// A client wants an IP session: find it a lease and call [`super::Engine::accept_ip`], or
    /// [`super::Engine::refuse_lease`] where its user has too many, or [`super::Engine::end`] with
    /// [`super::End::Refused`].
    Lease {
        /// Which request.
        request: RequestId,
        /// Whose it is.
        owner: Owner,
        /// How many leases its user may keep.
        leases_max: usize,
    },
    /// A connection belongs to a user from here on.
    Came {
        /// Whose it is.
        user: UserId,
        /// Where it comes from.
        remote: SocketAddr,
    },
    /// A connection of a user is gone.
    Left {
        /// Whose it was.
        user: UserId,
        /// Where it came from at first.
        remote: SocketAddr,
        /// Why.
        reason: CloseReason,
        /// Why it was closed here, where the user may do nothing any more.
        exclusion: Option<Exclusion>,
    },
    /// Somebody showed a credential that is not valid.
    TurnedAway {
        /// Who.
        remote: SocketAddr,
    },
    /// An accepted IP session is over; its lease is one holder poorer.
    LeaseOver {
        /// Whose it was.
        owner: Owner,
        /// The addresses of the session.
        addresses: Vec<IpAddr>,
    },
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Both sides were done.
    Finished,
    /// One side broke off.
    Reset,
    /// The server refused it.
    Refused {
        /// HTTP status.
        status: u16,
        /// What the proxy said about the cause.
        error: Option<ProxyError>,
    },
    /// Nothing was heard for the idle timeout, or its place was needed.
    Idle,
    /// The connection is gone.
    ConnectionLost,
}
