//! Calls and streams over both kinds of socket: sizes around the limits, many at once, slow readers.

use std::time::Duration;

use crate::common::{Back, Doubled, Echo, TextBack, hoard, place, serve, soon};
use irpc::Client;
use irpc_uds::{SEND_WINDOW_BYTES, STREAM_WINDOW_BYTES, SocketKind, UdsConnector, UdsListener, peer_cred};

/// Every kind that this system has.
fn kinds() -> Vec<SocketKind> {
    let mut kinds = vec![SocketKind::Stream];
    if SocketKind::default() != SocketKind::Stream {
        kinds.push(SocketKind::default());
    }
    kinds
}

/// So many bytes that repeat after a prime number of them, so that no piece can take the place of another.
fn text(len: usize) -> String {
    let ascii: String = (0..127).map(char::from).collect();
    let mut text = ascii.repeat(len / ascii.len() + 1);
    text.truncate(len);
    text
}

#[tokio::test]
async fn payloads_of_every_size_come_back_over_both_kinds_and_all_datagram_sizes() {
    for kind in kinds() {
        // Above 12,000 bytes the usual congestion window would block the first datagram forever; above 16,383 a packet
        // with a long header could not tell its length.
        for datagram_bytes in [1_200, 12_001, 16_384, 32_448, 65_527] {
            let (_directory, path) = place();
            serve(
                UdsListener::new(&path)
                    .kind(kind)
                    .datagram_bytes(datagram_bytes)
                    .bind()
                    .expect("free"),
            );
            let connector = UdsConnector::new(&path).kind(kind).datagram_bytes(datagram_bytes);
            let connection = soon("handshake", connector.connect()).await.expect("a server");
            let usable = connection.max_datagram_size().expect("datagrams are on");
            assert!(
                usable + 100 > usize::from(datagram_bytes),
                "{datagram_bytes}: datagrams of {usable} bytes"
            );
            let client = Client::<Echo>::boxed(connection);
            for len in [0, 1, 1_200, 12_001, 65_527, 1 << 20, (16 << 20) - 16] {
                let payload = text(len);
                let back = soon("a call", client.rpc(TextBack(payload.clone())))
                    .await
                    .expect("an answer");
                assert!(
                    back == payload,
                    "{kind:?}, datagrams of {datagram_bytes}, payload of {len}"
                );
            }
        }
    }
}

#[tokio::test]
async fn the_smaller_datagram_size_of_both_sides_counts() {
    let (_directory, path) = place();
    serve(
        UdsListener::new(&path)
            .datagram_bytes(1_500)
            .bind()
            .expect("free"),
    );
    let connection = UdsConnector::new(&path)
        .datagram_bytes(60_000)
        .connect()
        .await
        .expect("a server");
    assert!(connection.max_datagram_size().expect("datagrams are on") < 1_500);
    let client = Client::<Echo>::boxed(connection);
    let back = soon("a call", client.rpc(Back(vec![7; 100_000])))
        .await
        .expect("an answer");
    assert_eq!(back, vec![7; 100_000]);
}

#[tokio::test]
async fn messages_in_one_stream_keep_their_order() {
    for kind in kinds() {
        let (_directory, path) = place();
        serve(UdsListener::new(&path).kind(kind).bind().expect("free"));
        let client: Client<Echo> = UdsConnector::new(&path)
            .kind(kind)
            .client()
            .await
            .expect("a server");
        let (send, mut receive) = client.bidi_streaming(Doubled, 16, 16).await.expect("a stream");
        let sender = tokio::spawn(async move {
            for value in 0..20_000_u64 {
                send.send(value).await.expect("it reads");
            }
        });
        for value in 0..20_000_u64 {
            let received = soon("a message", receive.recv()).await.expect("no error");
            assert_eq!(received, Some(value * 2));
        }
        sender.await.expect("all sent");
        assert_eq!(soon("the end", receive.recv()).await.expect("no error"), None);
    }
}

