//! What carries records of chunks: streams of the QUIC connection, or TCP connections with TLS beside it. All carry
//! the same records, in any order and distribution; each end of one belongs to a thread.

pub(crate) mod tcp;
pub(crate) mod tls;

use std::io;
use std::net::Shutdown;

use bytes::Bytes;
use peer::blocking::wait;
use peer::{ReceiveStream, SendStream, StreamError};

use crate::pool::Buffer;
use tls::{TlsReceiver, TlsSender};

/// By which protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Carrier {
    /// Streams of the connection that also carries the conversation.
    Quic,
    /// TCP connections with TLS 1.3.
    Tcp,
}

impl Carrier {
    /// Its name, for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Quic => "QUIC",
            Self::Tcp => "TCP",
        }
    }
}

/// The sending end of one.
pub(crate) enum RecordSender {
    Quic(SendStream),
    Tcp(Box<TlsSender>),
}

impl RecordSender {
    pub(crate) fn carrier(&self) -> Carrier {
        match self {
            Self::Quic(_) => Carrier::Quic,
            Self::Tcp(_) => Carrier::Tcp,
        }
    }

    /// Sends a record. QUIC keeps the body until it has arrived; TCP copies it.
    pub(crate) fn send(&mut self, header: &[u8], body: Buffer) -> io::Result<()> {
        match self {
            Self::Quic(stream) => {
                wait(stream.write_chunk(Bytes::copy_from_slice(header))).map_err(ended)?;
                wait(stream.write_chunk(Bytes::from_owner(body))).map_err(ended)
            }
            Self::Tcp(stream) => {
                stream.write(header)?;
                stream.write(&body)
            }
        }
    }

    /// Says that no record follows.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        match self {
            Self::Quic(stream) => {
                stream.finish();
                Ok(())
            }
            Self::Tcp(stream) => stream.finish(),
        }
    }
}

/// The receiving end of one.
pub(crate) enum RecordReceiver {
    Quic(ReceiveStream),
    Tcp(Box<TlsReceiver>),
}

impl RecordReceiver {
    /// Fills `bytes`; `false` where no byte follows.
    pub(crate) fn read(&mut self, bytes: &mut [u8]) -> io::Result<bool> {
        match self {
            Self::Quic(stream) => read_stream(stream, bytes),
            Self::Tcp(stream) => stream.read(bytes),
        }
    }
}

/// Fills `bytes` from a stream; `false` where it ends before the first.
pub(crate) fn read_stream(stream: &mut ReceiveStream, bytes: &mut [u8]) -> io::Result<bool> {
    let mut read = 0;
    while read < bytes.len() {
        match wait(stream.read_chunk(bytes.len() - read)).map_err(ended)? {
            Some(chunk) => {
                bytes[read..read + chunk.len()].copy_from_slice(&chunk);
                read += chunk.len();
            }
            None if read == 0 => return Ok(false),
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
    Ok(true)
}

pub(crate) fn ended(error: StreamError) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, error)
}

/// Ends a TCP connection of another thread.
pub(crate) fn cut(socket: &std::net::TcpStream) {
    // It may have ended by itself.
    let _ = socket.shutdown(Shutdown::Both);
}
