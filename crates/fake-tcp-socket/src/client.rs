//! The one connection of a client's socket: it waits for its first hop, is opened, and opened again when it ends. What
//! is to be sent before it is open waits a little.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use fake_tcp::{CloseReason, ConnectionId};
use packet_io::Outgoing;

use crate::held::Held;
use crate::hop::Hop;
use crate::limits::{HELD_BYTES_MAX, REOPEN};

pub(crate) struct Client {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) hop: Hop,
    pub(crate) connection: Option<ConnectionId>,
    pub(crate) is_open: bool,
    /// The peer said that it does not want us, and nobody was told.
    pub(crate) is_refused: bool,
    held: Vec<Held>,
    held_bytes: usize,
    /// When it may be opened.
    open_at: Instant,
    /// Until it is opened again after the next end.
    pause: Duration,
}

impl Client {
    pub(crate) fn new(now: Instant, local: SocketAddr, remote: SocketAddr, hop: Hop) -> Self {
        Self {
            local,
            remote,
            hop,
            connection: None,
            is_open: false,
            is_refused: false,
            held: Vec::new(),
            held_bytes: 0,
            open_at: now,
            pause: REOPEN.0,
        }
    }

    /// Whether it is to be opened now: nothing is under way, and its first hop is known.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.connection.is_none() && self.hop.link.is_some() && self.open_at <= now
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let open = (self.connection.is_none() && self.hop.link.is_some()).then_some(self.open_at);
        [open, self.hop.poll_timeout()].into_iter().flatten().min()
    }

    /// It is open; what was held.
    pub(crate) fn opened(&mut self) -> Vec<Held> {
        self.is_open = true;
        self.pause = REOPEN.0;
        self.held_bytes = 0;
        std::mem::take(&mut self.held)
    }

    /// It could not be opened, or has ended.
    pub(crate) fn ended(&mut self, now: Instant, reason: Option<CloseReason>) {
        self.is_refused = reason == Some(CloseReason::Refused);
        (self.connection, self.is_open) = (None, false);
        self.open_at = now + self.pause;
        self.pause = (2 * self.pause).min(REOPEN.1);
    }

    /// Keeps a message for later; what exceeds the limit is lost, as on the way.
    pub(crate) fn hold(&mut self, message: &Outgoing<'_>) {
        if self.held_bytes + message.payload.len() <= HELD_BYTES_MAX {
            self.held_bytes += message.payload.len();
            self.held
                .push(Held::new(message.payload, message.segment_size, message.ecn));
        }
    }
}
