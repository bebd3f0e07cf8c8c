//! TCP that carries nothing, without a handshake, after it or in the middle, to a receiver that is heard by QUIC all
//! the time.
#![expect(clippy::unwrap_used, reason = "a failed step of a test fails the test")]

use std::fs;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{SHA256, digest};
use bytes::Bytes;
use files::limits::{SILENCE_MIN, TCP_WAIT_MAX, TURN};
use files::{Event, Progress, SendOptions, Source, Transport};
use files_proto::Ranges;
use files_proto::limits::RECORD_HEAD_BYTES;
use files_proto::message::{CarrierKind, Decoder, Hello, Measure, Message, TcpOffer, Totals, VERSION};
use files_proto::record::{Body, Chunk, RecordHead};
use peer::blocking::{wait, wait_for};
use peer::{Endpoint, Peer, PeerId, ReceiveStream, SecretKey, SendStream};
use quic::{KeyIdentity, records};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// More than are left where a carrier is not tried any more.
const CHUNKS: u64 = 160;

/// What has not happened by then will not.
const DEADLINE: Duration = Duration::from_secs(120);

/// What a sender remembers of earlier transfers: TCP was better on this machine, with 200 MB/s.
fn remembered(receiver: PeerId) -> Vec<u8> {
    let between = format!("{receiver} 127.0.0.1 127.0.0.1");
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let mut bytes = b"gwcarry1".to_vec();
    bytes.extend_from_slice(digest(&SHA256, between.as_bytes()).as_ref());
    bytes.push(1);
    bytes.extend_from_slice(&200_000_000_u64.to_be_bytes());
    bytes.extend_from_slice(&now.to_be_bytes());
    let sum = digest(&SHA256, &bytes);
    bytes.extend_from_slice(sum.as_ref());
    bytes
}

/// A receiver of which the test decides what it reads.
struct Receiver {
    writer: SendStream,
    reader: ReceiveStream,
    decoder: Decoder,
}

impl Receiver {
    fn say(&mut self, message: &Message) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        wait(self.writer.write_chunk(Bytes::from(bytes))).unwrap();
    }

    /// The next message, if one comes soon.
    fn hear(&mut self) -> Option<Message> {
        loop {
            if let Some(message) = self.decoder.next_message().unwrap() {
                return Some(message);
            }
            let read = wait_for(TURN, self.reader.read_chunk(65_536))?;
            self.decoder.push(&read.unwrap().unwrap());
        }
    }

    /// What every receiver says all the time.
    fn measure(&mut self) {
        self.say(&Message::Measure(Measure {
            carrier: CarrierKind::Quic,
            bytes: 0,
            elapsed_ns: 50_000_000,
            cpu_ns: 1,
        }));
    }

    fn new(peer: &Peer) -> Self {
        let (writer, reader) = wait(peer.accept()).unwrap();
        let mut receiver = Self {
            writer,
            reader,
            decoder: Decoder::default(),
        };
        receiver.say(&Message::Hello(Hello {
            version: VERSION,
            sender: false,
            extensions: Vec::new(),
        }));
        receiver
    }

    /// Waits for a message.
    fn wait_for(&mut self, is_it: impl Fn(&Message) -> bool) {
        let began = Instant::now();
        while !self.hear().is_some_and(|message| is_it(&message)) {
            assert!(began.elapsed() < DEADLINE, "it does not come");
        }
    }

    /// Has the one file.
    fn end(&mut self, peer: &Peer) {
        self.say(&Message::Stored {
            entries: Ranges::from_range(0..1),
        });
        self.wait_for(|message| matches!(message, Message::Done(_)));
        self.say(&Message::Done(Totals::default()));
        wait_for(DEADLINE, peer.closed()).expect("it ends the connection");
    }

    /// Offers the port of a listener that takes connections of the sender for this key.
    fn offer_tcp(&mut self, identity: &KeyIdentity) -> TcpListener {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        self.say(&Message::TcpOffer(TcpOffer {
            addresses: vec![listener.local_addr().unwrap()],
            key: identity.public_key(),
        }));
        listener
    }

    /// Offers a port, and the connection that the sender makes to it.
    fn take_tcp(&mut self) -> Connection {
        let identity = KeyIdentity::from_seed(&[7; 32]);
        let listener = self.offer_tcp(&identity);
        let key = loop {
            if let Some(Message::TcpKey { key }) = self.hear() {
                break key;
            }
        };
        let (mut socket, _) = listener.accept().unwrap();
        let config = records::accepting(&identity, b"gramway-files", key);
        let mut tls = rustls::ServerConnection::new(config).unwrap();
        tls.complete_io(&mut socket).unwrap();
        socket.set_nonblocking(true).unwrap();
        Connection {
            socket,
            tls,
            come: Vec::new(),
        }
    }
}

