//! From QUIC to inner sockets: the DATAGRAM frames of a received batch find their sessions.

use std::net::SocketAddr;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use masque::datagram::{self, DatagramError};
use masque::ip::PACKET_CONTEXT_ID;
use masque::split::Joined;
use packet::Ecn;
use packet::checksum::ChecksumState;
use quic::{ConnectionKey, Path, Receiver};

use super::life::Life;
use super::repair::{Part, Repair};
use super::request::{Kind, Request, RequestId};
use super::{HoldQueue, Role, State};
use crate::drops::DropReason;

/// The driver's side of the egress path.
pub trait Deliver {
    /// A datagram for the inner socket of `request`. The driver enters in the ledger what becomes of it.
    fn deliver(&mut self, request: RequestId, payload: &[u8]);

    /// Largest UDP payload, in bytes, that the interface towards `remote` carries.
    fn udp_payload_ceiling(&mut self, remote: SocketAddr) -> u16;

    /// Client: a payload of a bound socket, from the peer whose socket has the address `from`. The driver enters in the
    /// ledger what becomes of it; it is lost where this is left out.
    fn deliver_relayed(&mut self, request: RequestId, from: SocketAddr, payload: &[u8]) {
        let _ = (request, from, payload);
    }

    /// A packet for the TUN. The driver enters in the ledger what becomes of it.
    fn deliver_packet(&mut self, packet: &[u8], checksum: ChecksumState);

    /// Received datagrams of which QUIC reads nothing, as they came: each of `segment_size` bytes, the last one of fewer,
    /// perhaps. They are dropped where this is left out.
    fn given_away(&mut self, path: Path, ecn: Ecn, datagrams: BytesMut, segment_size: usize) {
        let _ = (path, ecn, datagrams, segment_size);
    }

    /// Received datagrams of the process whose sockets this one took over ([`quic::Receiver::predecessor_datagrams`]);
    /// dropped where this is left out.
    fn predecessor_datagrams(
        &mut self,
        shard: u8,
        path: Path,
        ecn: Ecn,
        datagrams: &[u8],
        segment_size: usize,
    ) {
        let _ = (shard, path, ecn, datagrams, segment_size);
    }

    /// A received segment whose connection ID names another shard of the process, to be handed to its engine as it is;
    /// dropped where this is left out. Never called where the engine is the only one.
    fn foreign_segment(&mut self, shard: u8, path: Path, ecn: Ecn, segment: &[u8]) {
        let _ = (shard, path, ecn, segment);
    }
}

/// Takes QUIC's datagrams while a batch is handled.
pub(super) struct Egress<'a, R: Role, D> {
    pub(super) now: Instant,
    pub(super) state: &'a mut State<R>,
    pub(super) deliver: &'a mut D,
}

impl<R: Role, D: Deliver> Receiver for Egress<'_, R, D> {
    fn datagram(&mut self, connection: ConnectionKey, payload: Bytes) {
        self.state.ledger.egress.accepted += 1;
        if self.state.admits_datagram(self.now, connection, payload.len()) {
            self.state
                .take_datagram(self.now, connection, &payload, self.deliver);
        }
    }

    fn udp_payload_ceiling(&mut self, remote: SocketAddr) -> u16 {
        self.deliver.udp_payload_ceiling(remote)
    }

    fn given_away(&mut self, path: Path, ecn: Ecn, datagrams: BytesMut, segment_size: usize) {
        self.deliver.given_away(path, ecn, datagrams, segment_size);
    }

    fn predecessor_datagrams(
        &mut self,
        shard: u8,
        path: Path,
        ecn: Ecn,
        datagrams: &[u8],
        segment_size: usize,
    ) {
        self.deliver
            .predecessor_datagrams(shard, path, ecn, datagrams, segment_size);
    }

    fn foreign_segment(&mut self, shard: u8, path: Path, ecn: Ecn, segment: &[u8]) {
        self.deliver.foreign_segment(shard, path, ecn, segment);
    }
}

impl<R: Role> State<R> {
    /// One HTTP Datagram; it is counted as accepted already.
    fn take_datagram(
        &mut self,
        now: Instant,
        connection: ConnectionKey,
        bytes: &[u8],
        deliver: &mut impl Deliver,
    ) {
        let egress = &mut self.ledger.egress;
        let Some(peer) = self.peers.get_mut(connection.index()).and_then(Option::as_mut) else {
            return egress.drop(DropReason::UnknownSession, 1);
        };
        let view = match datagram::decode(bytes) {
            Ok(view) => view,
            Err(error) => {
                if let DatagramError::Connection(error) = error {
                    self.broken.push((connection, error));
                }
                return egress.drop(DropReason::Malformed, 1);
            }
        };
        let quarter = view.quarter_stream_id;
        let request = peer
            .request(quarter)
            .and_then(|id| Some((id, self.requests.get_mut(id.0)?)));
        let is_known = |request: &Request| !matches!(request.life, Life::Headers(_) | Life::Identifying(_));
        let Some((id, request)) = request.filter(|(_, request)| is_known(request)) else {
            return wait(&mut peer.early, quarter, bytes, now, egress);
        };
        if !request.kind.takes_datagrams() {
            return egress.drop(DropReason::UnknownSession, 1);
        }
        if matches!(request.life, Life::Opening(_) | Life::Sent(_) | Life::Queued(_)) {
            return wait(&mut peer.early, quarter, bytes, now, egress);
        }
        request.last_active = now;
        match content_of(&mut request.kind, view.context_id) {
            Some(Content::Datagram) if view.payload.len() > packet::UDP_PAYLOAD_MAX => {
                egress.drop(DropReason::TargetTooLarge, 1);
            }
            Some(Content::Datagram) => deliver.deliver(receiver_of(&request.kind, id), view.payload),
            Some(Content::Packet(checksum)) => self.take_packet(now, id, view.payload, checksum, deliver),
            Some(Content::Relayed) => self.take_relayed(now, id, view.context_id, view.payload, deliver),
            Some(Content::Service) => self.take_service_datagram(id, view.payload),
            Some(Content::Repair(part)) => self.take_repair(now, id, part, view.payload, deliver),
            Some(Content::Fragment) => self.take_fragment(now, id, connection, &view, deliver),
            None => egress.drop(DropReason::UnknownContext, 1),
        }
    }

