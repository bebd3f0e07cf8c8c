//! The service that every contestant offers: a number squared, a payload sent back, a stream of numbers multiplied.

use bytes::Bytes;
use irpc::WithChannels;
use irpc::channel::{mpsc, oneshot};
use irpc::rpc_requests;
use serde::{Deserialize, Serialize};

/// What each number of the stream is multiplied with.
pub(super) const FACTOR: u64 = 3;

/// Requests that wait for the actor.
const INBOX: usize = 256;

/// The service as irpc knows it.
#[rpc_requests(message = EchoMessage, no_spans)]
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Echo {
    #[rpc(tx = oneshot::Sender<u64>)]
    #[wrap(Square)]
    Square(u64),
    #[rpc(tx = oneshot::Sender<Bytes>)]
    #[wrap(Whole)]
    Whole(Bytes),
    #[rpc(rx = mpsc::Receiver<u64>, tx = mpsc::Sender<u64>)]
    #[wrap(Multiply)]
    Multiply,
}

/// The square of `number` as all contestants compute it.
pub(super) fn square(number: u64) -> u64 {
    number.wrapping_mul(number)
}

/// The answer to one message of the stream.
pub(super) fn multiply(number: u64) -> u64 {
    number.wrapping_mul(FACTOR)
}

/// Starts the actor that answers irpc's requests, on the current runtime, and returns the way to it.
pub(super) fn start_actor() -> tokio::sync::mpsc::Sender<EchoMessage> {
    let (requests, mut inbox) = tokio::sync::mpsc::channel(INBOX);
    tokio::spawn(async move {
        while let Some(message) = inbox.recv().await {
            // A caller that has gone needs no answer.
            match message {
                EchoMessage::Square(WithChannels { inner, tx, .. }) => {
                    let _ = tx.send(square(inner.0)).await;
                }
                EchoMessage::Whole(WithChannels { inner, tx, .. }) => {
                    let _ = tx.send(inner.0).await;
                }
                EchoMessage::Multiply(WithChannels { mut rx, tx, .. }) => {
                    tokio::spawn(async move {
                        while let Ok(Some(number)) = rx.recv().await {
                            if tx.send(multiply(number)).await.is_err() {
                                break;
                            }
                        }
                    });
                }
            }
        }
    });
    requests
}
