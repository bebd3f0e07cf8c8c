//! Ends that lie: a sender and a receiver written here, against the real other end.
#![expect(clippy::unwrap_used, reason = "a failed step of a test fails the test")]

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use files::limits::LANES_MAX;
use files::{Destination, Progress, ReceiveOptions, Report, SendOptions, Source, TransferError, Transport};
use files_proto::content::chunk_address;
use files_proto::limits::RECORD_HEAD_BYTES;
use files_proto::manifest::ManifestError;
use files_proto::message::{CarrierKind, Decoder, Hello, Message, TcpOffer, Totals, VERSION};
use files_proto::record::{Body, Chunk, Piece, RecordHead};
use files_proto::{Entry, FailReason, Kind, Ranges, SkipReason};
use peer::blocking::{wait, wait_for};
use peer::{Endpoint, Peer, ReceiveStream, SecretKey, SendStream};
use quic::{KeyIdentity, records};

fn pair() -> (Peer, Peer) {
    let bind = || Endpoint::bind(SecretKey::generate().unwrap(), "127.0.0.1:0".parse().unwrap()).unwrap();
    let (sender, receiver) = (bind(), bind());
    let to_sender = wait(receiver.connect(sender.id(), &[sender.local_addr()])).unwrap();
    let to_receiver = wait(sender.accept()).unwrap();
    (to_receiver, to_sender)
}

/// A control stream in the hands of somebody who says anything.
struct Liar {
    writer: SendStream,
    reader: ReceiveStream,
    decoder: Decoder,
}

impl Liar {
    fn say(&mut self, message: &Message) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        // The other end may have had enough.
        let _ = wait(self.writer.write_chunk(Bytes::from(bytes)));
    }

    /// The next message but those about carriers; `None` where the other end says nothing more.
    fn hear(&mut self) -> Option<Message> {
        loop {
            match self.hear_all()? {
                Message::TcpOffer(_)
                | Message::TcpKey { .. }
                | Message::Measure(_)
                | Message::Choice { .. } => {}
                message => return Some(message),
            }
        }
    }

    fn hear_all(&mut self) -> Option<Message> {
        loop {
            match self.decoder.next_message().unwrap() {
                Some(message) => return Some(message),
                None => {
                    let read = wait_for(Duration::from_secs(30), self.reader.read_chunk(65_536));
                    self.decoder
                        .push(&read.expect("it says something, or ends").ok()??);
                }
            }
        }
    }
}

fn hello(sender: bool, extensions: Vec<(u64, Vec<u8>)>) -> Message {
    Message::Hello(Hello {
        version: VERSION,
        sender,
        extensions,
    })
}

fn file(id: u64, name: &str, size: u64) -> Message {
    entry(id, name, Kind::File { size })
}

fn entry(id: u64, name: &str, kind: Kind) -> Message {
    Message::Entry(Entry {
        id,
        parent: None,
        name: name.as_bytes().to_vec(),
        kind,
        mode: 0o644,
        modified_ns: 1_000_000_000,
        attributes: Vec::new(),
    })
}

/// Runs a receiver against a lying sender; what it said, and what lies in its destination then.
fn receive_from(lie: impl FnOnce(&mut Liar, &Peer) + Send) -> (Result<Report, TransferError>, Vec<String>) {
    let directory = tempfile::tempdir().unwrap();
    let to = directory.path().join("to");
    fs::create_dir(&to).unwrap();
    let (to_receiver, to_sender) = pair();
    let received = thread::scope(|scope| {
        scope.spawn(move || {
            let (writer, reader) = wait(to_receiver.open(0)).unwrap();
            let mut liar = Liar {
                writer,
                reader,
                decoder: Decoder::default(),
            };
            lie(&mut liar, &to_receiver);
            // Until the receiver has seen it.
            wait_for(Duration::from_secs(30), to_receiver.closed()).expect("it ends the connection");
        });
        let options = ReceiveOptions::new(Destination::Directory(to.clone()));
        files::receive(&to_sender, &options, &Progress::default())
    });
    let outside = fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(outside, 1, "nothing is made beside the destination");
    let names = fs::read_dir(&to).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    (received, names.collect())
}

fn send_to(lie: impl FnOnce(&mut Liar) + Send) -> Result<Report, TransferError> {
    send_bytes_to(3 << 20, lie)
}

