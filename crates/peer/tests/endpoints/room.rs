//! Room to send, which long and short messages share.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;

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
        fill(&to_two);
        {
            let mut long = pin!(to_two.send(vec![2; LONG_BYTES], Delivery::unordered()));
            let waits = poll_fn(|context| Poll::Ready(long.as_mut().poll(context).is_pending()));
            assert!(waits.await);
        }
        let reader = tokio::spawn(async move {
            while to_one.receive().await.unwrap().body != "last" {}
            to_one
        });
        drop(to_two.send("last", Delivery::unordered()).await.unwrap());
        reader.await.unwrap();
    })
    .await;
}
