//! Connections: who is let in and who is refused, how many wait to be accepted, what their packets' size is, what is
//! told of them, and what is left after a panic.

use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use peer::blocking::{wait, wait_for};
use peer::{
    Bytes, CloseReason, ConnectError, Delivery, Endpoint, EndpointEvent, KeyFileError, Outcome, PeerEvent,
    SecretKey, SendError, StreamError, code,
};

use crate::{LIMIT, bind, blocking_pair, bomb, builder, endpoint, in_time, meet, pair};

#[tokio::test]
async fn another_key_and_a_peer_that_is_not_allowed_are_refused() {
    in_time(async {
        let (one, two) = (endpoint(), endpoint());
        let wrong = one.connect(endpoint().id(), &[two.local_addr()]).await;
        let Err(ConnectError::Unreachable(unreached)) = wrong else {
            panic!("connected to another peer");
        };
        assert_eq!(unreached.failures[0].reason, CloseReason::WrongPeer);

        let strict = bind(builder().allow([two.id()]));
        let refused = one.connect(strict.id(), &[strict.local_addr()]).await.unwrap();
        assert!(refused.closed().await.to_string().contains("not allowed"));
        assert_eq!(strict.stats().not_allowed, 1);
        let _connection = two.connect(strict.id(), &[strict.local_addr()]).await.unwrap();
        assert_eq!(strict.accept().await.unwrap().id(), two.id());
    })
    .await;
}

#[test]
fn a_key_file_is_private_and_a_damaged_one_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("key");
    SecretKey::load_or_create(&path).unwrap();
    let mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    assert_eq!(
        std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    mode(0o640);
    assert!(matches!(
        SecretKey::load_or_create(&path),
        Err(KeyFileError::Exposed { .. })
    ));
    mode(0o600);
    std::fs::write(&path, "0123").unwrap();
    assert!(matches!(
        SecretKey::load_or_create(&path),
        Err(KeyFileError::Malformed { .. })
    ));
}

#[tokio::test]
async fn both_ends_of_a_connection_and_no_other_export_the_same_for_a_label() {
    in_time(async {
        let (one, two, to_two, to_one) = pair().await;
        let label = "EXPORTER-of-a-test";
        let exported = to_two.exporter(label).unwrap();
        assert_eq!(to_one.exporter(label), Some(exported));
        assert_ne!(to_one.exporter("EXPORTER-of-another"), Some(exported));
        let again = one.connect(two.id(), &[two.local_addr()]).await.unwrap();
        assert_ne!(again.exporter(label), Some(exported));
        to_one.close(7, "");
        to_two.closed().await;
        assert_eq!(to_two.exporter(label), None);
    })
    .await;
}

#[tokio::test]
async fn a_connection_that_ended_with_nothing_to_read_is_not_accepted() {
    in_time(async {
        let (one, two) = (endpoint(), endpoint());
        drop(one.connect(two.id(), &[two.local_addr()]).await.unwrap());
        let living = one.connect(two.id(), &[two.local_addr()]).await.unwrap();
        // The end of the first has come before whatever the second sends.
        let ticket = living.send("hello", Delivery::unordered()).await.unwrap();
        assert_eq!(ticket.await, Outcome::Acked);
        let accepted = two.accept().await.unwrap();
        assert_eq!(accepted.receive().await.unwrap().body, "hello");
    })
    .await;
}

/// PEER-23.
#[test]
fn peers_beyond_those_that_may_wait_for_the_program_are_closed_by_a_code_of_their_own_and_counted() {
    let two = bind(builder().accept_queue_max(2));
    let one = endpoint();
    let connect = || {
        wait_for(LIMIT, one.connect(two.id(), &[two.local_addr()]))
            .unwrap()
            .unwrap()
    };
    let mut waiting = Vec::new();
    for number in 1..=2 {
        let peer = connect();
        let ticket = wait(peer.send("hello", Delivery::unordered())).unwrap();
        assert_eq!(wait_for(LIMIT, ticket), Some(Outcome::Acked));
        assert_eq!(two.stats().waiting, number);
        waiting.push(peer);
    }
    let third = connect();
    let closed = wait_for(LIMIT, third.closed());
    let Some(CloseReason::ApplicationClosed { code, reason }) = closed else {
        panic!("closed in another way: {closed:?}");
    };
    assert_eq!(code, code::QUEUE_FULL);
    assert!(reason.contains("try again later"), "{reason}");
    let stats = two.stats();
    assert_eq!((stats.waiting, stats.queue_full, stats.handshakes), (2, 1, 3));
    let accept = || wait_for(LIMIT, two.accept()).unwrap().unwrap();
    let accepted = [accept(), accept()];
    for peer in &accepted {
        let message = wait_for(LIMIT, peer.receive()).unwrap().unwrap();
        assert_eq!(message.body, "hello");
    }
    let _fourth = connect();
    assert_eq!(accept().id(), one.id());
    assert_eq!(two.stats().queue_full, 1);
}

