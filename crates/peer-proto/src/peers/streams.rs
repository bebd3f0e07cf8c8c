//! The streams of peers: those of messages, and the program's.

use std::time::Instant;

use bytes::{Bytes, BytesMut};
use quic::{ConnectionKey, Direction, Read, StreamError, StreamId};

use super::{PeerKey, Peers, code};
use crate::event::Event;
use crate::frame::PROGRAM_STREAM;
use crate::limits::STREAM_HEAD_BYTES_MAX;
use crate::receiver::{Receiver, Violation};

impl Peers {
    fn connection(&mut self, peer: PeerKey) -> Result<ConnectionKey, StreamError> {
        let connection = self.peer(peer).and_then(|peer| peer.connection());
        connection.ok_or(StreamError::Closed)
    }

    /// Opens a stream, whose bytes leave before those of streams with a lower priority; `None` while the peer allows
    /// no more ([`Event::StreamsAvailable`] follows), or where there is no connection.
    pub fn open_stream(&mut self, peer: PeerKey, direction: Direction, priority: u8) -> Option<StreamId> {
        let connection = self.connection(peer).ok()?;
        let stream = self.quic.open_stream(connection, direction)?;
        self.quic.set_priority(connection, stream, priority.into());
        match direction {
            Direction::Bidirectional => self.peer(peer)?.inbound.opened(stream),
            Direction::Unidirectional => {
                self.peer(peer)?.untyped.insert(stream, false);
                self.write_type(connection, peer.index(), stream);
            }
        }
        Some(stream)
    }

    /// Writes the type of the program's unidirectional stream, where it is not there yet; whether it is there.
    fn write_type(&mut self, connection: ConnectionKey, index: usize, stream: StreamId) -> bool {
        let Some(peer) = self.peers[index].as_deref_mut() else {
            return false;
        };
        let Some(is_finished) = peer.untyped.get(&stream).copied() else {
            return true;
        };
        if !matches!(
            self.quic.write_ahead(connection, stream, &[PROGRAM_STREAM]),
            Ok(1)
        ) {
            return false;
        }
        peer.untyped.remove(&stream);
        if is_finished {
            self.quic.finish(connection, stream);
        }
        true
    }

    /// Writes to a stream without a copy: what is taken is cut off `data`. How many bytes, zero where it is blocked
    /// ([`Event::StreamWritable`] follows).
    ///
    /// # Errors
    /// [`StreamError`] where the peer stopped it or it is gone.
    pub fn write(&mut self, peer: PeerKey, stream: StreamId, data: &mut Bytes) -> Result<usize, StreamError> {
        let connection = self.connection(peer)?;
        if !self.write_type(connection, peer.index(), stream) {
            return Ok(0);
        }
        self.quic.write_bytes(connection, stream, data)
    }

    /// Ends our side of a stream after what was written.
    pub fn finish(&mut self, peer: PeerKey, stream: StreamId) {
        let Ok(connection) = self.connection(peer) else {
            return;
        };
        match self.peer(peer).and_then(|peer| peer.untyped.get_mut(&stream)) {
            Some(is_finished) => *is_finished = true,
            None => self.quic.finish(connection, stream),
        }
    }

    /// Changes the priority of a stream.
    pub fn set_priority(&mut self, peer: PeerKey, stream: StreamId, priority: u8) {
        if let Ok(connection) = self.connection(peer) {
            self.quic.set_priority(connection, stream, priority.into());
        }
    }

    /// Abandons our side of a stream with a code below 0xff00.
    pub fn reset(&mut self, peer: PeerKey, stream: StreamId, code: u32) {
        if let Ok(connection) = self.connection(peer) {
            if let Some(entry) = self.peer(peer) {
                entry.untyped.remove(&stream);
            }
            self.quic.reset(connection, stream, code);
        }
    }

    /// Tells the peer to stop sending on a stream, with a code below 0xff00.
    pub fn stop(&mut self, peer: PeerKey, stream: StreamId, code: u32) {
        if let Ok(connection) = self.connection(peer) {
            self.quic.stop(connection, stream, code);
        }
        if let Some(entry) = self.peer(peer) {
            entry.inbound.forget(stream);
            self.recount(peer.index());
            self.remove_if_read(peer.index());
        }
    }

    /// Reads up to `length_max` bytes from a stream: after the end of the connection from those that had come whole.
    ///
    /// # Errors
    /// [`StreamError`] where the peer reset it or it is gone.
    pub fn read(&mut self, peer: PeerKey, stream: StreamId, length_max: usize) -> Result<Read, StreamError> {
        let entry = self.peer(peer).ok_or(StreamError::Closed)?;
        let Some(connection) = entry.connection() else {
            let read = entry.inbound.read_rest(stream, length_max);
            self.recount(peer.index());
            self.remove_if_read(peer.index());
            return read;
        };
        let read = self.quic.read(connection, stream, length_max);
        if !matches!(read, Ok(Read::Data(_)))
            && let Some(entry) = self.peer(peer)
        {
            match read {
                Ok(Read::Blocked) => entry.inbound.caught_up(stream),
                _ => entry.inbound.forget(stream),
            }
        }
        read
    }

    /// The peer opened a stream for the program.
    fn opened_for_program(&mut self, index: usize, stream: StreamId) {
        let peer = self.key(index);
        if let Some(entry) = self.peers[index].as_deref_mut() {
            entry.inbound.opened(stream);
            entry.inbound.came(stream);
        }
        self.events.push_back(Event::StreamOpened { peer, stream });
    }

