//! One peer: its connection, or the attempts to get one, and its messages.

use std::collections::BTreeMap;
use std::time::Instant;

use quic::{CloseReason, ConnectionKey, StreamId};

use crate::id::PeerId;
use crate::incoming::Incoming;
use crate::lazy::Lazy;
use crate::paths::Paths;
use crate::peers::{Inbound, Share};
use crate::race::Race;
use crate::receiver::Receiver;
use crate::sender::Sender;

/// How far it has come.
#[derive(Debug)]
pub(crate) enum Stage {
    /// We connect.
    Connecting(Box<Race>),
    /// The peer connects.
    Accepting(ConnectionKey),
    Connected(ConnectionKey),
    /// Its connection has ended, and what came of it is not read yet.
    Ended,
}

#[derive(Debug)]
pub(crate) struct Peer {
    /// Tells apart those that had this place one after the other.
    pub(crate) generation: u32,
    pub(crate) id: Option<PeerId>,
    pub(crate) stage: Stage,
    pub(crate) sender: Lazy<Sender>,
    pub(crate) receiver: Lazy<Receiver>,
    pub(crate) incoming: Incoming,
    /// The program's streams towards us.
    pub(crate) inbound: Inbound,
    /// The program's unidirectional streams whose type is not written yet, and whether they are finished.
    pub(crate) untyped: BTreeMap<StreamId, bool>,
    /// We began the connection.
    pub(crate) is_caller: bool,
    /// Where several addresses may lead to it.
    pub(crate) paths: Option<Box<Paths>>,
    /// The program wants it.
    pub(crate) is_accepted: bool,
    /// Bytes of it that are counted among those of all peers.
    pub(crate) counted: usize,
    /// What it has of the windows of peers that connected to us.
    pub(crate) share: Share,
    /// The program knows that there is something to read.
    pub(crate) told: bool,
    pub(crate) timer: Option<Instant>,
    /// It is in the list of peers with something to do.
    pub(crate) is_touched: bool,
    /// Why we close the connection, where its end is reported as [`CloseReason::LocallyClosed`].
    pub(crate) verdict: Option<CloseReason>,
}

impl Peer {
    /// Whether the program may read a message, or the rest of a stream after the end of the connection.
    pub(crate) fn has_unread(&self) -> bool {
        self.waiting() > 0 || self.inbound.has_rests()
    }

    /// Messages that the program may read.
    pub(crate) fn waiting(&self) -> usize {
        self.receiver.get().map_or(0, Receiver::waiting)
    }

    /// When an acknowledgement of messages is due.
    pub(crate) fn ack_due(&self) -> Option<Instant> {
        self.receiver.get().and_then(Receiver::ack_due)
    }

    /// Whether what can be read fills the bound by itself.
    pub(crate) fn is_queue_full(&self) -> bool {
        self.receiver.get().is_some_and(Receiver::is_queue_full)
    }

    /// Bytes of what came and is not read.
    pub(crate) fn unread_bytes(&self) -> usize {
        let of_messages = self.receiver.get().map_or(0, Receiver::bytes);
        of_messages + self.incoming.bytes() + self.inbound.rest_bytes()
    }

    pub(crate) fn connection(&self) -> Option<ConnectionKey> {
        match self.stage {
            Stage::Connected(connection) => Some(connection),
            Stage::Connecting(_) | Stage::Accepting(_) | Stage::Ended => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_has_exchanged_nothing_takes_less_than_half_a_kibibyte() {
        assert!(size_of::<Peer>() < 512, "{}", size_of::<Peer>());
    }
}
