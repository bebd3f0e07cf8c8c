//! How datagrams and stream data get into packets: [`Connection::send_train`] is the whole way.

use std::time::Instant;

use super::Connection;
use crate::limits;
use crate::translate;
use crate::transmit::{DatagramSource, Outbox};

/// What a train carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    Streams,
    Datagrams,
}

/// Whose packets are next, and how many, while streams and datagrams both have something to send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    load: Load,
    packets: usize,
}

impl Turn {
    /// The turn of a new connection.
    pub(super) const FIRST: Self = Self {
        load: Load::Streams,
        packets: 1,
    };

    /// A whole turn, where a train has at most `segments` packets. Streams get a third of what datagrams get: a quarter
    /// of all packets.
    fn new(load: Load, segments: usize) -> Self {
        let packets = match load {
            Load::Streams => segments.div_ceil(3),
            Load::Datagrams => segments,
        };
        Self { load, packets }
    }

    /// Takes `packets`, which were sent, off the turn; the other load is next when nothing is left.
    fn spend(&mut self, packets: usize, segments: usize) {
        self.packets = self.packets.saturating_sub(packets);
        if self.packets == 0 {
            *self = match self.load {
                Load::Streams => Self::new(Load::Datagrams, segments),
                Load::Datagrams => Self::new(Load::Streams, segments),
            };
        }
    }
}

/// What became of one attempt to write a train.
enum Written {
    /// So many packets that congestion control counts; none where only others were written.
    Packets(usize),
    /// There is something to send, which congestion control or pacing holds back.
    Blocked,
    /// There is nothing to send.
    Nothing,
}

/// Whether another train may follow at once.
#[derive(PartialEq, Eq)]
enum Progress {
    More,
    Stop,
}

