//! Our direction: windows, sequence numbers, and what stands in each segment.

use std::time::Instant;

use packet::{Ecn, segments};

use super::{Connection, State};
use crate::headers::{Fields, Headers};
use crate::lengths;
use crate::limits::{LENGTH_BYTES, PACKET_BYTES_MAX, PATH_MTU_TIME, TAG_BYTES};
use crate::profile::{Profile, SynKind};
use crate::segment::{Flags, HEADER_BYTES};
use crate::sequence::Sequence;
use crate::stack::Refused;

/// A segment without data that a connection wants to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Syn,
    SynAck,
    Ack,
    /// An ACK with our salt (FTCP-24).
    Hello,
    /// FIN, again where it was sent before.
    Fin,
    /// A keep-alive: one byte behind, so that the peer answers (RFC 9293 section 3.8.4).
    Probe,
    /// RST with this sequence number.
    Reset(Sequence),
}

impl Connection {
    /// Bytes of the IP header.
    pub(crate) fn ip_bytes(&self) -> usize {
        if self.tuple.local.is_ipv4() { 20 } else { 40 }
    }

    /// Longest datagram that fits a segment.
    pub(crate) fn datagram_bytes_max(&self, now: Instant) -> usize {
        self.segment_bytes_max(now).saturating_sub(self.frame_bytes())
    }

    /// Bytes by which a datagram grows.
    pub(crate) fn frame_bytes(&self) -> usize {
        LENGTH_BYTES * usize::from(self.lengths.writes) + TAG_BYTES * usize::from(self.seal.is_some())
    }

    /// Puts datagrams into frames. Nothing leaves in clear that is to be sealed.
    fn frame(&mut self, payload: &[u8], segment_size: usize, framed: &mut Vec<u8>) -> Result<(), Refused> {
        for datagram in segments(payload, segment_size) {
            let tag_bytes = TAG_BYTES * usize::from(self.seal.is_some());
            if self.lengths.writes {
                lengths::write(datagram.len() + tag_bytes, framed);
            }
            let covered = self.covered(self.send.next.plus(framed.len() as u32));
            let Some(seal) = &mut self.seal else {
                framed.extend(datagram);
                continue;
            };
            if !seal.seal(covered, datagram, framed) {
                return Err(Refused::NotConnected);
            }
        }
        Ok(())
    }

    fn segment_bytes_max(&self, now: Instant) -> usize {
        let headers = self.ip_bytes() + HEADER_BYTES;
        let path = self.send.path_mtu.filter(|(_, until)| now < *until);
        let by_path = path.map(|(mtu, _)| usize::from(mtu) - headers);
        let by_peer = self.send.announced.mss.map(usize::from);
        let own = usize::from(self.send.mss);
        [by_path, by_peer].into_iter().flatten().fold(own, usize::min)
    }