/// Runs a sender of a file of so many bytes against a lying receiver.
fn send_bytes_to(length: usize, lie: impl FnOnce(&mut Liar) + Send) -> Result<Report, TransferError> {
    send_with(length, SendOptions::default(), |liar, _| lie(liar))
}

fn send_with(
    length: usize,
    options: SendOptions,
    lie: impl FnOnce(&mut Liar, &Peer) + Send,
) -> Result<Report, TransferError> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    fs::write(&path, vec![7; length]).unwrap();
    let options = SendOptions {
        sources: vec![Source::Path(path)],
        ..options
    };
    send_as(&options, lie)
}

fn send_as(
    options: &SendOptions,
    lie: impl FnOnce(&mut Liar, &Peer) + Send,
) -> Result<Report, TransferError> {
    let (to_receiver, to_sender) = pair();
    thread::scope(|scope| {
        scope.spawn(move || {
            let (writer, reader) = wait(to_sender.accept()).unwrap();
            let mut liar = Liar {
                writer,
                reader,
                decoder: Decoder::default(),
            };
            lie(&mut liar, &to_sender);
            wait_for(Duration::from_secs(30), to_sender.closed()).expect("it ends the connection");
        });
        files::send(&to_receiver, options, &Progress::default())
    })
}

/// FILE-39.
#[test]
fn a_piece_of_a_pipe_that_is_not_passed_on_ends_the_transfer() {
    let (received, names) = receive_from(|liar, peer| {
        liar.say(&hello(true, Vec::new()));
        liar.say(&entry(0, "pipe", Kind::Pipe));
        while !matches!(liar.hear(), Some(Message::Want { .. }) | None) {}
        let head = RecordHead {
            body: Body::Piece(Piece {
                entry: 0,
                index: 0,
                offset: 0,
            }),
            compressed: false,
            stored_bytes: 4,
            raw_bytes: 4,
        };
        let mut stream = wait(peer.open_one_way(0)).unwrap();
        let record = [&head.encode()[..], b"part"].concat();
        wait(stream.write_chunk(Bytes::from(record))).unwrap();
    });
    let Err(TransferError::Broken(how)) = received else {
        panic!("{received:?}")
    };
    assert!(how.contains("piece"), "{how}");
    assert!(!names.contains(&"pipe".to_owned()), "{names:?}");
}

/// The head of the record that carries entry 0, which is one chunk of these bytes.
fn head_of_whole(bytes: &[u8]) -> RecordHead {
    RecordHead {
        body: Body::Chunk(Chunk {
            entry: 0,
            index: 0,
            address: chunk_address(0, true, bytes),
            only: true,
            hole: false,
        }),
        compressed: false,
        stored_bytes: bytes.len() as u32,
        raw_bytes: bytes.len() as u32,
    }
}

/// FILE-10: a chunk that has not the address that it comes with counts for nothing.
#[test]
fn a_sender_whose_chunks_have_other_bytes_than_their_addresses_say_is_left() {
    let (received, names) = receive_from(|liar, peer| {
        liar.say(&hello(true, Vec::new()));
        liar.say(&file(0, "file", 2 << 20));
        while !matches!(liar.hear(), Some(Message::Want { .. }) | None) {}
        let bytes = vec![1; 1 << 20];
        let head = RecordHead {
            body: Body::Chunk(Chunk {
                entry: 0,
                index: 0,
                address: chunk_address(0, false, &[2; 1 << 20]),
                only: false,
                hole: false,
            }),
            compressed: false,
            stored_bytes: 1 << 20,
            raw_bytes: 1 << 20,
        };
        let mut stream = wait(peer.open_one_way(0)).unwrap();
        wait(stream.write_chunk(Bytes::copy_from_slice(&head.encode()))).unwrap();
        wait(stream.write_chunk(Bytes::from(bytes))).unwrap();
    });
    assert!(matches!(received, Err(TransferError::Broken(_))), "{received:?}");
    assert!(!names.contains(&"file".to_owned()), "{names:?}");
}

