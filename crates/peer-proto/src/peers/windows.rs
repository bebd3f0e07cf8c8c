//! What QUIC may keep of the peers that connected to us: how many of them have a whole window.
//!
//! A window has to hold what its peer may have under way, because messages wait for each other, and what was granted
//! cannot be taken back. So a peer has little until it uses that, and then all or nothing: where as many have whole
//! windows as may, its connection is closed. Those that are there go on, and so do peers that we connected to, whom
//! the program chose.

use std::time::Instant;

use quic::{CloseReason, ConnectionKey};

use super::{Peers, code};

#[derive(Debug)]
pub(super) struct Windows {
    wide: usize,
    wide_max: usize,
    /// Bytes of one.
    bytes: usize,
}

impl Windows {
    pub(super) fn new(bytes_max: usize, stream_window_bytes: u32) -> Self {
        let bytes = quic::limits::connection_window_bytes(stream_window_bytes, 0) as usize;
        Self {
            wide: 0,
            wide_max: (bytes_max / bytes).max(1),
            bytes,
        }
    }

    /// A peer with a whole window is gone.
    pub(super) fn give_back(&mut self) {
        self.wide -= 1;
    }
}

/// What a peer that connected to us has of the windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Share {
    /// A stranger's credit.
    #[default]
    Narrow,
    /// The same, and it wants more.
    Wanting,
    Whole,
}

impl Peers {
    /// Bytes that QUIC may keep of peers that connected to us and have whole windows.
    #[must_use]
    pub fn accepted_window_bytes(&self) -> usize {
        self.windows.wide * self.windows.bytes
    }

    /// The peer has used an eighth of a stranger's credit.
    pub(super) fn credit_wanted(&mut self, connection: ConnectionKey) {
        if let Some(index) = self.index_of(connection)
            && let Some(peer) = self.peers[index].as_deref_mut()
        {
            peer.share = Share::Wanting;
            self.touch(index);
        }
    }

    /// Gives a peer that the program wants a whole window where it wants one, or closes its connection (PEER-22).
    pub(super) fn share_windows(&mut self, now: Instant, index: usize) {
        let Some(peer) = self.peers[index].as_deref_mut() else {
            return;
        };
        let is_due = peer.is_accepted && peer.share == Share::Wanting;
        let Some(connection) = peer.connection().filter(|_| is_due) else {
            return;
        };
        if self.windows.wide < self.windows.wide_max {
            self.windows.wide += 1;
            peer.share = Share::Whole;
            self.quic.widen(connection);
        } else {
            self.refusals.crowded += 1;
            peer.share = Share::Narrow;
            peer.verdict.get_or_insert(CloseReason::Crowded);
            let reason = b"too many that connected here send much; try again later";
            self.quic.close(now, connection, code::CROWDED, reason);
        }
    }
}
