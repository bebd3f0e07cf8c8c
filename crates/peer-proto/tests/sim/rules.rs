//! A peer that breaks the rules of frames: its connection is closed with `PROTOCOL`, and what it may keep us to hold
//! is bounded.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use packet::{Ecn, Path};
use peer_proto::frame::{Frame, Head, Place, StreamHead};
use peer_proto::{CloseReason, Event, Outbox, Parameters, PeerKey, Peers, Received, code, limits};
use quic::{
    ConnectionKey, DatagramSource, Direction, Endpoint, EndpointParameters, PeerParameters, Receiver,
};
use sim::Clock;

use crate::world::{id, identity, parameters};

/// An end that sends what it is told.
struct Raw {
    quic: Endpoint,
    connection: ConnectionKey,
    outgoing: VecDeque<Bytes>,
    arrived: Vec<Bytes>,
}

struct Queue<'a>(&'a mut VecDeque<Bytes>);

impl DatagramSource for Queue<'_> {
    fn waits(&self, _: ConnectionKey) -> bool {
        !self.0.is_empty()
    }

    fn next_datagram(&mut self, _: ConnectionKey, _: usize, room: usize) -> Option<Bytes> {
        let fits = self.0.front().is_some_and(|front| front.len() <= room);
        if fits { self.0.pop_front() } else { None }
    }
}

struct Arrivals<'a>(&'a mut Vec<Bytes>);

impl Receiver for Arrivals<'_> {
    fn datagram(&mut self, _: ConnectionKey, payload: Bytes) {
        self.0.push(payload);
    }

    fn udp_payload_ceiling(&mut self, _: std::net::SocketAddr) -> u16 {
        1_452
    }
}

/// A raw end, connected to ours without delay.
struct Attack {
    clock: Clock,
    raw: Raw,
    ours: Peers,
    received: Vec<Received>,
    closed: Option<CloseReason>,
    /// The raw end, as ours knows it.
    peer: Option<PeerKey>,
    /// Codes with which ours stopped streams.
    stopped: Vec<u64>,
}

impl Attack {
    fn new() -> Self {
        Self::on(parameters(2))
    }

    fn on(ours: Parameters) -> Self {
        let clock = Clock::default();
        let mut quic = Endpoint::of_peers(
            &EndpointParameters::of_client([1; 32]),
            PeerParameters {
                stream_window_bytes: quic::limits::STREAM_WINDOW_BYTES,
                identity: identity(1),
                protocol: limits::PROTOCOL,
                token_key: [1; 64],
                idle_timeout: quic::limits::IDLE_TIMEOUT,
            },
        );
        let remote = "192.0.2.2:1".parse().unwrap();
        let connection = quic
            .connect_peer(clock.now(), remote, *id(2).as_bytes(), 1_452)
            .unwrap();
        let raw = Raw {
            quic,
            connection,
            outgoing: VecDeque::new(),
            arrived: Vec::new(),
        };
        let mut attack = Self {
            clock,
            raw,
            ours: Peers::new(ours),
            received: Vec::new(),
            closed: None,
            peer: None,
            stopped: Vec::new(),
        };
        attack.drive();
        attack
    }

    /// Lets a second pass.
    fn drive(&mut self) {
        let until = self.clock.now() + Duration::from_secs(1);
        while self.clock.now() < until {
            let now = self.clock.now();
            while self.exchange(now) {}
            let raw = self.raw.quic.poll_timeout().map(|(due, _)| due);
            let next = [raw, self.ours.poll_timeout()].into_iter().flatten().min();
            self.clock.advance_to(next.unwrap_or(until).min(until));
        }
    }

