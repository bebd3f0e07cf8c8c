//! Clients that are not ours, on bare quinn-proto: which application protocols the server takes (RFC 7301).

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use packet::Ecn;
use quic::Path;

use crate::support::{Pair, Setup};

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