/// FILE-20, FILE-23: and the rest goes on.
#[test]
fn names_and_links_that_lead_out_are_skipped() {
    let (received, names) = receive_from(|liar, _| {
        liar.say(&hello(true, Vec::new()));
        for (id, name) in [
            "..",
            "../beside",
            "/absolute",
            "",
            ".",
            "a/b",
            "nul\0",
            "x.gramway-part",
        ]
        .iter()
        .enumerate()
        {
            liar.say(&file(id as u64, name, 0));
        }
        let target = b"../beside".to_vec();
        liar.say(&entry(8, "link", Kind::Symlink { target }));
        liar.say(&file(9, "good", 0));
        liar.say(&Message::OfferEnd {
            entries: 10,
            bytes: 0,
        });
        let mut skipped = Vec::new();
        loop {
            match liar.hear() {
                Some(Message::Skip { entry, reason }) => skipped.push((entry, reason)),
                Some(Message::Stored { entries }) => {
                    assert_eq!(entries, Ranges::from_range(9..10));
                    break;
                }
                Some(Message::Hello(_)) => {}
                other => panic!("{other:?}"),
            }
        }
        while skipped.len() < 9 {
            match liar.hear() {
                Some(Message::Skip { entry, reason }) => skipped.push((entry, reason)),
                other => panic!("{other:?}"),
            }
        }
        let names = skipped
            .iter()
            .filter(|(_, reason)| *reason == SkipReason::UnsafeName);
        assert_eq!(names.count(), 8);
        assert!(skipped.contains(&(8, SkipReason::UnsafeLink)));
        liar.say(&Message::Done(Totals::default()));
        while !matches!(liar.hear(), Some(Message::Done(_)) | None) {}
        // A sender ends the connection then.
        liar.writer.finish();
    });
    let report = received.unwrap();
    assert_eq!((report.stored, report.problems.len()), (1, 9));
    assert_eq!(names, ["good"]);
}

/// FILE-6.
#[test]
fn an_offer_out_of_order_ends_the_transfer() {
    let (received, names) = receive_from(|liar, _| {
        liar.say(&hello(true, Vec::new()));
        liar.say(&file(5, "file", 0));
    });
    assert!(
        matches!(received, Err(TransferError::Manifest(_))),
        "{received:?}"
    );
    assert!(names.is_empty());
}

/// FILE-14.
#[test]
fn a_receiver_that_wants_what_is_not_offered_or_for_ever_is_left() {
    let sent = send_to(|liar| {
        liar.say(&hello(false, Vec::new()));
        liar.say(&Message::Want {
            entry: 77,
            chunks: Ranges::from_range(0..1),
        });
    });
    assert!(matches!(sent, Err(TransferError::Answer(_))), "{sent:?}");
    let sent = send_to(|liar| {
        liar.say(&hello(false, Vec::new()));
        while !matches!(liar.hear(), Some(Message::Entry(_)) | None) {}
        // No chunk is wanted: nothing is sent, and nothing breaks.
        liar.say(&Message::Want {
            entry: 0,
            chunks: Ranges::new(),
        });
        for _ in 0..10 {
            liar.say(&Message::Want {
                entry: 0,
                chunks: Ranges::from_range(0..3),
            });
        }
    });
    assert!(matches!(sent, Err(TransferError::Answer(_))), "{sent:?}");
}

/// Also where both ends have connected by TCP, no carrier of a sender that does what its user wants is one too many.
#[test]
fn a_sender_that_opens_more_streams_than_a_transfer_has_is_left() {
    for surplus in [0, 1] {
        let (received, _) = receive_from(|liar, peer| {
            let bytes = vec![7; (64 << 10) + 1];
            liar.say(&hello(true, Vec::new()));
            liar.say(&file(0, "file", bytes.len() as u64));
            while !matches!(liar.hear(), Some(Message::Want { .. }) | None) {}
            let open = || {
                let mut stream = wait(peer.open_one_way(0)).unwrap();
                wait(stream.write_chunk(Bytes::from_static(&[0]))).unwrap();
                stream
            };
            let mut streams: Vec<_> = (0..LANES_MAX + surplus).map(|_| open()).collect();
            // What the last of them carries is taken after all others have come.
            let size = bytes.len() as u64;
            let head = head_of_whole(&bytes);
            let record = [&head.encode()[1..], &bytes].concat();
            // The receiver may have had enough.
            let _ = wait(streams.last_mut().unwrap().write_chunk(Bytes::from(record)));
            let root = chunk_address(0, true, &bytes);
            liar.say(&Message::FileEnd { entry: 0, size, root });
            liar.say(&Message::OfferEnd {
                entries: 1,
                bytes: size,
            });
            while !matches!(
                liar.hear(),
                Some(Message::Stored { .. } | Message::Abort { .. }) | None
            ) {}
            liar.say(&Message::Done(Totals::default()));
            while !matches!(liar.hear(), Some(Message::Done(_)) | None) {}
            liar.writer.finish();
        });
        match surplus {
            0 => assert_eq!(received.unwrap().stored, 1),
            _ => assert!(
                matches!(&received, Err(TransferError::Broken(how)) if how.contains("more streams")),
                "{received:?}"
            ),
        }
    }
}

