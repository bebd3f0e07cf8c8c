//! Room to send, which long and short messages share.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use peer::{Bytes, Delivery, Peer, SendError};

use crate::{in_time, pair};

/// More than half of all room.
const LONG_BYTES: usize = 12 << 20;

/// So much is sent in short messages at most.
const SHORT_BYTES: usize = 1 << 30;

fn fill(peer: &Peer) {
    let refused = loop {
        if let Err(error) = peer.try_send(vec![1; 1_000], Delivery::unordered()) {
            break error;
        }
    };
    assert_eq!(refused, SendError::Full);
}

/// The same where nobody reads at the other end, until that takes so little more that a long message finds no room.
async fn fill_both(peer: &Peer, other: &Peer) {
    let received_bytes = || other.path_stats().unwrap().received.received as usize * 1_000;
    while received_bytes() < LONG_BYTES {
        fill(peer);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    fill(peer);
}

/// What is awaited is looked at once, and is not there.
async fn assert_waits(mut awaited: Pin<&mut impl Future>) {
    let waits = poll_fn(|context| Poll::Ready(awaited.as_mut().poll(context).is_pending()));
    assert!(waits.await);
}

/// Sends short messages until `is_over`, or until all senders together have sent [`SHORT_BYTES`].
async fn send_short(peer: Peer, sent: Arc<AtomicUsize>, is_over: Arc<AtomicBool>) {
    let body = Bytes::from_static(&[1; 1_000]);
    while !is_over.load(Ordering::SeqCst) && sent.fetch_add(body.len(), Ordering::SeqCst) < SHORT_BYTES {
        drop(peer.send(body.clone(), Delivery::unordered()).await.unwrap());
    }
}

/// One thread runs all senders, by turns.
#[tokio::test]
async fn a_long_message_finds_its_room_among_short_ones_without_end() {
    in_time(async {
        let (_one, _two, to_two, to_one) = pair().await;
        let reader = tokio::spawn(async move {
            let (mut messages, mut has_long) = (Vec::new(), false);
            while !has_long {
                to_one.receive_many(&mut messages, 100).await.unwrap();
                let mut received = messages.drain(..);
                has_long = received.any(|message| message.body.len() == LONG_BYTES);
                drop(received);
                tokio::task::yield_now().await;
            }
            to_one
        });
        fill(&to_two);
        let (sent, is_over) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        for _ in 0..3 {
            tokio::spawn(send_short(
                to_two.clone(),
                Arc::clone(&sent),
                Arc::clone(&is_over),
            ));
        }
        tokio::task::yield_now().await;
        let long = to_two.send(vec![2; LONG_BYTES], Delivery::unordered()).await;
        is_over.store(true, Ordering::SeqCst);
        let short = sent.load(Ordering::SeqCst);
        assert!(short < SHORT_BYTES, "it waited until the last of them");
        drop(long.unwrap());
        reader.await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_message_that_is_given_up_while_it_waits_leaves_its_place_to_others() {
    in_time(async {
        let (_one, _two, to_two, to_one) = pair().await;
        fill_both(&to_two, &to_one).await;
        assert_waits(pin!(to_two.send(vec![2; LONG_BYTES], Delivery::unordered()))).await;
        let reader = tokio::spawn(async move {
            while to_one.receive().await.unwrap().body != "last" {}
            to_one
        });
        drop(to_two.send("last", Delivery::unordered()).await.unwrap());
        reader.await.unwrap();
    })
    .await;
}

/// Between two looks at a message that is pinned outside of a loop with `select!`, another branch sends another one.
#[tokio::test]
async fn a_message_whose_turn_is_not_taken_holds_no_other_up_for_good_and_is_sent_later() {
    in_time(async {
        let (_one, _two, to_two, to_one) = pair().await;
        fill_both(&to_two, &to_one).await;
        let mut long = pin!(to_two.send(vec![2; LONG_BYTES], Delivery::unordered()));
        assert_waits(long.as_mut()).await;
        let reader = tokio::spawn(async move {
            let mut lengths = Vec::new();
            while lengths.len() < 2 {
                let length = to_one.receive().await.unwrap().body.len();
                lengths.extend(Some(length).filter(|length| *length > 1_000));
            }
            (to_one, lengths)
        });
        let other = to_two.send(vec![3; 5 << 20], Delivery::unordered()).await;
        drop(other.unwrap());
        drop(long.await.unwrap());
        let (_to_one, mut lengths) = reader.await.unwrap();
        lengths.sort_unstable();
        assert_eq!(lengths, [5 << 20, LONG_BYTES]);
    })
    .await;
}

#[tokio::test]
async fn very_many_that_wait_are_all_sent() {
    const COUNT: usize = 4_000;
    in_time(async {
        let (_one, _two, to_two, to_one) = pair().await;
        fill_both(&to_two, &to_one).await;
        let (body, polls) = (Bytes::from(vec![2; 8 << 10]), Arc::<AtomicUsize>::default());
        let tasks: Vec<_> = (0..COUNT)
            .map(|_| {
                let (to_two, body, polls) = (to_two.clone(), body.clone(), Arc::clone(&polls));
                tokio::spawn(async move {
                    let mut sending = pin!(to_two.send(body, Delivery::unordered()));
                    let sent = poll_fn(|context| {
                        polls.fetch_add(1, Ordering::SeqCst);
                        sending.as_mut().poll(context)
                    });
                    drop(sent.await.unwrap());
                })
            })
            .collect();
        while polls.load(Ordering::SeqCst) < COUNT {
            tokio::task::yield_now().await;
        }
        let mut left = COUNT;
        while left > 0 {
            let length = to_one.receive().await.unwrap().body.len();
            left -= usize::from(length > 1_000);
        }
        for task in tasks {
            task.await.unwrap();
        }
    })
    .await;
}
