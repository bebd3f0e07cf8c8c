//! What stands before the trains of one send.

use std::io;
use std::time::Instant;

use fake_tcp::{ConnectionId, Headers, Refused, Stack};
use packet::Ecn;
use packet_io::{Link, RawHead, RawHeads};

use crate::peers::Peers;

/// The numbers by which the kernel refuses (Linux `errno`), which senders read.
const NOT_CONNECTED: i32 = 113;
const TOO_LARGE: i32 = 90;
const REFUSED: i32 = 12;

/// Headers as a raw socket takes them.
pub(crate) fn raw_head(headers: &Headers, link: Link) -> RawHead {
    let mut bytes = [0; RawHead::BYTES_MAX];
    let len = headers.bytes().len();
    bytes[..len].copy_from_slice(headers.bytes());
    RawHead {
        link,
        vnet: headers.vnet(),
        bytes,
        len,
    }
}

/// Heads of messages, whose connections and codepoints are known by their number.
pub(crate) struct Heads<'a> {
    pub(crate) now: Instant,
    pub(crate) stack: &'a mut Stack,
    pub(crate) peers: &'a Peers,
    pub(crate) messages: &'a [(Option<ConnectionId>, Ecn)],
}

impl RawHeads for Heads<'_> {
    fn make(
        &mut self,
        message: usize,
        payload: &[u8],
        segment_size: usize,
        framed: &mut Vec<u8>,
    ) -> io::Result<RawHead> {
        let (connection, ecn) = self.messages[message];
        let peer = connection.and_then(|connection| Some((connection, self.peers.get(connection)?)));
        let (connection, peer) = peer.ok_or_else(|| io::Error::from_raw_os_error(NOT_CONNECTED))?;
        let sent = (self.stack).send(self.now, connection, payload, segment_size, ecn, framed);
        match sent {
            Ok(headers) => Ok(raw_head(&headers, peer.link)),
            Err(error) => Err(io::Error::from_raw_os_error(match error {
                Refused::NotConnected => NOT_CONNECTED,
                Refused::TooLarge { .. } | Refused::TooLong => TOO_LARGE,
                Refused::Empty | Refused::WindowFull => REFUSED,
            })),
        }
    }

    fn take_back(&mut self, message: usize, len: usize) {
        if let (Some(connection), _) = self.messages[message] {
            self.stack.take_back(connection, len);
        }
    }
}
