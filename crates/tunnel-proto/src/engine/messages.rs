//! Bytes of streams: HTTP/3 control, requests and responses, and the content that the engine reads itself.

use std::time::Instant;

use bytes::Bytes;
use masque::{Code, Item, MessageError};
use quic::{ConnectionKey, Direction, Read, StreamError, StreamId};

use super::life::{Cause, Life};
use super::pacing::Paced;
use super::request::{Kind, Request, RequestId, Sending};
use super::{Action, Deliver, Engine, Role, masque_code, owned, quarter};
use crate::access::Way;
use crate::limits;

impl<R: Role> Engine<R> {
    pub(super) fn take_stream(
        &mut self,
        now: Instant,
        connection: ConnectionKey,
        stream: StreamId,
        deliver: &mut impl Deliver,
    ) {
        if stream.direction() == Direction::Bidirectional {
            R::request_stream_opened(&mut self.state, now, connection, stream);
        }
        self.read_stream(now, connection, stream, deliver);
    }

    pub(super) fn read_stream(
        &mut self,
        now: Instant,
        connection: ConnectionKey,
        stream: StreamId,
        deliver: &mut impl Deliver,
    ) {
        if stream.direction() == Direction::Unidirectional {
            return self.read_control(now, connection, stream);
        }
        let Some(id) =
            self.state
                .peer(connection)
                .and_then(|peer| peer.request(quarter(stream)))
                .filter(|id| {
                    self.state.requests.get(id.0).is_some_and(|request| {
                        !matches!(request.life, Life::Closing(_) | Life::Identifying(_))
                    })
                })
        else {
            return;
        };
        let is_body = self.state.requests.get(id.0).is_some_and(|request| {
            request.is_read_by_driver() && matches!(request.life, Life::Open(_) | Life::Opening(_))
        });
        if is_body {
            self.state.announce_body(id);
        } else {
            self.read_message(now, id, deliver);
        }
    }

    /// The peer's control and QPACK streams, and unknown ones (RFC 9114 section 6.2).
    fn read_control(&mut self, now: Instant, connection: ConnectionKey, stream: StreamId) {
        let number = u64::from(stream);
        loop {
            let read = self.endpoint.read(connection, stream, limits::STREAM_READ_BYTES);
            let Some(peer) = self.state.peer(connection) else {
                return;
            };
            let result = match read {
                Ok(Read::Data(bytes)) => peer.h3.handle_uni(number, &bytes),
                Ok(Read::Blocked) => break,
                Ok(Read::Finished) | Err(StreamError::Reset(_)) => {
                    let closed = peer.h3.handle_uni_closed(number);
                    if let Err(error) = closed {
                        self.state.broken.push((connection, error));
                    }
                    break;
                }
                Err(StreamError::Closed) => break,
            };
            match result {
                Ok(masque::UniDisposition::Continue) => {}
                Ok(masque::UniDisposition::Stop) => {
                    self.endpoint
                        .stop(connection, stream, masque_code(Code::StreamCreationError));
                    break;
                }
                Err(error) => {
                    self.state.broken.push((connection, error));
                    break;
                }
            }
        }
        while let Some(event) = self.state.peer(connection).and_then(|peer| peer.h3.poll_event()) {
            match event {
                masque::Event::Settings(_) => R::settings_received(self, now, connection),
                masque::Event::Goaway(first) => R::goaway_received(self, now, connection, first),
                masque::Event::HeldBack(held_back) => {
                    R::held_back(&mut self.state, now, connection, held_back);
                }
            }
        }
    }

    /// A request is judged whose stream was left alone meanwhile.
    pub(super) fn read_what_waited(&mut self, now: Instant, id: RequestId, deliver: &mut impl Deliver) {
        let is_read_here = |request: &Request| !request.is_read_by_driver() && request.life != Life::Ended;
        if self.state.requests.get(id.0).is_some_and(is_read_here) {
            self.read_message(now, id, deliver);
        }
    }

