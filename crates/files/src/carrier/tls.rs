//! Records over a TCP connection with TLS 1.3. The end that sends files is TLS's client, whichever end opened the
//! connection; both prove the key that they told over the control stream, which lives as long as the session.
//!
//! rustls makes the handshake; what follows is sealed and opened by its keys ([`protection`]): each byte is written
//! from where it was read from the file, and opened from where the socket brought it to where it is checked.

mod protection;

use std::io::{self, IoSlice, Read, Write};
use std::iter;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedStatus};
use rustls::{ClientConfig, ServerConfig};

use crate::limits::{TCP_SETUP_TIME_MAX, TLS_READ_BYTES, TLS_WRITE_BYTES};
use protection::{CONTENT_BYTES_MAX, Edges, Opened, Opening, Record, Sealing, refused};

/// Application protocol of both (RFC 7301).
pub(crate) const PROTOCOL: &[u8] = b"gramway-files";

/// Records of one write.
const RECORDS_AT_ONCE: usize = TLS_WRITE_BYTES / CONTENT_BYTES_MAX;

/// Bytes of a handshake message of either end: raw keys, no chains.
const HANDSHAKE_BYTES_MAX: usize = 16 << 10;

/// The sending end.
pub(crate) struct TlsSender {
    socket: Arc<TcpStream>,
    sealing: Sealing,
}

impl TlsSender {
    /// Completes the handshake on a connection.
    pub(crate) fn new(socket: Arc<TcpStream>, config: Arc<ClientConfig>) -> io::Result<Self> {
        let deadline = Instant::now() + TCP_SETUP_TIME_MAX;
        let name = ServerName::try_from("peer").map_err(io::Error::other)?;
        let mut tls = UnbufferedClientConnection::new(config, name).map_err(refused)?;
        let mut message = [0; HANDSHAKE_BYTES_MAX];
        let mut incoming = Incoming::new(HANDSHAKE_BYTES_MAX);
        let mut length = 0;
        loop {
            let UnbufferedStatus { discard, state } = tls.process_tls_records(incoming.received());
            let waits = match state.map_err(refused)? {
                ConnectionState::EncodeTlsData(mut data) => {
                    length += data.encode(&mut message[length..]).map_err(too_long)?;
                    false
                }
                ConnectionState::TransmitTlsData(data) => {
                    (&*socket).write_all(&message[..length])?;
                    length = 0;
                    data.done();
                    false
                }
                ConnectionState::BlockedHandshake => true,
                ConnectionState::WriteTraffic(_) => break,
                _ => return Err(io::ErrorKind::ConnectionAborted.into()),
            };
            incoming.discard(discard);
            if waits {
                wait_until(deadline, &socket)?;
                incoming.fill(&socket)?;
            }
        }
        let (secrets, connection) = tls.dangerous_into_kernel_connection().map_err(refused)?;
        let sealing = Sealing::new(connection, secrets.tx)?;
        Ok(Self { socket, sealing })
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Sends `head` and all of `body`, which is sealed where it lies: nobody can read it there any more.
    pub(crate) fn write(&mut self, head: &[u8], body: &mut [u8]) -> io::Result<()> {
        let mut head = head.to_vec();
        let pieces = [&mut head[..], body].into_iter();
        let mut contents = pieces
            .flat_map(|piece| piece.chunks_mut(CONTENT_BYTES_MAX))
            .peekable();
        while contents.peek().is_some() {
            self.write_records(contents.by_ref().take(RECORDS_AT_ONCE))?;
        }
        Ok(())
    }

    /// Sends contents, at most [`RECORDS_AT_ONCE`], as a record each.
    fn write_records<'a>(&mut self, contents: impl Iterator<Item = &'a mut [u8]>) -> io::Result<()> {
        let renewal = self.sealing.make_room(RECORDS_AT_ONCE)?;
        let seal = |content: &'a mut [u8]| Ok((self.sealing.seal(content)?, &*content));
        let records: Vec<(Edges, &[u8])> = contents.map(seal).collect::<io::Result<_>>()?;
        let parts = records
            .iter()
            .flat_map(|(edges, content)| [&edges.header[..], content, &edges.tail]);
        let mut parts: Vec<IoSlice<'_>> = iter::once(&renewal[..]).chain(parts).map(IoSlice::new).collect();
        write_all(&self.socket, &mut parts)
    }

    /// Says that nothing follows.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        (&*self.socket).write_all(&self.sealing.close()?)
    }
}