    fn exchange(&mut self, now: Instant) -> bool {
        let (mut of_raw, mut of_ours) = (Outbox::default(), Outbox::default());
        self.raw.quic.handle_timeout(now);
        self.ours.handle_timeout(now);
        self.raw.quic.mark_ready(self.raw.connection);
        self.raw
            .quic
            .flush(now, &mut Queue(&mut self.raw.outgoing), &mut of_raw);
        self.ours.flush(now, &mut of_ours);
        let path = |address: &str| Path {
            remote: address.parse().unwrap(),
            local: None,
        };
        let is_busy = !of_raw.is_empty() || !of_ours.is_empty();
        let mut answers = Outbox::default();
        for train in of_raw.trains() {
            let bytes = BytesMut::from(&train.bytes[..]);
            let path = path("192.0.2.1:1");
            self.ours
                .handle_received(now, path, Ecn::NotEct, bytes, train.segment_size, &mut answers);
        }
        for train in of_ours.trains() {
            let bytes = BytesMut::from(&train.bytes[..]);
            let (path, size) = (path("192.0.2.2:1"), train.segment_size);
            let mut arrivals = Arrivals(&mut self.raw.arrived);
            self.raw
                .quic
                .handle_received(now, path, Ecn::NotEct, bytes, size, &mut arrivals, &mut answers);
        }
        while let Some(event) = self.raw.quic.poll_event() {
            if let quic::Event::StreamStopped { code, .. } = event {
                self.stopped.push(code);
            }
        }
        while let Some(event) = self.ours.poll_event(now) {
            match event {
                Event::Received { peer } => {
                    while let Some(received) = self.ours.read_message(now, peer) {
                        self.received.push(received);
                    }
                }
                Event::Connected { peer, .. } => {
                    self.peer = Some(peer);
                    self.ours.accept(peer);
                }
                Event::Closed { peer, reason, .. } => {
                    self.closed = Some(reason);
                    while let Some(received) = self.ours.read_message(now, peer) {
                        self.received.push(received);
                    }
                }
                _ => {}
            }
        }
        is_busy
    }

    fn send(&mut self, frame: &Frame) {
        let mut bytes = BytesMut::new();
        frame.write(&mut bytes);
        self.raw.outgoing.push_back(bytes.freeze());
    }

    /// The credit of the last acknowledgement.
    fn credit(&self) -> u64 {
        let frames = self
            .raw
            .arrived
            .iter()
            .rev()
            .map(|bytes| Frame::read(bytes.clone()));
        let mut acks = frames.filter_map(|frame| match frame {
            Some(Frame::Ack(ack)) => Some(ack.credit),
            _ => None,
        });
        acks.next().unwrap_or(limits::FIRST_CREDIT)
    }

    fn send_stream(&mut self, bytes: &[u8], finishes: bool) {
        let (quic, connection) = (&mut self.raw.quic, self.raw.connection);
        let stream = quic.open_stream(connection, Direction::Unidirectional).unwrap();
        assert_eq!(quic.write(connection, stream, bytes), Ok(bytes.len()));
        if finishes {
            quic.finish(connection, stream);
        }
    }

    /// Why our end closed the connection.
    fn verdict(mut self) -> String {
        self.drive();
        match self.closed {
            Some(CloseReason::Protocol(text)) => {
                assert_eq!(self.ours.refusals().violations, 1, "it is counted");
                text
            }
            other => panic!("not closed for a rule: {other:?}"),
        }
    }
}

fn message(number: u64, head: Head) -> Frame {
    let body = Bytes::from_static(b"body");
    Frame::Message { number, head, body }
}

fn place(channel: u32, position: u64, distance: u64) -> Place {
    Place {
        channel,
        position,
        distance,
    }
}

fn stream(number: Option<u64>, length: u64, body: &[u8]) -> Vec<u8> {
    let head = Head::Unordered;
    let mut bytes = BytesMut::new();
    StreamHead { number, head, length }.write(&mut bytes);
    bytes.extend_from_slice(body);
    bytes.to_vec()
}

/// PEER-4, PEER-16.
#[test]
fn a_frame_that_cannot_be_read_closes_the_connection() {
    let mut attack = Attack::new();
    attack.raw.outgoing.push_back(Bytes::from_static(b"\x3f"));
    assert!(attack.verdict().contains("a frame that cannot be read"));
    assert_eq!(code::PROTOCOL, 0xff01);
}

