//! Local TCP connections that name their target themselves: sources of their own until they have done so, and once
//! more, to be told why, where they come to nothing.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Instant;

use bytes::{Buf, BytesMut};
use packet_io::Interest;
use tunnel_proto::{Negotiation, NotOpened, Progress, Target};

use super::opening::{LocalConnection, Negotiated};
use super::{Client, ClientSource};
use crate::driver::Shard;
use crate::driver::sources::SourceId;
use crate::limits;

/// A connection without a target.
pub(in crate::driver) struct Negotiating {
    pub(super) stream: TcpStream,
    pub(super) negotiation: Box<dyn Negotiation>,
    /// What the negotiation has not taken yet.
    received: BytesMut,
    /// What came in all.
    received_bytes: usize,
    /// What the program has not been sent yet.
    pub(super) answer: BytesMut,
}

/// What becomes of a connection without a target.
enum Step {
    Wait(Interest),
    Named(Target),
    /// The program wants a relay for datagrams.
    Associate,
    /// The negotiation has refused it.
    Refused,
    Failed(NotOpened),
    /// The program has gone away.
    Gone,
}

impl Negotiating {
    fn new(stream: TcpStream, negotiation: Box<dyn Negotiation>) -> Self {
        Self {
            stream,
            negotiation,
            received: BytesMut::new(),
            received_bytes: 0,
            answer: BytesMut::new(),
        }
    }

