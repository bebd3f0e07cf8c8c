//! One visit: a hello in the shape of a client's, the server's first flight datagram by datagram, the end of the
//! handshake, a close. Sans-IO: datagrams and times are parameters.
//!
//! The first flight ends when the visitor sends its second: some time after the handshake was complete, or where a
//! server waits for acknowledgements.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use rustls::Side;
use rustls::pki_types::ServerName;
use rustls::quic::{ClientConnection, KeyChange, Version};

use super::keys::{Header, Level, close_frame, crypto_frame};
use super::observation::{End, Observation};
use super::stream::CryptoStream;
use super::tls::{self, ChainRecorder, Groups, Roots};
use super::{messages, retry, version_probe};
use crate::frames::{Frame, frames};
use crate::long_header::{Kind, LongPacket, Part, parts};
use crate::{initial, limits};

/// Bytes of hello in the first of two datagrams, each of which has [`DATAGRAM_BYTES`]: a browser's.
const HELLO_PART_BYTES: usize = 1_100;
const DATAGRAM_BYTES: usize = 1_250;

/// H3_NO_ERROR (RFC 9114 section 8.1).
const NO_ERROR: u64 = 0x100;

/// What is to happen at a time.
#[derive(Clone, Copy, Debug)]
enum Timer {
    /// The hello is sent again.
    Repeat,
    /// What came is acknowledged: the server may wait for that.
    Acknowledge,
    /// The second flight leaves, and the visit ends.
    Finish,
}

/// One visit.
pub struct Visit {
    tls: ClientConnection,
    chain: Arc<ChainRecorder>,
    first_id: [u8; 8],
    /// The server's ID, once it chose one.
    destination: Vec<u8>,
    token: Vec<u8>,
    hello: Vec<u8>,
    finished: Vec<u8>,
    initial: Level,
    handshake: Option<Level>,
    one_rtt: Option<Level>,
    streams: [CryptoStream; 2],
    /// What was read of each stream.
    read: [Vec<u8>; 2],
    /// Datagrams that came before their keys.
    held: Vec<Vec<u8>>,
    outbox: VecDeque<Vec<u8>>,
    hello_at: Instant,
    give_up_at: Instant,
    timer: Option<(Instant, Timer)>,
    repeats: u32,
    is_first_flight: bool,
    seen: Observation,
    has_ended: bool,
}

impl Visit {
    /// Begins one; `first_id` is drawn by the caller, at random.
    ///
    /// # Errors
    /// When the name is none.
    pub fn begin(
        name: &str,
        roots: &Roots,
        groups: Groups,
        first_id: [u8; 8],
        now: Instant,
    ) -> Result<Self, String> {
        let name = ServerName::try_from(name.to_owned()).map_err(|error| error.to_string())?;
        let chain = Arc::new(ChainRecorder::new(Arc::clone(&roots.0))?);
        let config = tls::client_config(Arc::clone(&chain), groups).map_err(|error| error.to_string())?;
        let mut tls = ClientConnection::new(Arc::new(config), Version::V1, name, tls::parameters())
            .map_err(|error| error.to_string())?;
        let mut hello = Vec::new();
        let _no_keys_yet = tls.write_hs(&mut hello);
        let mut visit = Self {
            tls,
            chain,
            first_id,
            destination: first_id.to_vec(),
            token: Vec::new(),
            hello,
            finished: Vec::new(),
            initial: Level::new(initial::keys(&first_id, Side::Client)),
            handshake: None,
            one_rtt: None,
            streams: Default::default(),
            read: Default::default(),
            held: Vec::new(),
            outbox: VecDeque::new(),
            hello_at: now,
            give_up_at: now + limits::VISIT_TIME_MAX,
            timer: None,
            repeats: 0,
            is_first_flight: true,
            seen: Observation::new(),
            has_ended: false,
        };
        visit.send_hello(now);
        Ok(visit)
    }

