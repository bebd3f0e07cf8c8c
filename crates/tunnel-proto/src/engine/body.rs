//! TCP forwards: CONNECT at either end (RFC 9114 section 4.4), whose content the driver reads and writes, both ways.

use bytes::Bytes;
use masque::listen::{self, ListenPath};
use masque::{HeaderList, Item, request as request_headers};

use super::handler::{Asker, Handler};
use super::life::RequestStream;
use super::messages::Next;
use super::pacing::Paced;
use super::request::{RequestId, Sending};
use super::{Action, Engine, Role, State};
use crate::access::Way;

/// What a TCP forward's content is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// The limit was reached; there may be more.
    More,
    /// Nothing more at present; [`Action::BodyReadable`] follows.
    Blocked,
    /// The peer has sent everything.
    Finished,
    /// The peer broke off.
    Reset,
}

/// A TCP connection: all that it has is its stream.
#[derive(Debug, Default)]
pub(crate) struct TcpConnection {
    /// It comes to this listener of the server, and does not lead to a target (specs/listen.md).
    pub(crate) listener: Option<ListenPath>,
}

impl Handler for TcpConnection {
    fn ask(&self, asker: &Asker<'_>) -> Option<HeaderList> {
        let Some(listener) = self.listener else {
            return Some(request_headers::connect(asker.target?, asker.bearer));
        };
        let path = listener.to_string();
        let list = request_headers::extended_connect(asker.authority, listen::PROTOCOL, &path, asker.bearer);
        Some(list)
    }

    fn is_read_by_driver(&self) -> bool {
        true
    }

    fn is_of_driver(&self) -> bool {
        true
    }
}

impl<R: Role> Engine<R> {
    /// Reads the content of a TCP forward: up to `bytes_max` bytes are appended to `out`, without a copy.
    pub fn read_body(
        &mut self,
        id: RequestId,
        out: &mut std::collections::VecDeque<Bytes>,
        bytes_max: usize,
    ) -> Body {
        let mut taken = 0;
        while taken < bytes_max {
            // What is not read keeps its credit: the client's QUIC waits.
            if self.state.is_paced(id, Way::FromClient, Paced::Read(id)) {
                return Body::Blocked;
            }
            match self.next_item(id) {
                Ok(Next::Item(Item::Data(bytes))) => {
                    taken += bytes.len();
                    self.state.charge(id, Way::FromClient, bytes.len());
                    out.push_back(bytes);
                }
                Ok(Next::Item(_)) => {}
                Ok(Next::Blocked) => {
                    self.state.set_unread(id, false);
                    return Body::Blocked;
                }
                Ok(Next::Finished) => {
                    self.state.set_unread(id, false);
                    return Body::Finished;
                }
                Err(failure) => {
                    self.fail(id, failure);
                    return Body::Reset;
                }
            }
        }
        Body::More
    }

    /// Sends content of a TCP forward as one DATA frame. Whether QUIC has taken all of it and the user may have more;
    /// else the caller waits for [`Action::BodyWritable`] before it gives more.
    pub fn write_body(&mut self, id: RequestId, content: Bytes) -> bool {
        let Some(request) = self.state.requests.get_mut(id.0) else {
            return false;
        };
        let length = content.len();
        let (header, used) = masque::data_frame_header(content.len() as u64);
        request.output.push_back(Bytes::copy_from_slice(&header[..used]));
        request.output.push_back(content);
        self.pump(id);
        self.state.charge(id, Way::ToClient, length);
        let request = self.state.requests.get(id.0);
        let is_taken = request.is_some_and(|request| request.output.is_empty());
        is_taken && !self.state.is_paced(id, Way::ToClient, Paced::Write(id))
    }

    /// Ends our side of a TCP forward after what was written.
    pub fn finish_body(&mut self, id: RequestId) {
        if let Some(request) = self.state.requests.get_mut(id.0) {
            request.sending = Sending::Finishing;
        }
        self.pump(id);
    }

    /// TCP forwards and services that the driver has forgotten and the peer has not acknowledged.
    #[must_use]
    pub fn closing(&self) -> usize {
        self.state.closing
    }
}

impl<R: Role> State<R> {
    /// The driver shall read a TCP forward's content; until it has read all, its reader counts as standing.
    pub(super) fn announce_body(&mut self, id: RequestId) {
        self.set_unread(id, true);
        self.actions.push_back(Action::BodyReadable { request: id });
    }

    pub(super) fn set_unread(&mut self, id: RequestId, unread: bool) {
        let Some(request) = self.requests.get_mut(id.0) else {
            return;
        };
        if std::mem::replace(&mut request.unread, unread) == unread {
            return;
        }
        let Some(RequestStream { connection, .. }) = request.stream() else {
            return;
        };
        let Some(peer) = self.peer(connection) else { return };
        peer.unread = if unread { peer.unread + 1 } else { peer.unread - 1 };
        self.unread_changed.push(connection);
    }
}
