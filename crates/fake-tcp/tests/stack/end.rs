//! How connections end, and when the next one may begin.

use std::time::Duration;

use fake_tcp::segment::Flags;
use fake_tcp::{CloseReason, Config, ConnectError, Event, Profile, Stack};

use super::pair::{CLIENT, Pair, SERVER, listening};

const FIN: Flags = Flags::FIN.and(Flags::ACK);

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn flags(pair: &Pair) -> Vec<(usize, Flags)> {
    pair.sent
        .iter()
        .map(|sent| (sent.from, sent.segment.flags))
        .collect()
}

/// FTCP-14.
#[test]
fn an_end_has_three_segments() {
    let (mut pair, [client, server]) = Pair::new().connected();
    pair.sent.clear();
    pair.send(CLIENT, client, &[1; 100], 0).unwrap();
    pair.stacks[CLIENT].close(pair.now(), client);
    assert!(!pair.stacks[CLIENT].is_quiet());
    pair.run(millis(100));
    assert!(pair.stacks.iter().all(Stack::is_quiet));
    assert_eq!(
        flags(&pair)[1..],
        [
            (CLIENT, FIN),
            (SERVER, Flags::ACK),
            (SERVER, FIN),
            (CLIENT, Flags::ACK)
        ]
    );
    assert_eq!(pair.received[SERVER].len(), 1);
    let reason = CloseReason::Finished;
    assert_eq!(
        pair.events[SERVER],
        [Event::Closed {
            connection: server,
            reason
        }]
    );
    assert!(pair.events[CLIENT].is_empty());
    pair.run(millis(3_100));
    assert_eq!([0, 1].map(|end| pair.stacks[end].connections()), [0, 0]);
    assert_eq!([0, 1].map(|end| pair.stacks[end].poll_timeout()), [None, None]);
}

/// FTCP-14.
#[test]
fn each_segment_of_the_end_may_be_lost() {
    for lost in 0..3 {
        let (mut pair, [client, _]) = Pair::new().connected();
        let mut count = 0;
        pair.filter = Box::new(move |_| {
            count += 1;
            count != lost + 1
        });
        pair.stacks[CLIENT].close(pair.now(), client);
        pair.run(millis(2_500));
        assert!(
            matches!(
                pair.events[SERVER][..],
                [Event::Closed {
                    reason: CloseReason::Finished,
                    ..
                }]
            ),
            "{lost}: {:?}",
            pair.events[SERVER]
        );
        assert!(
            flags(&pair).iter().all(|(_, flags)| !flags.has(Flags::RST)),
            "{lost}"
        );
        pair.run(millis(10_000));
        assert_eq!([0, 1].map(|end| pair.stacks[end].connections()), [0, 0], "{lost}");
    }
}

/// FTCP-14.
#[test]
fn both_may_end_at_once_and_an_end_without_answer_is_given_up() {
    let (mut pair, ids) = Pair::new().connected();
    for end in [CLIENT, SERVER] {
        pair.stacks[end].close(pair.now(), ids[end]);
    }
    pair.run(millis(4_000));
    assert_eq!([0, 1].map(|end| pair.stacks[end].connections()), [0, 0]);
    assert!(flags(&pair).iter().all(|(_, flags)| !flags.has(Flags::RST)));

    let (mut pair, [client, _]) = Pair::new().connected();
    pair.filter = Box::new(|_| false);
    pair.sent.clear();
    pair.stacks[CLIENT].close(pair.now(), client);
    pair.run(millis(11_000));
    assert_eq!(
        flags(&pair).iter().filter(|sent| **sent == (CLIENT, FIN)).count(),
        3
    );
    assert_eq!(pair.stacks[CLIENT].connections(), 0);
}

/// FTCP-14.
#[test]
fn datagrams_behind_our_fin_are_dropped() {
    let (mut pair, [client, server]) = Pair::new().connected();
    pair.stacks[CLIENT].close(pair.now(), client);
    pair.flush();
    pair.send(SERVER, server, b"too late", 0).unwrap();
    pair.run(millis(500));
    assert!(pair.received[CLIENT].is_empty());
    assert!(matches!(pair.events[SERVER][..], [Event::Closed { .. }]));
}

