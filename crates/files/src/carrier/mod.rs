//! What carries records of chunks: streams of the QUIC connection, or TCP connections with TLS beside it. All carry
//! the same records, in any order and distribution; each end of one belongs to a thread.

pub(crate) mod offer;
pub(crate) mod tcp;
pub(crate) mod tls;

use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, PoisonError, Weak};

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

    /// Sends a record. QUIC keeps the body until it has arrived; for TCP it is sealed where it lies.
    pub(crate) fn send(&mut self, header: &[u8], mut body: Buffer) -> io::Result<()> {
        match self {
            Self::Quic(stream) => {
                wait(stream.write_chunk(Bytes::copy_from_slice(header))).map_err(ended)?;
                wait(stream.write_chunk(Bytes::from_owner(body))).map_err(ended)
            }
            Self::Tcp(stream) => stream.write(header, &mut body),
        }
    }

    /// Whether the other end of a TCP connection is gone, which only who writes would learn otherwise. QUIC's streams
    /// end with the conversation.
    pub(crate) fn is_lost(&self) -> bool {
        match self {
            Self::Quic(_) => false,
            Self::Tcp(stream) => tcp::is_lost(stream.socket()),
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
    pub(crate) fn carrier(&self) -> Carrier {
        match self {
            Self::Quic(_) => Carrier::Quic,
            Self::Tcp(_) => Carrier::Tcp,
        }
    }

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

/// The TCP connections of a transfer, for the thread that ends those of others. It keeps none open: a connection ends
/// with the thread that works on it, and the other end learns that.
#[derive(Default)]
pub(crate) struct Sockets(Mutex<Open>);

#[derive(Default)]
struct Open {
    sockets: Vec<Weak<TcpStream>>,
    are_cut: bool,
}

impl Sockets {
    /// Remembers a connection; `false` where all have been cut.
    pub(crate) fn keep(&self, socket: &Arc<TcpStream>) -> bool {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.sockets.retain(|socket| socket.strong_count() > 0);
        open.sockets.push(Arc::downgrade(socket));
        !open.are_cut
    }

    /// Ends all connections.
    pub(crate) fn cut(&self) {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.are_cut = true;
        for socket in open.sockets.iter().filter_map(Weak::upgrade) {
            // It may have ended by itself.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn connections_are_cut_while_they_are_used_and_none_is_kept_open() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || {
            let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (Arc::new(ours), listener.accept().unwrap().0)
        };
        let sockets = Sockets::default();
        let (dropped, mut other_end) = connect();
        assert!(sockets.keep(&dropped));
        drop(dropped);
        assert_eq!(other_end.read(&mut [0]).unwrap(), 0, "the other end learns of it");
        let (used, mut other_end) = connect();
        assert!(sockets.keep(&used));
        assert_eq!(sockets.0.lock().unwrap().sockets.len(), 1);
        sockets.cut();
        assert_eq!(other_end.read(&mut [0]).unwrap(), 0);
        assert!(!sockets.keep(&connect().0), "it comes too late");
    }
}