/// PEER-12.
#[test]
fn a_number_beyond_the_credit_closes_the_connection() {
    let mut attack = Attack::new();
    attack.send(&message(63, Head::Unordered));
    attack.drive();
    assert_eq!(attack.received.len(), 1);
    attack.send(&message(1 << 20, Head::Unordered));
    assert!(attack.verdict().contains("beyond its credit"));
}

/// PEER-5, PEER-15.
#[test]
fn a_number_counts_once_in_frames_and_on_streams() {
    let mut attack = Attack::new();
    for _ in 0..3 {
        attack.send(&message(5, Head::Unordered));
    }
    attack.drive();
    attack.send_stream(&stream(Some(5), 4, b"body"), true);
    attack.send_stream(&stream(Some(6), 4, b"body"), true);
    attack.drive();
    attack.send(&message(6, Head::Unordered));
    attack.drive();
    assert_eq!((attack.received.len(), attack.closed), (2, None));
}

/// PEER-10.
#[test]
fn an_acknowledgement_of_what_was_not_sent_closes_the_connection() {
    let mut attack = Attack::new();
    attack.send(&Frame::Ack(peer_proto::frame::Ack {
        credit: 100,
        runs: vec![(0, 1)],
    }));
    assert!(attack.verdict().contains("that was not sent"));
}

/// PEER-6.
#[test]
fn too_many_channels_or_keys_close_the_connection() {
    let of_channel: fn(u32) -> Head = |channel| Head::Ordered(place(channel, 1, 0));
    let of_key: fn(u32) -> Head = |key| Head::Latest { key, version: 1 };
    for (head, count, word) in [(of_channel, 257, "channels"), (of_key, 4_097, "keys")] {
        let mut attack = Attack::new();
        for number in 0..count {
            attack.send(&message(number.into(), head(number)));
            if number % 50 == 49 {
                attack.drive();
            }
        }
        assert!(attack.verdict().contains(word));
    }
}

/// PEER-13.
#[test]
fn a_stream_that_is_no_message_closes_the_connection() {
    for (bytes, word) in [
        (vec![0x3f; 60], "no known type"),
        (stream(None, 10, b"short"), "ends before"),
        (stream(None, 3, b"longer"), "goes on"),
        (vec![], "ends before"),
    ] {
        let mut attack = Attack::new();
        attack.send_stream(&bytes, true);
        let verdict = attack.verdict();
        assert!(verdict.contains(word), "{verdict}");
    }
}

/// Sends messages that wait for the first of their channel until no credit is left; how many.
fn use_up_credit(attack: &mut Attack) -> u64 {
    let body = Bytes::from(vec![1; 1_100]);
    let mut number = 0;
    loop {
        let credit = attack.credit();
        if number == credit {
            return number;
        }
        for number in number..credit.min(number + 2_000) {
            let head = Head::Ordered(place(1, number + 2, 1));
            attack.send(&Frame::Message {
                number,
                head,
                body: body.clone(),
            });
        }
        number = credit.min(number + 2_000);
        attack.drive();
        attack.send(&Frame::Probe);
        attack.drive();
    }
}

/// PEER-7.
#[test]
fn what_came_behind_a_gap_is_read_when_the_connection_has_ended() {
    let mut attack = Attack::new();
    attack.send(&message(0, Head::Ordered(place(1, 3, 1))));
    attack.send(&message(1, Head::Ordered(place(1, 2, 1))));
    attack.drive();
    assert!(attack.received.is_empty());
    attack.send(&message(2, Head::Ordered(place(2, 1, 0))));
    attack.drive();
    let (now, connection) = (attack.clock.now(), attack.raw.connection);
    attack.raw.quic.close(now, connection, 0, b"");
    attack.drive();
    let received: Vec<_> = attack
        .received
        .iter()
        .map(|received| (received.order, received.is_behind_gap))
        .collect();
    let order = peer_proto::Order::Ordered;
    assert_eq!(received, [(order(2), false), (order(1), true), (order(1), true)]);
    assert_eq!(attack.ours.unread_bytes(), 0);
}