/// FILE-15: what is left of standard input is not the whole, whoever wants it.
#[test]
fn standard_input_is_sent_once() {
    let name = "stdin".to_owned();
    let options = SendOptions {
        sources: vec![Source::Stdin { name }],
        ..SendOptions::default()
    };
    let want = |liar: &mut Liar| {
        liar.say(&hello(false, Vec::new()));
        while !matches!(liar.hear(), Some(Message::Entry(_)) | None) {}
        let chunks = Ranges::from_range(0..1);
        liar.say(&Message::Want { entry: 0, chunks });
    };
    assert!(!files::is_stdin_spent());
    let left = send_as(&options, |liar, _| {
        want(liar);
        let text = "enough".to_owned();
        liar.say(&Message::Abort { text });
    });
    assert!(matches!(left, Err(TransferError::Aborted(_))), "{left:?}");
    assert!(files::is_stdin_spent());
    let spent = send_as(&options, |liar, _| {
        want(liar);
        let told = std::iter::from_fn(|| liar.hear());
        let mut told = told.filter_map(|message| match message {
            Message::Abort { text } => Some(text),
            _ => None,
        });
        assert!(told.next().unwrap().contains("can be read once"));
    });
    assert!(matches!(spent, Err(TransferError::InputSpent)), "{spent:?}");
}

/// FILE-2, FILE-4: a later version's extensions and messages are passed over.
#[test]
fn a_receiver_of_a_later_version_is_served() {
    let sent = send_to(|liar| {
        liar.say(&Message::Hello(Hello {
            version: VERSION + 1,
            sender: false,
            extensions: vec![(99, b"unknown".to_vec())],
        }));
        // Type 63 with three bytes.
        let _ = wait(liar.writer.write_chunk(Bytes::from_static(&[63, 3, 1, 2, 3])));
        while !matches!(liar.hear(), Some(Message::Entry(_)) | None) {}
        liar.say(&Message::Skip {
            entry: 0,
            reason: SkipReason::Filtered,
        });
        while !matches!(liar.hear(), Some(Message::Done(_)) | None) {}
        liar.say(&Message::Done(Totals::default()));
    });
    assert_eq!(sent.unwrap().skipped, 1);
}

/// FILE-14: what wants nothing is bounded, and no file is so small that it ends the sender otherwise than in order.
#[test]
fn a_receiver_that_wants_no_chunk_for_ever_is_left() {
    for length in [0, 5, 2 << 20] {
        let sent = send_bytes_to(length, |liar| {
            liar.say(&hello(false, Vec::new()));
            while !matches!(liar.hear(), Some(Message::Entry(_)) | None) {}
            for _ in 0..20 {
                liar.say(&Message::Want {
                    entry: 0,
                    chunks: Ranges::new(),
                });
            }
        });
        assert!(
            matches!(sent, Err(TransferError::Answer(_))),
            "{length}: {sent:?}"
        );
    }
}

/// FILE-5: DONE is believed of nobody before everything is done.
#[test]
fn an_end_that_is_done_too_early_is_not_believed() {
    let sent = send_to(|liar| {
        liar.say(&hello(false, Vec::new()));
        liar.say(&Message::Done(Totals::default()));
    });
    assert!(matches!(sent, Err(TransferError::Broken(_))), "{sent:?}");
    let (received, _) = receive_from(|liar, _| {
        liar.say(&hello(true, Vec::new()));
        liar.say(&file(0, "file", 2 << 20));
        liar.say(&Message::Done(Totals::default()));
    });
    assert!(matches!(received, Err(TransferError::Broken(_))), "{received:?}");
}

