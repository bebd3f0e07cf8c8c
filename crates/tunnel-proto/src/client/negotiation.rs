//! How a local program names the target of its TCP connection itself, as over SOCKS or with HTTP CONNECT: bytes in,
//! bytes out, and in the end a target, a relay for datagrams, or a refusal.

use std::net::SocketAddr;

use bytes::BytesMut;
use masque::Target;
use masque::response::ProxyError;

/// The negotiation of one connection, which belongs to whoever moves the connection's bytes. Every call may append to
/// `answer`, which is sent to the program in order.
pub trait Negotiation: Send {
    /// The program has sent more. `received` has all that was not taken before; what is taken is removed from it. What
    /// it holds when the target is named goes to the target first.
    fn handle_received(&mut self, received: &mut BytesMut, answer: &mut BytesMut) -> Progress;

    /// The server has opened the target: what follows `answer` comes from there.
    fn handle_opened(&mut self, answer: &mut BytesMut);

    /// The program's datagrams are taken at `relay`, as long as its connection lasts. Who never asks for that needs
    /// not answer.
    fn handle_associated(&mut self, _relay: SocketAddr, _answer: &mut BytesMut) {}

    /// The connection comes to nothing, and is closed after `answer`.
    fn handle_failed(&mut self, failure: NotOpened, answer: &mut BytesMut);
}

/// Where a negotiation stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The program has to send more.
    Unfinished,
    /// The program has named its target; it sends for the target from here on.
    Named(Target),
    /// The program wants a relay for datagrams, each of which names its target (RFC 1928 section 7).
    Associate,
    /// What the program sent is of no use; the connection is closed after the answer.
    Refused,
}

/// Why a connection comes to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotOpened {
    /// The program sent more than a negotiation may have, and named no target.
    TooLong,
    /// The program named no target in time.
    TooLate,
    /// The server refused the target.
    Refused {
        /// HTTP status.
        status: u16,
        /// What the proxy said about the cause.
        error: Option<ProxyError>,
    },
    /// The tunnel is down, or broke before the target was opened.
    NoTunnel,
    /// There is no room for another relay for datagrams, or no socket.
    NoRelay,
}
