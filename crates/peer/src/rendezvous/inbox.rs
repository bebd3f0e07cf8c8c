//! What the rendezvous has relayed to us, in trains: packets of one peer come in runs of equal sizes, and are handed to
//! QUIC together.

use std::net::SocketAddr;

use bytes::BytesMut;
use packet::checksum::ChecksumState;
use packet::{TRAIN_SEGMENTS_MAX, UDP_PAYLOAD_MAX};
use tunnel_proto::{Deliver, RequestId};

use crate::limits::{RELAYED_WAITING_MAX, RENDEZVOUS_PAYLOAD_MAX};

/// Packets of one peer, in the order in which they came, like a message that the kernel coalesced.
pub(crate) struct RelayedTrain {
    /// The relayed address of the peer.
    pub(crate) from: SocketAddr,
    pub(crate) bytes: BytesMut,
    /// Of all packets but the last, which may be shorter.
    pub(crate) segment_size: usize,
}

impl RelayedTrain {
    fn takes(&self, from: SocketAddr, packet: &[u8]) -> bool {
        self.from == from
            && packet.len() <= self.segment_size
            && self.bytes.len().is_multiple_of(self.segment_size)
            && self.bytes.len() < self.segment_size * TRAIN_SEGMENTS_MAX
            && self.bytes.len() + packet.len() <= UDP_PAYLOAD_MAX
    }
}

/// Of one batch; nothing else is asked for that would be delivered.
#[derive(Default)]
pub(super) struct Inbox {
    trains: Vec<RelayedTrain>,
    packets: usize,
}

impl Inbox {
    pub(super) fn take(&mut self) -> Vec<RelayedTrain> {
        self.packets = 0;
        std::mem::take(&mut self.trains)
    }
}

impl Deliver for Inbox {
    fn deliver(&mut self, _: RequestId, _: &[u8]) {}

    fn deliver_relayed(&mut self, _: RequestId, from: SocketAddr, payload: &[u8]) {
        if payload.is_empty() || self.packets >= RELAYED_WAITING_MAX {
            return;
        }
        self.packets += 1;
        match self.trains.last_mut() {
            Some(train) if train.takes(from, payload) => train.bytes.extend_from_slice(payload),
            _ => self.trains.push(RelayedTrain {
                from,
                bytes: BytesMut::from(payload),
                segment_size: payload.len(),
            }),
        }
    }

    fn udp_payload_ceiling(&mut self, _: SocketAddr) -> u16 {
        RENDEZVOUS_PAYLOAD_MAX
    }

    fn deliver_packet(&mut self, _: &[u8], _: ChecksumState) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u16) -> SocketAddr {
        format!("[100::{number:x}]:1").parse().unwrap()
    }

    /// Sizes of the packets of each train, in order.
    fn trains(inbox: &mut Inbox) -> Vec<(SocketAddr, Vec<usize>)> {
        let taken = inbox.take().into_iter();
        let sizes = |train: RelayedTrain| {
            let segments = packet::segments(&train.bytes, train.segment_size);
            (train.from, segments.map(<[u8]>::len).collect())
        };
        taken.map(sizes).collect()
    }

    #[test]
    fn runs_of_one_peer_become_trains_and_each_packet_keeps_its_borders() {
        let mut inbox = Inbox::default();
        let of = |number, bytes| (address(number), vec![7_u8; bytes]);
        let sent = [
            of(1, 1_400),
            of(1, 1_400),
            of(1, 100),
            of(1, 100),
            of(2, 100),
            of(2, 200),
            of(2, 0),
            of(1, 100),
        ];
        for (from, payload) in &sent {
            inbox.deliver_relayed(RequestId::from_index(0), *from, payload);
        }
        let expected = [
            (address(1), vec![1_400, 1_400, 100]),
            (address(1), vec![100]),
            (address(2), vec![100]),
            (address(2), vec![200]),
            (address(1), vec![100]),
        ];
        assert_eq!(trains(&mut inbox), expected);
        assert!(trains(&mut inbox).is_empty());
    }

    #[test]
    fn trains_and_what_waits_are_bounded() {
        let mut inbox = Inbox::default();
        for (count, bytes) in [(2 * TRAIN_SEGMENTS_MAX, 100), (RELAYED_WAITING_MAX, 1_400)] {
            for _ in 0..count {
                inbox.deliver_relayed(RequestId::from_index(0), address(1), &vec![7; bytes]);
            }
        }
        let trains = trains(&mut inbox);
        let packets: usize = trains.iter().map(|(_, packets)| packets.len()).sum();
        assert_eq!(packets, RELAYED_WAITING_MAX);
        for (_, packets) in trains {
            assert!(packets.len() <= TRAIN_SEGMENTS_MAX);
            assert!(packets.iter().sum::<usize>() <= UDP_PAYLOAD_MAX);
        }
    }
}