/// FILE-2.
#[test]
fn two_ends_of_one_role_say_so() {
    let sent = send_to(|liar| liar.say(&hello(true, Vec::new())));
    assert!(matches!(sent, Err(TransferError::Greeting(_))), "{sent:?}");
    let (received, _) = receive_from(|liar, _| liar.say(&hello(false, Vec::new())));
    assert!(
        matches!(received, Err(TransferError::Greeting(_))),
        "{received:?}"
    );
}

/// FILE-2.
#[test]
fn an_end_that_says_hello_twice_is_left() {
    let sent = send_to(|liar| {
        liar.say(&hello(false, Vec::new()));
        liar.say(&hello(false, Vec::new()));
    });
    assert!(matches!(sent, Err(TransferError::Broken(_))), "{sent:?}");
    let (received, _) = receive_from(|liar, _| {
        liar.say(&hello(true, Vec::new()));
        liar.say(&hello(true, Vec::new()));
    });
    assert!(matches!(received, Err(TransferError::Broken(_))), "{received:?}");
}

/// FILE-13: what is told of an entry that is done is passed over, and of one that was never offered it is not.
#[test]
fn a_sender_that_tells_of_what_it_has_not_offered_is_left() {
    let lies = [
        Message::FileEnd {
            entry: 1,
            size: 5,
            root: [0; 32],
        },
        Message::Failed {
            entry: 1,
            reason: FailReason::Other,
            text: String::new(),
        },
        Message::Hashes {
            entry: 1,
            first: 0,
            addresses: vec![[0; 32]],
        },
    ];
    for lie in lies {
        let (received, _) = receive_from(|liar, _| {
            liar.say(&hello(true, Vec::new()));
            liar.say(&file(0, "..", 0));
            while !matches!(liar.hear(), Some(Message::Skip { .. }) | None) {}
            let failed = Message::Failed {
                entry: 0,
                reason: FailReason::Other,
                text: "it is done".to_owned(),
            };
            liar.say(&failed);
            liar.say(&lie);
        });
        assert!(
            matches!(
                received,
                Err(TransferError::Manifest(ManifestError::NotOffered(1)))
            ),
            "{received:?}"
        );
    }
}

/// A TCP connection that ends while nothing is left to write on it: QUIC brings what its end has not read.
#[test]
fn what_was_under_way_on_a_tcp_connection_that_ends_comes_by_quic() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    take_by_tcp(Some(&listener));
}

/// FILE-36: nobody answers at the port that the receiver offers, and the receiver connects to the sender's.
#[test]
fn a_sender_that_does_not_reach_the_receiver_is_reached_by_it() {
    take_by_tcp(None);
}