    /// Headers, and the capsules of UDP sessions.
    pub(super) fn read_message(&mut self, now: Instant, id: RequestId, deliver: &mut impl Deliver) {
        loop {
            let request = self.state.requests.get(id.0);
            if request.is_some_and(|request| !request.kind.handler().takes_content()) {
                return;
            }
            match self.next_item(id) {
                Ok(Next::Item(Item::Headers(list))) => {
                    R::headers_received(self, now, id, &list, deliver);
                }
                Ok(Next::Item(Item::Data(bytes))) => {
                    if let Err(error) = self.take_content(now, id, bytes, deliver) {
                        return self.fail(id, Failure::Message(error));
                    }
                }
                Ok(Next::Item(Item::Trailers(_))) => {}
                Ok(Next::Blocked) => return R::content_read(&mut self.state, now, id),
                Ok(Next::Finished) => return self.peer_finished(now, id),
                Err(error) => return self.fail(id, error),
            }
            // What follows the headers of a TCP forward is the driver's to read.
            match self.state.requests.get(id.0) {
                Some(request) if request.is_read_by_driver() => {
                    return self.state.announce_body(id);
                }
                Some(request) if !matches!(request.life, Life::Ended | Life::Identifying(_)) => {}
                _ => return,
            }
        }
    }

    /// Content of a request's stream that the engine reads itself.
    ///
    /// # Errors
    /// Content that breaks the rules of its kind costs the request.
    fn take_content(
        &mut self,
        now: Instant,
        id: RequestId,
        bytes: Bytes,
        deliver: &mut impl Deliver,
    ) -> Result<(), MessageError> {
        match self.state.requests.get(id.0).map(|request| &request.kind) {
            Some(Kind::Udp(_) | Kind::Moved(_)) => self.state.take_udp_content(now, id, bytes, deliver),
            Some(Kind::Ip(_)) => return self.take_capsules(now, id, bytes, deliver),
            Some(Kind::Bound(_)) => return self.take_bind_capsules(now, id, bytes, deliver),
            Some(Kind::Service(_)) => self.take_service_content(now, id, bytes),
            Some(Kind::Undecided(_) | Kind::TokenCheck(_) | Kind::Tcp(_)) | None => {}
        }
        Ok(())
    }

    /// The next item of a request's stream.
    pub(super) fn next_item(&mut self, id: RequestId) -> Result<Next, Failure> {
        let Some(request) = self.state.requests.get_mut(id.0) else {
            return Err(Failure::Gone);
        };
        let Some(stream) = request.stream() else {
            return Err(Failure::Gone);
        };
        if request.peer_finished {
            return Ok(Next::Finished);
        }
        loop {
            if let Some(item) = request.reader.next(&mut request.input)? {
                return Ok(Next::Item(item));
            }
            match self
                .endpoint
                .read(stream.connection, stream.id, limits::STREAM_READ_BYTES)
            {
                Ok(Read::Data(bytes)) => request.input = bytes,
                Ok(Read::Blocked) => return Ok(Next::Blocked),
                Ok(Read::Finished) => {
                    request.reader.finish()?;
                    request.peer_finished = true;
                    return Ok(Next::Finished);
                }
                Err(StreamError::Reset(_)) => return Err(Failure::Reset),
                Err(StreamError::Closed) => return Err(Failure::Gone),
            }
        }
    }

    pub(super) fn fail(&mut self, id: RequestId, failure: Failure) {
        let Some(request) = self.state.requests.get(id.0) else {
            return;
        };
        if matches!(request.life, Life::Refused { .. }) {
            return;
        }
        let cause = match failure {
            Failure::Message(MessageError::Stream { code, .. }) => Cause::Reset(code),
            Failure::Message(MessageError::Connection(error)) => {
                if let Some(stream) = request.stream() {
                    self.state.broken.push((stream.connection, error));
                }
                Cause::StreamGone
            }
            Failure::Reset => Cause::Reset(Code::RequestCancelled),
            Failure::Gone => Cause::StreamGone,
        };
        self.end_for(id, cause);
    }

    /// The peer has ended its side of a message that the engine reads itself.
    fn peer_finished(&mut self, now: Instant, id: RequestId) {
        let Some(request) = self.state.requests.get(id.0) else {
            return;
        };
        if matches!(request.life, Life::Refused { .. }) {
            return;
        }
        if let Err(error) = request.kind.handler().check_end() {
            return self.fail(id, Failure::Message(error));
        }
        // A service may have more to say.
        if matches!(request.kind, Kind::Service(_)) {
            self.service_peer_finished(now, id);
        } else {
            self.end_for(id, Cause::Finished);
        }
    }

