//! One connection: what it sends when, and which datagrams quinn-proto holds.
//!
//! quinn-proto packs DATAGRAM frames before STREAM frames, so saturated datagrams would starve streams. Datagrams are
//! therefore handed over only while quinn-proto holds none, one train at a time, and between two trains the streams
//! are owed a third of what the datagrams got: a quarter of the whole. While streams that are owed something are
//! blocked by congestion control or pacing, no datagram is handed over, because it would go first; streams that have
//! nothing to say are owed nothing.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use quinn_proto::{ConnectionError, Datagram, Dir, VarInt};

use crate::config::Profile;
use crate::congestion::Observation;
use crate::counters::{ConnectionReport, Counters};
use crate::event::{CloseReason, ConnectionKey};
use crate::limits;
use crate::pace::Pace;
use crate::transmit::{DatagramSource, Outbox};

pub(crate) struct Connection {
    pub(crate) proto: quinn_proto::Connection,
    key: ConnectionKey,
    uses_ecn: bool,
    seen: Observation,
    pace: Option<Pace>,
    /// When the `fixed` profile's rate lets more packets go.
    pub(crate) paced_until: Option<Instant>,
    /// The prefix that this handshake counts for, until it is complete.
    pub(crate) half_open: Option<IpAddr>,
    /// Until when a valid token has to come.
    pub(crate) deadline: Option<Instant>,
    pub(crate) authenticated: bool,
    /// [`crate::Event::Closed`] was given; what follows is draining.
    pub(crate) closed: bool,
    pub(crate) unsettled: bool,
    pub(crate) ready: bool,
    /// The deadline as it stands in the endpoint's timer set.
    pub(crate) timer: Option<Instant>,
    wrong_pin: Option<Arc<AtomicBool>>,
    /// Streams whose reader does not take what has come.
    pub(crate) standing_readers: usize,
    datagrams_handed: u64,
    datagrams_dropped: u64,
    trains_sent: u64,
    /// Packets that streams may send before the next datagram is handed over.
    owed_packets: usize,
}

/// What became of one attempt to send a train.
enum Sent {
    /// So many packets left.
    Packets(usize),
    /// There is something to send, which congestion control or pacing holds back.
    Blocked,
    /// There is nothing to send.
    Nothing,
}

impl Connection {
    pub(crate) fn new(
        proto: quinn_proto::Connection,
        key: ConnectionKey,
        profile: Profile,
        seen: Observation,
        wrong_pin: Option<Arc<AtomicBool>>,
    ) -> Self {
        Self {
            proto,
            key,
            uses_ecn: profile.uses_ecn(),
            seen,
            pace: match profile {
                Profile::Fixed { bits_per_second } => Some(Pace::new(bits_per_second)),
                Profile::Throughput | Profile::Latency => None,
            },
            paced_until: None,
            half_open: None,
            deadline: None,
            authenticated: false,
            closed: false,
            unsettled: false,
            ready: false,
            timer: None,
            wrong_pin,
            standing_readers: 0,
            datagrams_handed: 0,
            datagrams_dropped: 0,
            trains_sent: 0,
            owed_packets: 0,
        }
    }

    pub(crate) fn close_reason(&self, error: &ConnectionError) -> CloseReason {
        let wrong_pin = self
            .wrong_pin
            .as_ref()
            .is_some_and(|flag| flag.load(Ordering::Relaxed));
        CloseReason::new(error, wrong_pin)
    }

    /// Lets an authenticated peer open more streams once it uses half of what it may.
    pub(crate) fn grant_streams(&mut self) {
        if !self.authenticated || self.proto.side().is_client() {
            return;
        }
        let granted = self.proto.max_concurrent_streams(Dir::Bi);
        let open = self.proto.streams().remote_open_streams(Dir::Bi);
        let more = if open * 2 > granted { granted * 2 } else { granted };
        let more = more
            .max(u64::from(limits::AUTHENTICATED_STREAMS_AT_FIRST))
            .min(u64::from(limits::AUTHENTICATED_STREAMS));
        if more != granted {
            let count = VarInt::from_u64(more).expect("it is at most 16,384");
            self.proto.set_max_concurrent_streams(Dir::Bi, count);
        }
    }

    /// Writes trains into `outbox`. Whether there is more to send now, so that the caller should come back after its
    /// other work.
    pub(crate) fn flush(
        &mut self,
        now: Instant,
        source: &mut impl DatagramSource,
        outbox: &mut Outbox,
    ) -> bool {
        for _ in 0..limits::TRAINS_PER_FLUSH {
            if outbox.is_full() {
                return true;
            }
            let segments = segments_per_train(self.proto.current_mtu());
            if self.holds_no_datagram() {
                let waiting = !self.closed && source.waits(self.key);
                let share = if waiting {
                    self.owed_packets.max(segments.div_ceil(3))
                } else {
                    segments
                };
                match self.transmit(now, share.min(segments), outbox) {
                    Sent::Blocked => return false,
                    Sent::Nothing if !waiting => return false,
                    Sent::Nothing => self.owed_packets = 0,
                    Sent::Packets(sent) => {
                        self.owed_packets = self.owed_packets.saturating_sub(sent);
                        if !waiting || self.owed_packets > 0 {
                            continue;
                        }
                    }
                }
                if outbox.is_full() {
                    return true;
                }
                self.hand_over(source, segments);
            }
            match self.transmit(now, segments, outbox) {
                Sent::Packets(sent) => self.owed_packets += sent.div_ceil(3),
                Sent::Blocked | Sent::Nothing => return false,
            }
        }
        true
    }

