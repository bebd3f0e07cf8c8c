//! Streams in the program's hands.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use peer_proto::{PeerKey, Read, StreamError, StreamId};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::code::of_program;
use crate::handle::Handle;
use crate::shared::State;
use crate::wakers::{Wait, Wakers, change, until, until_changed};

/// Our side of a stream. Dropped unfinished, it is finished.
pub struct SendStream {
    handle: Arc<Handle>,
    stream: StreamId,
    is_over: bool,
    is_reset: bool,
    /// Of `AsyncWrite`.
    wait: Wait,
}

impl SendStream {
    pub(crate) fn new(handle: Arc<Handle>, stream: StreamId) -> Self {
        let mut state = handle.shared().lock();
        if let Some(face) = state.faces.get_mut(&handle.key) {
            face.writers.entry(stream).or_default();
        }
        drop(state);
        Self {
            handle,
            stream,
            is_over: false,
            is_reset: false,
            wait: Wait::default(),
        }
    }

    /// Sends all bytes of `chunk` without copying them.
    ///
    /// # Errors
    /// [`StreamError`] where the peer stopped the stream, or the connection has ended.
    ///
    /// # Cancellation
    /// Dropped while it waits, it has sent some of the bytes, and nothing tells how many: where the stream goes on
    /// after that, use [`Self::write_from`].
    pub async fn write_chunk(&mut self, mut chunk: Bytes) -> Result<(), StreamError> {
        self.write_from(&mut chunk).await
    }

    /// Sends all bytes of `chunk` without copying them, and takes them away from it: it is empty in the end.
    ///
    /// # Errors
    /// As of [`Self::write_chunk`].
    ///
    /// # Cancellation
    /// Dropped while it waits, it has left in `chunk` what is not sent. Another call goes on with that.
    pub async fn write_from(&mut self, chunk: &mut Bytes) -> Result<(), StreamError> {
        while !chunk.is_empty() {
            let wakers = writers(self.handle.key, self.stream);
            until_changed(self.handle.shared(), wakers, |state, _| self.write(state, chunk)).await?;
        }
        Ok(())
    }

    fn write(&self, state: &mut State, chunk: &mut Bytes) -> Poll<Result<usize, StreamError>> {
        if let Some(code) = self.stop_code(state) {
            return Poll::Ready(Err(StreamError::Reset(code)));
        }
        match state.peers.write(self.handle.key, self.stream, chunk) {
            Ok(0) => Poll::Pending,
            other => Poll::Ready(other),
        }
    }

    fn stop_code(&self, state: &State) -> Option<u64> {
        let face = state.faces.get(&self.handle.key)?;
        face.stopped.get(&self.stream).copied()
    }

    /// Ends the stream after what was written.
    pub fn finish(&mut self) {
        if !std::mem::replace(&mut self.is_over, true) {
            let key = self.handle.key;
            self.handle
                .shared()
                .change(|state, _| state.peers.finish(key, self.stream));
        }
    }

    /// Waits until the peer has everything, after [`Self::finish`].
    ///
    /// # Errors
    /// [`StreamError`] where the peer stopped the stream, or the connection has ended first.
    ///
    /// # Cancellation
    /// The stream is finished, and the next call waits on.
    pub async fn finished(&mut self) -> Result<(), StreamError> {
        self.finish();
        match self.stopped().await? {
            Some(code) => Err(StreamError::Reset(code)),
            None => Ok(()),
        }
    }

    /// Waits until the peer wants no more of the stream: the code with which it stopped the stream
    /// ([`ReceiveStream::stop`]), or `None` where the stream was finished and the peer has everything. A program that
    /// produces costly bytes learns by it that it need not.
    ///
    /// # Errors
    /// [`StreamError::Closed`] where the connection has ended first, or after [`Self::reset`].
    ///
    /// # Cancellation
    /// Nothing is lost.
    pub async fn stopped(&self) -> Result<Option<u64>, StreamError> {
        let wakers = writers(self.handle.key, self.stream);
        until(self.handle.shared(), wakers, |state| {
            if let Some(code) = self.stop_code(state) {
                return Poll::Ready(Ok(Some(code)));
            }
            if self.is_reset {
                return Poll::Ready(Err(StreamError::Closed));
            }
            match state.faces.get(&self.handle.key) {
                Some(face) if face.finished.contains(&self.stream) => Poll::Ready(Ok(None)),
                Some(face) if face.closed.is_none() => Poll::Pending,
                _ => Poll::Ready(Err(StreamError::Closed)),
            }
        })
        .await
    }

    /// Abandons the stream with a code of at most [`crate::code::PROGRAM_MAX`] (a greater one is sent as that): what
    /// the peer has not read is lost.
    pub fn reset(&mut self, code: u64) {
        (self.is_over, self.is_reset) = (true, true);
        let key = self.handle.key;
        self.handle
            .shared()
            .change(|state, _| state.peers.reset(key, self.stream, of_program(code)));
    }

    /// From here on bytes leave before those of streams with a lower priority.
    pub fn set_priority(&self, priority: u8) {
        let key = self.handle.key;
        self.handle
            .shared()
            .change(|state, _| state.peers.set_priority(key, self.stream, priority));
    }
}

impl Drop for SendStream {
    fn drop(&mut self) {
        self.finish();
        let mut state = self.handle.shared().lock();
        let waiting = state.faces.get_mut(&self.handle.key).map(|face| {
            face.stopped.remove(&self.stream);
            face.finished.remove(&self.stream);
            face.writers.remove(&self.stream)
        });
        drop(state);
        // A waker may be the last that keeps a task, and another connection with it.
        drop(waiting);
    }
}