impl Connection {
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
            if self.send_train(now, source, outbox) == Progress::Stop {
                return false;
            }
        }
        true
    }

    /// Sends one train: the whole way of datagrams, and of streams beside them, into packets.
    ///
    /// 1. **Turn** ([`Turn`]): the core packs DATAGRAM frames before STREAM frames, so saturated datagrams would starve
    ///    streams. They take turns by packets, three for datagrams and one for streams. In the streams' turn the core
    ///    holds no datagram, and step 4 follows at once; streams with nothing to send lose their turn.
    /// 2. **Allowance** ([`Connection::allowed`]): the congestion controller's window and the [`crate::pacer::Pacer`] say
    ///    how many packets may leave now. If none may, acknowledgements and probes still leave, which count for neither.
    /// 3. **Hand-over** ([`Connection::hand_over`]): only as many datagrams as fill these packets move from `source` to the
    ///    core, and only while it holds none. All others wait at the source, which bounds, reorders and counts them.
    /// 4. **Train** ([`Connection::write_train`]): the [`crate::congestion::Gate`] opens, the core writes packets of equal
    ///    size into one buffer of `outbox`, and the gate closes.
    /// 5. **Pacing**: `write_train` charges pacer and [`crate::cap::Cap`] for the bytes, and this function [`Turn`] for the
    ///    packets.
    ///
    /// Datagrams that the core kept from an earlier train, e.g. because acknowledgements took their room, are
    /// sent first: nothing is handed over before they have left.
    fn send_train(
        &mut self,
        now: Instant,
        source: &mut impl DatagramSource,
        outbox: &mut Outbox,
    ) -> Progress {
        let segments = segments_per_train(self.proto.current_mtu());
        if self.holds_no_datagram() {
            let waiting = self.is_tunnel() && source.waits(self.key);
            if self.turn.load == Load::Streams {
                let share = if waiting { self.turn.packets } else { segments };
                match self.write_train(now, share.min(segments), outbox) {
                    Written::Packets(sent) => {
                        if sent > 0 {
                            self.note_load(Load::Streams);
                        }
                        self.turn.spend(sent, segments);
                        return Progress::More;
                    }
                    Written::Blocked => {
                        self.held_back += 1;
                        return Progress::Stop;
                    }
                    Written::Nothing if !waiting => {
                        self.note_idle(now);
                        return Progress::Stop;
                    }
                    Written::Nothing => self.turn = Turn::new(Load::Datagrams, segments),
                }
            }
            if !waiting {
                self.turn = Turn::new(Load::Streams, segments);
                return Progress::More;
            }
            let Ok(allowed) = self.allowed(now, self.turn.packets) else {
                self.held_back += 1;
                self.write_train(now, 1, outbox);
                return Progress::Stop;
            };
            self.note_load(Load::Datagrams);
            self.hand_over(source, allowed);
        }
        let Written::Packets(sent) = self.write_train(now, segments, outbox) else {
            return Progress::Stop;
        };
        if self.turn.load == Load::Datagrams {
            self.turn.spend(sent, segments);
        }
        Progress::More
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

    /// Moves what fits into `packets` packets from the source to the core.
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
            // The core begins a frame only where its bound still fits, and then takes what the frame really needs.
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

    /// Has the core write at most `segments` packets as one train, as far as cap, window and pacer let them go, and
    /// charges these for it.
    fn write_train(&mut self, now: Instant, segments: usize, outbox: &mut Outbox) -> Written {
        if self.is_mute() {
            return Written::Nothing;
        }
        self.say_again(outbox);
        let mtu = self.proto.current_mtu();
        let segments = match self.cap.as_ref().map(|cap| cap.packets(now, mtu)) {
            Some(Ok(packets)) => segments.min(packets),
            Some(Err(next)) => {
                self.paced_until = Some(next);
                return Written::Blocked;
            }
            None => segments,
        };
        let allowed = self.allowed(now, segments);
        // The core would hold back even what says that the connection is closed, where data waits behind a full window.
        self.gate.set_open(allowed.is_ok() || self.closed);
        let mut buffer = outbox.buffer();
        self.gate.take_asked();
        let transmit = self
            .proto
            .poll_transmit(now, allowed.unwrap_or(PROBES_MAX), &mut buffer);
        self.gate.set_open(false);
        let counts = self.gate.take_asked();
        let Some(transmit) = transmit else {
            outbox.return_buffer(buffer);
            return if counts {
                Written::Blocked
            } else {
                Written::Nothing
            };
        };
        if let Some(cap) = &mut self.cap {
            cap.spend(now, mtu, transmit.size);
        }
        self.trains_sent += 1;
        let train = translate::train(&transmit, self.profile.uses_ecn(), buffer);
        self.keep_said(&train);
        outbox.push(train);
        if !counts {
            return Written::Packets(0);
        }
        self.pacer
            .spend(now, self.gate.allowance().bytes_per_second, transmit.size);
        Written::Packets(
            transmit
                .segment_size
                .map_or(1, |size| transmit.size.div_ceil(size)),
        )
    }

    /// There was nothing to send: where it could have gone, the path is not what limits the rate.
    fn note_idle(&mut self, now: Instant) {
        self.idle += 1;
        if self.allowed(now, 1).is_ok() {
            self.gate.set_idle();
        }
    }

    /// One train with this load is about to leave, or has just left.
    fn note_load(&mut self, load: Load) {
        let value = match load {
            Load::Streams => 0.0,
            Load::Datagrams => 1.0,
        };
        self.datagram_share += (value - self.datagram_share) / LOAD_TRAINS;
        self.gate.set_carries_datagrams(self.datagram_share > 0.5);
    }
}

/// Trains over which it is averaged what the load is.
const LOAD_TRAINS: f32 = 16.0;

/// Packets that may go while congestion control lets none go: acknowledgements and probes, which it does not count.
const PROBES_MAX: usize = 2;

/// Bytes of a DATAGRAM frame besides its payload, as the core bounds them: type and an eight-byte length.
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