#[tokio::test]
async fn spinning_endpoints_work_and_sleep_when_idle() {
    let (_directory, path) = place();
    let spin = Duration::from_micros(200);
    serve(UdsListener::new(&path).spin(spin).bind().expect("free"));
    let client: Client<Echo> = UdsConnector::new(&path)
        .spin(spin)
        .client()
        .await
        .expect("a server");
    for round in 0..200_u8 {
        let back = soon("a call", client.rpc(Back(vec![round])))
            .await
            .expect("an answer");
        assert_eq!(back, [round]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_multi_thread_runtime_serves_as_well() {
    let (_directory, path) = place();
    serve(UdsListener::new(&path).bind().expect("free"));
    let client: Client<Echo> = irpc_uds::client(&path).await.expect("a server");
    let calls: Vec<_> = (0..500_u32)
        .map(|number| {
            let client = client.clone();
            tokio::spawn(async move {
                let payload = number.to_be_bytes().to_vec();
                (
                    soon("a call", client.rpc(Back(payload.clone())))
                        .await
                        .expect("an answer"),
                    payload,
                )
            })
        })
        .collect();
    for call in calls {
        let (back, payload) = call.await.expect("no panic");
        assert_eq!(back, payload);
    }
}

#[tokio::test]
async fn two_hundred_clients_at_once_get_through_a_backlog_of_two() {
    let (_directory, path) = place();
    serve(UdsListener::new(&path).backlog(2).bind().expect("free"));
    let calls: Vec<_> = (0..200_u8)
        .map(|number| {
            let path = path.clone();
            tokio::spawn(async move {
                let client: Client<Echo> = UdsConnector::new(&path)
                    .timeout(crate::common::PATIENCE)
                    .client()
                    .await
                    .expect("a server");
                client.rpc(Back(vec![number])).await.expect("an answer")
            })
        })
        .collect();
    for (number, call) in (0..200_u8).zip(calls) {
        assert_eq!(soon("a client", call).await.expect("no panic"), [number]);
    }
}

/// With ACK_FREQUENCY switched on, noq-proto 1.4 now and then panics in a server with so many busy clients.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_clients_that_keep_calling_are_all_answered() {
    const CLIENTS: u8 = 128;
    const CALLS: u8 = 50;
    let (_directory, path) = place();
    serve(UdsListener::new(&path).bind().expect("free"));
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let client = soon("a client", irpc_uds::client::<Echo>(&path)).await;
        clients.push(client.expect("a server"));
    }
    let callers: Vec<_> = (0..CLIENTS)
        .zip(clients)
        .map(|(number, client)| {
            tokio::spawn(async move {
                for call in 0..CALLS {
                    let back = client.rpc(Back(vec![number, call])).await;
                    assert_eq!(back.expect("an answer"), [number, call]);
                }
            })
        })
        .collect();
    for caller in callers {
        soon("fifty answers", caller)
            .await
            .expect("each is answered rightly");
    }
}

#[tokio::test]
async fn ten_thousand_streams_are_open_at_once() {
    const STREAMS: usize = 10_000;
    let (_directory, path) = place();
    let endpoint = irpc_uds::server_endpoint(&path).expect("free");
    let server = tokio::spawn(async move {
        let connection = endpoint
            .accept()
            .await
            .expect("a client")
            .await
            .expect("a handshake");
        assert_eq!(
            peer_cred(&connection).and_then(|peer| peer.pid),
            Some(std::process::id() as i32)
        );
        let mut open = Vec::new();
        while open.len() < STREAMS {
            open.push(connection.accept_bi().await.expect("a stream"));
        }
        for (send, receive) in &mut open {
            let mut number = [0; 4];
            receive.read_exact(&mut number).await.expect("four bytes");
            send.write_all(&number).await.expect("room");
            send.finish().expect("open");
        }
        connection.closed().await;
    });
    let connection = irpc_uds::connect(&path).await.expect("a server");
    let mut open = Vec::new();
    for number in 0..STREAMS {
        let (mut send, receive) = soon("a stream", connection.open_bi())
            .await
            .expect("within the bound");
        send.write_all(&(number as u32).to_be_bytes())
            .await
            .expect("room");
        open.push((send, receive));
    }
    for (number, (_, receive)) in open.iter_mut().enumerate() {
        let back = soon("an answer", receive.read_to_end(4))
            .await
            .expect("four bytes");
        assert_eq!(back, (number as u32).to_be_bytes());
    }
    drop((open, connection));
    soon("the end", server).await.expect("no panic");
}

/// Writes to a new stream until nothing more is taken; how much that was.
async fn stuff(connection: &noq::Connection, piece: usize) -> (noq::SendStream, usize) {
    let mut stream = connection.open_uni().await.expect("within the bound");
    let (bytes, mut taken) = (vec![1; piece], 0);
    while let Ok(written) = tokio::time::timeout(Duration::from_secs(1), stream.write(&bytes)).await {
        taken += written.expect("open");
    }
    (stream, taken)
}

#[tokio::test]
async fn a_reader_that_stands_still_bounds_its_sender_and_nobody_else() {
    for kind in kinds() {
        let (_directory, path) = place();
        let endpoint = UdsListener::new(&path)
            .kind(kind)
            .bind()
            .expect("free")
            .into_endpoint();
        tokio::spawn(hoard(endpoint));
        let connector = UdsConnector::new(&path).kind(kind);
        let stuffed = connector.connect().await.expect("a server");
        let (_first, taken) = stuff(&stuffed, 1 << 16).await;
        let bound = (STREAM_WINDOW_BYTES as u64 + SEND_WINDOW_BYTES as u64) as usize;
        assert!(
            taken >= STREAM_WINDOW_BYTES as usize && taken <= bound,
            "{kind:?}: {taken} bytes taken"
        );
        // Small pieces fill a window too, each in a packet of its own.
        let mut small = stuffed.open_uni().await.expect("within the bound");
        let pieces = STREAM_WINDOW_BYTES as usize / 200;
        for _ in 0..pieces {
            small.write_all(&[3; 200]).await.expect("room");
            for _ in 0..4 {
                tokio::task::yield_now().await;
            }
        }
        let other = connector.connect().await.expect("a server");
        for connection in [&stuffed, &other] {
            for _ in 0..20 {
                let (mut send, mut receive) = connection.open_bi().await.expect("within the bound");
                send.write_all(b"still here").await.expect("room");
                send.finish().expect("open");
                let back = soon("an answer", receive.read_to_end(100)).await.expect("short");
                assert_eq!(back, b"still here");
            }
        }
    }
}