    /// A probe, where so much is in flight that the window should be heard of (FTCP-11). In front of it an ACK, where
    /// no room is left for a train: nothing else says where we are if all that fills the window was lost.
    pub(crate) fn probe_window(&mut self, now: Instant) -> &'static [Reply] {
        let (in_flight, window) = (self.in_flight(), self.send.window);
        let fills = in_flight > window / 2 && self.settings.profile.probes();
        if self.state != State::Established || !fills || !self.timing.may_probe_window(now) {
            return &[];
        }
        match in_flight + PACKET_BYTES_MAX as u32 > window {
            true => &[Reply::Ack, Reply::Probe],
            false => &[Reply::Probe],
        }
    }

    /// Headers for a train of datagrams; its bytes count as sent. What is put into `framed` leaves instead of it.
    pub(crate) fn send(
        &mut self,
        now: Instant,
        payload: &[u8],
        segment_size: usize,
        ecn: Ecn,
        framed: &mut Vec<u8>,
    ) -> Result<Headers, Refused> {
        if self.state != State::Established {
            return Err(Refused::NotConnected);
        }
        let segment_size = match segment_size {
            0 => payload.len(),
            size => size.min(payload.len()),
        };
        let segment_bytes_max = self.datagram_bytes_max(now);
        if segment_size == 0 {
            return Err(Refused::Empty);
        }
        if segment_size > segment_bytes_max {
            return Err(Refused::TooLarge { segment_bytes_max });
        }
        let frame_bytes = self.frame_bytes();
        let payload_len = payload.len() + frame_bytes * payload.len().div_ceil(segment_size);
        if self.ip_bytes() + HEADER_BYTES + payload_len > PACKET_BYTES_MAX {
            return Err(Refused::TooLong);
        }
        let in_flight = self.in_flight();
        if in_flight + payload_len as u32 > self.send.window {
            return Err(Refused::WindowFull);
        }
        if frame_bytes > 0 {
            self.frame(payload, segment_size, framed)?;
        }
        let segment_size = segment_size + frame_bytes;
        let flags = match self.settings.profile {
            // As at the end of what an application wrote; bulk data has few ends.
            Profile::Linux if in_flight == 0 => Flags::ACK.and(Flags::PSH),
            _ => Flags::ACK,
        };
        let mut fields = self.fields(flags, self.send.next, &[]);
        fields.ecn = ecn;
        let headers = Headers::write(&fields, payload_len, segment_size);
        self.acknowledged_now();
        self.send.packets = (self.send.packets).wrapping_add(payload_len.div_ceil(segment_size) as u16);
        self.send.next = self.send.next.plus(payload_len as u32);
        self.timing.used(now);
        self.timing.unacknowledged_since.get_or_insert(now);
        Ok(headers)
    }

    /// The last train, of so many bytes, does not leave. With a key its place is not sealed again (FTCP-25): a part of
    /// it may have left all the same.
    pub(crate) fn take_back(&mut self, payload_len: usize) {
        if self.seal.is_none() && self.state == State::Established && payload_len <= self.in_flight() as usize
        {
            self.send.next = self.send.next.plus((payload_len as u32).wrapping_neg());
        }
    }

    /// Writes a segment without data.
    pub(crate) fn write(&mut self, reply: Reply) -> Headers {
        let (initial, next) = (self.send.initial, self.send.next);
        let profile = self.settings.profile;
        let headers = match reply {
            Reply::Syn => {
                let timestamp = self.send.timestamp;
                let options = profile.syn_options(self.send.mss, SynKind::Request { timestamp });
                let mut fields = self.fields(Flags::SYN, initial, options.as_slice());
                fields.acknowledgement = Sequence(0);
                fields.window = profile.syn_window_field(false);
                Headers::write(&fields, 0, 0)
            }
            Reply::SynAck => {
                let offered = self.receive.offered;
                let kind = SynKind::Answer {
                    sack: offered.sack_permitted,
                    scaled: offered.window_scale.is_some(),
                };
                let options = profile.syn_options(self.send.mss, kind);
                let mut fields = self.fields(Flags::SYN.and(Flags::ACK), initial, options.as_slice());
                fields.window = profile.syn_window_field(true);
                Headers::write(&fields, 0, 0)
            }
            Reply::Ack => self.control(Flags::ACK, next),
            Reply::Hello => {
                let hello = self.seal.as_ref().map(|seal| seal.hello(self.is_passive));
                let option = hello.unwrap_or_default().option();
                Headers::write(&self.fields(Flags::ACK, next, option.as_slice()), 0, 0)
            }
            Reply::Fin => self.control(Flags::FIN.and(Flags::ACK), next.plus(u32::MAX)),
            Reply::Probe => self.control(Flags::ACK, self.send.acknowledged.plus(u32::MAX)),
            Reply::Reset(sequence) => {
                let option = self.proof(Flags::RST, sequence, Sequence(0)).option();
                let mut fields = self.fields(Flags::RST, sequence, option.as_slice());
                (fields.acknowledgement, fields.window) = (Sequence(0), 0);
                Headers::write(&fields, 0, 0)
            }
        };
        if !matches!(reply, Reply::Syn | Reply::Reset(_)) {
            self.acknowledged_now();
        }
        self.send.packets = self.send.packets.wrapping_add(1);
        headers
    }

    fn control(&mut self, flags: Flags, sequence: Sequence) -> Headers {
        let option = self.proof(flags, sequence, self.receive.next).option();
        Headers::write(&self.fields(flags, sequence, option.as_slice()), 0, 0)
    }

    /// A router told the MTU of the path for a packet with this sequence number; `true` where it is believed and new
    /// (FTCP-18).
    pub(crate) fn limit_path_mtu(&mut self, now: Instant, mtu: u16, sequence: Sequence) -> bool {
        let least = if self.tuple.local.is_ipv4() { 576 } else { 1_280 };
        let mtu = mtu.max(least);
        let is_in_flight =
            sequence.since(self.send.acknowledged) < self.in_flight() || sequence == self.send.acknowledged;
        let headers = self.ip_bytes() + HEADER_BYTES;
        if self.state != State::Established
            || !is_in_flight
            || usize::from(mtu) - headers >= self.segment_bytes_max(now)
        {
            return false;
        }
        self.send.path_mtu = Some((mtu, now + PATH_MTU_TIME));
        true
    }

    /// Sent bytes that are not acknowledged.
    pub(super) fn in_flight(&self) -> u32 {
        self.send.next.since(self.send.acknowledged)
    }

    /// An acknowledgement of all that came leaves.
    fn acknowledged_now(&mut self) {
        self.receive.acknowledged = self.receive.next;
        self.timing.acknowledge = None;
    }

    fn fields<'a>(&self, flags: Flags, sequence: Sequence, options: &'a [u8]) -> Fields<'a> {
        Fields {
            tuple: self.tuple,
            sequence,
            acknowledgement: self.receive.next,
            flags,
            window: self.lengths.window(),
            ip_id: (self.send.label as u16).wrapping_add(self.send.packets),
            flow_label: self.send.label >> 12,
            ecn: Ecn::NotEct,
            options,
        }
    }
}