#[test]
fn memory_that_announced_messages_reserve_counts() {
    let mut attack = Attack::new();
    let connection = attack.raw.connection;
    let mut streams = Vec::new();
    // The first one brings room for the others.
    for count in [1, 29] {
        for _ in 0..count {
            let opened = attack.raw.quic.open_stream(connection, Direction::Unidirectional);
            let head = stream(None, 1 << 20, &[1; 100]);
            let written = attack.raw.quic.write(connection, opened.unwrap(), &head);
            assert_eq!(written, Ok(head.len()));
            streams.extend(opened);
        }
        attack.drive();
    }
    for stream in &streams {
        assert_eq!(attack.raw.quic.write(connection, *stream, &[1; 100]), Ok(100));
    }
    attack.drive();
    assert!(attack.ours.unread_bytes() > 30 * limits::RESERVE_BYTES_MAX / 2);
    let now = attack.clock.now();
    attack.raw.quic.close(now, connection, 0, b"");
    attack.drive();
    assert_eq!(attack.ours.unread_bytes(), 0);
}

/// PEER-8, PEER-12.
#[test]
fn a_skip_needs_no_credit_and_stays_within_the_window() {
    let mut attack = Attack::new();
    let count = use_up_credit(&mut attack);
    let place = place(1, 1, 0);
    attack.send(&Frame::Skip {
        number: count + 10,
        place,
    });
    attack.drive();
    // The last credit is for what the others wait for.
    let kept = count - limits::FIRST_CREDIT..=count;
    assert!(kept.contains(&(attack.received.len() as u64)) && attack.closed.is_none());
    attack.send(&Frame::Skip {
        number: 1 << 40,
        place,
    });
    assert!(attack.verdict().contains("beyond its window"));
}

/// PEER-7, PEER-12.
#[test]
fn messages_that_wait_for_ever_are_bounded_by_their_credit_and_the_connection_lives() {
    let mut attack = Attack::new();
    let number = use_up_credit(&mut attack);
    let (kept, of_one) = (attack.ours.unread_bytes(), 1_100 + limits::MESSAGE_COST_BYTES);
    assert!(
        number > 10_000 && kept <= limits::RECEIVE_BYTES_MAX + of_one,
        "{number} messages, {kept} bytes wait"
    );
    assert_eq!((attack.received.len(), &attack.closed), (0, &None));
    // The one that all wait for is taken all the same, as a repeat would be.
    attack.send(&message(number - 1, Head::Unordered));
    let body = b"body".to_vec();
    let head = Head::Ordered(place(1, 1, 0));
    let mut bytes = BytesMut::new();
    let first = StreamHead {
        number: None,
        head,
        length: 4,
    };
    first.write(&mut bytes);
    attack.send_stream(&[&bytes[..], &body].concat(), true);
    attack.drive();
    let kept = number - limits::FIRST_CREDIT..=number + 1;
    assert!(kept.contains(&(attack.received.len() as u64)));
}

/// PEER-14.
#[test]
fn the_place_of_a_message_that_is_too_long_is_skipped_without_a_word_of_its_sender() {
    let mut attack = Attack::on(Parameters {
        message_bytes_max: 100,
        ..parameters(2)
    });
    let body = Bytes::from(vec![1; 101]);
    let mut bytes = BytesMut::new();
    let head = StreamHead {
        number: None,
        head: Head::Ordered(place(1, 1, 0)),
        length: 101,
    };
    head.write(&mut bytes);
    attack.send_stream(&[&bytes[..], &body].concat(), true);
    attack.send(&Frame::Message {
        number: 0,
        head: Head::Ordered(place(1, 2, 1)),
        body,
    });
    attack.send(&message(1, Head::Ordered(place(1, 3, 1))));
    attack.drive();
    let bodies: Vec<_> = attack
        .received
        .iter()
        .map(|received| &received.body[..])
        .collect();
    assert_eq!((bodies, attack.closed), (vec![&b"body"[..]], None));
}