/// Whether the sender has ended a connection, or given it up.
fn has_ended(socket: &TcpStream) -> bool {
    let mut asked = [PollFd::new(socket, PollFlags::RDHUP)];
    poll(
        &mut asked,
        Some(&Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        }),
    )
    .unwrap()
        > 0
}

/// A TCP connection of which the test decides what is read.
struct Connection {
    socket: TcpStream,
    tls: rustls::ServerConnection,
    come: Vec<u8>,
}

impl Connection {
    /// Whether something has come that was not read.
    fn has_more(&self) -> bool {
        self.socket.peek(&mut [0]).is_ok()
    }

    /// The chunk that it brings next, if that has come.
    fn next_chunk(&mut self) -> Option<u64> {
        while self.has_more() {
            self.tls.read_tls(&mut self.socket).unwrap();
            self.tls.process_new_packets().unwrap();
            let mut bytes = [0; 65_536];
            while let Ok(read @ 1..) = self.tls.reader().read(&mut bytes) {
                self.come.extend_from_slice(&bytes[..read]);
            }
        }
        take_chunk(&mut self.come)
    }
}

/// The first chunk of what has come, where it is whole.
fn take_chunk(come: &mut Vec<u8>) -> Option<u64> {
    let (head, body) = come.split_first_chunk::<RECORD_HEAD_BYTES>()?;
    let head = RecordHead::decode(head).unwrap();
    let Body::Chunk(Chunk { index, .. }) = head.body else {
        panic!("{head:?}")
    };
    *come = body.get(head.stored_bytes as usize..)?.to_vec();
    Some(index)
}

/// The chunk that a stream brings next, if one comes soon.
fn next_chunk(stream: &mut ReceiveStream, come: &mut Vec<u8>) -> Option<u64> {
    loop {
        if let Some(index) = take_chunk(come) {
            return Some(index);
        }
        let read = wait_for(TURN, stream.read_chunk(1 << 20))?;
        come.extend_from_slice(&read.unwrap().unwrap());
    }
}

/// Wants one chunk after the other, reads so many of them from TCP and then nothing more, and waits until QUIC brings
/// the one that TCP has: how long that took.
fn receive(peer: &Peer, mut tcp_chunks: usize) -> Duration {
    let mut receiver = Receiver::new(peer);
    let mut tcp = receiver.take_tcp();
    let mut stream = None;
    let mut come = Vec::new();
    let mut took = None;
    for index in 0..CHUNKS {
        let chunks = Ranges::from_range(index..index + 1);
        receiver.say(&Message::Want { entry: 0, chunks });
        let (began, mut has_tcp) = (Instant::now(), false);
        loop {
            receiver.measure();
            receiver.hear();
            assert!(began.elapsed() < DEADLINE, "QUIC does not bring it");
            if tcp_chunks > 0
                && let Some(came) = tcp.next_chunk()
            {
                assert_eq!(came, index);
                tcp_chunks -= 1;
                break;
            }
            has_tcp |= tcp_chunks == 0 && tcp.has_more();
            if stream.is_none() {
                stream = wait_for(TURN, peer.accept_one_way()).map(Result::unwrap);
            }
            let Some(stream) = &mut stream else { continue };
            if let Some(came) = next_chunk(stream, &mut come) {
                assert_eq!(came, index);
                break;
            }
        }
        let chunks = Ranges::from_range(index..index + 1);
        receiver.say(&Message::Ack { entry: 0, chunks });
        if has_tcp {
            assert!(!has_ended(&tcp.socket), "QUIC brings it because TCP has ended");
            took = Some(began.elapsed());
            break;
        }
    }
    receiver.end(peer);
    took.expect("TCP is used")
}

