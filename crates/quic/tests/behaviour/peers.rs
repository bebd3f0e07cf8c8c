//! Who is let in where both ends are peers.

use std::net::SocketAddr;

use packet::Ecn;
use quic::limits::{RETRY_ABOVE_PER_SECOND, STRANGERS_PER_PREFIX, UDP_PAYLOAD_MIN};
use quic::{AcceptParameters, Endpoint, EndpointParameters, Event, KeyIdentity, NoDatagrams, Outbox};
use quic::{Path, PeerParameters};

const LOCAL: [&str; 3] = ["127.0.0.1", "::1", "::ffff:127.0.0.1"];

fn endpoint(seed: u8) -> (Endpoint, [u8; 32]) {
    let identity = KeyIdentity::from_seed(&[seed; 32]);
    let key = identity.public_key();
    let peers = PeerParameters {
        stream_window_bytes: quic::limits::STREAM_WINDOW_BYTES,
        identity,
        protocol: b"test",
        token_key: [seed; 64],
        idle_timeout: quic::limits::IDLE_TIMEOUT,
    };
    let parameters = EndpointParameters::of_client([seed; 32]);
    (Endpoint::of_peers(&parameters, peers), key)
}

/// How many of that many newcomers from one address, each from a port of its own, have to prove it. Those that are let
/// in show who they are, or `stay` strangers.
fn asked(address: &str, newcomers: u32, stay: bool) -> u64 {
    let now = sim::Clock::default().now();
    let ((mut callee, key), (mut caller, _)) = (endpoint(1), endpoint(2));
    let mut nothing = NoDatagrams {
        udp_payload_ceiling: UDP_PAYLOAD_MIN,
    };
    let (mut outbox, mut answers) = (Outbox::default(), Outbox::default());
    for port in 1..=newcomers {
        let to = SocketAddr::from(([192, 0, 2, 1], port as u16));
        caller.connect_peer(now, to, key, UDP_PAYLOAD_MIN).unwrap();
        caller.flush(now, &mut nothing, &mut outbox);
        let path = Path {
            remote: SocketAddr::new(address.parse().unwrap(), port as u16),
            local: None,
        };
        for train in outbox.trains() {
            let bytes = train.bytes[..].into();
            callee.handle_received(
                now,
                path,
                Ecn::NotEct,
                bytes,
                train.segment_size,
                &mut nothing,
                &mut answers,
            );
        }
        outbox.release(usize::MAX);
        answers.release(usize::MAX);
        while let Some(event) = callee.poll_event() {
            if let Event::Incoming(incoming) = event {
                let accepted = callee.accept(now, incoming.key, &AcceptParameters::default());
                if !stay {
                    // It leaves its place to the next one.
                    callee.authenticate(now, accepted.unwrap());
                }
            }
        }
    }
    callee.incoming_totals().over_rate
}

/// Nobody outside of a machine can forge its loopback addresses.
#[test]
fn above_the_named_rate_peers_of_the_machine_itself_need_not_prove_their_address() {
    let newcomers = RETRY_ABOVE_PER_SECOND + 20;
    assert_eq!(asked("192.0.2.2", newcomers, false), 20);
    for address in LOCAL {
        assert_eq!(asked(address, newcomers, false), 0, "{address}");
    }
}

/// A program of the machine may forward what others have forged.
#[test]
fn above_half_of_the_bounds_peers_of_the_machine_itself_prove_their_address_as_well() {
    let newcomers = STRANGERS_PER_PREFIX as u32 / 2 + 20;
    for address in LOCAL {
        assert_eq!(asked(address, newcomers, true), 20, "{address}");
    }
}