#[test]
fn a_head_in_pieces_counts_no_longer_than_it_is_kept() {
    let mut attack = Attack::new();
    let (bytes, connection) = (stream(None, 300, &[1; 300]), attack.raw.connection);
    let stream = attack.raw.quic.open_stream(connection, Direction::Unidirectional);
    for piece in [&bytes[..2], &bytes[2..3], &bytes[3..]] {
        let written = attack.raw.quic.write(connection, stream.unwrap(), piece);
        assert_eq!(written, Ok(piece.len()));
        attack.drive();
    }
    attack.raw.quic.finish(connection, stream.unwrap());
    // Ours checks its count when the last stream is gone.
    attack.drive();
    assert_eq!(attack.received.len(), 1);
}

/// PEER-11.
#[test]
fn a_probe_and_a_repeat_are_acknowledged_at_once() {
    let mut attack = Attack::new();
    attack.send(&Frame::Probe);
    attack.send(&message(0, Head::Unordered));
    attack.drive();
    attack.send(&message(0, Head::Unordered));
    attack.drive();
    let acks: Vec<_> = attack
        .raw
        .arrived
        .iter()
        .map(|bytes| Frame::read(bytes.clone()))
        .collect();
    assert!(acks.len() >= 2, "{acks:?}");
    let Some(Some(Frame::Ack(last))) = acks.last() else {
        panic!("{acks:?}");
    };
    assert_eq!(last.runs, [(0, 1)]);
}

/// Begins a message whose end is not sent; its stream.
fn begin(attack: &mut Attack, head: Head, length: u64, sent: usize) -> quic::StreamId {
    let mut bytes = BytesMut::new();
    let number = None;
    StreamHead { number, head, length }.write(&mut bytes);
    bytes.resize(bytes.len() + sent, 1);
    let connection = attack.raw.connection;
    let stream = attack.raw.quic.open_stream(connection, Direction::Unidirectional);
    let (stream, mut written) = (stream.unwrap(), 0);
    // More credit comes once some of the first is used.
    while written < bytes.len() {
        written += attack
            .raw
            .quic
            .write(connection, stream, &bytes[written..])
            .unwrap();
        attack.drive();
    }
    stream
}

/// PEER-21.
#[test]
fn messages_that_stand_still_are_refused_where_room_is_short_and_slow_ones_go_on() {
    const LENGTH: u64 = 1 << 20;
    let mut attack = Attack::on(Parameters {
        receive_bytes_max: 1 << 20,
        ..parameters(2)
    });
    let looks = 3 * limits::STALLED_TIME.as_secs();
    begin(&mut attack, Head::Ordered(place(1, 1, 0)), LENGTH, 100_000);
    attack.send(&message(0, Head::Ordered(place(1, 2, 1))));
    for _ in 0..looks {
        attack.drive();
    }
    assert!(attack.stopped.is_empty(), "there is room");
    assert!(attack.ours.unread_bytes() > 100_000);

    let per_second = limits::STALLED_BYTES / limits::STALLED_TIME.as_secs() as usize + 1_000;
    let total = per_second * (1 + looks as usize);
    let slow = begin(&mut attack, Head::Unordered, total as u64, per_second);
    for _ in 0..2 {
        begin(&mut attack, Head::Unordered, LENGTH, 100_000);
    }
    assert!(attack.ours.unread_bytes() > 1 << 19, "room is short");
    let connection = attack.raw.connection;
    for _ in 0..looks {
        let piece = vec![1; per_second];
        assert_eq!(attack.raw.quic.write(connection, slow, &piece), Ok(per_second));
        attack.drive();
    }
    // The oldest go, which another message waits for, and no more than make room.
    assert_eq!(attack.stopped, [u64::from(code::STALLED); 2]);
    attack.raw.quic.finish(connection, slow);
    attack.drive();
    let lengths: Vec<usize> = attack
        .received
        .iter()
        .map(|received| received.body.len())
        .collect();
    assert_eq!((lengths, &attack.closed), (vec![4, total], &None));
    let received = attack.ours.path_stats(attack.peer.unwrap()).unwrap().received;
    assert_eq!((received.stalled, received.received), (2, 2));
    let kept = attack.ours.unread_bytes();
    assert!(kept > 100_000 && kept <= 1 << 19, "the youngest is there: {kept}");
}

