//! Sources of a kind that no role has, over real sockets and a real poller.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use packet_io::Ready;

use super::*;

/// For whatever should happen at once, on any machine.
const LIMIT: Duration = Duration::from_secs(60);

/// A control connection, as a proxy has one, that ends when nothing comes in time.
struct Control(TcpStream);

impl Source for Control {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn kind(&self) -> &'static str {
        "control"
    }
}

/// Both ends of a connection, ours first.
fn connection() -> (Control, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (own, _) = listener.accept().unwrap();
    own.set_nonblocking(true).unwrap();
    (Control(own), peer)
}

/// Waits for events; none where the wait is over.
fn wait(poller: &mut Poller, timeout: Duration) -> Vec<Ready> {
    let mut ready = Vec::new();
    poller.wait(&mut ready, Some(timeout)).unwrap();
    ready
}

fn id_of(event: &Ready) -> SourceId {
    match PollToken::decode(event.token) {
        PollToken::Source(id) => id,
        other => panic!("{other:?} was never watched"),
    }
}

fn counters(sources: &Sources<Control>) -> SourceCounters {
    sources.counters()["control"]
}

#[test]
fn a_source_is_reported_while_it_is_there_and_counted_by_its_kind() {
    let (mut poller, mut sources) = (Poller::new().unwrap(), Sources::new(8));
    let (own, mut peer) = connection();
    let id = sources.insert(&poller, own, Interest::READABLE, None).unwrap();
    peer.write_all(b"hello").unwrap();
    let ready = wait(&mut poller, LIMIT);
    assert_eq!(ready.iter().map(id_of).collect::<Vec<_>>(), [id]);
    assert!(sources.take_event(id));
    let mut buffer = [0; 16];
    assert_eq!(sources.get_mut(id).unwrap().0.read(&mut buffer).unwrap(), 5);
    let open = SourceCounters {
        open: 1,
        total: 1,
        events: 1,
        deadlines: 0,
    };
    assert_eq!(counters(&sources), open);

    let own = sources.remove(&poller, id).unwrap();
    peer.write_all(b"unseen").unwrap();
    assert!(wait(&mut poller, Duration::ZERO).is_empty());
    assert!(sources.get(id).is_none() && sources.remove(&poller, id).is_none());
    assert_eq!(counters(&sources), SourceCounters { open: 0, ..open });
    drop(own);
}

#[test]
fn a_late_event_of_a_closed_source_does_not_meet_its_successor() {
    let (mut poller, mut sources) = (Poller::new().unwrap(), Sources::new(1));
    let (first, mut first_peer) = connection();
    let old = sources.insert(&poller, first, Interest::READABLE, None).unwrap();
    first_peer.write_all(b"late").unwrap();
    let late = wait(&mut poller, LIMIT);
    drop(sources.remove(&poller, old));

    let (second, _second_peer) = connection();
    let new = sources.insert(&poller, second, Interest::READABLE, None).unwrap();
    assert_eq!((new.slot, id_of(&late[0])), (old.slot, old));
    assert!(!sources.take_event(id_of(&late[0])));
    assert!(sources.get(old).is_none() && sources.get_mut(old).is_none());
    sources.set_deadline(old, Some(Instant::now()));
    assert_eq!(sources.poll_timeout(), None);
    sources.set_interest(&poller, old, Interest::NONE).unwrap();
    assert!(sources.remove(&poller, old).is_none());
    assert!(sources.get(new).is_some());
    assert_eq!((counters(&sources).open, counters(&sources).events), (1, 0));
}