/// FTCP-17.
#[test]
fn addresses_are_in_quarantine_for_three_seconds() {
    let (mut pair, [client, _]) = Pair::new().connected();
    let late = pair.sent[2].bytes.clone();
    pair.stacks[CLIENT].close(pair.now(), client);
    pair.run(millis(100));
    pair.sent.clear();
    let (now, [local, remote]) = (pair.now(), pair.addresses);
    assert_eq!(
        pair.stacks[CLIENT].connect(now, local, remote),
        Err(ConnectError::InUse)
    );
    // What was late on the way is not answered.
    pair.is_watched = false;
    pair.deliver(SERVER, &late, None);
    assert!(pair.sent.is_empty());
    pair.run(millis(3_000));
    pair.is_watched = true;
    pair.events = Default::default();
    let (mut pair, _) = pair.connected();
    pair.run(millis(100));
    assert_eq!(pair.stacks[SERVER].counters().accepted, 2);
    // The next generation is another one.
    assert!(pair.stacks[CLIENT].addresses(client).is_none());
}

/// FTCP-17.
#[test]
fn a_syn_behind_all_that_was_ends_the_quarantine() {
    for (offset, opens) in [(1, true), (0, false), (u32::MAX, false)] {
        let (mut pair, [client, _]) = Pair::new().connected();
        let syn = pair.sent[0].bytes.clone();
        pair.stacks[CLIENT].close(pair.now(), client);
        pair.run(millis(100));
        pair.is_watched = false;
        let end = pair.take_sent(CLIENT).pop().unwrap().segment.sequence;
        let again = super::data::renumbered(&syn, end.plus(offset).0, 0);
        pair.take_sent(SERVER);
        pair.deliver(SERVER, &again, None);
        let answers = pair.take_sent(SERVER);
        assert_eq!(
            answers.iter().any(|sent| sent.segment.flags.has(Flags::SYN)),
            opens,
            "{offset}"
        );
        assert!(opens || answers.is_empty());
    }
}

/// FTCP-15, FTCP-16, FTCP-17: who has forgotten everything is told by the numbers of who has not, and connects.
#[test]
fn a_restarted_peer_connects_again_from_the_same_port() {
    let (mut pair, [_, server]) = Pair::new().connected();
    pair.is_watched = false;
    let config = Config::new(Profile::Linux);
    pair.stacks[CLIENT] = Stack::new(config, [99; 32]);
    let again = pair.connect();
    pair.run(millis(1_500));
    assert_eq!(pair.events[CLIENT], [Event::Connected { connection: again }]);
    let reason = CloseReason::Reset;
    assert_eq!(
        pair.events[SERVER][0],
        Event::Closed {
            connection: server,
            reason
        }
    );
    let Event::Accepted { connection, .. } = pair.events[SERVER][1] else {
        panic!("{:?}", pair.events[SERVER]);
    };
    pair.send(SERVER, connection, b"welcome", 0).unwrap();
    pair.run(millis(20));
    assert_eq!(pair.received[CLIENT], [b"welcome".to_vec()]);
}

/// FTCP-16.
#[test]
fn a_restarted_listener_tells_its_peers() {
    let (mut pair, [client, _]) = Pair::new().connected();
    pair.is_watched = false;
    pair.stacks[SERVER] = Stack::new(listening(Profile::Linux), [99; 32]);
    pair.send(CLIENT, client, b"anybody there?", 0).unwrap();
    pair.run(millis(50));
    let reason = CloseReason::Reset;
    assert_eq!(
        pair.events[CLIENT],
        [Event::Closed {
            connection: client,
            reason
        }]
    );
    // And from another port everything begins anew.
    pair.addresses[CLIENT].set_port(40_001);
    pair.events = Default::default();
    pair.connected();
}
