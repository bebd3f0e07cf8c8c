//! Endpoints that a task of the program's runtime drives, instead of a thread of their own.

use std::pin::pin;
use std::sync::mpsc;
use std::task::Context;
use std::thread;
use std::time::Duration;

use peer::blocking::wait_for;
use peer::{BindError, Builder, Bytes, CloseReason, Delivery, Endpoint, Outcome, Peer};
use tokio::net::UdpSocket;
use tokio::runtime::{self, Runtime};

use crate::{LIMIT, bind, bomb, endpoint, in_time, meet};

fn builder() -> Builder {
    crate::builder().driven_by_runtime()
}

/// Two endpoints, and their connection as each sees it.
async fn pair() -> (Endpoint, Endpoint, Peer, Peer) {
    let (one, two) = (bind(builder()), bind(builder()));
    let (to_two, to_one) = meet(&one, &two).await;
    (one, two, to_two, to_one)
}

/// Sends messages of all sizes and a stream, and takes the other end's.
async fn exchange(peer: Peer) {
    const MESSAGES: u32 = 3_000;
    let sender = peer.clone();
    let sending = tokio::spawn(async move {
        let mut tickets = Vec::new();
        for number in 0..MESSAGES {
            let mut body = number.to_be_bytes().to_vec();
            body.resize(4 + (number as usize * 37) % 40_000, 0);
            tickets.push(sender.send(body, Delivery::ordered(1)).await.unwrap());
        }
        let mut stream = sender.open_one_way(0).await.unwrap();
        for _ in 0..64 {
            stream.write_chunk(Bytes::from(vec![7; 1 << 16])).await.unwrap();
        }
        stream.finish();
        for ticket in tickets {
            assert_eq!(ticket.await, Outcome::Acked);
        }
    });
    for number in 0..MESSAGES {
        let message = peer.receive().await.unwrap();
        assert_eq!(message.body[..4], number.to_be_bytes());
    }
    let mut stream = peer.accept_one_way().await.unwrap();
    let mut bytes = 0;
    while let Some(chunk) = stream.read_chunk(usize::MAX).await.unwrap() {
        bytes += chunk.len();
    }
    assert_eq!(bytes, 64 << 16);
    sending.await.unwrap();
}

/// The other end told that it ends, with this code.
fn assert_told(reason: &CloseReason, expected: u64) {
    assert!(
        matches!(reason, CloseReason::ApplicationClosed { code, .. } if *code == expected),
        "{reason:?}"
    );
}

fn on_both_kinds_of_runtime(test: impl AsyncFn()) {
    let runtimes = [
        runtime::Builder::new_current_thread().enable_all().build(),
        runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build(),
    ];
    for runtime in runtimes {
        runtime.unwrap().block_on(in_time(test()));
    }
}

#[test]
fn messages_and_streams_go_both_ways_at_once() {
    on_both_kinds_of_runtime(async || {
        let (_one, _two, to_two, to_one) = pair().await;
        let other = tokio::spawn(exchange(to_one.clone()));
        exchange(to_two.clone()).await;
        other.await.unwrap();
    });
}

#[test]
fn an_endpoint_of_its_own_thread_and_one_of_a_runtime_meet() {
    on_both_kinds_of_runtime(async || {
        let (ours, of_thread) = (bind(builder()), endpoint());
        let (peer, accepted) = meet(&of_thread, &ours).await;
        // Each waits for the other, so that both rest in between.
        for number in 0..100_u8 {
            drop(peer.send(vec![number], Delivery::unordered()).await.unwrap());
            let message = accepted.receive().await.unwrap();
            drop(accepted.send(message.body, Delivery::unordered()).await.unwrap());
            assert_eq!(peer.receive().await.unwrap().body[..], [number]);
        }
    });
}

#[test]
fn outside_of_a_runtime_there_is_nobody_to_drive_it() {
    let refused = builder().bind("127.0.0.1:0".parse().unwrap());
    assert!(matches!(refused, Err(BindError::NoRuntime)), "{refused:?}");
}

#[test]
fn a_peer_learns_that_the_endpoint_was_closed_and_by_what_code() {
    on_both_kinds_of_runtime(async || {
        let (one, _two, _to_two, to_one) = pair().await;
        one.close(7, "enough");
        one.ended().await;
        let reason = to_one.closed().await;
        assert_told(&reason, 7);
        assert!(one.accept().await.is_none());
    });
}

#[test]
fn a_dropped_endpoint_tells_its_peers() {
    on_both_kinds_of_runtime(async || {
        let (one, _two, to_two, to_one) = pair().await;
        drop((one, to_two));
        let reason = to_one.closed().await;
        assert_told(&reason, 0);
    });
}

