//! A server with a cover and its client in one process (specs/qr1.md): strangers reach the cover and nobody else.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

mod support;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Instant;

use aws_lc_rs::agreement::{PrivateKey, X25519};
use packet::Ecn;
use packet_io::{DatagramSocket, Outgoing, ReceiveBatch, SocketOptions, UdpSocket};
use support::{LIMIT, client_config, common, connected, listening, server_config};
use tunnel::config::{ClientConfig, CommonConfig, Cover, ServerConfig, ServerProof};
use tunnel::examination::Profile;
use tunnel::handle::Handle;

const NAME: &str = "www.harbour.example";
const KEY: [u8; 32] = [0x42; 32];

fn socket() -> UdpSocket {
    let options = SocketOptions {
        receive_ecn: true,
        dont_fragment: true,
        ..SocketOptions::default()
    };
    UdpSocket::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), &options).unwrap()
}

/// A server in front of a web site at this address.
fn start(cover: SocketAddr, directory: &Path, shards: usize) -> (Handle, SocketAddr) {
    let (config, _) = server_config();
    let server = tunnel::server::start(ServerConfig {
        cover: Some(Cover {
            host: cover.ip().to_string(),
            port: cover.port(),
            name: NAME.to_owned(),
            tcp: false,
            window: std::time::Duration::from_secs(120),
            keys: vec![KEY],
            replays_file: directory.join("cover.replays"),
            is_first_run: true,
            profile: Profile {
                suite: 0x1302,
                group: 0x11ec,
                id_bytes: 12,
                certificate_bytes: 2_800,
                is_version_first: true,
                answer_delay: std::time::Duration::from_millis(1),
            },
            met: Some(cover),
            keep_profile: std::sync::Arc::new(|_| Ok(())),
        }),
        common: CommonConfig {
            connections: Some(shards),
            ..common()
        },
        ..config
    })
    .unwrap();
    let local = listening(&server);
    (server, local)
}

fn client(server: SocketAddr) -> Handle {
    let private = PrivateKey::from_private_key(&X25519, &KEY).unwrap();
    let key = private.compute_public_key().unwrap().as_ref().try_into().unwrap();
    let proof = ServerProof::Cover {
        key,
        name: NAME.to_owned(),
        authorities: Vec::new(),
    };
    let config = ClientConfig {
        proof,
        ..client_config(server, [0; 32])
    };
    tunnel::client::start(config).unwrap()
}

/// What comes next: from whom, its mark and its bytes.
fn receive(socket: &mut UdpSocket) -> (SocketAddr, Ecn, Vec<u8>) {
    let mut batch = ReceiveBatch::new(1, 65_535);
    let deadline = Instant::now() + LIMIT;
    while socket.receive(&mut batch).unwrap_or(0) == 0 {
        assert!(Instant::now() < deadline, "nothing has come");
        std::thread::yield_now();
    }
    let received = batch.get(0);
    assert_eq!(received.meta.segments(), 1);
    (received.meta.source, received.meta.ecn, received.payload.to_vec())
}

fn send(socket: &mut UdpSocket, destination: SocketAddr, ecn: Ecn, payload: &[u8]) {
    let message = Outgoing {
        destination: Some(destination),
        source: None,
        ecn,
        segment_size: payload.len(),
        payload,
    };
    assert_eq!(socket.send(&[message]).unwrap().segments, 1);
}

/// QR1-20, QR1-23.
#[test]
fn each_strangers_datagrams_go_to_the_cover_and_back_one_for_one_with_their_marks() {
    let directory = tempfile::tempdir().unwrap();
    let mut cover = socket();
    let (_server, address) = start(cover.local_addr().unwrap(), directory.path(), 2);
    let mut sources = Vec::new();
    for stranger in 0..2_u8 {
        let mut socket = socket();
        // No QUIC, an unknown version, a short header, and an Initial that is none.
        let version = [&[0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 8][..], &[stranger; 1_194]].concat();
        let initial = [&[0xc3, 0, 0, 0, 1, 8][..], &[stranger; 1_244]].concat();
        let probes = [
            (Ecn::NotEct, vec![stranger]),
            (Ecn::Ect0, version),
            (Ecn::Ect1, vec![0x40; 77]),
            (Ecn::Ce, initial),
        ];
        let mut source = None;
        for (ecn, probe) in probes {
            send(&mut socket, address, ecn, &probe);
            let (from, came_with, came) = receive(&mut cover);
            assert!(
                came == probe && came_with == ecn,
                "{ecn:?}, {} bytes",
                probe.len()
            );
            assert_eq!(*source.get_or_insert(from), from, "one socket for each stranger");
            let answer = [&probe[..], b"!"].concat();
            send(&mut cover, from, ecn, &answer);
            let (from, came_with, came) = receive(&mut socket);
            assert!(came == answer && came_with == ecn);
            assert_eq!(from, address);
        }
        sources.extend(source);
    }
    assert_ne!(sources[0], sources[1]);
}

/// QR1-7, QR1-17. The cover hears nothing of it.
#[test]
fn a_client_with_the_link_connects_with_one_shard_and_with_several() {
    for shards in [1, 3] {
        let directory = tempfile::tempdir().unwrap();
        let mut cover = socket();
        let (server, address) = start(cover.local_addr().unwrap(), directory.path(), shards);
        let client = client(address);
        connected(&client);
        let counters = server.controller().snapshot().unwrap().cover.unwrap();
        assert_eq!(counters.relay.taken_over, 1, "{counters:?}");
        assert_eq!(counters.remembered, 1);
        assert_eq!(counters.flows.open, 0);
        assert_eq!(cover.receive(&mut ReceiveBatch::new(1, 2_048)).unwrap(), 0);
    }
}

/// QR1-8, QR1-19: behind a cover that nobody vouches for, a client with a wrong key ends the handshake.
#[test]
fn a_client_with_another_servers_key_meets_the_cover_alone() {
    let directory = tempfile::tempdir().unwrap();
    let mut cover = socket();
    let (server, address) = start(cover.local_addr().unwrap(), directory.path(), 1);
    let proof = ServerProof::Cover {
        key: [9; 32],
        name: NAME.to_owned(),
        authorities: Vec::new(),
    };
    let config = ClientConfig {
        proof,
        ..client_config(address, [0; 32])
    };
    let _client = tunnel::client::start(config).unwrap();
    let (_, _, first) = receive(&mut cover);
    assert_eq!(first[0] & 0xf0, 0xc0, "an Initial");
    let counters = server.controller().snapshot().unwrap().cover.unwrap();
    assert_eq!(counters.relay.taken_over, 0, "{counters:?}");
}
