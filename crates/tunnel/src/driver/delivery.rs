//! Datagrams on their way to inner sockets: collected into trains while a batch is handled, then sent.
//!
//! Order within a session is kept: a datagram that does not fit the session's last train opens a new one.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::BytesMut;
use packet::checksum::ChecksumState;
use packet::{Ecn, Train, TrainLimits};
use packet_io::{DatagramSocket, Outgoing, SendOutcome, UdpSocket, payload_max};
use quic::Path;
use tunnel_proto::{Account, Deliver, DropReason, RequestId};

use super::neighbours::Segment;
use super::tun::end::TunEnd;
use crate::carrier::offered::Predecessor;
use crate::limits;

const TRAIN_LIMITS: TrainLimits = TrainLimits {
    segments: limits::INNER_TRAIN_SEGMENTS,
    bytes: packet::UDP_PAYLOAD_MAX,
};

#[derive(Debug, Default)]
struct Pending {
    request: RequestId,
    train: Train,
}

/// Datagrams of one sender, all of `segment_size` bytes but the last.
pub(super) struct Stranger {
    pub(super) path: Path,
    pub(super) ecn: Ecn,
    pub(super) datagrams: BytesMut,
    pub(super) segment_size: usize,
}

/// The trains of one shard's batch; their buffers are reused.
#[derive(Default)]
pub(super) struct Delivery {
    trains: Vec<Pending>,
    used: usize,
    /// By request: one more than the index of its last train.
    last: Vec<usize>,
    datagrams: usize,
    /// By request: what each of its datagrams begins with at its inner socket.
    headers: Vec<Option<Box<[u8]>>>,
    /// A datagram with its header.
    framed: Vec<u8>,
    /// Datagrams that are too long with their header, until the next flush counts them.
    too_large: u64,
    /// Bytes that the carrier adds to each datagram.
    pub(super) overhead_bytes: u16,
    /// Where packets of IP sessions go.
    pub(super) tun: Option<TunEnd>,
    /// Received datagrams of which QUIC reads nothing.
    pub(super) strangers: Vec<Stranger>,
    /// Received segments that belong to other shards.
    pub(super) foreign: Vec<(u8, Segment)>,
    /// The process whose sockets this one took over.
    pub(super) predecessor: Option<Arc<Predecessor>>,
    /// Datagrams that it had no room for.
    pub(super) not_handed_back: u64,
}

impl Deliver for Delivery {
    fn deliver(&mut self, request: RequestId, payload: &[u8]) {
        let Some(Some(header)) = self.headers.get(request.index()) else {
            return self.collect(request, payload);
        };
        if header.len() + payload.len() > packet::UDP_PAYLOAD_MAX {
            self.too_large += 1;
            return;
        }
        let mut framed = std::mem::take(&mut self.framed);
        framed.clear();
        framed.extend_from_slice(header);
        framed.extend_from_slice(payload);
        self.collect(request, &framed);
        self.framed = framed;
    }

    fn udp_payload_ceiling(&mut self, remote: SocketAddr) -> u16 {
        udp_payload_max(remote, None, self.overhead_bytes)
    }

    fn deliver_packet(&mut self, packet: &[u8], checksum: ChecksumState) {
        self.tun
            .as_mut()
            .expect("IP sessions are opened where there is a TUN device")
            .push(packet, checksum);
    }

    fn given_away(&mut self, path: Path, ecn: Ecn, datagrams: BytesMut, segment_size: usize) {
        self.strangers.push(Stranger {
            path,
            ecn,
            datagrams,
            segment_size,
        });
    }

    fn predecessor_datagrams(
        &mut self,
        shard: u8,
        path: Path,
        ecn: Ecn,
        datagrams: &[u8],
        segment_size: usize,
    ) {
        if let Some(predecessor) = &self.predecessor {
            self.not_handed_back += predecessor.hand_back(shard, path, ecn, datagrams, segment_size);
        }
    }

    fn foreign_segment(&mut self, shard: u8, path: Path, ecn: Ecn, segment: &[u8]) {
        let bytes = BytesMut::from(segment);
        self.foreign.push((shard, Segment { path, ecn, bytes }));
    }
}

/// Largest datagram of QUIC towards `remote` where IP packets may have `mtu` bytes, or what the route there carries,
/// and the carrier adds `overhead_bytes` to each.
pub(super) fn udp_payload_max(remote: SocketAddr, mtu: Option<u32>, overhead_bytes: u16) -> u16 {
    payload_max(remote, mtu).saturating_sub(overhead_bytes)
}