    /// Gives messages their streams, as many as the peer allows, and resets those of messages that expired.
    pub(super) fn write_messages(&mut self, index: usize) {
        let Some(peer) = self.peers[index].as_deref_mut() else {
            return;
        };
        let Some(connection) = peer.connection() else {
            return;
        };
        let Some(sender) = peer.sender.get_mut() else {
            return;
        };
        while let Some(stream) = sender.poll_reset() {
            self.quic.reset(connection, stream, code::EXPIRED);
        }
        let mut begun = Vec::new();
        while let Some(message) = sender.peek_stream() {
            let Some(stream) = self.quic.open_stream(connection, Direction::Unidirectional) else {
                break;
            };
            self.quic
                .set_priority(connection, stream, message.priority.into());
            let mut head = BytesMut::with_capacity(STREAM_HEAD_BYTES_MAX);
            message.head.write(&mut head);
            sender.give_stream(message.id, head.freeze(), stream);
            begun.push(stream);
        }
        for stream in begun {
            self.write_message(connection, index, stream);
        }
    }

    /// Writes what QUIC takes of a message.
    fn write_message(&mut self, connection: ConnectionKey, index: usize, stream: StreamId) {
        let Some(peer) = self.peers[index].as_deref_mut() else {
            return;
        };
        let Some(parts) = peer.sender.get_mut().and_then(|sender| sender.parts_on(stream)) else {
            return;
        };
        for part in parts {
            // A stream that was stopped has an event of its own.
            while !part.is_empty() {
                if !matches!(self.quic.write_bytes(connection, stream, part), Ok(1..)) {
                    return;
                }
            }
        }
        self.quic.finish(connection, stream);
    }

    pub(super) fn stream_opened(&mut self, now: Instant, connection: ConnectionKey, stream: StreamId) {
        let Some(index) = self.index_of(connection) else {
            return;
        };
        match stream.direction() {
            Direction::Bidirectional => self.opened_for_program(index, stream),
            Direction::Unidirectional => {
                if let Some(peer) = self.peers[index].as_deref_mut() {
                    peer.incoming.opened(stream);
                }
                self.stream_readable(now, connection, stream);
            }
        }
    }

    pub(super) fn stream_readable(&mut self, now: Instant, connection: ConnectionKey, stream: StreamId) {
        let Some(index) = self.index_of(connection) else {
            return;
        };
        let key = self.key(index);
        let Some(peer) = self.peers[index].as_deref_mut() else {
            return;
        };
        if !peer.incoming.has(stream) {
            peer.inbound.came(stream);
            let event = Event::StreamReadable { peer: key, stream };
            return self.events.push_back(event);
        }
        let make = || Receiver::new(self.message_bytes_max, self.udp_payload_max);
        let receiver = self
            .bound
            .use_receiver(index, peer.is_accepted, &mut peer.receiver, make);
        let read = peer.incoming.read(&mut self.quic, connection, stream, receiver);
        match read {
            Ok(true) => self.opened_for_program(index, stream),
            Ok(false) => {}
            Err(violation) => self.condemn(now, index, violation),
        }
        self.recount(index);
        self.touch(index);
    }

    /// Reads streams that waited for room.
    pub(super) fn resume_incoming(&mut self, _now: Instant, index: usize) -> Result<(), Violation> {
        self.set_bound(index);
        let Some(peer) = self.peers[index].as_deref_mut() else {
            return Ok(());
        };
        let Some(connection) = peer.connection() else {
            return Ok(());
        };
        let Some(receiver) = peer.receiver.get_mut().filter(|_| peer.incoming.holds_back()) else {
            return Ok(());
        };
        let opened = peer.incoming.resume(&mut self.quic, connection, receiver);
        self.recount(index);
        for stream in opened? {
            self.opened_for_program(index, stream);
        }
        Ok(())
    }

    pub(super) fn stream_writable(&mut self, connection: ConnectionKey, stream: StreamId) {
        let Some(index) = self.index_of(connection) else {
            return;
        };
        let peer = self.key(index);
        let is_message = self.peers[index]
            .as_deref_mut()
            .and_then(|peer| peer.sender.get_mut())
            .is_some_and(|sender| sender.parts_on(stream).is_some());
        if is_message {
            self.write_message(connection, index, stream);
        } else if self.write_type(connection, index, stream) {
            self.events.push_back(Event::StreamWritable { peer, stream });
        }
    }

    pub(super) fn stream_stopped(&mut self, connection: ConnectionKey, stream: StreamId, code: u64) {
        let Some(index) = self.index_of(connection) else {
            return;
        };
        let key = self.key(index);
        let Some(peer) = self.peers[index].as_deref_mut() else {
            return;
        };
        // Only an end or a reset frees the stream (RFC 9000 section 3.5), and nobody would read more.
        let answer = u32::try_from(code).unwrap_or(u32::MAX);
        self.quic.reset(connection, stream, answer);
        if peer
            .sender
            .get_mut()
            .is_some_and(|sender| sender.stream_refused(stream))
        {
            self.touch(index);
        } else {
            peer.untyped.remove(&stream);
            self.events.push_back(Event::StreamStopped {
                peer: key,
                stream,
                code,
            });
        }
    }

    pub(super) fn stream_finished(&mut self, connection: ConnectionKey, stream: StreamId) {
        let Some(index) = self.index_of(connection) else {
            return;
        };
        let key = self.key(index);
        let Some(peer) = self.peers[index].as_deref_mut() else {
            return;
        };
        if peer
            .sender
            .get_mut()
            .is_some_and(|sender| sender.stream_finished(stream))
        {
            self.touch(index);
        } else {
            self.events.push_back(Event::StreamFinished { peer: key, stream });
        }
    }
}