    /// The next datagram to send.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.outbox.pop_front()
    }

    /// When [`Self::handle_timeout`] wants to be called; `None` once the visit has ended.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let timer = self
            .timer
            .map_or(self.give_up_at, |(at, _)| at.min(self.give_up_at));
        (!self.has_ended).then_some(timer)
    }

    /// What was seen, once the visit has ended and everything was sent.
    #[must_use]
    pub fn observation(&self) -> Option<&Observation> {
        self.has_ended.then_some(&self.seen)
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.has_ended {
            return;
        }
        if now >= self.give_up_at {
            let end = if self.seen.id_bytes.is_some() {
                End::Incomplete
            } else {
                End::Silent
            };
            return self.end(end);
        }
        let Some((_, timer)) = self.timer.take_if(|(at, _)| *at <= now) else {
            return;
        };
        match timer {
            Timer::Repeat if self.repeats == limits::HELLO_REPEATS_MAX => self.end(End::Silent),
            Timer::Repeat => {
                self.repeats += 1;
                self.send_hello(now);
            }
            Timer::Acknowledge => self.acknowledge(),
            Timer::Finish => {
                self.finish();
                self.end(End::Complete);
            }
        }
    }

    /// A datagram came.
    pub fn handle_datagram(&mut self, datagram: &[u8], now: Instant) {
        if self.has_ended || datagram.is_empty() {
            return;
        }
        let is_first = self.seen.id_bytes.is_none();
        if is_first && version_probe::read_answer(datagram, self.first_id).is_some() {
            return self.end(End::OtherVersions);
        }
        self.seen.first_answer.get_or_insert(now - self.hello_at);
        if self.is_first_flight && self.seen.flight.len() < limits::FLIGHT_PACKETS_MAX {
            self.seen.flight.push(datagram.len());
        }
        self.read_datagram(datagram, now);
        if self.seen.id_bytes.is_none() {
            // Nothing that only the site can have sent: the hello may be lost.
            return;
        }
        self.timer = Some((now + limits::FLIGHT_QUIET, Timer::Acknowledge));
        if self.handshake.is_some() {
            for held in std::mem::take(&mut self.held) {
                self.read_datagram(&held, now);
            }
        }
        if !self.has_ended && !self.tls.is_handshaking() {
            self.timer = Some((now + limits::FLIGHT_SETTLED, Timer::Finish));
        }
    }

    fn read_datagram(&mut self, datagram: &[u8], now: Instant) {
        for part in parts(datagram) {
            let Part::Long(packet) = part else { continue };
            match packet.kind {
                Kind::Initial => self.read_packet(&packet, now),
                Kind::Handshake if self.handshake.is_some() => self.read_packet(&packet, now),
                Kind::Handshake if self.held.len() < limits::FLIGHT_PACKETS_MAX => {
                    self.held.push(packet.bytes.to_vec());
                }
                Kind::Retry => self.handle_retry(&packet, now),
                Kind::Handshake | Kind::ZeroRtt => {}
            }
        }
    }

    fn read_packet(&mut self, packet: &LongPacket<'_>, now: Instant) {
        let is_initial = packet.kind == Kind::Initial;
        let level = if is_initial {
            Some(&mut self.initial)
        } else {
            self.handshake.as_mut()
        };
        let Some((level, payload)) =
            level.and_then(|level| level.open(packet).map(|payload| (level, payload)))
        else {
            return;
        };
        level.owes_ack = true;
        if self.seen.id_bytes.is_none() {
            self.destination = packet.source_id.to_vec();
            self.seen.id_bytes = Some(packet.source_id.len());
        }
        let stream = usize::from(!is_initial);
        for frame in frames(&payload) {
            match frame {
                Ok(Frame::Crypto { offset, data }) => self.streams[stream].insert(offset, data),
                Ok(_) => {}
                Err(_) => return self.end(End::Closed(close_code(&payload))),
            }
        }
        self.read_stream(stream, now);
    }

    /// Gives TLS what follows without a gap.
    fn read_stream(&mut self, stream: usize, now: Instant) {
        let data = self.streams[stream].take();
        if data.is_empty() {
            return;
        }
        self.read[stream].extend_from_slice(&data);
        if stream == 0 && self.seen.hello.is_none() {
            self.seen.hello = messages::server_hello(&self.read[0]);
            if let Some(hello) = &self.seen.hello {
                self.seen.answer = Some(now - self.hello_at);
                if hello.is_retry {
                    return self.end(End::HelloRetry);
                }
            }
        } else if stream == 1 && self.seen.certificate.is_none() {
            self.seen.certificate = messages::certificate(&self.read[1]);
        }
        if let Err(error) = self.tls.read_hs(&data) {
            return self.end(End::Failed(error.to_string()));
        }
        self.take_keys();
    }

    /// Keys and messages that TLS has for the next level.
    fn take_keys(&mut self) {
        loop {
            let mut message = Vec::new();
            let change = self.tls.write_hs(&mut message);
            self.finished.extend_from_slice(&message);
            match change {
                Some(KeyChange::Handshake { keys }) => self.handshake = Some(Level::new(keys)),
                Some(KeyChange::OneRtt { keys, .. }) => self.one_rtt = Some(Level::new(keys)),
                None if message.is_empty() => return,
                None => {}
            }
        }
    }

    /// RFC 9000 section 17.2.5.2: one Retry is taken, before anything else was.
    fn handle_retry(&mut self, packet: &LongPacket<'_>, now: Instant) {
        let is_early = !self.seen.is_retry && self.seen.id_bytes.is_none();
        let Some(token) = retry::token(packet, &self.first_id).filter(|_| is_early) else {
            return;
        };
        self.token = token.to_vec();
        self.seen.is_retry = true;
        self.seen.first_answer = None;
        self.seen.flight.clear();
        self.destination = packet.source_id.to_vec();
        self.initial
            .replace_keys(initial::keys(&self.destination, Side::Client));
        self.send_hello(now);
    }

    fn send_hello(&mut self, now: Instant) {
        let hello = std::mem::take(&mut self.hello);
        for (index, part) in hello.chunks(HELLO_PART_BYTES).enumerate() {
            let frames = crypto_frame(index * HELLO_PART_BYTES, part);
            let header = Header::Initial { token: &self.token };
            let datagram = self
                .initial
                .seal(header, &self.destination, &frames, DATAGRAM_BYTES);
            self.outbox.push_back(datagram);
        }
        self.hello = hello;
        self.hello_at = now;
        self.timer = Some((now + limits::HELLO_REPEAT * (1 << self.repeats), Timer::Repeat));
    }

    /// Acknowledges what came, so that a server that may send no more goes on (RFC 9000 section 8.1).
    fn acknowledge(&mut self) {
        self.is_first_flight = false;
        let mut datagram = Vec::new();
        if let Some(level) = self.handshake.as_mut().filter(|level| level.owes_ack) {
            let frames = level.ack();
            datagram = level.seal(Header::Handshake, &self.destination, &frames, 0);
            level.owes_ack = false;
        }
        if self.initial.owes_ack {
            let frames = self.initial.ack();
            let header = Header::Initial { token: &self.token };
            // In front of the other packet, and large enough for both (RFC 9000 section 14.1).
            let bytes = DATAGRAM_BYTES.saturating_sub(datagram.len());
            let mut both = self.initial.seal(header, &self.destination, &frames, bytes);
            both.append(&mut datagram);
            datagram = both;
            self.initial.owes_ack = false;
        }
        if !datagram.is_empty() {
            self.outbox.push_back(datagram);
        }
    }

    /// The end of the handshake, and a close, in one datagram.
    fn finish(&mut self) {
        let (Some(handshake), Some(one_rtt)) = (&mut self.handshake, &mut self.one_rtt) else {
            return;
        };
        let frames = [handshake.ack(), crypto_frame(0, &self.finished)].concat();
        let mut datagram = handshake.seal(Header::Handshake, &self.destination, &frames, 0);
        datagram.extend(one_rtt.seal(Header::Short, &self.destination, &close_frame(NO_ERROR), 0));
        self.outbox.push_back(datagram);
    }

    fn end(&mut self, end: End) {
        self.has_ended = true;
        self.seen.end = end;
        self.seen.chain = self.chain.verdict.get().cloned();
        let parameters = self.tls.quic_transport_parameters().unwrap_or_default();
        (self.seen.idle_timeout_ms, self.seen.has_preferred_address) =
            messages::transport_parameters(parameters);
    }
}

/// The code of the CONNECTION_CLOSE that ends a payload which otherwise has frames of a handshake.
fn close_code(payload: &[u8]) -> Option<u64> {
    let is_close = |at: &usize| {
        matches!(payload[*at], 0x1c | 0x1d) && frames(&payload[..*at]).all(|frame| frame.is_ok())
    };
    let at = (0..payload.len()).find(is_close)?;
    packet::varint::read(&payload[at + 1..]).map(|(code, _)| code)
}

#[cfg(test)]
mod tests;
