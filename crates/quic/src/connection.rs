//! One connection: what it sends when, and which datagrams quinn-proto holds.
//!
//! quinn-proto packs DATAGRAM frames before STREAM frames, so saturated datagrams would starve streams. Streams and
//! datagrams therefore take turns, by packets: three for datagrams, one for streams. Datagrams are handed over only in
//! their turn, only while quinn-proto holds none, and only as many as window and pacing let go at once; streams that have
//! nothing to say lose their turn.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use quinn_proto::{ConnectionError, Datagram, Dir, VarInt};

use crate::cap::Cap;
use crate::config::Profile;
use crate::congestion::Gate;
use crate::counters::{ConnectionReport, Counters};
use crate::error::CloseReason;
use crate::event::ConnectionKey;
use crate::pacer::Pacer;
use crate::transmit::{DatagramSource, Outbox};
use crate::{limits, translate};

pub(crate) struct Connection {
    pub(crate) proto: quinn_proto::Connection,
    key: ConnectionKey,
    profile: Profile,
    gate: Gate,
    pacer: Pacer,
    /// The rate of the `fixed` profile.
    cap: Option<Cap>,
    /// Part of the latest trains that carried datagrams, 0 to 1.
    datagram_share: f32,
    /// When pacing, or the `fixed` profile's rate, lets more packets go.
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
    /// Bytes that the peer may send beyond what was read.
    receive_window: u32,
    datagrams_handed: u64,
    datagrams_dropped: u64,
    trains_sent: u64,
    turn: Turn,
}

/// Whose packets are next, and how many, while both have something to say.
#[derive(Clone, Copy, Debug)]
enum Turn {
    Streams { packets: usize },
    Datagrams { packets: usize },
}

impl Turn {
    /// Streams get a third of what a turn of datagrams is: a quarter of the whole.
    fn streams(segments: usize) -> Self {
        Self::Streams {
            packets: segments.div_ceil(3),
        }
    }
}