impl Delivery {
    /// Each datagram of a request begins with `header` at its inner socket, or is as it came.
    pub(super) fn set_header(&mut self, request: RequestId, header: Option<Box<[u8]>>) {
        if self.headers.len() <= request.index() && header.is_some() {
            self.headers.resize(request.index() + 1, None);
        }
        if let Some(slot) = self.headers.get_mut(request.index()) {
            *slot = header;
        }
    }

    fn collect(&mut self, request: RequestId, payload: &[u8]) {
        self.datagrams += 1;
        if self.last.len() <= request.index() {
            self.last.resize(request.index() + 1, 0);
        }
        let last = &mut self.last[request.index()];
        if let Some(pending) = last.checked_sub(1).and_then(|index| self.trains.get_mut(index))
            && pending.train.push(payload, TRAIN_LIMITS).is_ok()
        {
            return;
        }
        if self.used == self.trains.len() {
            self.trains.push(Pending::default());
        }
        let pending = &mut self.trains[self.used];
        pending.request = request;
        pending
            .train
            .push(payload, TRAIN_LIMITS)
            .expect("an empty train takes any datagram");
        self.used += 1;
        *last = self.used;
    }

    /// Whether so much has been collected that it should be sent before more is read.
    pub(super) fn is_full(&self) -> bool {
        self.datagrams >= limits::INNER_BURST_DATAGRAMS
    }

    pub(super) fn is_empty(&self) -> bool {
        self.used == 0 && self.too_large == 0
    }

    /// Sends every train, in order, together with its neighbours of the same socket.
    ///
    /// `socket_of` names the socket of a request and the destination, `None` where it is gone; `with_socket` calls
    /// back with that socket, or does not where it is gone.
    pub(super) fn flush<K: Copy + Ord>(
        &mut self,
        account: &mut Account,
        socket_of: impl Fn(RequestId) -> Option<(K, Option<SocketAddr>)>,
        mut with_socket: impl FnMut(K, &mut dyn FnMut(&mut UdpSocket)),
    ) {
        account.drop(DropReason::TargetTooLarge, std::mem::take(&mut self.too_large));
        let mut order: Vec<(K, usize, Option<SocketAddr>)> = Vec::with_capacity(self.used);
        for (index, pending) in self.trains[..self.used].iter().enumerate() {
            self.last[pending.request.index()] = 0;
            match socket_of(pending.request) {
                Some((socket, destination)) => order.push((socket, index, destination)),
                None => account.drop(DropReason::SessionClosed, pending.train.len() as u64),
            }
        }
        order.sort_by_key(|(socket, ..)| *socket);
        for group in order.chunk_by(|one, other| one.0 == other.0) {
            let messages: Vec<Outgoing<'_>> = group
                .iter()
                .map(|(_, index, destination)| {
                    let train = &self.trains[*index].train;
                    Outgoing {
                        destination: *destination,
                        ..Outgoing::connected(train.bytes(), train.segment_size())
                    }
                })
                .collect();
            let total: u64 = group
                .iter()
                .map(|(_, index, _)| self.trains[*index].train.len() as u64)
                .sum();
            let mut is_there = false;
            with_socket(group[0].0, &mut |socket| {
                is_there = true;
                send(socket, &messages, total, account);
            });
            if !is_there {
                account.drop(DropReason::SessionClosed, total);
            }
        }
        for pending in &mut self.trains[..self.used] {
            pending.train.clear();
        }
        self.used = 0;
        self.datagrams = 0;
    }
}

/// Sends trains to an inner socket; UDP does not wait, so what a full socket does not take is dropped.
fn send(socket: &mut UdpSocket, messages: &[Outgoing<'_>], total: u64, account: &mut Account) {
    let outcome = socket.send(messages).unwrap_or_else(|_| SendOutcome::default());
    account.sent += outcome.segments;
    account.drop(DropReason::TargetTooLarge, outcome.dropped.too_large);
    account.drop(DropReason::TargetRefused, outcome.dropped.refused);
    account.drop(DropReason::TargetUnreachable, outcome.dropped.unreachable);
    account.drop(DropReason::SocketError, outcome.dropped.other);
    let rest = total - outcome.segments - outcome.dropped.total();
    let reason = if outcome.blocked {
        DropReason::SocketFull
    } else {
        DropReason::SocketError
    };
    account.drop(reason, rest);
}