    /// A fragment of a payload, which goes on where it completes it.
    fn take_fragment(
        &mut self,
        now: Instant,
        id: RequestId,
        connection: ConnectionKey,
        view: &datagram::View<'_>,
        deliver: &mut impl Deliver,
    ) {
        let egress = &mut self.ledger.egress;
        let peer = self.peers.get_mut(connection.index()).and_then(Option::as_mut);
        let (Some(peer), Some(request)) = (peer, self.requests.get(id.0)) else {
            return egress.drop(DropReason::UnknownSession, 1);
        };
        let handled = match peer.reassembler.handle(now, view.quarter_stream_id, view.payload) {
            Err(_) => return egress.drop(DropReason::Malformed, 1),
            Ok(handled) => handled,
        };
        egress.drop(DropReason::ReassemblyExpired, u64::from(handled.evicted));
        match handled.joined {
            Joined::Waiting => {}
            Joined::Duplicate => egress.drop(DropReason::DuplicateFragment, 1),
            Joined::Complete { payload, fragments } => {
                egress.joined += u64::from(fragments) - 1;
                if matches!(request.kind, Kind::Ip(_)) {
                    let packet = payload.to_vec();
                    self.take_packet(now, id, &packet, ChecksumState::Full, deliver);
                } else if matches!(request.kind, Kind::Bound(_)) {
                    let joined = payload.to_vec();
                    self.take_joined_relayed(now, id, &joined, deliver);
                } else if payload.len() > packet::UDP_PAYLOAD_MAX {
                    egress.drop(DropReason::TargetTooLarge, 1);
                } else {
                    deliver.deliver(receiver_of(&request.kind, id), payload);
                }
            }
        }
    }

    /// A session is open: what waited for it goes on, in order.
    pub(super) fn take_early(&mut self, now: Instant, id: RequestId, deliver: &mut impl Deliver) {
        let Some(request) = self.requests.get(id.0) else {
            return;
        };
        let Some(stream) = request.stream() else {
            return;
        };
        let Some(peer) = self.peer(stream.connection) else {
            return;
        };
        for bytes in peer.early.take(stream.quarter()) {
            self.take_datagram(now, stream.connection, &bytes, deliver);
        }
    }
}

/// The request that the driver knows the session by.
pub(super) fn receiver_of(kind: &Kind, id: RequestId) -> RequestId {
    match kind {
        Kind::Moved(moved) => moved.of,
        _ => id,
    }
}

/// What an HTTP Datagram of a session holds.
enum Content {
    /// The datagram of a UDP session.
    Datagram,
    /// The packet of an IP session.
    Packet(ChecksumState),
    /// For a service.
    Service,
    /// The payload of a bound socket, where there is such a context.
    Relayed,
    Repair(Part),
    Fragment,
}

/// What the context says; `None` where it was not agreed on.
fn content_of(kind: &mut Kind, context_id: u64) -> Option<Content> {
    let split = match kind {
        Kind::Udp(_) if context_id == datagram::UDP_CONTEXT_ID => return Some(Content::Datagram),
        Kind::Udp(session) => session.split.agreed(),
        Kind::Moved(_) if context_id == datagram::UDP_CONTEXT_ID => return Some(Content::Datagram),
        Kind::Moved(moved) => moved.session.split.agreed(),
        Kind::Ip(_) if context_id == PACKET_CONTEXT_ID => return Some(Content::Packet(ChecksumState::Full)),
        Kind::Ip(session) if session.checksum.agreed() == Some(context_id) => {
            return Some(Content::Packet(ChecksumState::Partial));
        }
        Kind::Ip(session) => session.split.agreed(),
        Kind::Service(_) if context_id == datagram::UDP_CONTEXT_ID => return Some(Content::Service),
        Kind::Bound(session) if session.split.agreed() == Some(context_id) => return Some(Content::Fragment),
        Kind::Bound(_) => return Some(Content::Relayed),
        Kind::Undecided(_) | Kind::TokenCheck(_) | Kind::Tcp(_) | Kind::Service(_) => return None,
    };
    let repairing = kind.repair().and_then(Repair::agreed);
    if let Some(part) = repairing.and_then(|repairing| repairing.part(context_id)) {
        return Some(Content::Repair(part));
    }
    (split == Some(context_id)).then_some(Content::Fragment)
}

fn wait(
    early: &mut HoldQueue<u64>,
    quarter: u64,
    bytes: &[u8],
    now: Instant,
    egress: &mut crate::drops::Account,
) {
    if !early.push(quarter, bytes, now) {
        egress.drop(DropReason::UnknownSession, 1);
    }
}