    /// The peer has acknowledged everything on a stream of ours, its end included.
    pub(super) fn stream_acknowledged(&mut self, connection: ConnectionKey, stream: StreamId) {
        let quarter = quarter(stream);
        let id = self.state.peer(connection).and_then(|peer| peer.request(quarter));
        let Some((id, request)) = id.and_then(|id| Some((id, self.state.requests.get_mut(id.0)?))) else {
            return;
        };
        request.sending = Sending::Acknowledged;
        if matches!(request.life, Life::Closing(_)) {
            // What the peer still says to a service is not read.
            let is_service = matches!(request.kind, Kind::Service(_));
            self.end_for(
                id,
                if is_service {
                    Cause::Finished
                } else {
                    Cause::StreamGone
                },
            );
        }
        self.end_finished_service(id);
    }

    /// Writes what waits for QUIC's credit. Whether the stream takes bytes.
    pub(super) fn pump(&mut self, id: RequestId) -> bool {
        let Some(request) = self.state.requests.get_mut(id.0) else {
            return false;
        };
        let Some(stream) = request.stream() else {
            return false;
        };
        let mut takes_bytes = true;
        while let Some(front) = request.output.front_mut() {
            match self.endpoint.write_bytes(stream.connection, stream.id, front) {
                Ok(_) if front.is_empty() => {
                    request.output.pop_front();
                }
                Ok(0) => return true,
                // Only a write that takes nothing is followed by an event.
                Ok(_) => {}
                Err(_) => {
                    // The peer's STOP_SENDING arrives as an event of its own, which decides what it means.
                    request.output.clear();
                    takes_bytes = false;
                }
            }
        }
        if request.sending == Sending::Finishing {
            self.endpoint.finish(stream.connection, stream.id);
        }
        takes_bytes
    }

    pub(super) fn resume_stream(
        &mut self,
        now: Instant,
        connection: ConnectionKey,
        stream: StreamId,
        deliver: &mut impl Deliver,
    ) {
        let Some(id) = self
            .state
            .peer(connection)
            .and_then(|peer| peer.request(quarter(stream)))
        else {
            return;
        };
        if !self.pump(id) {
            return;
        }
        let Some(request) = self.state.requests.get(id.0) else {
            return;
        };
        if !matches!(request.life, Life::Open(_)) || !request.output.is_empty() {
            return;
        }
        if request.is_read_by_driver() {
            if !self.state.is_paced(id, Way::ToClient, Paced::Write(id)) {
                self.state.actions.push_back(Action::BodyWritable { request: id });
            }
        } else {
            self.service_is_writable(now, id, deliver);
        }
    }

    /// STOP_SENDING: before the response it says nothing (RFC 9114 section 4.1); after it, the request is over.
    pub(super) fn stopped_stream(&mut self, connection: ConnectionKey, stream: StreamId) {
        let Some(peer) = self.state.peer(connection) else {
            return;
        };
        if stream.direction() == Direction::Unidirectional {
            if peer.own_streams.contains(&stream) {
                let error = masque::ConnectionError {
                    code: Code::ClosedCriticalStream,
                    reason: "a critical stream was stopped",
                };
                self.state.broken.push((connection, error));
            }
            return;
        }
        let Some(id) = peer.request(quarter(stream)) else {
            return;
        };
        if self.state.requests.get(id.0).is_some_and(|request| {
            matches!(request.life, Life::Open(_) | Life::Opening(_) | Life::Closing(_))
        }) {
            self.end_for(id, Cause::Reset(Code::RequestCancelled));
        }
    }

    pub(super) fn send_headers(&mut self, id: RequestId, list: &masque::HeaderList) {
        if let Some(request) = self.state.requests.get_mut(id.0) {
            request.output.push_back(owned(masque::headers_frame(list)));
        }
        self.pump(id);
    }
}

pub(super) enum Next {
    Item(Item),
    Blocked,
    Finished,
}

pub(super) enum Failure {
    Message(MessageError),
    Reset,
    Gone,
}

impl From<MessageError> for Failure {
    fn from(error: MessageError) -> Self {
        Self::Message(error)
    }
}