/// PEER-23.
#[test]
fn a_peer_that_has_left_gives_way_to_a_living_one_where_as_many_wait_as_may() {
    let two = bind(builder().accept_queue_max(1));
    let connect = |from: &Endpoint| {
        let peer = wait_for(LIMIT, from.connect(two.id(), &[two.local_addr()]));
        let peer = peer.unwrap().unwrap();
        let ticket = wait(peer.send("hello", Delivery::unordered())).unwrap();
        (wait_for(LIMIT, ticket), peer)
    };
    let (gone, living) = (endpoint(), endpoint());
    let (outcome, peer) = connect(&gone);
    assert_eq!(outcome, Some(Outcome::Acked));
    peer.close(0, "");
    let until = Instant::now() + LIMIT;
    while two.stats().connections > 0 {
        assert!(Instant::now() < until, "{:?}", two.stats());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(two.stats().waiting, 1, "what it left can be read");
    let (outcome, _peer) = connect(&living);
    assert_eq!(outcome, Some(Outcome::Acked));
    let stats = two.stats();
    assert_eq!((stats.waiting, stats.queue_full), (1, 0));
    let accepted = wait_for(LIMIT, two.accept()).unwrap().unwrap();
    assert_eq!(accepted.id(), living.id());
    assert_eq!(
        wait_for(LIMIT, accepted.receive()).unwrap().unwrap().body,
        "hello"
    );
}

#[tokio::test]
async fn on_the_loopback_interface_packets_are_as_large_as_it_carries_from_the_start() {
    in_time(async {
        let (_one, _two, to_two, to_one) = pair().await;
        let mtus = [&to_two, &to_one].map(|peer| peer.path_stats().unwrap().path_mtu);
        assert!(mtus.iter().all(|mtu| *mtu > 1_500), "{mtus:?}");
    })
    .await;
}

/// Forwards datagrams of at most `bytes_max` bytes between whoever sends first and `to`; where it is reached. It ends
/// with the test.
async fn relay(to: SocketAddr, bytes_max: usize) -> SocketAddr {
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut client, mut datagram) = (None, vec![0; 1 << 16]);
        while let Ok((length, from)) = socket.recv_from(&mut datagram).await {
            let there = if from == to { client } else { Some(to) };
            if from != to {
                client = Some(from);
            }
            if let Some(there) = there.filter(|_| length <= bytes_max) {
                let _ = socket.send_to(&datagram[..length], there).await;
            }
        }
    });
    address
}

#[tokio::test]
async fn a_shorter_path_mtu_behind_a_relay_on_loopback_is_told_and_no_reader_outlives_the_connection() {
    in_time(async {
        let (one, two) = (endpoint(), endpoint());
        let through = relay(two.local_addr(), 1_400).await;
        let to_two = one.connect(two.id(), &[through]).await.unwrap();
        let to_one = two.accept().await.unwrap();
        let (mut events, mut others) = (to_two.events(), to_two.events());
        // None of them passes the relay in one packet.
        let body = vec![1; 1_450];
        let sent = async {
            let mut tickets = Vec::new();
            for _ in 0..100 {
                tickets.push(to_two.send(body.clone(), Delivery::unordered()).await.unwrap());
            }
            for ticket in tickets {
                assert_eq!(ticket.await, Outcome::Acked);
            }
        };
        let received = async {
            for _ in 0..100 {
                assert_eq!(to_one.receive().await.unwrap().body, body);
            }
        };
        tokio::join!(sent, received);
        for events in [&mut events, &mut others] {
            let mtu = loop {
                match events.next_event().await {
                    Some(PeerEvent::PathMtuChanged(bytes)) => break bytes,
                    Some(_) => {}
                    None => panic!("the connection has ended"),
                }
            };
            assert!((1_200..=1_400).contains(&mtu), "{mtu}");
        }
        let waits = tokio::spawn(async move { while others.next_event().await.is_some() {} });
        drop(to_one);
        to_two.closed().await;
        while events.next_event().await.is_some() {}
        waits.await.unwrap();
        drop(to_two);
        assert_eq!(events.next_event().await, None);
    })
    .await;
}

#[tokio::test]
async fn what_routers_and_the_local_network_do_not_do_for_an_endpoint_is_told_as_an_event() {
    in_time(async {
        // Nobody else reaches it there.
        let endpoint = bind(builder().map_port().announce_on_lan());
        let mut events = endpoint.events();
        let mut told = Vec::new();
        while told.len() < 2 {
            told.push(events.next_event().await.unwrap());
        }
        assert!(told.contains(&EndpointEvent::NotMapped), "{told:?}");
        assert!(told.contains(&EndpointEvent::NotAnnounced), "{told:?}");
        assert!(endpoint.mapping_problem().is_some() && endpoint.lan_problem().is_some());
        endpoint.close(0, "");
        assert_eq!(events.next_event().await, None);
    })
    .await;
}