    fn transmit(&mut self, now: Instant, segments: usize, outbox: &mut Outbox) -> Sent {
        let mtu = self.proto.current_mtu();
        let segments = match self.pace.as_ref().map(|pace| pace.packets(now, mtu)) {
            Some(Ok(packets)) => segments.min(packets),
            Some(Err(next)) => {
                self.paced_until = Some(next);
                return Sent::Blocked;
            }
            None => segments,
        };
        let mut buffer = outbox.buffer();
        self.seen.take_asked();
        let Some(transmit) = self.proto.poll_transmit(now, segments, &mut buffer) else {
            outbox.return_buffer(buffer);
            return if self.seen.take_asked() {
                Sent::Blocked
            } else {
                Sent::Nothing
            };
        };
        if let Some(pace) = &mut self.pace {
            pace.spend(now, mtu, transmit.size);
        }
        self.trains_sent += 1;
        outbox.push(&transmit, self.uses_ecn, buffer);
        Sent::Packets(
            transmit
                .segment_size
                .map_or(1, |size| transmit.size.div_ceil(size)),
        )
    }

    fn holds_no_datagram(&mut self) -> bool {
        self.proto.datagrams().send_buffer_space() + size_of::<Datagram>() == limits::DATAGRAM_SEND_BYTES
    }

    /// Moves what fits into `packets` packets from the source to quinn-proto.
    fn hand_over(&mut self, source: &mut impl DatagramSource, packets: usize) {
        let Some(size_max) = self.proto.datagrams().max_size() else {
            return;
        };
        let mut begun = 0;
        let mut room = 0_usize;
        while begun < packets || room > FRAME_BOUND {
            let fits = if begun < packets {
                size_max
            } else {
                room - FRAME_BOUND
            };
            let Some(datagram) = source.next_datagram(self.key, size_max, fits) else {
                return;
            };
            // quinn-proto begins a frame only where its bound still fits, and then takes what the frame really needs.
            let frame = 1 + packet::varint::len(datagram.len() as u64) + datagram.len();
            if room <= FRAME_BOUND || frame > room {
                begun += 1;
                room = size_max + FRAME_BOUND;
            }
            room -= frame;
            match self.proto.datagrams().send(datagram, false) {
                Ok(()) => self.datagrams_handed += 1,
                Err(error) => unreachable!("the queue was empty and the datagram fits: {error}"),
            }
        }
    }

    /// Datagrams that quinn-proto took and has given up since the last question.
    pub(crate) fn take_dropped(&mut self) -> u64 {
        if !self.closed && !self.holds_no_datagram() {
            return 0;
        }
        let gone = self.datagrams_handed - self.proto.stats().frame_tx.datagram;
        gone - std::mem::replace(&mut self.datagrams_dropped, gone)
    }

    /// Datagrams that quinn-proto holds.
    pub(crate) fn datagrams_held(&self) -> u64 {
        if self.closed {
            return 0;
        }
        self.datagrams_handed - self.proto.stats().frame_tx.datagram - self.datagrams_dropped
    }

    pub(crate) fn counters(&self) -> Counters {
        Counters::new(&self.proto.stats(), self.trains_sent, self.seen.cuts())
    }

    pub(crate) fn report(&mut self) -> ConnectionReport {
        ConnectionReport {
            remote: self.proto.remote_address(),
            authenticated: self.authenticated,
            rtt: self.proto.rtt(),
            congestion_window: self.proto.congestion_state().window(),
            path_mtu: self.proto.current_mtu(),
            datagram_max: self.proto.datagrams().max_size(),
            counters: self.counters(),
        }
    }
}

/// Bytes of a DATAGRAM frame besides its payload, as quinn-proto bounds them: type and an eight-byte length.
const FRAME_BOUND: usize = 9;

/// Packets in one train: what UDP_SEGMENT takes, in number and in bytes.
fn segments_per_train(mtu: u16) -> usize {
    packet::TRAIN_SEGMENTS_MAX
        .min(packet::UDP_PAYLOAD_MAX / usize::from(mtu))
        .max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_train_never_exceeds_what_one_ip_packet_holds() {
        assert_eq!(segments_per_train(1_200), 54);
        assert_eq!(segments_per_train(1_452), 45);
        assert_eq!(segments_per_train(65_507), 1);
        assert_eq!(segments_per_train(500), 64);
    }
}
