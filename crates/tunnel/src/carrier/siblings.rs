//! Which shard of a server has a connection in TCP's shape, and trains for the connections of others.
//!
//! The kernel spreads such connections over shards by their addresses, QUIC's connections stay where they began. Where
//! a client comes from another port, what it sends is handed to the shard of its QUIC connection as segments over UDP
//! are; what that shard answers has to leave by the shard that has the connection in TCP's shape, whose numbers nobody
//! else knows. So only clients that have moved cost a lock and a copy.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use packet::Ecn;
use packet_io::Outgoing;
use rustix::event::{EventfdFlags, eventfd};

use crate::limits;

/// A connection in TCP's shape: the peer, and our address.
pub(super) type Ends = (SocketAddr, IpAddr);

/// A train on its way to a sibling.
pub(super) struct HandedTrain {
    ends: Ends,
    ecn: Ecn,
    segment_size: usize,
    bytes: Vec<u8>,
}

impl HandedTrain {
    /// As it was to be sent.
    pub(super) fn outgoing(&self) -> Outgoing<'_> {
        Outgoing {
            destination: Some(self.ends.0),
            source: Some(self.ends.1),
            ecn: self.ecn,
            segment_size: self.segment_size,
            payload: &self.bytes,
        }
    }
}

/// What waits for one shard.
struct Mailbox {
    /// Readable while something waits.
    bell: OwnedFd,
    /// Spares the shard the lock.
    has_mail: AtomicBool,
    trains: Mutex<Trains>,
}

#[derive(Default)]
struct Trains {
    queue: VecDeque<HandedTrain>,
    bytes: usize,
}

struct Shared {
    places: Mutex<HashMap<Ends, usize>>,
    mailboxes: Vec<Mailbox>,
}

/// One shard's view of the others.
pub(super) struct Siblings {
    own: usize,
    shared: Arc<Shared>,
}

impl Siblings {
    /// One for each of `count` shards.
    pub(super) fn group(count: usize) -> io::Result<Vec<Self>> {
        let mailbox = |_| {
            Ok(Mailbox {
                bell: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
                has_mail: AtomicBool::new(false),
                trains: Mutex::default(),
            })
        };
        let shared = Arc::new(Shared {
            places: Mutex::default(),
            mailboxes: (0..count).map(mailbox).collect::<io::Result<_>>()?,
        });
        let of_shard = |own| Self {
            own,
            shared: Arc::clone(&shared),
        };
        Ok((0..count).map(of_shard).collect())
    }

    /// Becomes readable when another shard has something for this one.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.mailbox().bell.as_fd()
    }

    /// This shard has a connection.
    pub(super) fn opened(&self, ends: Ends) {
        lock(&self.shared.places).insert(ends, self.own);
    }

    /// It has it no longer.
    pub(super) fn closed(&self, ends: Ends) {
        let mut places = lock(&self.shared.places);
        // Another shard has none with the same addresses: they decide on the shard.
        places.remove(&ends);
    }

    /// Hands a train to the shard that has its connection. What nobody has, or what exceeds the limit, is lost, as on
    /// the way.
    pub(super) fn hand_over(&self, ends: Ends, message: &Outgoing<'_>) {
        let place = lock(&self.shared.places).get(&ends).copied();
        let Some(mailbox) = place
            .filter(|place| *place != self.own)
            .and_then(|place| self.shared.mailboxes.get(place))
        else {
            return;
        };
        let mut trains = lock(&mailbox.trains);
        if trains.bytes + message.payload.len() > limits::HANDED_TRAIN_BYTES_MAX {
            return;
        }
        trains.bytes += message.payload.len();
        trains.queue.push_back(HandedTrain {
            ends,
            ecn: message.ecn,
            segment_size: message.segment_size,
            bytes: message.payload.to_vec(),
        });
        if !mailbox.has_mail.swap(true, Ordering::Release) {
            // It fails where the bell rings already.
            let _ = rustix::io::write(&mailbox.bell, &1_u64.to_ne_bytes());
        }
    }

    /// What others have handed over since.
    pub(super) fn take(&self) -> VecDeque<HandedTrain> {
        let mailbox = self.mailbox();
        if !mailbox.has_mail.load(Ordering::Acquire) {
            return VecDeque::new();
        }
        let mut trains = lock(&mailbox.trains);
        mailbox.has_mail.store(false, Ordering::Relaxed);
        let _ = rustix::io::read(&mailbox.bell, &mut [0; 8]);
        trains.bytes = 0;
        std::mem::take(&mut trains.queue)
    }

    fn mailbox(&self) -> &Mailbox {
        &self.shared.mailboxes[self.own]
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use packet_io::{Interest, Poller};

    use super::*;

    #[test]
    fn a_train_goes_to_the_shard_that_has_its_connection_and_no_more_wait_than_the_limit() {
        let siblings = Siblings::group(2).unwrap();
        let ends = ("192.0.2.1:443".parse().unwrap(), [192, 0, 2, 2].into());
        let train = vec![7; 2_000];
        let message = Outgoing::connected(&train, 1_000);
        siblings[0].hand_over(ends, &message);
        assert!(siblings[1].take().is_empty(), "nobody has it");
        siblings[1].opened(ends);
        let mut poller = Poller::new().unwrap();
        poller.add(&siblings[1].bell(), 0, Interest::READABLE).unwrap();
        let mut ready = Vec::new();
        for _ in 0..2 {
            siblings[0].hand_over(ends, &message);
            poller
                .wait(&mut ready, Some(std::time::Duration::from_secs(60)))
                .unwrap();
            assert_eq!(ready.len(), 1, "the shard is woken");
            let taken = siblings[1].take();
            let sent = taken[0].outgoing();
            assert_eq!(
                (taken.len(), sent.payload, sent.segment_size),
                (1, &train[..], 1_000)
            );
            assert_eq!((sent.destination, sent.source), (Some(ends.0), Some(ends.1)));
        }
        poller.wait(&mut ready, Some(std::time::Duration::ZERO)).unwrap();
        assert!(ready.is_empty(), "the bell is silent again");
        (0..2_000).for_each(|_| siblings[0].hand_over(ends, &message));
        assert_eq!(
            siblings[1].take().len(),
            limits::HANDED_TRAIN_BYTES_MAX / train.len()
        );
        siblings[1].closed(ends);
        siblings[0].hand_over(ends, &message);
        assert!(siblings[1].take().is_empty());
    }
}