    /// Reads while the program takes the answers: so no more of them wait than one call of the negotiation gave.
    fn step(&mut self) -> Step {
        loop {
            match send(&self.stream, &mut self.answer) {
                Ok(true) => {}
                Ok(false) => return Step::Wait(Interest::WRITABLE),
                Err(_) => return Step::Gone,
            }
            let mut piece = [0; limits::NEGOTIATION_READ_BYTES];
            let room = limits::NEGOTIATION_BYTES_MAX - self.received_bytes;
            if room == 0 {
                return Step::Failed(NotOpened::TooLong);
            }
            let most = room.min(piece.len());
            match (&self.stream).read(&mut piece[..most]) {
                Ok(0) => return Step::Gone,
                Ok(read) => {
                    self.received_bytes += read;
                    self.received.extend_from_slice(&piece[..read]);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Step::Wait(Interest::READABLE);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return Step::Gone,
            }
            match self
                .negotiation
                .handle_received(&mut self.received, &mut self.answer)
            {
                Progress::Unfinished => {}
                Progress::Named(target) => return Step::Named(target),
                Progress::Associate => return Step::Associate,
                Progress::Refused => return Step::Refused,
            }
        }
    }

    fn named(self, target: Target) -> LocalConnection {
        LocalConnection {
            stream: self.stream,
            target,
            negotiated: Some(Negotiated {
                negotiation: self.negotiation,
                early: self.received,
                answer: self.answer,
            }),
        }
    }
}

/// A connection that comes to nothing: it is sent the rest of the answer, and closed when the program has closed it,
/// because a close before that would take the answer away.
pub(in crate::driver) struct Farewell {
    pub(super) stream: TcpStream,
    answer: BytesMut,
    is_sent: bool,
}

impl Farewell {
    /// What to wait for; `None` at the end.
    fn step(&mut self) -> Option<Interest> {
        if !self.is_sent {
            if !send(&self.stream, &mut self.answer).ok()? {
                return Some(Interest::WRITABLE);
            }
            self.stream.shutdown(Shutdown::Write).ok()?;
            self.is_sent = true;
        }
        discard(&self.stream).then_some(Interest::READABLE)
    }
}

/// Discards what a program sends that has nothing to say any more; whether it is still there.
pub(super) fn discard(mut stream: &TcpStream) -> bool {
    let mut piece = [0; limits::NEGOTIATION_READ_BYTES];
    for _ in 0..limits::FAREWELL_READS_PER_TURN {
        match stream.read(&mut piece) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
    true
}

/// Sends what the socket takes; whether that was all.
pub(super) fn send(stream: &TcpStream, answer: &mut BytesMut) -> io::Result<bool> {
    let mut stream = stream;
    while !answer.is_empty() {
        match stream.write(answer) {
            Ok(sent) => answer.advance(sent),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

impl Shard<Client> {
    /// Begins the negotiation of a connection, which has its place among the TCP connections.
    pub(super) fn negotiate(&mut self, now: Instant, stream: TcpStream, negotiation: Box<dyn Negotiation>) {
        // An answer must not wait for the acknowledgement of the one before.
        let _ = stream.set_nodelay(true);
        let source = ClientSource::Negotiating(Box::new(Negotiating::new(stream, negotiation)));
        let until = now + limits::NEGOTIATION_TIME_MAX;
        let poller = &self.io.poller;
        if self
            .sources
            .insert(poller, source, Interest::READABLE, Some(until))
            .is_err()
        {
            self.io.tcp.failed += 1;
            self.io.tcp_closed();
        }
    }

    pub(super) fn negotiation_ready(&mut self, now: Instant, id: SourceId) {
        let Some(ClientSource::Negotiating(negotiating)) = self.sources.get_mut(id) else {
            return;
        };
        match negotiating.step() {
            Step::Wait(interest) => {
                if self.sources.set_interest(&self.io.poller, id, interest).is_err() {
                    self.close_unnamed(id);
                }
            }
            Step::Named(target) => {
                if let Some(negotiating) = self.take_negotiating(id) {
                    self.connect(now, negotiating.named(target));
                }
            }
            Step::Associate => {
                if let Some(negotiating) = self.take_negotiating(id) {
                    self.associate(now, negotiating);
                }
            }
            Step::Refused => self.end_negotiation(now, id, None),
            Step::Failed(failure) => self.end_negotiation(now, id, Some(failure)),
            Step::Gone => self.close_unnamed(id),
        }
    }

    /// The program hears why it gets no connection.
    pub(super) fn end_negotiation(&mut self, now: Instant, id: SourceId, failure: Option<NotOpened>) {
        if let Some(negotiating) = self.take_negotiating(id) {
            self.fail_negotiation(now, negotiating, failure);
        }
    }

    pub(super) fn fail_negotiation(
        &mut self,
        now: Instant,
        mut negotiating: Negotiating,
        failure: Option<NotOpened>,
    ) {
        if let Some(failure) = failure {
            negotiating
                .negotiation
                .handle_failed(failure, &mut negotiating.answer);
        }
        self.io.tcp.failed += 1;
        self.say_farewell(now, negotiating.stream, negotiating.answer);
    }

    fn take_negotiating(&mut self, id: SourceId) -> Option<Negotiating> {
        match self.sources.remove(&self.io.poller, id)? {
            ClientSource::Negotiating(negotiating) => Some(*negotiating),
            _ => None,
        }
    }

    fn close_unnamed(&mut self, id: SourceId) {
        if self.take_negotiating(id).is_some() {
            self.io.tcp.failed += 1;
            self.io.tcp_closed();
        }
    }

    /// Closes a connection after what it is still to be sent.
    pub(super) fn say_farewell(&mut self, now: Instant, stream: TcpStream, answer: BytesMut) {
        let mut farewell = Farewell {
            stream,
            answer,
            is_sent: false,
        };
        let inserted = farewell.step().map(|interest| {
            let until = now + limits::FAREWELL_TIME_MAX;
            let source = ClientSource::Farewell(farewell);
            self.sources
                .insert(&self.io.poller, source, interest, Some(until))
        });
        // Without a slot the answer, which has been sent but for what a full socket holds back, has to do.
        if !matches!(inserted, Some(Ok(_))) {
            self.io.tcp_closed();
        }
    }

    pub(super) fn farewell_ready(&mut self, id: SourceId) {
        let Some(ClientSource::Farewell(farewell)) = self.sources.get_mut(id) else {
            return;
        };
        let next = farewell.step();
        let watched = next.map(|interest| self.sources.set_interest(&self.io.poller, id, interest));
        if !matches!(watched, Some(Ok(()))) {
            self.end_farewell(id);
        }
    }

    pub(super) fn end_farewell(&mut self, id: SourceId) {
        if self.sources.remove(&self.io.poller, id).is_some() {
            self.io.tcp_closed();
        }
    }
}