/// Offers a TCP port, at which nobody may listen, and takes the first chunk by the connection that comes of it; that
/// ends, and QUIC brings the chunk again.
fn take_by_tcp(listener: Option<&TcpListener>) {
    let offered = match listener {
        Some(listener) => listener.local_addr().unwrap(),
        None => TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap(),
    };
    let identity = KeyIdentity::from_seed(&[7; 32]);
    let options = SendOptions {
        transport: Transport::Tcp,
        streams: Some(1),
        ..SendOptions::default()
    };
    let is_wanted = |head: &[u8; RECORD_HEAD_BYTES]| {
        let body = RecordHead::decode(head).unwrap().body;
        matches!(
            body,
            Body::Chunk(Chunk {
                entry: 0,
                index: 0,
                ..
            })
        )
    };
    let sent = send_with(3 << 20, options, |liar, peer| {
        liar.say(&hello(false, Vec::new()));
        liar.say(&Message::TcpOffer(TcpOffer {
            addresses: vec![offered],
            key: identity.public_key(),
        }));
        let shake = |mut socket: TcpStream, key| {
            let config = records::accepting(&identity, b"gramway-files", key);
            let mut tls = rustls::ServerConnection::new(config).unwrap();
            tls.complete_io(&mut socket).unwrap();
            (tls, socket)
        };
        let (mut is_offered, mut chosen, mut told, mut connection) = (false, None, None, None);
        while !is_offered || chosen != Some(CarrierKind::Tcp) {
            match liar.hear_all().expect("it takes the offer") {
                Message::Entry(_) => is_offered = true,
                Message::Choice { carrier, .. } => chosen = Some(carrier),
                Message::TcpKey { key } => {
                    told = Some(key);
                    if let Some(listener) = listener {
                        connection = Some(shake(listener.accept().unwrap().0, key));
                    }
                }
                Message::TcpOffer(offer) => {
                    assert!(listener.is_none(), "it is reached");
                    assert_eq!(Some(offer.key), told);
                    let key = identity.public_key();
                    liar.say(&Message::TcpKey { key });
                    let socket = TcpStream::connect(("127.0.0.1", offer.addresses[0].port()));
                    connection = Some(shake(socket.unwrap(), offer.key));
                }
                _ => {}
            }
        }
        liar.say(&Message::Want {
            entry: 0,
            chunks: Ranges::from_range(0..1),
        });
        let (mut tls, mut socket) = connection.unwrap();
        let mut stream = rustls::Stream::new(&mut tls, &mut socket);
        let mut head = [0; RECORD_HEAD_BYTES];
        stream.read_exact(&mut head).unwrap();
        assert!(is_wanted(&head));
        let mut body = vec![0; RecordHead::decode(&head).unwrap().stored_bytes as usize];
        stream.read_exact(&mut body).unwrap();
        // It has nothing left to write now, and we say nothing of what came.
        drop(socket);
        let stream = wait_for(Duration::from_secs(30), peer.accept_one_way());
        let mut stream = stream.expect("QUIC brings the chunk").unwrap();
        let mut came = Vec::new();
        while came.len() < head.len() {
            let chunk = wait(stream.read_chunk(head.len() - came.len())).unwrap();
            came.extend_from_slice(&chunk.unwrap());
        }
        head.copy_from_slice(&came);
        assert!(is_wanted(&head));
        liar.say(&Message::Skip {
            entry: 0,
            reason: SkipReason::Filtered,
        });
        while !matches!(liar.hear(), Some(Message::Done(_)) | None) {}
        liar.say(&Message::Done(Totals::default()));
    });
    assert_eq!(sent.unwrap().skipped, 1);
}

/// FILE-36: what a sender brings by a connection that the receiver has made.
#[test]
fn a_receiver_connects_to_the_port_that_a_sender_offers() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (received, names) = receive_from(|liar, _| {
        let identity = KeyIdentity::from_seed(&[7; 32]);
        let bytes = vec![7; (64 << 10) + 1];
        liar.say(&hello(true, Vec::new()));
        liar.say(&file(0, "file", bytes.len() as u64));
        let offer = Message::TcpOffer(TcpOffer {
            addresses: vec![listener.local_addr().unwrap()],
            key: identity.public_key(),
        });
        liar.say(&offer);
        // Once is enough.
        liar.say(&offer);
        let (mut offered, mut told) = (None, None);
        while told.is_none() {
            match liar.hear_all().expect("it connects") {
                Message::TcpOffer(offer) => offered = Some(offer.key),
                Message::TcpKey { key } => told = Some(key),
                _ => {}
            }
        }
        assert_eq!(told, offered);
        let config = records::connecting(&identity, b"gramway-files", told.unwrap());
        let mut tls = rustls::ClientConnection::new(config, "peer".try_into().unwrap()).unwrap();
        let (mut socket, _) = listener.accept().unwrap();
        let head = head_of_whole(&bytes);
        let mut stream = rustls::Stream::new(&mut tls, &mut socket);
        stream.write_all(&head.encode()).unwrap();
        stream.write_all(&bytes).unwrap();
        let size = bytes.len() as u64;
        let root = chunk_address(0, true, &bytes);
        liar.say(&Message::FileEnd { entry: 0, size, root });
        liar.say(&Message::OfferEnd {
            entries: 1,
            bytes: size,
        });
        while !matches!(liar.hear(), Some(Message::Stored { .. }) | None) {}
        liar.say(&Message::Done(Totals::default()));
        while !matches!(liar.hear(), Some(Message::Done(_)) | None) {}
        liar.writer.finish();
    });
    assert_eq!(
        (received.unwrap().stored, &names[..]),
        (1, &["file".to_owned()][..])
    );
}