impl fmt::Debug for SendStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SendStream")
            .field("peer", &self.handle.id)
            .field("stream", &self.stream)
            .finish_non_exhaustive()
    }
}

impl AsyncWrite for SendStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        if data.is_empty() {
            return Poll::Ready(Ok(0));
        }
        // QUIC keeps what it takes until it is acknowledged.
        let mut chunk = Bytes::copy_from_slice(&data[..data.len().min(COPIED_BYTES_MAX)]);
        let mut wait = std::mem::take(&mut self.wait);
        let written = change(
            self.handle.shared(),
            writers(self.handle.key, self.stream),
            &mut wait,
            context,
            |state, _| self.write(state, &mut chunk),
        );
        self.wait = wait;
        written.map_err(into_io)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.finish();
        Poll::Ready(Ok(()))
    }
}

/// Bytes that one `poll_write` copies at most: what is not taken was copied in vain.
const COPIED_BYTES_MAX: usize = 64 << 10;

/// The peer's side of a stream. Dropped before its end, it is stopped with code 0. A stream that has come whole can be
/// read also after the connection has ended. One that was cut short gives the same error to every further read, so that
/// its end is not taken for the whole.
pub struct ReceiveStream {
    handle: Arc<Handle>,
    stream: StreamId,
    /// What every further read tells: the end, or what cut the stream short.
    end: Option<Result<(), StreamError>>,
    /// Of `AsyncRead`.
    wait: Wait,
}

impl ReceiveStream {
    pub(crate) fn new(handle: Arc<Handle>, stream: StreamId) -> Self {
        let mut state = handle.shared().lock();
        if let Some(face) = state.faces.get_mut(&handle.key) {
            face.readers.entry(stream).or_default();
        }
        drop(state);
        Self {
            handle,
            stream,
            end: None,
            wait: Wait::default(),
        }
    }

    /// The next bytes, at most `length_max`, without a copy; `None` at the end, and after [`Self::stop`].
    ///
    /// # Errors
    /// [`StreamError`] where the peer reset the stream, or the connection has ended before its end came; the same each
    /// time.
    ///
    /// # Cancellation
    /// Dropped while it waits, it has taken no bytes.
    pub async fn read_chunk(&mut self, length_max: usize) -> Result<Option<Bytes>, StreamError> {
        if let Some(end) = self.end {
            return end.map(|()| None);
        }
        let wakers = readers(self.handle.key, self.stream);
        let read = until_changed(self.handle.shared(), wakers, |state, _| {
            self.read(state, length_max)
        })
        .await;
        self.note_end(&read);
        read
    }

    fn read(&self, state: &mut State, length_max: usize) -> Poll<Result<Option<Bytes>, StreamError>> {
        match state.peers.read(self.handle.key, self.stream, length_max) {
            Ok(Read::Data(bytes)) => Poll::Ready(Ok(Some(bytes))),
            Ok(Read::Finished) => Poll::Ready(Ok(None)),
            Ok(Read::Blocked) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn note_end(&mut self, read: &Result<Option<Bytes>, StreamError>) {
        self.end = match read {
            Ok(None) => Some(Ok(())),
            Err(error) => Some(Err(*error)),
            Ok(Some(_)) => None,
        };
    }

    /// Tells the peer to send no more, with a code of at most [`crate::code::PROGRAM_MAX`] (a greater one is sent as
    /// that).
    pub fn stop(&mut self, code: u64) {
        if self.end.is_none() {
            self.end = Some(Ok(()));
            let key = self.handle.key;
            self.handle
                .shared()
                .change(|state, _| state.peers.stop(key, self.stream, of_program(code)));
        }
    }
}

impl Drop for ReceiveStream {
    fn drop(&mut self) {
        self.stop(0);
        let mut state = self.handle.shared().lock();
        let waiting = state
            .faces
            .get_mut(&self.handle.key)
            .map(|face| face.readers.remove(&self.stream));
        drop(state);
        // As of a stream of ours.
        drop(waiting);
    }
}

impl fmt::Debug for ReceiveStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ReceiveStream")
            .field("peer", &self.handle.id)
            .field("stream", &self.stream)
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}

impl AsyncRead for ReceiveStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let read = match self.end {
            Some(end) => end.map(|()| None),
            None => {
                let mut wait = std::mem::take(&mut self.wait);
                let read = change(
                    self.handle.shared(),
                    readers(self.handle.key, self.stream),
                    &mut wait,
                    context,
                    |state, _| self.read(state, buffer.remaining()),
                );
                self.wait = wait;
                ready!(read)
            }
        };
        self.note_end(&read);
        if let Some(chunk) = read.map_err(into_io)? {
            buffer.put_slice(&chunk);
        }
        Poll::Ready(Ok(()))
    }
}

/// Finds those who wait to write to a stream, or for its end.
fn writers(peer: PeerKey, stream: StreamId) -> impl Fn(&mut State) -> Option<&mut Wakers> {
    move |state| Some(state.faces.get_mut(&peer)?.writers.entry(stream).or_default())
}

/// Finds those who wait to read from a stream.
fn readers(peer: PeerKey, stream: StreamId) -> impl Fn(&mut State) -> Option<&mut Wakers> {
    move |state| Some(state.faces.get_mut(&peer)?.readers.entry(stream).or_default())
}

pub(crate) fn into_io(error: StreamError) -> io::Error {
    let kind = match error {
        StreamError::Reset(_) => io::ErrorKind::ConnectionReset,
        StreamError::Closed => io::ErrorKind::NotConnected,
    };
    io::Error::new(kind, error)
}