/// PEER-21.
#[test]
fn messages_that_stand_still_are_kept_while_their_sender_has_no_credit_for_them_because_nobody_reads() {
    const LENGTH: u64 = 1 << 20;
    let mut attack = Attack::on(Parameters {
        receive_bytes_max: 1 << 20,
        ..parameters(2)
    });
    for _ in 0..3 {
        begin(&mut attack, Head::Unordered, LENGTH, 100_000);
    }
    assert!(attack.ours.unread_bytes() > 1 << 19, "room is short");
    let connection = attack.raw.connection;
    let streams = [(); 2].map(|()| {
        let quic = &mut attack.raw.quic;
        quic.open_stream(connection, Direction::Bidirectional).unwrap()
    });
    let piece = vec![1; 1 << 20];
    let mut sent = 0;
    loop {
        let before = sent;
        for stream in streams {
            sent += attack.raw.quic.write(connection, stream, &piece).unwrap();
        }
        attack.drive();
        if sent == before {
            break;
        }
    }
    assert!(sent > 28 << 20, "they took all the credit: {sent}");
    let looks = 3 * limits::STALLED_TIME.as_secs();
    for _ in 0..looks {
        attack.drive();
    }
    assert!(attack.stopped.is_empty(), "{:?}", attack.stopped);

    let (peer, now) = (attack.peer.unwrap(), attack.clock.now());
    for stream in streams {
        while matches!(
            attack.ours.read(peer, stream, usize::MAX),
            Ok(quic::Read::Data(_))
        ) {}
    }
    attack.ours.handle_timeout(now);
    for _ in 0..looks {
        attack.drive();
    }
    assert!(
        !attack.stopped.is_empty(),
        "the sender has credit, and uses none of it"
    );
}

/// PEER-21: what QUIC may keep is told in vain here, but there is nothing that the program has not read.
#[test]
fn messages_that_stand_still_are_not_kept_for_streams_that_were_given_up_unread() {
    let mut attack = Attack::on(Parameters {
        receive_bytes_max: 1 << 20,
        ..parameters(2)
    });
    let (connection, peer) = (attack.raw.connection, attack.peer.unwrap());
    let piece = vec![1; 1 << 20];
    for _ in 0..3 {
        let opened = attack.raw.quic.open_stream(connection, Direction::Bidirectional);
        let (stream, mut sent) = (opened.unwrap(), 0);
        while sent < 10 << 20 {
            sent += attack.raw.quic.write(connection, stream, &piece).unwrap();
            attack.drive();
        }
        attack.raw.quic.reset(connection, stream, 0);
        attack.drive();
        assert!(attack.ours.read(peer, stream, usize::MAX).is_err());
    }
    let stays = attack.raw.quic.open_stream(connection, Direction::Bidirectional);
    let stays = stays.unwrap();
    assert_eq!(attack.raw.quic.write(connection, stays, b"1"), Ok(1));
    attack.drive();
    let read = attack.ours.read(peer, stays, usize::MAX);
    assert_eq!(read, Ok(quic::Read::Data(Bytes::from_static(b"1"))));
    let read = attack.ours.read(peer, stays, usize::MAX);
    assert_eq!(read, Ok(quic::Read::Blocked));
    for _ in 0..3 {
        begin(&mut attack, Head::Unordered, 1 << 20, 100_000);
    }
    for _ in 0..3 * limits::STALLED_TIME.as_secs() {
        attack.drive();
    }
    assert!(!attack.stopped.is_empty(), "room is short");
}
