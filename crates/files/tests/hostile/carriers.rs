//! Ends that lie about carriers, or leave them.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use files::limits::LANES_MAX;
use files::{SendOptions, TransferError, Transport};
use files_proto::content::chunk_address;
use files_proto::limits::RECORD_HEAD_BYTES;
use files_proto::message::{CarrierKind, Message, TcpOffer, Totals};
use files_proto::record::{Body, Chunk, RecordHead};
use files_proto::{Ranges, SkipReason};
use peer::blocking::{wait, wait_for};
use quic::{KeyIdentity, records};

use crate::liar::{file, head_of_whole, hello, receive_from, send_with};

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

/// FILE-36, FILE-43: what a sender brings by a connection that the receiver has made, the second time as it is.
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
        stream.write_all(&vec![8; bytes.len()]).unwrap();
        // It has wanted it before it connected.
        while !matches!(liar.hear(), Some(Message::Want { .. }) | None) {}
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
