//! Endpoints on real sockets of this machine: their [`connections`], [`messages`] and [`streams`], the [`room`] that
//! messages share, whoever is [`giving_up`] what they wait for, and endpoints that are [`driven_by_runtime`].
#![expect(clippy::unwrap_used, reason = "a failed step of a test fails the test")]

mod connections;
mod driven_by_runtime;
mod giving_up;
mod messages;
mod room;
mod streams;

use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;

use peer::blocking::wait_for;
use peer::{Builder, Endpoint, Peer, SecretKey};

/// By when everything has happened, on the busiest machine.
const LIMIT: Duration = Duration::from_secs(60);

fn builder() -> Builder {
    Endpoint::builder(SecretKey::generate().unwrap())
}

/// At a port of the loopback interface.
fn bind(builder: Builder) -> Endpoint {
    builder.bind("127.0.0.1:0".parse().unwrap()).unwrap()
}

fn endpoint() -> Endpoint {
    bind(builder())
}

/// Connects the first to the second; the connection as each sees it.
async fn meet(one: &Endpoint, two: &Endpoint) -> (Peer, Peer) {
    let to_two = one.connect(two.id(), &[two.local_addr()]).await.unwrap();
    let to_one = two.accept().await.unwrap();
    (to_two, to_one)
}

/// Two endpoints, and their connection as each sees it.
async fn pair() -> (Endpoint, Endpoint, Peer, Peer) {
    let (one, two) = (endpoint(), endpoint());
    let (to_two, to_one) = meet(&one, &two).await;
    (one, two, to_two, to_one)
}

/// The same without an executor.
fn blocking_pair() -> (Endpoint, Endpoint, Peer, Peer) {
    wait_for(LIMIT, pair()).expect("it took too long")
}

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future)
        .await
        .expect("it took too long")
}

/// A waker that panics: where an endpoint is driven, once it has something for whoever waits.
fn bomb() -> Waker {
    struct Bomb;

    impl Wake for Bomb {
        fn wake(self: Arc<Self>) {
            panic!("a waker that fails, as this test wants it to");
        }
    }

    Waker::from(Arc::new(Bomb))
}
