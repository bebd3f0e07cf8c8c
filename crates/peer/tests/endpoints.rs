//! Endpoints on real sockets of this machine.
#![expect(clippy::unwrap_used, reason = "a failed step of a test fails the test")]

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use peer::blocking::{Reader, Writer, wait, wait_for};
use peer::{
    Bytes, CloseReason, ConnectError, Delivery, DropReason, Endpoint, EndpointEvent, KeyFileError, Outcome,
    Peer, PeerEvent, SecretKey, SendError, StreamError,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// By when everything has happened, on the busiest machine.
const LIMIT: Duration = Duration::from_secs(60);

fn endpoint() -> Endpoint {
    Endpoint::bind(SecretKey::generate().unwrap(), "127.0.0.1:0".parse().unwrap()).unwrap()
}

/// Two endpoints, and their connection as each sees it.
async fn pair() -> (Endpoint, Endpoint, Peer, Peer) {
    let (one, two) = (endpoint(), endpoint());
    let to_two = one.connect(two.id(), &[two.local_addr()]).await.unwrap();
    let to_one = two.accept().await.unwrap();
    (one, two, to_two, to_one)
}

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future)
        .await
        .expect("it took too long")
}

#[tokio::test]
async fn thousands_of_messages_of_all_sizes_arrive_while_the_reader_is_slower() {
    in_time(async {
        let (_one, _two, to_two, to_one) = pair().await;
        let count = 20_000_u32;
        let sender = tokio::spawn(async move {
            let mut tickets = Vec::new();
            for number in 0..count {
                let mut body = number.to_be_bytes().to_vec();
                body.resize(4 + (number as usize * 37) % 2_500, 0);
                tickets.push(to_two.send(body, Delivery::ordered(number % 3)).await.unwrap());
            }
            for ticket in tickets {
                assert_eq!(ticket.await, Outcome::Acked);
            }
        });
        let mut next = [0, 1, 2];
        let mut messages = Vec::new();
        let mut received = 0;
        while received < count {
            to_one.receive_many(&mut messages, 50).await.unwrap();
            for message in messages.drain(..) {
                let number = u32::from_be_bytes(message.body[..4].try_into().unwrap());
                assert_eq!(number, next[number as usize % 3]);
                next[number as usize % 3] += 3;
                received += 1;
            }
            tokio::task::yield_now().await;
        }
        sender.await.unwrap();
    })
    .await;
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

#[tokio::test]
async fn a_sender_that_nobody_reads_waits_and_goes_on() {
    in_time(async {
        let (_one, _two, to_two, to_one) = pair().await;
        let body = Bytes::from(vec![1; 100_000]);
        let mut sent = 0;
        while let Ok(ticket) = to_two.try_send(body.clone(), Delivery::unordered()) {
            drop(ticket);
            sent += 1;
        }
        assert_eq!(
            to_two.try_send(body.clone(), Delivery::unordered()).err(),
            Some(SendError::Full)
        );
        let waiting =
            tokio::spawn(async move { to_two.send(body, Delivery::unordered()).await.map(|_| to_two) });
        for _ in 0..=sent {
            to_one.receive().await.unwrap();
        }
        waiting.await.unwrap().unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_stream_that_was_finished_before_the_connection_was_closed_is_read_to_its_end() {
    in_time(async {
        let (_one, _two, to_two, to_one) = pair().await;
        let data = vec![5; 200_000];
        let mut sending = to_two.open_one_way(0).await.unwrap();
        sending.write_chunk(data.clone().into()).await.unwrap();
        sending.finished().await.unwrap();
        to_two.close(0, "all is said");
        to_one.closed().await;
        let mut receiving = to_one.accept_one_way().await.unwrap();
        let mut received = Vec::new();
        receiving.read_to_end(&mut received).await.unwrap();
        assert!(received == data, "{} bytes", received.len());
        assert!(to_one.accept_one_way().await.is_err());
    })
    .await;
}

#[tokio::test]
async fn streams_are_tokios() {
    in_time(async {
        let (_one, _two, to_two, to_one) = pair().await;
        let data: Vec<u8> = (0..3_000_000_u32).map(|index| (index >> 3) as u8).collect();
        let (mut sending, mut receiving) = to_two.open(0).await.unwrap();
        let echo = tokio::spawn(async move {
            let (mut answer, mut question) = to_one.accept().await.unwrap();
            tokio::io::copy(&mut question, &mut answer).await.unwrap();
            answer.finished().await.unwrap();
        });
        let writer = tokio::spawn({
            let data = data.clone();
            async move {
                sending.write_all(&data).await.unwrap();
                sending.shutdown().await.unwrap();
            }
        });
        let mut back = Vec::new();
        receiving.read_to_end(&mut back).await.unwrap();
        assert!(back == data, "the bytes changed");
        writer.await.unwrap();
        echo.await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn resets_stops_and_ends_are_told() {
    in_time(async {
        let (_one, two, to_two, to_one) = pair().await;
        let mut sending = to_two.open_one_way(0).await.unwrap();
        sending.write_chunk(Bytes::from_static(b"abc")).await.unwrap();
        let mut receiving = to_one.accept_one_way().await.unwrap();
        assert_eq!(receiving.read_chunk(10).await.unwrap().unwrap(), "abc");
        sending.reset(5);
        assert_eq!(receiving.read_chunk(10).await, Err(StreamError::Reset(5)));

        let mut second = to_two.open_one_way(0).await.unwrap();
        second.write_chunk(Bytes::from_static(b"abc")).await.unwrap();
        to_one.accept_one_way().await.unwrap().stop(6);
        // A stream that ends before the stop arrives has ended well.
        while second.write_chunk(Bytes::from_static(b"abc")).await.is_ok() {
            tokio::task::yield_now().await;
        }
        assert_eq!(second.finished().await, Err(StreamError::Reset(6)));

        two.close(9, "done");
        let CloseReason::ApplicationClosed { code, reason } = to_two.closed().await else {
            panic!("closed in another way");
        };
        assert_eq!((code, reason.as_str()), (9, "done"));
        let late = to_two.send("late", Delivery::unordered()).await;
        assert_eq!(late.err(), Some(SendError::NotConnected));
        assert!(two.accept().await.is_none());
        assert!(to_two.receive().await.is_err());
    })
    .await;
}

#[tokio::test]
async fn a_writer_learns_that_the_peer_wants_no_more_or_has_everything() {
    in_time(async {
        let (_one, two, to_two, to_one) = pair().await;
        let mut stopped = to_two.open_one_way(0).await.unwrap();
        stopped.write_chunk(Bytes::from_static(b"abc")).await.unwrap();
        let mut receiving = to_one.accept_one_way().await.unwrap();
        receiving.stop(6);
        assert_eq!(stopped.stopped().await, Ok(Some(6)));
        assert_eq!(stopped.stopped().await, Ok(Some(6)));

        let mut finished = to_two.open_one_way(0).await.unwrap();
        finished.write_chunk(Bytes::from_static(b"abc")).await.unwrap();
        finished.finish();
        assert_eq!(finished.stopped().await, Ok(None));

        let mut reset = to_two.open_one_way(0).await.unwrap();
        reset.reset(5);
        assert_eq!(reset.stopped().await, Err(StreamError::Closed));

        let lost = to_two.open_one_way(0).await.unwrap();
        let shown = format!("{lost:?}");
        assert!(shown.contains(&two.id().to_string()), "{shown}");
        to_one.close(0, "");
        assert_eq!(lost.stopped().await, Err(StreamError::Closed));
    })
    .await;
}

#[test]
fn blocking_streams_are_stds_and_a_read_that_takes_too_long_loses_nothing() {
    let (one, two) = (endpoint(), endpoint());
    let to_two = wait(one.connect(two.id(), &[two.local_addr()])).unwrap();
    let to_one = wait_for(LIMIT, two.accept()).unwrap().unwrap();
    let data: Vec<u8> = (0..3_000_000_u32).map(|index| (index >> 3) as u8).collect();
    let mut writer = Writer::new(wait(to_two.open_one_way(0)).unwrap());
    writer.write_all(&data[..3]).unwrap();
    let stream = wait_for(LIMIT, to_one.accept_one_way()).unwrap().unwrap();
    let mut reader = Reader::new(stream).with_limit(Duration::from_millis(1));
    let mut received = Vec::new();
    let error = loop {
        let mut part = [0; 2];
        match reader.read(&mut part) {
            Ok(count) => received.extend_from_slice(&part[..count]),
            Err(error) if received.len() == 3 => break error,
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::TimedOut),
        }
    };
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    let rest = data[3..].to_vec();
    let writing = std::thread::spawn(move || {
        writer.write_all(&rest).unwrap();
        writer.finish()
    });
    let mut reader = Reader::new(reader.into_inner()).with_limit(LIMIT);
    reader.read_to_end(&mut received).unwrap();
    assert!(received == data, "the bytes changed");
    writing.join().unwrap().unwrap();

    let mut cut = Writer::new(wait(to_two.open_one_way(0)).unwrap());
    cut.write_all(b"abc").unwrap();
    let stream = wait_for(LIMIT, to_one.accept_one_way()).unwrap().unwrap();
    let mut reader = Reader::new(stream).with_limit(LIMIT);
    reader.read_exact(&mut [0; 3]).unwrap();
    cut.stream().reset(5);
    let error = reader.read_to_end(&mut received).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn a_receiver_takes_more_of_a_stream_that_nobody_reads_where_its_window_is_larger() {
    let bound = |bytes| {
        let builder = Endpoint::builder(SecretKey::generate().unwrap()).stream_window_bytes(bytes);
        builder.bind("127.0.0.1:0".parse().unwrap()).unwrap()
    };
    let (one, two) = (bound(u32::MAX), bound(40 << 20));
    let to_two = wait(one.connect(two.id(), &[two.local_addr()])).unwrap();
    let _to_one = wait_for(LIMIT, two.accept()).unwrap().unwrap();
    let mut sending = wait(to_two.open_one_way(0)).unwrap();
    // Nobody reads it, and the usual window is 16 MiB.
    let written = wait_for(LIMIT, sending.write_chunk(vec![7; 39 << 20].into()));
    assert_eq!(written, Some(Ok(())));
}

#[tokio::test]
async fn a_stream_that_was_cut_short_is_never_read_to_an_end() {
    in_time(async {
        let (_one, _two, to_two, to_one) = pair().await;
        let mut streams = Vec::new();
        for _ in 0..2 {
            let mut sending = to_two.open_one_way(0).await.unwrap();
            sending.write_chunk(Bytes::from_static(b"abc")).await.unwrap();
            let mut receiving = to_one.accept_one_way().await.unwrap();
            assert_eq!(receiving.read_chunk(10).await.unwrap().unwrap(), "abc");
            streams.push((sending, receiving));
        }
        let (mut lost_sending, mut lost) = streams.pop().unwrap();
        let (mut reset_sending, mut reset) = streams.pop().unwrap();
        reset_sending.reset(5);
        for _ in 0..3 {
            assert_eq!(reset.read_chunk(10).await, Err(StreamError::Reset(5)));
            let error = reset.read_to_end(&mut Vec::new()).await.unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        }
        to_two.close(0, "");
        for _ in 0..3 {
            assert_eq!(lost.read_chunk(10).await, Err(StreamError::Closed));
            assert!(lost.read_to_end(&mut Vec::new()).await.is_err());
        }
        assert!(lost_sending.write_all(b"more").await.is_err());
    })
    .await;
}

#[tokio::test]
async fn a_stream_that_is_stopped_before_it_is_accepted_tells_so() {
    in_time(async {
        let (_one, _two, to_two, to_one) = pair().await;
        let (mut sending, mut receiving) = to_two.open(0).await.unwrap();
        sending.write_chunk(Bytes::from_static(b"abc")).await.unwrap();
        receiving.stop(7);
        let ticket = to_two.send("stopped", Delivery::unordered()).await.unwrap();
        assert_eq!(ticket.await, Outcome::Acked);
        let (mut answer, _question) = to_one.accept().await.unwrap();
        assert_eq!(answer.finished().await, Err(StreamError::Reset(7)));
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

#[tokio::test]
async fn another_key_and_a_peer_that_is_not_allowed_are_refused() {
    in_time(async {
        let (one, two) = (endpoint(), endpoint());
        let wrong = one.connect(endpoint().id(), &[two.local_addr()]).await;
        let Err(ConnectError::Unreachable(unreached)) = wrong else {
            panic!("connected to another peer");
        };
        assert_eq!(unreached.failures[0].reason, CloseReason::WrongPeer);

        let builder = Endpoint::builder(SecretKey::generate().unwrap()).allow([two.id()]);
        let strict = builder.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let refused = one.connect(strict.id(), &[strict.local_addr()]).await.unwrap();
        assert!(refused.closed().await.to_string().contains("not allowed"));
        assert_eq!(strict.stats().not_allowed, 1);
        let _connection = two.connect(strict.id(), &[strict.local_addr()]).await.unwrap();
        assert_eq!(strict.accept().await.unwrap().id(), two.id());
    })
    .await;
}

#[tokio::test]
async fn what_routers_and_the_local_network_do_not_do_for_an_endpoint_is_told_as_an_event() {
    in_time(async {
        let builder = Endpoint::builder(SecretKey::generate().unwrap());
        // Nobody else reaches it there.
        let builder = builder.map_port().announce_on_lan();
        let endpoint = builder.bind("127.0.0.1:0".parse().unwrap()).unwrap();
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

/// PEER-23.
#[test]
fn peers_beyond_those_that_may_wait_for_the_program_are_closed_by_a_code_of_their_own_and_counted() {
    let builder = Endpoint::builder(SecretKey::generate().unwrap()).accept_queue_max(2);
    let two = builder.bind("127.0.0.1:0".parse().unwrap()).unwrap();
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
    assert_eq!(code, u64::from(peer::code::QUEUE_FULL));
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
    let builder = Endpoint::builder(SecretKey::generate().unwrap()).accept_queue_max(1);
    let two = builder.bind("127.0.0.1:0".parse().unwrap()).unwrap();
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
    let until = std::time::Instant::now() + LIMIT;
    while two.stats().connections > 0 {
        assert!(std::time::Instant::now() < until, "{:?}", two.stats());
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

#[test]
fn a_dropped_peer_ends_the_connection_and_every_ticket() {
    let (one, two) = (endpoint(), endpoint());
    let to_two = wait(one.connect(two.id(), &[two.local_addr()])).unwrap();
    let to_one = wait_for(LIMIT, two.accept()).unwrap().unwrap();
    // Nobody reads it, and it is longer than the peer's window.
    let ticket = wait(to_two.send(vec![0; 60 << 20], Delivery::unordered())).unwrap();
    drop(to_one);
    let outcome = wait_for(LIMIT, ticket).unwrap();
    assert_eq!(outcome, Outcome::Dropped(DropReason::ConnectionEnded));
    assert!(wait_for(LIMIT, to_two.closed()).is_some());
}

#[test]
fn the_tickets_of_a_dropped_peer_end() {
    let (one, two) = (endpoint(), endpoint());
    let to_two = wait(one.connect(two.id(), &[two.local_addr()])).unwrap();
    let to_one = wait_for(LIMIT, two.accept()).unwrap().unwrap();
    // Nobody reads it, and it is longer than the peer's window.
    let ticket = wait(to_two.send(vec![0; 60 << 20], Delivery::unordered())).unwrap();
    drop(to_two);
    let outcome = wait_for(LIMIT, ticket).unwrap();
    assert_eq!(outcome, Outcome::Dropped(DropReason::ConnectionEnded));
    assert!(wait_for(LIMIT, to_one.closed()).is_some());
}

#[test]
fn acknowledged_messages_can_be_read_after_the_end_of_the_connection() {
    let (one, two) = (endpoint(), endpoint());
    let to_two = wait(one.connect(two.id(), &[two.local_addr()])).unwrap();
    let to_one = wait_for(LIMIT, two.accept()).unwrap().unwrap();
    for body in ["one", "two"] {
        let ticket = wait(to_two.send(body, Delivery::ordered(1))).unwrap();
        assert_eq!(wait_for(LIMIT, ticket), Some(Outcome::Acked));
    }
    drop(to_two);
    wait_for(LIMIT, to_one.closed()).unwrap();
    for body in ["one", "two"] {
        assert_eq!(wait(to_one.receive()).unwrap().body, body);
    }
    assert!(wait(to_one.receive()).is_err());
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

/// Panics on the endpoint's thread.
struct Bomb;

impl Wake for Bomb {
    fn wake(self: Arc<Self>) {
        panic!("a waker that fails, as this test wants it to");
    }
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
            let bomb = Waker::from(Arc::new(Bomb));
            assert!(
                accepting
                    .as_mut()
                    .poll(&mut Context::from_waker(&bomb))
                    .is_pending()
            );
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

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn messages_with_and_without_the_lock_share_a_small_room_and_all_arrive() {
    const COUNT: u32 = 2_000;
    in_time(async {
        let small = Endpoint::builder(SecretKey::generate().unwrap()).send_bytes_max(5_000);
        let (one, two) = (small.bind("127.0.0.1:0".parse().unwrap()).unwrap(), endpoint());
        let to_two = one.connect(two.id(), &[two.local_addr()]).await.unwrap();
        let to_one = two.accept().await.unwrap();
        // Only those without an order take no lock.
        let senders = [Delivery::unordered(), Delivery::ordered(1), Delivery::unordered()].map(|delivery| {
            let to_two = to_two.clone();
            tokio::spawn(async move {
                let mut kept = Vec::new();
                for number in 0..COUNT {
                    let mut body = number.to_be_bytes().to_vec();
                    body.resize(4 + number as usize % 900, 0);
                    let ticket = to_two.send(body, delivery).await.unwrap();
                    if number % 3 == 0 {
                        kept.push(ticket);
                    }
                }
                for ticket in kept {
                    assert_eq!(ticket.await, Outcome::Acked);
                }
            })
        });
        let mut times = vec![0; COUNT as usize];
        let mut messages = Vec::new();
        let mut received = 0;
        while received < 3 * COUNT {
            received += to_one.receive_many(&mut messages, 100).await.unwrap() as u32;
            for message in messages.drain(..) {
                times[u32::from_be_bytes(message.body[..4].try_into().unwrap()) as usize] += 1;
            }
        }
        assert!(times.iter().all(|times| *times == 3));
        for sender in senders {
            sender.await.unwrap();
        }
        let sent = to_two.path_stats().unwrap().sent;
        assert_eq!(sent.accepted, 3 * u64::from(COUNT));
        one.close(7, "");
        let refused = loop {
            match to_two.send("late", Delivery::unordered()).await {
                Ok(ticket) => assert_eq!(ticket.await, Outcome::Dropped(DropReason::ConnectionEnded)),
                Err(error) => break error,
            }
        };
        assert_eq!(refused, SendError::NotConnected);
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