#[test]
fn events_of_an_endpoint_end_with_it_and_can_be_waited_for_without_an_executor() {
    let endpoint = endpoint();
    let mut events = endpoint.events();
    assert_eq!(wait_for(Duration::from_millis(1), events.next_event()), None);
    let waits = std::thread::spawn(move || wait_for(LIMIT, events.next_event()));
    endpoint.close(0, "");
    assert_eq!(waits.join().unwrap(), Some(None));
}

#[tokio::test]
async fn a_panic_of_the_thread_ends_everything_that_waits_with_an_error() {
    in_time(async {
        let (one, two, _to_two, to_one) = pair().await;
        let ticket = to_one
            .send(vec![7; 1 << 20], Delivery::unordered())
            .await
            .unwrap();
        let (mut sending, mut reading) = to_one.open(0).await.unwrap();
        let waiting = to_one.clone();
        let receiver = tokio::spawn(async move { waiting.receive().await });
        let reader = tokio::spawn(async move { reading.read_chunk(1).await });
        tokio::task::yield_now().await;
        {
            let mut accepting = pin!(two.accept());
            let polled = accepting.as_mut().poll(&mut Context::from_waker(&bomb()));
            assert!(polled.is_pending());
            // Nobody answers any more once the thread has seen this connection.
            let third = endpoint();
            let (id, address) = (two.id(), two.local_addr());
            let connecting = tokio::spawn(async move {
                let _peer = third.connect(id, &[address]).await;
                std::future::pending::<()>().await;
            });
            let failed = to_one.closed().await;
            assert!(matches!(failed, CloseReason::Protocol(_)), "{failed:?}");
            connecting.abort();
        }
        assert!(receiver.await.unwrap().is_err());
        assert!(reader.await.unwrap().is_err());
        assert!(sending.write_chunk(Bytes::from_static(b"late")).await.is_err());
        let late = to_one.send("late", Delivery::unordered()).await;
        assert_eq!(late.unwrap_err(), SendError::NotConnected);
        assert_ne!(ticket.await, Outcome::Expired);
        assert!(two.accept().await.is_none());
        let refused = two.connect(one.id(), &[one.local_addr()]).await;
        assert!(matches!(refused, Err(ConnectError::EndpointClosed)));
    })
    .await;
}

#[test]
fn who_connects_while_the_endpoint_closes_is_told_that_it_closes() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().unwrap();
    for (builder, addresses) in [
        (builder(), &[silent][..]),
        (builder().find_on_lan(), &[]),
        (builder().find_on_lan(), &[silent]),
    ] {
        let endpoint = bind(builder);
        let nobody = SecretKey::generate().unwrap().id();
        let connecting = endpoint.begin(nobody, addresses).unwrap();
        let mut connected = pin!(connecting.connected());
        let _ = connected.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        endpoint.close(0, "");
        let error = wait_for(LIMIT, connected).unwrap().unwrap_err();
        assert!(matches!(error, ConnectError::EndpointClosed), "{error}");
    }
}

#[test]
fn two_connections_of_one_peer_are_told_apart() {
    let (one, two, to_two, first) = blocking_pair();
    let (_again, second) = wait_for(LIMIT, meet(&one, &two)).unwrap();
    assert_eq!(first.id(), second.id());
    assert!(first == first.clone() && first != second && first != to_two);
}

/// PEER-16.
#[test]
fn a_program_cannot_say_what_the_protocol_says() {
    let (_one, _two, to_two, to_one) = blocking_pair();
    let (mut sending, mut receiving) = wait(to_two.open(0)).unwrap();
    wait(sending.write_chunk(Bytes::from_static(b"a"))).unwrap();
    let (answer, mut question) = wait_for(LIMIT, to_one.accept()).unwrap().unwrap();
    assert_eq!(wait(question.read_chunk(1)).unwrap().unwrap(), "a");
    sending.reset(code::STALLED);
    let cut = wait_for(LIMIT, question.read_chunk(1)).unwrap();
    assert_eq!(cut, Err(StreamError::Reset(code::PROGRAM_MAX)));
    receiving.stop(u64::MAX);
    let stopped = wait_for(LIMIT, answer.stopped()).unwrap();
    assert_eq!(stopped, Ok(Some(code::PROGRAM_MAX)));
    to_two.close(code::REFUSED, "");
    let reason = wait_for(LIMIT, to_one.closed()).unwrap();
    let expected = CloseReason::ApplicationClosed {
        code: code::PROGRAM_MAX,
        reason: String::new(),
    };
    assert_eq!(reason, expected);
}
