//! Futures that are dropped before they are ready: what their tasks hold is held no longer.

use std::net::UdpSocket;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use peer::blocking::{wait, wait_for};
use peer::{Bytes, Delivery, SecretKey};
use tokio::io::{AsyncRead, ReadBuf};

use crate::{LIMIT, blocking_pair};

/// What an executor keeps of a task while a waker of it is anywhere.
struct Task;

impl Wake for Task {
    fn wake(self: Arc<Self>) {}
}

/// Looks once; the future where it waits.
fn begin<F: Future>(task: &Arc<Task>, future: F) -> Option<Pin<Box<F>>> {
    let waker = Waker::from(Arc::clone(task));
    let mut future = Box::pin(future);
    let looked = future.as_mut().poll(&mut Context::from_waker(&waker));
    looked.is_pending().then_some(future)
}

/// Whether the task is held so often at most: whoever was about to wake it lets it go soon.
fn is_held_at_most(task: &Arc<Task>, count: usize) -> bool {
    let begin = Instant::now();
    while Arc::strong_count(task) > count {
        if begin.elapsed() > LIMIT {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Begins to wait, as soon as there is nothing there, and gives that up: nothing keeps the task.
macro_rules! give_up {
    ($what:literal, $future:expr) => {
        let task = Arc::new(Task);
        while begin(&task, $future).is_none() {}
        assert!(is_held_at_most(&task, 1), $what);
    };
}

#[test]
fn ten_thousand_tasks_that_give_up_the_end_of_a_connection_leave_nothing() {
    let (_one, _two, to_two, _to_one) = blocking_pair();
    let mut stays = pin!(to_two.closed());
    let mut context = Context::from_waker(Waker::noop());
    assert!(stays.as_mut().poll(&mut context).is_pending());
    let tasks: Vec<_> = (0..10_000).map(|_| Arc::new(Task)).collect();
    let waiting: Vec<_> = tasks.iter().map(|task| begin(task, to_two.closed())).collect();
    assert!(waiting.iter().all(Option::is_some));
    drop(waiting);
    for task in &tasks {
        assert!(is_held_at_most(task, 1));
        drop(begin(task, to_two.closed()));
        assert!(is_held_at_most(task, 1));
    }
    to_two.close(0, "");
    assert!(wait_for(LIMIT, stays).is_some(), "the one that waits is woken");
}

#[test]
fn nothing_that_is_waited_for_keeps_a_task_that_gave_up() {
    let (one, two, to_two, to_one) = blocking_pair();
    give_up!("accept", two.accept());
    give_up!("ended", two.ended());
    let mut events = two.events();
    give_up!("events of an endpoint", events.next_event());
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let id = SecretKey::generate().unwrap().id();
    let connecting = one.begin(id, &[silent.local_addr().unwrap()]).unwrap();
    give_up!("connected", connecting.connected());

    let mut events = to_one.events();
    give_up!("events of a connection", events.next_event());
    give_up!("receive", to_one.receive());
    give_up!("accept of streams", to_one.accept());
    give_up!("accept_one_way", to_one.accept_one_way());

    let (mut sending, mut receiving) = wait(to_two.open(0)).unwrap();
    give_up!("read_chunk", receiving.read_chunk(1));
    give_up!("stopped", sending.stopped());
    let long = Bytes::from(vec![0; 40 << 20]);
    give_up!("write_chunk", sending.write_chunk(long.clone()));
    give_up!("finished", sending.finished());
    // As `AsyncRead`, the stream waits, and not a future of its own.
    let (task, mut byte) = (Arc::new(Task), [0]);
    let waker = Waker::from(Arc::clone(&task));
    for _ in 0..2 {
        let mut context = Context::from_waker(&waker);
        let read = Pin::new(&mut receiving).poll_read(&mut context, &mut ReadBuf::new(&mut byte));
        assert!(matches!(read, Poll::Pending));
        assert!(is_held_at_most(&task, 3));
    }
    drop((waker, receiving));
    assert!(is_held_at_most(&task, 1));

    let mut streams = Vec::new();
    while begin(&task, async {
        streams.push(to_two.open_one_way(0).await.unwrap())
    })
    .is_none()
    {}
    assert!(is_held_at_most(&task, 1), "open_one_way");

    let body = Bytes::from(vec![1; 100_000]);
    give_up!(
        "a ticket",
        wait(to_two.send(body.clone(), Delivery::unordered())).unwrap()
    );
    give_up!("send", to_two.send(body.clone(), Delivery::unordered()));
}