/// An endpoint without connections has no timer that would make good for a packet of which it was not told.
#[test]
fn no_packet_is_overlooked_however_it_comes() {
    on_both_kinds_of_runtime(async || {
        let endpoint = bind(builder());
        let stranger = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        stranger.connect(endpoint.local_addr()).await.unwrap();
        // A long header of a version that nobody speaks, with IDs of eight bytes (RFC 9000 section 6).
        let mut packet = vec![0; 1_200];
        packet[..6].copy_from_slice(&[0xc0, 0x0a, 0x1a, 0x2a, 0x3a, 8]);
        packet[14] = 8;
        let mut answer = [0; 1_500];
        for number in 0..2_000_u32 {
            packet[6..10].copy_from_slice(&number.to_be_bytes());
            stranger.send(&packet).await.unwrap();
            if number % 3 == 0 {
                // Another time to come at.
                tokio::task::yield_now().await;
            }
            let length = stranger.recv(&mut answer).await.unwrap();
            assert_eq!(answer[1..5], [0; 4], "a Version Negotiation of {length} bytes");
        }
    });
}

#[test]
fn all_peers_are_told_when_a_runtime_ends() {
    const PEERS: usize = 100;
    let (of_one, of_others) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let one = {
        let _entered = of_one.enter();
        bind(builder())
    };
    let _entered = of_others.enter();
    let mut peers = Vec::new();
    for _ in 0..PEERS {
        let other = bind(builder());
        let connected = wait_for(LIMIT, other.connect(one.id(), &[one.local_addr()]));
        let accepted = wait_for(LIMIT, one.accept()).unwrap().unwrap();
        peers.push((other, connected.unwrap().unwrap(), accepted));
    }
    drop(of_one);
    for (_, peer, _) in &peers {
        let reason = wait_for(LIMIT, peer.closed()).unwrap();
        assert_told(&reason, 0);
    }
}

/// What no packet wakes the endpoint for.
#[test]
fn a_deadline_passes_while_everything_rests() {
    on_both_kinds_of_runtime(async || {
        let (_one, _two, to_two, _to_one) = pair().await;
        // Nobody reads, and the first one takes all the room that the peer has for this end.
        let message = Bytes::from(vec![0; 40 << 20]);
        let taken = to_two.send(message.clone(), Delivery::unordered()).await.unwrap();
        assert_eq!(taken.await, Outcome::Acked);
        let delivery = Delivery::unordered().with_deadline(Duration::from_millis(200));
        let ticket = to_two.send(message, delivery).await.unwrap();
        assert_eq!(ticket.await, Outcome::Expired);
    });
}

#[test]
fn an_endpoint_ends_with_its_runtime_and_its_peers_are_told() {
    let runtime = || Runtime::new().unwrap();
    let (of_one, of_two) = (runtime(), runtime());
    let bound = |runtime: &Runtime| {
        let _entered = runtime.enter();
        bind(builder())
    };
    let (one, two) = (bound(&of_one), bound(&of_two));
    let to_two = wait_for(LIMIT, one.connect(two.id(), &[two.local_addr()]));
    let to_two = to_two.unwrap().unwrap();
    let to_one = wait_for(LIMIT, two.accept()).unwrap().unwrap();
    let (told, ended) = mpsc::channel();
    let waiting = to_two.clone();
    thread::spawn(move || told.send(wait_for(LIMIT, waiting.receive())));
    drop(of_one);
    let reason = wait_for(LIMIT, to_one.closed()).unwrap();
    assert_told(&reason, 0);
    assert!(ended.recv_timeout(LIMIT).unwrap().unwrap().is_err());
    assert!(wait_for(LIMIT, one.ended()).is_some());
}

#[tokio::test]
async fn a_panic_of_the_task_ends_everything_that_waits_with_an_error() {
    in_time(async {
        let (_one, two, _to_two, to_one) = pair().await;
        let mut accepting = pin!(two.accept());
        let polled = accepting.as_mut().poll(&mut Context::from_waker(&bomb()));
        assert!(polled.is_pending());
        let third = bind(builder());
        let (id, address) = (two.id(), two.local_addr());
        let connecting = tokio::spawn(async move { third.connect(id, &[address]).await.is_ok() });
        let failed = to_one.closed().await;
        assert!(matches!(failed, CloseReason::Protocol(_)), "{failed:?}");
        assert!(to_one.receive().await.is_err());
        connecting.abort();
    })
    .await;
}
