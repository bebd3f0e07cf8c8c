//! Handshake, pin, ALPN, connection IDs, no 0-RTT, datagrams and streams both ways.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use packet::Ecn;
use quic::{CloseReason, Dir, Path};

use crate::support::{Pair, Setup};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn handshake_completes_and_datagrams_and_streams_pass_both_ways() {
    let (mut pair, client, server) = Pair::connected(Setup::default());
    pair.client.send_datagram(client, &b"up"[..]);
    pair.client.send_datagram(client, Bytes::new());
    pair.server.send_datagram(server, &b"down"[..]);
    let up = pair.client.endpoint.open_stream(client, Dir::Bi).unwrap();
    let down = pair.server.endpoint.open_stream(server, Dir::Uni).unwrap();
    assert_eq!(pair.client.endpoint.write(client, up, b"question").unwrap(), 8);
    let mut greeting = Bytes::from_static(b"greeting");
    assert_eq!(
        pair.server
            .endpoint
            .write_bytes(server, down, &mut greeting)
            .unwrap(),
        8
    );
    assert!(greeting.is_empty());
    pair.client.endpoint.finish(client, up);
    pair.server.endpoint.finish(server, down);
    pair.drive(SECOND);
    assert_eq!(pair.server.recorder.datagrams, [&b"up"[..], b""]);
    assert_eq!(pair.client.recorder.datagrams, [&b"down"[..]]);
    assert_eq!(pair.server.streams[&(server, up)], b"question");
    assert_eq!(pair.client.streams[&(client, down)], b"greeting");
    assert_eq!(
        (
            pair.server.ended_streams.as_slice(),
            pair.client.ended_streams.as_slice()
        ),
        (&[up][..], &[down][..])
    );
    assert_eq!(pair.server.endpoint.write(server, up, b"answer").unwrap(), 6);
    pair.drive(SECOND);
    assert_eq!(pair.client.streams[&(client, up)], b"answer");
}

#[test]
fn streams_arrive_whole_and_in_order_over_a_path_that_loses_and_corrupts() {
    let (mut pair, client, server) = Pair::connected(Setup::default());
    pair.link.loss_per_mille = [30, 30];
    pair.link.corrupt_per_mille = 10;
    let stream = pair.client.endpoint.open_stream(client, Dir::Bi).unwrap();
    let content: Vec<u8> = (0..1_000_000_u32)
        .map(|index| (index * 7 + index / 256) as u8)
        .collect();
    let mut rest = Bytes::from(content.clone());
    pair.client
        .endpoint
        .write_bytes(client, stream, &mut rest)
        .unwrap();
    assert!(rest.is_empty());
    pair.client.endpoint.finish(client, stream);
    pair.drive_until(60 * SECOND, |pair| pair.client.finished.first().copied());
    assert_eq!(pair.server.ended_streams, [stream]);
    assert!(pair.server.streams[&(server, stream)] == content);
}

#[test]
fn a_server_with_another_key_is_refused_as_wrong_pin() {
    let mut pair = Pair::new(Setup::default());
    let mut pin = pair.identity.pin;
    pin[31] ^= 1;
    pair.connect_with_pin(pin);
    pair.drive(5 * SECOND);
    assert_eq!(
        pair.client
            .closed
            .iter()
            .map(|(_, reason)| reason)
            .collect::<Vec<_>>(),
        [&CloseReason::WrongPin]
    );
    assert!(pair.client.connected.is_empty());
    assert!(matches!(
        pair.server.closed.as_slice(),
        [(_, CloseReason::Protocol(_))]
    ));
}

#[test]
fn closing_tells_the_peer_the_code_and_the_reason() {
    let (mut pair, client, _) = Pair::connected(Setup::default());
    let now = pair.now;
    pair.client.endpoint.close(now, client, 0x100, b"done");
    pair.drive(SECOND);
    let expected = CloseReason::ApplicationClosed {
        code: 0x100,
        reason: "done".to_owned(),
    };
    assert_eq!(pair.server.closed[0].1, expected);
    assert_eq!(pair.client.closed[0].1, CloseReason::LocallyClosed);
    pair.drive(10 * SECOND);
    assert_eq!(
        (
            pair.client.endpoint.open_connections(),
            pair.server.endpoint.open_connections()
        ),
        (0, 0)
    );
}