/// What became of one attempt to send a train.
enum Sent {
    /// So many packets left that congestion control counts; none where only others did.
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
        gate: Gate,
        wrong_pin: Option<Arc<AtomicBool>>,
    ) -> Self {
        Self {
            proto,
            key,
            profile,
            gate,
            pacer: Pacer::default(),
            datagram_share: 0.0,
            cap: match profile {
                Profile::Fixed { bits_per_second } => Some(Cap::new(bits_per_second)),
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
            receive_window: 0,
            datagrams_handed: 0,
            datagrams_dropped: 0,
            trains_sent: 0,
            turn: Turn::Streams { packets: 1 },
        }
    }

    pub(crate) fn close_reason(&self, error: &ConnectionError) -> CloseReason {
        let wrong_pin = self
            .wrong_pin
            .as_ref()
            .is_some_and(|flag| flag.load(Ordering::Relaxed));
        if wrong_pin {
            CloseReason::WrongPin
        } else {
            translate::close_reason(error)
        }
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

    /// Gives an authenticated peer a window that streams which nobody reads do not fill.
    pub(crate) fn widen_receive_window(&mut self) {
        if !self.authenticated {
            return;
        }
        let standing = u32::try_from(self.standing_readers).unwrap_or(u32::MAX);
        let window = limits::CONNECTION_WINDOW_BYTES
            + standing.min(limits::STANDING_READERS_MAX) * limits::STREAM_WINDOW_BYTES;
        if window > self.receive_window {
            self.receive_window = window;
            self.proto.set_receive_window(VarInt::from_u32(window));
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
                if let Turn::Streams { packets } = self.turn {
                    let share = if waiting { packets } else { segments };
                    match self.transmit(now, share.min(segments), outbox) {
                        Sent::Blocked => return false,
                        Sent::Nothing if !waiting => {
                            self.note_idle(now);
                            return false;
                        }
                        Sent::Nothing => self.turn = Turn::Datagrams { packets: segments },
                        Sent::Packets(sent) => {
                            if sent > 0 {
                                self.note_load(false);
                            }
                            self.turn = match packets.saturating_sub(sent) {
                                0 => Turn::Datagrams { packets: segments },
                                packets => Turn::Streams { packets },
                            };
                            continue;
                        }
                    }
                } else if !waiting {
                    self.turn = Turn::streams(segments);
                    continue;
                }
                let Turn::Datagrams { packets } = self.turn else {
                    continue;
                };
                let Ok(allowed) = self.allowed(now, packets) else {
                    // What does not count may still go: acknowledgements above all.
                    self.transmit(now, 1, outbox);
                    return false;
                };
                self.note_load(true);
                self.hand_over(source, allowed);
            }
            match self.transmit(now, segments, outbox) {
                Sent::Packets(sent) => {
                    if let Turn::Datagrams { packets } = self.turn {
                        self.turn = match packets.saturating_sub(sent) {
                            0 => Turn::streams(segments),
                            packets => Turn::Datagrams { packets },
                        };
                    }
                }
                Sent::Blocked | Sent::Nothing => return false,
            }
        }
        true
    }

    /// Packets, at most `segments`, that window and pacing let go now; at least one.
    ///
    /// # Errors
    /// None may go: until an acknowledgement comes, or until `self.paced_until`.
    fn allowed(&mut self, now: Instant, segments: usize) -> Result<usize, ()> {
        let mtu = self.proto.current_mtu();
        let allowance = self.gate.allowance();
        let room = allowance.window.saturating_sub(allowance.in_flight) / u64::from(mtu);
        if room == 0 {
            return Err(());
        }
        match self.pacer.packets(now, allowance.bytes_per_second, mtu) {
            Ok(packets) => Ok(segments
                .min(packets)
                .min(usize::try_from(room).unwrap_or(usize::MAX))),
            Err(next) => {
                self.paced_until = Some(next);
                Err(())
            }
        }
    }

    /// There was nothing to send: where it could have gone, the path is not what limits the rate.
    fn note_idle(&mut self, now: Instant) {
        if self.allowed(now, 1).is_ok() {
            self.gate.set_idle();
        }
    }

    /// One train, of datagrams or not, is about to leave.
    fn note_load(&mut self, is_datagrams: bool) {
        let value = if is_datagrams { 1.0 } else { 0.0 };
        self.datagram_share += (value - self.datagram_share) / LOAD_TRAINS;
        self.gate.set_carries_datagrams(self.datagram_share > 0.5);
    }

    fn transmit(&mut self, now: Instant, segments: usize, outbox: &mut Outbox) -> Sent {
        let mtu = self.proto.current_mtu();
        let segments = match self.cap.as_ref().map(|cap| cap.packets(now, mtu)) {
            Some(Ok(packets)) => segments.min(packets),
            Some(Err(next)) => {
                self.paced_until = Some(next);
                return Sent::Blocked;
            }
            None => segments,
        };
        let allowed = self.allowed(now, segments);
        self.gate.set_open(allowed.is_ok());
        let mut buffer = outbox.buffer();
        self.gate.take_asked();
        let transmit = self
            .proto
            .poll_transmit(now, allowed.unwrap_or(PROBES_MAX), &mut buffer);
        self.gate.set_open(false);
        let counts = self.gate.take_asked();
        let Some(transmit) = transmit else {
            outbox.return_buffer(buffer);
            return if counts { Sent::Blocked } else { Sent::Nothing };
        };
        if let Some(cap) = &mut self.cap {
            cap.spend(now, mtu, transmit.size);
        }
        self.trains_sent += 1;
        outbox.push(translate::train(&transmit, self.profile.uses_ecn(), buffer));
        if !counts {
            return Sent::Packets(0);
        }
        self.pacer
            .spend(now, self.gate.allowance().bytes_per_second, transmit.size);
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
        translate::counters(&self.proto.stats(), self.trains_sent, self.gate.cuts())
    }

    pub(crate) fn report(&mut self) -> ConnectionReport {
        let allowance = self.gate.allowance();
        ConnectionReport {
            remote: self.proto.remote_address(),
            authenticated: self.authenticated,
            rtt: self.proto.rtt(),
            congestion_window: allowance.window,
            in_flight: allowance.in_flight,
            pacing_bits_per_second: (allowance.bytes_per_second < u64::MAX)
                .then(|| allowance.bytes_per_second.saturating_mul(8)),
            profile: self.profile,
            path: self.gate.estimate(),
            path_mtu: self.proto.current_mtu(),
            datagram_max: self.proto.datagrams().max_size(),
            counters: self.counters(),
        }
    }
}

/// Trains over which it is averaged what the load is.
const LOAD_TRAINS: f32 = 16.0;

/// Packets that may go while congestion control lets none go: acknowledgements and probes, which it does not count.
const PROBES_MAX: usize = 2;

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
