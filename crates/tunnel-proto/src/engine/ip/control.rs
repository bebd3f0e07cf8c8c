//! The stream of an IP session, and how long its packets may be.

use bytes::Bytes;
use masque::MessageError;
use masque::ip::{self, IpCapsule};
use packet::checksum::ChecksumState;
use quic::ConnectionKey;
use std::time::Instant;

use crate::drops::DropReason;
use crate::engine::life::Life;
use crate::engine::request::{Kind, Request, RequestId};
use crate::engine::{Deliver, Engine, Role, State, owned};

impl<R: Role> Engine<R> {
    /// The longest packet, in bytes, that sessions take at present: a client's session, the best of a server's; `None`
    /// where there is none.
    #[must_use]
    pub fn packet_max_at_most(&mut self) -> Option<usize> {
        let ids = self.state.role.ip_sessions();
        let connections: Vec<ConnectionKey> = ids
            .iter()
            .filter_map(|id| Some(self.state.requests.get(id.0)?.stream()?.connection))
            .collect();
        for connection in connections {
            let datagram_max = self.endpoint.datagram_max(connection).unwrap_or(0);
            if let Some(peer) = self.state.peer(connection) {
                peer.datagram_max = datagram_max;
            }
        }
        ids.into_iter().map(|id| self.state.packet_max(id)).max()
    }

    /// IP sessions that are open here.
    #[must_use]
    pub fn ip_sessions(&self) -> usize {
        let is_open =
            |request: &Request| matches!((&request.life, &request.kind), (Life::Open(_), Kind::Ip(_)));
        self.state
            .requests
            .iter()
            .filter(|(_, request)| is_open(request))
            .count()
    }

    /// Content of an IP session's stream.
    ///
    /// # Errors
    /// A capsule that breaks the rules costs the request.
    pub(in crate::engine) fn take_capsules(
        &mut self,
        now: Instant,
        id: RequestId,
        mut bytes: Bytes,
        deliver: &mut impl Deliver,
    ) -> Result<(), MessageError> {
        loop {
            let Some(Request {
                kind: Kind::Ip(session),
                life: Life::Open(_),
                ..
            }) = self.state.requests.get_mut(id.0)
            else {
                return Ok(());
            };
            let Some(capsule) = session.capsules.next(&mut bytes)? else {
                break;
            };
            match capsule {
                IpCapsule::Datagram(datagram) => {
                    self.state.ledger.egress.accepted += 1;
                    if !self.state.admits_capsule(now, id, datagram.len()) {
                        continue;
                    }
                    match masque::capsule::split_context(datagram) {
                        Some((ip::PACKET_CONTEXT_ID, packet)) => {
                            self.state
                                .take_packet(now, id, &packet, ChecksumState::Full, deliver);
                        }
                        Some(_) => self.state.ledger.egress.drop(DropReason::UnknownContext, 1),
                        None => self.state.ledger.egress.drop(DropReason::Malformed, 1),
                    }
                }
                IpCapsule::Oversized(_) => {
                    self.state.ledger.egress.accepted += 1;
                    self.state.ledger.egress.drop(DropReason::PacketTooBig, 1);
                }
                other => R::ip_capsule(self, id, other),
            }
        }
        Ok(())
    }
}

impl<R: Role> State<R> {
    /// The longest packet, in bytes, that a session takes at present.
    pub(super) fn packet_max(&mut self, id: RequestId) -> usize {
        let Some(request) = self.requests.get(id.0) else {
            return 0;
        };
        let Some(stream) = request.stream() else {
            return 0;
        };
        let Some(Some(peer)) = self.peers.get(stream.connection.index()) else {
            return 0;
        };
        let (_, prefix_bytes) = masque::datagram::prefix(stream.quarter(), ip::PACKET_CONTEXT_ID);
        let room = peer.datagram_max.saturating_sub(prefix_bytes);
        match &request.kind {
            Kind::Ip(session) => session.mtu(room),
            _ => 0,
        }
    }
}

/// Frames a capsule. It is one piece, because QUIC looks for what it sends among all pieces of a stream that were not
/// acknowledged.
pub(in crate::engine) fn push_capsule(output: &mut std::collections::VecDeque<Bytes>, capsule: Vec<u8>) {
    let (header, used) = masque::data_frame_header(capsule.len() as u64);
    output.push_back(owned([&header[..used], &capsule].concat()));
}