#[test]
fn the_earliest_deadline_is_told_and_each_is_due_once() {
    let (poller, mut sources) = (Poller::new().unwrap(), Sources::new(8));
    let start = Instant::now();
    let second = |count| start + Duration::from_secs(count);
    let mut insert = |deadline| {
        let (own, peer) = connection();
        let id = sources
            .insert(&poller, own, Interest::READABLE, deadline)
            .unwrap();
        (id, peer)
    };
    let (early, _peer) = insert(Some(second(1)));
    let (moved, _peer) = insert(Some(second(2)));
    let (closed, _peer) = insert(Some(second(3)));
    let (_patient, _peer) = insert(None);
    sources.set_deadline(moved, Some(second(5)));
    drop(sources.remove(&poller, closed));
    assert_eq!(sources.poll_timeout(), Some(second(1)));
    assert_eq!(sources.poll_due(start), None);
    assert_eq!(sources.poll_due(second(4)), Some(early));
    assert_eq!(sources.poll_due(second(4)), None);
    assert_eq!(sources.poll_timeout(), Some(second(5)));
    assert_eq!(sources.poll_due(second(9)), Some(moved));
    assert_eq!(sources.poll_timeout(), None);
    assert_eq!(counters(&sources).deadlines, 2);
}

#[test]
fn a_source_that_rests_reports_not_even_that_its_peer_is_gone() {
    let (mut poller, mut sources) = (Poller::new().unwrap(), Sources::new(8));
    let (own, mut peer) = connection();
    let id = sources.insert(&poller, own, Interest::READABLE, None).unwrap();
    sources.set_interest(&poller, id, Interest::NONE).unwrap();
    sources.get(id).unwrap().0.shutdown(Shutdown::Write).unwrap();
    peer.shutdown(Shutdown::Write).unwrap();
    // Both directions are closed: a poller that knew the descriptor would report a hang-up.
    assert_eq!(peer.read(&mut [0; 1]).unwrap(), 0);
    assert!(wait(&mut poller, Duration::ZERO).is_empty());
    sources.set_interest(&poller, id, Interest::READABLE).unwrap();
    assert_eq!(id_of(&wait(&mut poller, LIMIT)[0]), id);
}

#[test]
fn no_more_sources_than_the_limit_have_a_slot() {
    let (poller, mut sources) = (Poller::new().unwrap(), Sources::new(1));
    let (first, _first_peer) = connection();
    let (second, _second_peer) = connection();
    let (third, _third_peer) = connection();
    let id = sources.insert(&poller, first, Interest::READABLE, None).unwrap();
    let refused = sources.insert(&poller, second, Interest::READABLE, None);
    assert!(matches!(refused, Err(NotWatched::NoRoom)));
    drop(sources.remove(&poller, id));
    assert!(sources.insert(&poller, third, Interest::READABLE, None).is_ok());
}

#[test]
fn a_source_that_the_poller_refuses_leaves_its_slot_to_the_next() {
    let (poller, mut sources) = (Poller::new().unwrap(), Sources::new(1));
    let (own, _peer) = connection();
    let copy = Control(own.0.try_clone().unwrap());
    poller.add(&copy.descriptor(), 0, Interest::READABLE).unwrap();
    let refused = sources.insert(&poller, copy, Interest::READABLE, Some(Instant::now()));
    assert!(matches!(refused, Err(NotWatched::Poller(_))));
    assert!(sources.counters().is_empty() && sources.poll_timeout().is_none());
    assert!(sources.insert(&poller, own, Interest::READABLE, None).is_ok());
}

#[test]
fn generations_of_a_slot_begin_again_within_their_bits() {
    let last = SourceId {
        slot: 7,
        generation: GENERATION_MASK,
    };
    assert_eq!(SourceId::from_bits(last.to_bits()), last);
    assert!(last.to_bits() < 1 << SourceId::BITS);
    let (poller, mut sources) = (Poller::new().unwrap(), Sources::new(1));
    let (own, _peer) = connection();
    let id = sources.insert(&poller, own, Interest::READABLE, None).unwrap();
    sources.slots[0].generation = GENERATION_MASK;
    let id = SourceId {
        generation: GENERATION_MASK,
        ..id
    };
    let own = sources.remove(&poller, id).unwrap();
    let next = sources.insert(&poller, own, Interest::READABLE, None).unwrap();
    assert_eq!(next.generation, 0);
}
