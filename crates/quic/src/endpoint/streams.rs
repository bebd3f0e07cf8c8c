//! Reading and writing the streams of an endpoint's connections.

use bytes::Bytes;
use quinn_proto::VarInt;

use super::Endpoint;
use crate::error::StreamError;
use crate::event::ConnectionKey;
use crate::limits;
use crate::stream::{Direction, Read, StreamId};
use crate::translate::{self, core_stream, written};

impl Endpoint {
    /// Opens a stream; `None` while the peer allows no more ([`crate::Event::StreamsAvailable`] follows).
    pub fn open_stream(&mut self, connection: ConnectionKey, direction: Direction) -> Option<StreamId> {
        let direction = translate::core_direction(direction);
        let entry = self.live(connection).filter(|entry| entry.is_tunnel())?;
        let stream = entry.proto.streams().open(direction)?;
        Some(translate::stream(stream))
    }

    /// Writes to a stream; how many bytes were taken, zero where it is blocked ([`crate::Event::StreamWritable`] follows).
    ///
    /// # Errors
    /// [`StreamError`] where the peer stopped it or it is gone.
    pub fn write(
        &mut self,
        connection: ConnectionKey,
        stream: StreamId,
        data: &[u8],
    ) -> Result<usize, StreamError> {
        let entry = self.live(connection).ok_or(StreamError::Closed)?;
        let written = written(entry.proto.send_stream(core_stream(stream)).write(data))?;
        if written > 0 {
            self.mark_ready(connection);
        }
        Ok(written)
    }

    /// The same for a few bytes that do not wait for other streams, whose bytes fill the window of what is unacknowledged.
    ///
    /// # Errors
    /// As [`Endpoint::write`].
    pub fn write_ahead(
        &mut self,
        connection: ConnectionKey,
        stream: StreamId,
        data: &[u8],
    ) -> Result<usize, StreamError> {
        let entry = self.live(connection).ok_or(StreamError::Closed)?;
        let window = u64::from(entry.stream_window);
        entry.proto.set_send_window(window + limits::WRITE_AHEAD_BYTES);
        let result = self.write(connection, stream, data);
        if let Some(entry) = self.live(connection) {
            entry.proto.set_send_window(window);
        }
        result
    }

    /// Like [`Endpoint::write`] without a copy; taken bytes are cut off `data`.
    ///
    /// # Errors
    /// [`StreamError`] where the peer stopped it or it is gone.
    pub fn write_bytes(
        &mut self,
        connection: ConnectionKey,
        stream: StreamId,
        data: &mut Bytes,
    ) -> Result<usize, StreamError> {
        let entry = self.live(connection).ok_or(StreamError::Closed)?;
        let result = entry
            .proto
            .send_stream(core_stream(stream))
            .write_chunks(std::slice::from_mut(data));
        let written = written(result.map(|written| written.bytes))?;
        if written > 0 {
            self.mark_ready(connection);
        }
        Ok(written)
    }

    /// Lets a stream's bytes leave before those of streams with a lower number, and after those with a higher one; 0 at
    /// first. A stream that is gone is left alone.
    pub fn set_priority(&mut self, connection: ConnectionKey, stream: StreamId, priority: i32) {
        if let Some(entry) = self.live(connection) {
            // A finished stream has nothing left to order.
            let _ = entry
                .proto
                .send_stream(core_stream(stream))
                .set_priority(priority);
        }
    }

    /// Ends our side of a stream after what was written; a stream that is gone is left alone.
    pub fn finish(&mut self, connection: ConnectionKey, stream: StreamId) {
        if let Some(entry) = self.live(connection) {
            // A stopped or finished stream has nothing left to end.
            let _ = entry.proto.send_stream(core_stream(stream)).finish();
            self.touch(connection.0);
        }
    }

    /// Abandons our side of a stream; a stream that is gone is left alone.
    pub fn reset(&mut self, connection: ConnectionKey, stream: StreamId, code: u32) {
        if let Some(entry) = self.live(connection) {
            let _ = entry
                .proto
                .send_stream(core_stream(stream))
                .reset(VarInt::from_u32(code));
            self.touch(connection.0);
        }
    }

    /// Tells the peer to stop sending on a stream; a stream that is gone is left alone.
    pub fn stop(&mut self, connection: ConnectionKey, stream: StreamId, code: u32) {
        if let Some(entry) = self.live(connection) {
            let _ = entry
                .proto
                .recv_stream(core_stream(stream))
                .stop(VarInt::from_u32(code));
            self.touch(connection.0);
        }
    }

    /// Whether the peer of a living connection may have used up all that it may send on streams, because what came of
    /// them is not read. Only among peers. It may be told in vain where streams were given up unread, and after
    /// gigabytes: heads of packets count among what came, because QUIC does not tell what it keeps.
    #[must_use]
    pub fn may_lack_credit(&self, connection: ConnectionKey) -> bool {
        let entry = self.connections.get(connection.0).and_then(Option::as_ref);
        entry.is_some_and(|entry| !entry.closed && entry.may_lack_credit())
    }

    /// Reads up to `length_max` bytes from a stream: also of a connection whose peer was admitted and that has ended,
    /// until the event after its [`crate::Event::Closed`] is asked for.
    ///
    /// # Errors
    /// [`StreamError`] where the peer reset it or it is gone.
    pub fn read(
        &mut self,
        connection: ConnectionKey,
        stream: StreamId,
        length_max: usize,
    ) -> Result<Read, StreamError> {
        let entry = self.connections.get_mut(connection.0).and_then(Option::as_mut);
        let entry = entry.ok_or(StreamError::Closed)?;
        let mut receive = entry.proto.recv_stream(core_stream(stream));
        let mut chunks = receive.read(true).map_err(|_| StreamError::Closed)?;
        let result = match chunks.next(length_max) {
            Ok(Some(chunk)) => Ok(Read::Data(chunk.bytes)),
            Ok(None) => Ok(Read::Finished),
            Err(quinn_proto::ReadError::Blocked) => Ok(Read::Blocked),
            Err(quinn_proto::ReadError::Reset(code)) => Err(StreamError::Reset(code.into_inner())),
        };
        let has_credit = chunks.finalize().should_transmit();
        if let Ok(Read::Data(bytes)) = &result {
            entry.unread.read(bytes.len());
        }
        if has_credit && !entry.closed {
            self.mark_ready(connection);
        }
        result
    }
}