/// Writes all parts, one behind the other.
fn write_all(mut socket: &TcpStream, mut parts: &mut [IoSlice<'_>]) -> io::Result<()> {
    // Leaves out empty ones before the first that is not.
    IoSlice::advance_slices(&mut parts, 0);
    while !parts.is_empty() {
        match socket.write_vectored(parts) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(length) => IoSlice::advance_slices(&mut parts, length),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The receiving end.
pub(crate) struct TlsReceiver {
    socket: Arc<TcpStream>,
    opening: Opening,
    incoming: Incoming,
    /// Opened bytes that nobody has asked for yet: the rest of a record.
    opened: Vec<u8>,
    opened_read: usize,
    /// Whether the sender has said that nothing follows, which is told once.
    has_ended: bool,
}

impl TlsReceiver {
    /// Completes the handshake on a connection.
    pub(crate) fn new(socket: Arc<TcpStream>, config: Arc<ServerConfig>) -> io::Result<Self> {
        // In all: a stranger may send a byte now and then.
        let deadline = Instant::now() + TCP_SETUP_TIME_MAX;
        let mut tls = UnbufferedServerConnection::new(config).map_err(refused)?;
        let mut incoming = Incoming::new(TLS_READ_BYTES);
        let (mut opened, mut has_ended) = (Vec::new(), false);
        let mut is_complete = false;
        while !is_complete {
            let UnbufferedStatus { mut discard, state } = tls.process_tls_records(incoming.received());
            let mut waits = false;
            match state.map_err(refused)? {
                ConnectionState::EncodeTlsData(mut data) => {
                    let mut message = [0; HANDSHAKE_BYTES_MAX];
                    let length = data.encode(&mut message).map_err(too_long)?;
                    (&*socket).write_all(&message[..length])?;
                }
                ConnectionState::TransmitTlsData(data) => data.done(),
                ConnectionState::BlockedHandshake => waits = true,
                // What came right behind the handshake.
                ConnectionState::ReadTraffic(mut traffic) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record.map_err(refused)?;
                        discard += record.discard;
                        opened.extend_from_slice(record.payload);
                    }
                }
                ConnectionState::PeerClosed | ConnectionState::Closed => has_ended = true,
                // The other end has proved its key.
                ConnectionState::WriteTraffic(_) => is_complete = true,
                _ => return Err(io::ErrorKind::ConnectionAborted.into()),
            }
            incoming.discard(discard);
            if waits {
                wait_until(deadline, &socket)?;
                incoming.fill(&socket)?;
            }
        }
        socket.set_read_timeout(None)?;
        let (secrets, connection) = tls.dangerous_into_kernel_connection().map_err(refused)?;
        Ok(Self {
            socket,
            opening: Opening::new(connection, secrets.rx)?,
            incoming,
            opened,
            opened_read: 0,
            has_ended,
        })
    }

    /// Fills `bytes`; `false` where the sender said before their first one that nothing follows.
    pub(crate) fn read(&mut self, bytes: &mut [u8]) -> io::Result<bool> {
        let mut read = 0;
        while read < bytes.len() {
            let left = &self.opened[self.opened_read..];
            if !left.is_empty() {
                let length = left.len().min(bytes.len() - read);
                bytes[read..read + length].copy_from_slice(&left[..length]);
                self.opened_read += length;
                read += length;
            } else if !self.has_ended {
                read += self.turn(&mut bytes[read..])?;
            } else if read == 0 {
                return Ok(false);
            } else {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(true)
    }

    /// Opens the next record, or waits for more of it; so many bytes of it are at the beginning of `bytes`.
    fn turn(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let Some(record) = Record::split(self.incoming.received())? else {
            self.incoming.fill(&self.socket)?;
            return Ok(0);
        };
        let length = record.opened_bytes();
        let fits = length <= bytes.len();
        let space = if fits {
            &mut bytes[..length]
        } else {
            self.opened.resize(length, 0);
            &mut self.opened[..]
        };
        let opened = match self.opening.open(&record, space) {
            Ok(opened) => opened,
            Err(error) => {
                // Nobody has sent what lies there now.
                self.opened.clear();
                self.opened_read = 0;
                return Err(error);
            }
        };
        let whole = record.bytes();
        self.incoming.discard(whole);
        let content = match opened {
            Opened::Content(length) => length,
            Opened::End => {
                self.has_ended = true;
                0
            }
        };
        if fits {
            return Ok(content);
        }
        self.opened.truncate(content);
        self.opened_read = 0;
        Ok(0)
    }
}

/// The next read ends by then.
fn wait_until(deadline: Instant, socket: &TcpStream) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    socket.set_read_timeout(Some(left))
}

/// Bytes as they came from the socket.
struct Incoming {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Incoming {
    fn new(length: usize) -> Self {
        Self {
            buffer: vec![0; length].into_boxed_slice(),
            start: 0,
            end: 0,
        }
    }

    fn received(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.end]
    }

    fn discard(&mut self, length: usize) {
        self.start += length;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Reads more, at least one byte.
    fn fill(&mut self, mut socket: &TcpStream) -> io::Result<()> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.buffer.len() {
            // No record is so long.
            return Err(io::ErrorKind::InvalidData.into());
        }
        loop {
            match socket.read(&mut self.buffer[self.end..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => {
                    self.end += length;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn too_long(error: EncodeError) -> io::Error {
    io::Error::other(error)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use quic::{KeyIdentity, records};
    use rustls::{ClientConnection, ServerConnection, StreamOwned};

    use super::*;

    fn identity(seed: u8) -> KeyIdentity {
        KeyIdentity::from_seed(&[seed; 32])
    }

    /// A connection, its sending end with key 1 and its receiving one with key 2; each knows the other by this key.
    pub(super) fn pair(
        sender_knows: u8,
        receiver_knows: u8,
    ) -> (io::Result<TlsSender>, io::Result<TlsReceiver>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let sender = thread::spawn(move || {
            let known = identity(sender_knows).public_key();
            let config = records::connecting(&identity(1), PROTOCOL, known);
            TlsSender::new(Arc::new(TcpStream::connect(address).unwrap()), config)
        });
        let known = identity(receiver_knows).public_key();
        let config = records::accepting(&identity(2), PROTOCOL, known);
        let receiver = TlsReceiver::new(Arc::new(listener.accept().unwrap().0), config);
        (sender.join().unwrap(), receiver)
    }

    #[test]
    fn bytes_come_as_they_were_sent_whatever_pieces_are_written_and_read() {
        let (sender, receiver) = pair(2, 1);
        let (mut sender, mut receiver) = (sender.unwrap(), receiver.unwrap());
        let lengths = [1, 60, 1 << 20, 16_384, 16_385, 131_073, 7];
        let byte = |index: usize| (index * 31 + index / 251) as u8;
        let total: usize = lengths.iter().sum();
        let writer = thread::spawn(move || {
            let mut bytes: Vec<u8> = (0..total).map(byte).collect();
            let mut left = &mut bytes[..];
            for length in lengths {
                let (now, later) = left.split_at_mut(length);
                sender.write(&[], now).unwrap();
                left = later;
            }
            sender.finish().unwrap();
            sender
        });
        let mut received = vec![0; total];
        let mut left = &mut received[..];
        for length in [3, 100_000, 16_384, 900_000].into_iter().cycle() {
            let (now, later) = left.split_at_mut(length.min(left.len()));
            assert!(receiver.read(now).unwrap());
            left = later;
            if left.is_empty() {
                break;
            }
        }
        assert!(
            received
                .iter()
                .enumerate()
                .all(|(index, byte_there)| *byte_there == byte(index))
        );
        assert!(!receiver.read(&mut [0]).unwrap(), "the end was told");
        writer.join().unwrap();
    }

    #[test]
    fn a_key_that_has_sealed_what_it_may_is_followed_by_another() {
        let (sender, receiver) = pair(2, 1);
        let (mut sender, mut receiver) = (sender.unwrap(), receiver.unwrap());
        let records_max = 20;
        sender.sealing.records_max = records_max;
        let writer = thread::spawn(move || {
            for number in 0..100 {
                sender.write(&[number], &mut [number; 20_000]).unwrap();
            }
            sender.sealing
        });
        for number in 0..100 {
            let mut received = [0; 20_001];
            assert!(receiver.read(&mut received).unwrap());
            assert_eq!(received, [number; 20_001]);
        }
        // 300 records.
        assert!(writer.join().unwrap().records_sealed() < records_max);
    }

    /// Two connected sockets.
    fn sockets() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connected = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (connected, listener.accept().unwrap().0)
    }

    #[test]
    fn the_library_opens_what_is_sealed_here_under_new_keys_too() {
        let (ours, theirs) = sockets();
        let writer = thread::spawn(move || {
            let config = records::connecting(&identity(1), PROTOCOL, identity(2).public_key());
            let mut sender = TlsSender::new(Arc::new(ours), config).unwrap();
            sender.sealing.records_max = 20;
            for number in 0..100 {
                sender.write(&[number], &mut [number; 20_000]).unwrap();
            }
            sender.finish().unwrap();
        });
        let config = records::accepting(&identity(2), PROTOCOL, identity(1).public_key());
        let mut receiver = StreamOwned::new(ServerConnection::new(config).unwrap(), theirs);
        let mut received = Vec::new();
        receiver.read_to_end(&mut received).unwrap();
        let expected = (0..100_u8).flat_map(|number| [number; 20_001]);
        assert!(expected.eq(received));
        writer.join().unwrap();
    }

    #[test]
    fn what_the_library_seals_is_opened_here_under_new_keys_too() {
        let (ours, theirs) = sockets();
        let writer = thread::spawn(move || {
            let config = records::connecting(&identity(1), PROTOCOL, identity(2).public_key());
            let name = ServerName::try_from("peer").unwrap();
            let mut sender = StreamOwned::new(ClientConnection::new(config, name).unwrap(), theirs);
            for number in 0..10 {
                sender.write_all(&[number; 20_001]).unwrap();
                sender.conn.refresh_traffic_keys().unwrap();
            }
            sender.conn.send_close_notify();
            sender.flush().unwrap();
        });
        let config = records::accepting(&identity(2), PROTOCOL, identity(1).public_key());
        let mut receiver = TlsReceiver::new(Arc::new(ours), config).unwrap();
        for number in 0..10 {
            let mut received = [0; 20_001];
            assert!(receiver.read(&mut received).unwrap());
            assert_eq!(received, [number; 20_001]);
        }
        assert!(!receiver.read(&mut [0]).unwrap());
        writer.join().unwrap();
    }

    #[test]
    fn nothing_is_read_of_a_record_that_was_changed_on_its_way() {
        let (ours, theirs) = sockets();
        let config = records::connecting(&identity(1), PROTOCOL, identity(2).public_key());
        let writer = thread::spawn(move || TlsSender::new(Arc::new(ours), config).unwrap());
        let config = records::accepting(&identity(2), PROTOCOL, identity(1).public_key());
        let mut receiver = TlsReceiver::new(Arc::new(theirs), config).unwrap();
        let mut sender = writer.join().unwrap();
        let mut content = [7; 100];
        let edges = sender.sealing.seal(&mut content).unwrap();
        content[50] ^= 1;
        let whole = [&edges.header[..], &content, &edges.tail].concat();
        (&*sender.socket).write_all(&whole).unwrap();
        for _ in 0..2 {
            assert!(receiver.read(&mut [0; 10]).is_err());
        }
    }

    #[test]
    fn a_connection_that_ends_without_a_word_is_an_error() {
        let (sender, receiver) = pair(2, 1);
        let mut receiver = receiver.unwrap();
        let mut sender = sender.unwrap();
        sender.write(b"half", &mut []).unwrap();
        drop(sender);
        assert!(receiver.read(&mut [0; 8]).is_err());
    }

    #[test]
    fn bytes_that_come_together_with_the_end_of_the_handshake_are_kept() {
        let behind = TcpListener::bind("127.0.0.1:0").unwrap();
        let front = TcpListener::bind("127.0.0.1:0").unwrap();
        let (to_receiver, to_sender) = (behind.local_addr().unwrap(), front.local_addr().unwrap());
        let sender = thread::spawn(move || {
            let config = records::connecting(&identity(1), PROTOCOL, identity(2).public_key());
            let socket = Arc::new(TcpStream::connect(to_sender).unwrap());
            let mut sender = TlsSender::new(socket, config).unwrap();
            for word in [b"one", b"two", b"six"] {
                sender.write(word, &mut []).unwrap();
            }
        });
        // Between both: what follows the first message of the sender goes on in one piece.
        let between = thread::spawn(move || {
            let mut from = front.accept().unwrap().0;
            let mut to = TcpStream::connect(to_receiver).unwrap();
            let (mut answers, mut back) = (to.try_clone().unwrap(), from.try_clone().unwrap());
            // It ends with either end.
            thread::spawn(move || io::copy(&mut answers, &mut back));
            let mut hello = vec![0; 5];
            from.read_exact(&mut hello).unwrap();
            hello.resize(5 + usize::from(u16::from_be_bytes([hello[3], hello[4]])), 0);
            from.read_exact(&mut hello[5..]).unwrap();
            to.write_all(&hello).unwrap();
            let mut rest = Vec::new();
            from.read_to_end(&mut rest).unwrap();
            to.write_all(&rest).unwrap();
            to.shutdown(std::net::Shutdown::Write).unwrap();
        });
        let config = records::accepting(&identity(2), PROTOCOL, identity(1).public_key());
        let mut receiver = TlsReceiver::new(Arc::new(behind.accept().unwrap().0), config).unwrap();
        let mut received = [0; 9];
        assert!(receiver.read(&mut received).unwrap());
        assert_eq!(&received, b"onetwosix");
        sender.join().unwrap();
        between.join().unwrap();
    }

    /// Each byte comes in time, and the handshake does not.
    #[test]
    fn a_handshake_that_trickles_is_left_by_either_end() {
        let trickle = |mut socket: TcpStream| {
            // A record of the handshake, of 16 KiB; bytes for twice the time that it may take.
            let head = [22, 3, 3, 0x40, 0];
            let bytes = head.into_iter().chain(iter::repeat_n(1, 24));
            for byte in bytes {
                if socket.write_all(&[byte]).is_err() {
                    break;
                }
                thread::sleep(TCP_SETUP_TIME_MAX / 12);
            }
        };
        let is_late =
            |error: io::Error| matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connect = || {
            let ours = TcpStream::connect(address).unwrap();
            (Arc::new(ours), listener.accept().unwrap().0)
        };
        let (to_sender, to_receiver) = (connect(), connect());
        thread::scope(|scope| {
            scope.spawn(|| trickle(to_sender.1));
            scope.spawn(|| trickle(to_receiver.1));
            let sender = scope.spawn(|| {
                let config = records::connecting(&identity(1), PROTOCOL, identity(2).public_key());
                TlsSender::new(to_sender.0, config).err()
            });
            let config = records::accepting(&identity(2), PROTOCOL, identity(1).public_key());
            let receiver = TlsReceiver::new(to_receiver.0, config).err();
            assert!(is_late(receiver.expect("it is no handshake")));
            assert!(is_late(sender.join().unwrap().expect("it is no handshake")));
        });
    }

    /// FILE-19.
    #[test]
    fn a_stranger_is_refused_by_either_end() {
        let (sender, receiver) = pair(3, 1);
        assert!(sender.is_err() && receiver.is_err());
        // With TLS 1.3 a client learns of its refusal after its handshake.
        let (_, receiver) = pair(2, 3);
        assert!(receiver.is_err());
    }

    #[test]
    fn a_sender_that_ends_right_behind_its_handshake_is_heard() {
        let listen = || TcpListener::bind("127.0.0.1:0").unwrap();
        let (at_receiver, between) = (listen(), listen());
        let connect = |listener: &TcpListener| TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut to_receiver = connect(&at_receiver);
        let sending = Arc::new(connect(&between));
        let receiving = Arc::new(at_receiver.accept().unwrap().0);
        let mut to_sender = between.accept().unwrap().0;
        let (own, other) = (identity(1), identity(2));
        thread::scope(|scope| {
            let config = records::connecting(&own, PROTOCOL, other.public_key());
            scope.spawn(move || TlsSender::new(sending, config).unwrap().finish().unwrap());
            let (mut from, mut to) = (to_receiver.try_clone().unwrap(), to_sender.try_clone().unwrap());
            scope.spawn(move || {
                // Until the sender has ended.
                let _ = io::copy(&mut from, &mut to);
            });
            scope.spawn(move || {
                let mut hello = vec![0; 5];
                to_sender.read_exact(&mut hello).unwrap();
                hello.resize(5 + usize::from(u16::from_be_bytes([hello[3], hello[4]])), 0);
                to_sender.read_exact(&mut hello[5..]).unwrap();
                to_receiver.write_all(&hello).unwrap();
                // The end of the handshake and that of the connection arrive at once.
                let mut rest = Vec::new();
                to_sender.read_to_end(&mut rest).unwrap();
                to_receiver.write_all(&rest).unwrap();
                to_receiver.shutdown(std::net::Shutdown::Write).unwrap();
            });
            let config = records::accepting(&other, PROTOCOL, own.public_key());
            let mut receiver = TlsReceiver::new(receiving, config).unwrap();
            assert!(!receiver.read(&mut [0]).unwrap(), "it has said so");
        });
    }
}
