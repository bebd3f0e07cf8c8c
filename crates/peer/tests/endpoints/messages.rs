//! Messages: all arrive, in their order and however little room there is, and each ticket tells what became of its own.

use peer::blocking::{wait, wait_for};
use peer::{Bytes, Delivery, DropReason, Outcome, SendError};

use crate::{LIMIT, bind, blocking_pair, builder, endpoint, in_time, meet, pair};

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

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn messages_with_and_without_the_lock_share_a_small_room_and_all_arrive() {
    const COUNT: u32 = 2_000;
    in_time(async {
        let (one, two) = (bind(builder().send_bytes_max(5_000)), endpoint());
        let (to_two, to_one) = meet(&one, &two).await;
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

#[test]
fn a_dropped_peer_ends_the_connection_and_every_ticket() {
    let (_one, _two, to_two, to_one) = blocking_pair();
    // Nobody reads it, and it is longer than the peer's window.
    let ticket = wait(to_two.send(vec![0; 60 << 20], Delivery::unordered())).unwrap();
    drop(to_one);
    let outcome = wait_for(LIMIT, ticket).unwrap();
    assert_eq!(outcome, Outcome::Dropped(DropReason::ConnectionEnded));
    assert!(wait_for(LIMIT, to_two.closed()).is_some());
}

#[test]
fn the_tickets_of_a_dropped_peer_end() {
    let (_one, _two, to_two, to_one) = blocking_pair();
    // Nobody reads it, and it is longer than the peer's window.
    let ticket = wait(to_two.send(vec![0; 60 << 20], Delivery::unordered())).unwrap();
    drop(to_two);
    let outcome = wait_for(LIMIT, ticket).unwrap();
    assert_eq!(outcome, Outcome::Dropped(DropReason::ConnectionEnded));
    assert!(wait_for(LIMIT, to_one.closed()).is_some());
}

#[test]
fn acknowledged_messages_can_be_read_after_the_end_of_the_connection() {
    let (_one, _two, to_two, to_one) = blocking_pair();
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