#[test]
fn connection_ids_of_1000_connections_share_no_constant_byte() {
    let mut pair = Pair::new(Setup::default());
    pair.client.captured = Some(Vec::new());
    pair.server.captured = Some(Vec::new());
    for _ in 0..1_000 {
        pair.connect();
        pair.drive(Duration::from_millis(8));
        pair.client.connected.clear();
    }
    for captured in [pair.client.captured.unwrap(), pair.server.captured.unwrap()] {
        // The source ID of a long header: after the first byte, the version and the destination ID.
        let ids: BTreeSet<Vec<u8>> = captured
            .iter()
            .filter(|bytes| bytes[0] & 0x80 != 0)
            .map(|bytes| {
                let at = 6 + usize::from(bytes[5]);
                bytes[at + 1..=at + usize::from(bytes[at])].to_vec()
            })
            .collect();
        assert!(ids.len() >= 1_000, "{} IDs", ids.len());
        assert!(ids.iter().all(|id| id.len() == quic::limits::CONNECTION_ID_BYTES));
        for place in 0..quic::limits::CONNECTION_ID_BYTES {
            let values: BTreeSet<u8> = ids.iter().map(|id| id[place]).collect();
            // 1,000 uniform draws give 251 of the 256 values on average.
            assert!(values.len() > 225, "byte {place} takes {} values", values.len());
            for bit in 0..8 {
                let share = ids.iter().filter(|id| id[place] >> bit & 1 == 1).count() * 1_000 / ids.len();
                assert!(
                    (400..=600).contains(&share),
                    "bit {bit} of byte {place} is set {share} times of 1,000"
                );
            }
        }
    }
}

#[test]
fn no_0_rtt_packet_leaves_and_no_stream_opens_before_the_handshake_even_on_a_second_connection() {
    let (mut pair, _, _) = Pair::connected(Setup::default());
    pair.client.sent.clear();
    let second = pair.connect();
    assert_eq!(pair.client.endpoint.open_stream(second, Dir::Bi), None);
    pair.client.send_datagram(second, &b"early"[..]);
    pair.drive(SECOND);
    assert_eq!(pair.client.connected.len(), 2);
    let early = pair
        .client
        .sent
        .iter()
        .filter(|sent| sent.first_byte & 0xb0 == 0x90)
        .count();
    assert_eq!(early, 0);
    assert_eq!(pair.server.recorder.datagrams, [&b"early"[..]]);
}

/// A client on bare quinn-proto that offers `protocols`; the server's answer after a second.
fn foreign_client(protocols: &[&[u8]]) -> (bool, Option<quinn_proto::ConnectionError>) {
    let mut pair = Pair::new(Setup::default());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(pair.identity.certificate.clone().into()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    let tls = quinn_proto::crypto::rustls::QuicClientConfig::try_from(tls).unwrap();
    let reset_key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, &[3; 64]);
    let config = Arc::new(quinn_proto::EndpointConfig::new(Arc::new(reset_key)));
    let mut endpoint = quinn_proto::Endpoint::new(config, None, true, Some([3; 32]));
    let start: Instant = pair.start;
    let config = quinn_proto::ClientConfig::new(Arc::new(tls));
    let (handle, mut connection) = endpoint
        .connect(start, config, pair.server.address, "localhost")
        .unwrap();
    let mut connected = false;
    for millisecond in 0..1_000 {
        let now = start + Duration::from_millis(millisecond);
        connection.handle_timeout(now);
        let mut buffer = Vec::new();
        while let Some(transmit) = connection.poll_transmit(now, 1, &mut buffer) {
            let path = Path {
                remote: pair.client.address,
                local: None,
            };
            pair.server.receive(
                now,
                path,
                Ecn::NotEct,
                BytesMut::from(&buffer[..transmit.size]),
                0,
            );
            buffer.clear();
        }
        while pair.server.work(now) {}
        for train in pair.server.take_trains(now) {
            for segment in packet::segments(&train.bytes, train.segment_size) {
                let mut answer = Vec::new();
                let data = BytesMut::from(segment);
                let event = endpoint.handle(now, pair.server.address, None, None, data, &mut answer);
                if let Some(quinn_proto::DatagramEvent::ConnectionEvent(_, event)) = event {
                    connection.handle_event(event);
                }
            }
        }
        while let Some(event) = connection.poll_endpoint_events() {
            if let Some(event) = endpoint.handle_event(handle, event) {
                connection.handle_event(event);
            }
        }
        while let Some(event) = connection.poll() {
            match event {
                quinn_proto::Event::Connected => connected = true,
                quinn_proto::Event::ConnectionLost { reason } => return (connected, Some(reason)),
                _ => {}
            }
        }
    }
    (connected, None)
}

#[test]
fn only_clients_that_offer_h3_are_served() {
    assert_eq!(foreign_client(&[b"h3"]), (true, None));
    assert_eq!(foreign_client(&[b"h2", b"h3"]), (true, None));
    let (connected, error) = foreign_client(&[b"h2"]);
    // The TLS alert no_application_protocol is 120 (RFC 7301 section 3.2), 0x178 as a QUIC error.
    let Some(quinn_proto::ConnectionError::ConnectionClosed(close)) = error else {
        panic!("{error:?}")
    };
    assert_eq!((connected, u64::from(close.error_code)), (false, 0x178));
}

#[test]
fn a_client_that_names_no_protocol_is_refused() {
    let (connected, error) = foreign_client(&[]);
    assert!(error.is_some() && !connected, "{connected} {error:?}");
}
