//! One connection: what it sends when, and which datagrams quinn-proto holds.
//!
//! quinn-proto packs DATAGRAM frames before STREAM frames, so saturated datagrams would starve streams. Datagrams are
//! therefore handed over only while quinn-proto holds none, one train at a time, and between two trains the streams
//! are owed a third of what the datagrams got: a quarter of the whole. Packets owed are remembered over congestion
//! blocks; whether a stream turn that sends nothing was blocked or had nothing to say is found out by one packet of
//! datagrams: where that passes, the streams were silent and the debt is forgiven.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use quinn_proto::{ConnectionError, Datagram};

use crate::counters::{ConnectionReport, Counters};
use crate::event::{CloseReason, ConnectionKey};
use crate::limits;
use crate::transmit::{DatagramSource, Outbox};

/// Most packets that streams can be owed: two trains.
const OWED_PACKETS_MAX: usize = 2 * packet::TRAIN_SEGMENTS_MAX;

pub(crate) struct Connection {
    pub(crate) proto: quinn_proto::Connection,
    key: ConnectionKey,
    uses_ecn: bool,
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
    datagrams_handed: u64,
    datagrams_dropped: u64,
    trains_sent: u64,
    stream_frames_seen: u64,
    streams_active: bool,
    owed_packets: usize,
}

impl Connection {
    pub(crate) fn new(
        proto: quinn_proto::Connection,
        key: ConnectionKey,
        uses_ecn: bool,
        wrong_pin: Option<Arc<AtomicBool>>,
    ) -> Self {
        Self {
            proto,
            key,
            uses_ecn,
            half_open: None,
            deadline: None,
            authenticated: false,
            closed: false,
            unsettled: false,
            ready: false,
            timer: None,
            wrong_pin,
            datagrams_handed: 0,
            datagrams_dropped: 0,
            trains_sent: 0,
            stream_frames_seen: 0,
            streams_active: false,
            owed_packets: 0,
        }
    }

    pub(crate) fn close_reason(&self, error: &ConnectionError) -> CloseReason {
        let wrong_pin = self.wrong_pin.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed));
        CloseReason::new(error, wrong_pin)
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
                let share = if waiting { segments.div_ceil(3).max(self.owed_packets) } else { segments };
                let sent = self.transmit(now, share.min(segments), outbox);
                self.settle_stream_turn(sent);
                if sent > 0 && (!waiting || self.owed_packets > 0) {
                    continue;
                }
                if !waiting {
                    return false;
                }
                if outbox.is_full() {
                    return true;
                }
                let in_doubt = self.streams_active && self.owed_packets > 0;
                self.hand_over(source, if in_doubt { 1 } else { segments });
            }
            let sent = self.transmit(now, segments, outbox);
            if sent == 0 {
                return false;
            }
            if self.streams_active && self.owed_packets > 0 && !self.proto_sent_streams() {
                self.streams_active = false;
                self.owed_packets = 0;
            }
            self.owed_packets = (self.owed_packets + sent.div_ceil(3)).min(OWED_PACKETS_MAX);
        }
        true
    }

    fn settle_stream_turn(&mut self, sent: usize) {
        if sent > 0 && self.proto_sent_streams() {
            self.streams_active = true;
            self.owed_packets = self.owed_packets.saturating_sub(sent);
        } else if !self.streams_active {
            self.owed_packets = 0;
        }
    }

    /// Whether STREAM frames have been sent since the last question.
    fn proto_sent_streams(&mut self) -> bool {
        let frames = self.proto.stats().frame_tx.stream;
        std::mem::replace(&mut self.stream_frames_seen, frames) != frames
    }

    fn transmit(&mut self, now: Instant, segments: usize, outbox: &mut Outbox) -> usize {
        let mut buffer = outbox.buffer();
        let Some(transmit) = self.proto.poll_transmit(now, segments, &mut buffer) else {
            outbox.return_buffer(buffer);
            return 0;
        };
        self.trains_sent += 1;
        outbox.push(&transmit, self.uses_ecn, buffer);
        transmit.segment_size.map_or(1, |size| transmit.size.div_ceil(size))
    }

    fn holds_no_datagram(&mut self) -> bool {
        self.proto.datagrams().send_buffer_space() + size_of::<Datagram>() == limits::DATAGRAM_SEND_BYTES
    }

    /// Moves what fits into `packets` packets from the source to quinn-proto.
    fn hand_over(&mut self, source: &mut impl DatagramSource, packets: usize) {
        let Some(size_max) = self.proto.datagrams().max_size() else { return };
        let mut begun = 0;
        let mut room = 0;
        while begun < packets || room > 0 {
            let next_fits_any = begun < packets;
            let Some(datagram) =
                source.next_datagram(self.key, size_max, if next_fits_any { size_max } else { room })
            else {
                return;
            };
            if datagram.len() > room {
                begun += 1;
                room = size_max;
            }
            // A frame's type and length take at most as much as quinn-proto's own bound reserves.
            room = room.saturating_sub(datagram.len() + FRAME_OVERHEAD);
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
        Counters::new(&self.proto.stats(), self.trains_sent)
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
const FRAME_OVERHEAD: usize = 9;

/// Packets in one train: what UDP_SEGMENT takes, in number and in bytes.
fn segments_per_train(mtu: u16) -> usize {
    packet::TRAIN_SEGMENTS_MAX.min(packet::UDP_PAYLOAD_MAX / usize::from(mtu)).max(1)
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