/// Sends to such a receiver: how long the chunk took that TCP did not bring. `is_remembered`: TCP is chosen at once.
fn send(is_remembered: bool, tcp_chunks: usize) -> Duration {
    let directory = tempfile::tempdir().unwrap();
    let (path, state) = (directory.path().join("file"), directory.path().join("state"));
    fs::write(&path, vec![7; (CHUNKS as usize + 1) << 20]).unwrap();
    fs::create_dir(&state).unwrap();
    let bind = || Endpoint::bind(SecretKey::generate().unwrap(), "127.0.0.1:0".parse().unwrap()).unwrap();
    let (sender, receiver) = (bind(), bind());
    if is_remembered {
        fs::write(state.join("carriers"), remembered(receiver.id())).unwrap();
    }
    let to_sender = wait(receiver.connect(sender.id(), &[sender.local_addr()])).unwrap();
    let to_receiver = wait(sender.accept()).unwrap();
    let options = SendOptions {
        sources: vec![Source::Path(path)],
        streams: Some(1),
        state: Some(state),
        ..SendOptions::default()
    };
    thread::scope(|scope| {
        let receiving = scope.spawn(|| receive(&to_sender, tcp_chunks));
        let sent = files::send(&to_receiver, &options, &Progress::default()).unwrap();
        assert_eq!(sent.stored, 1);
        receiving.join().unwrap()
    })
}

/// FILE-19.
#[test]
fn a_chunk_that_a_silent_connection_has_comes_by_quic_while_the_connection_lives() {
    let took = send(true, 0);
    assert!(took >= SILENCE_MIN, "{took:?}");
}

/// FILE-19.
#[test]
fn so_does_one_of_a_connection_that_falls_silent_while_it_is_measured() {
    // The first one has it measured, of which the next ones are too few.
    let took = send(false, 3);
    assert!(took >= SILENCE_MIN, "{took:?}");
}

/// Sends a file to a receiver that takes TCP from nobody: what is told, why QUIC carried, and how long it took.
fn send_by_tcp(receive: impl FnOnce(&Peer) + Send) -> (Vec<String>, String, Duration) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    fs::write(&path, "bytes").unwrap();
    let bind = || Endpoint::bind(SecretKey::generate().unwrap(), "127.0.0.1:0".parse().unwrap()).unwrap();
    let (sender, receiver) = (bind(), bind());
    let to_sender = wait(receiver.connect(sender.id(), &[sender.local_addr()])).unwrap();
    let to_receiver = wait(sender.accept()).unwrap();
    let options = SendOptions {
        sources: vec![Source::Path(path)],
        transport: Transport::Tcp,
        ..SendOptions::default()
    };
    let problems = Arc::new(Mutex::new(Vec::new()));
    let telling = Arc::clone(&problems);
    let progress = Progress::new(move |event| {
        if let Event::Problem { text, .. } = event {
            telling.lock().unwrap().push(text);
        }
    });
    let began = Instant::now();
    let report = thread::scope(|scope| {
        scope.spawn(|| receive(&to_sender));
        files::send(&to_receiver, &options, &progress).unwrap()
    });
    let problems = problems.lock().unwrap().clone();
    (problems, report.carrier_reason.unwrap(), began.elapsed())
}

/// FILE-19, FILE-36.
#[test]
fn who_asks_for_tcp_is_told_that_no_end_reaches_the_other_where_both_have_tried() {
    let identity = KeyIdentity::from_seed(&[7; 32]);
    let (problems, reason, took) = send_by_tcp(|peer| {
        let mut receiver = Receiver::new(peer);
        drop(receiver.offer_tcp(&identity));
        // The sender's own port, to which this one does not get.
        receiver.wait_for(|message| matches!(message, Message::TcpOffer(_)));
        receiver.wait_for(|message| matches!(message, Message::Choice { .. }));
        receiver.end(peer);
    });
    assert!(took >= TCP_WAIT_MAX, "{took:?}");
    let expected = "TCP was asked for, and neither end reaches the other by it";
    assert_eq!(reason, expected);
    assert_eq!(problems, [format!("{expected}; QUIC carries everything")]);
}

#[test]
fn a_transfer_that_is_over_before_tcp_is_there_says_nothing_against_it() {
    let identity = KeyIdentity::from_seed(&[7; 32]);
    let (problems, reason, took) = send_by_tcp(|peer| {
        let mut receiver = Receiver::new(peer);
        let _listener = receiver.offer_tcp(&identity);
        let mut awaited = 2;
        while awaited > 0 {
            receiver.wait_for(|message| matches!(message, Message::TcpKey { .. } | Message::OfferEnd { .. }));
            awaited -= 1;
        }
        receiver.end(peer);
    });
    if took < TCP_WAIT_MAX {
        assert_eq!(
            reason,
            "TCP was asked for, and the transfer was over before it was there"
        );
        assert!(problems.is_empty(), "{problems:?}");
    }
}
