//! Guests of a server: let in by a number, to meet a peer and for nothing else.

use std::time::Duration;

use quic::CloseReason;
use tunnel_proto::rendezvous::Message;
use tunnel_proto::{ClientAction, Ending, Protocol, Target, limits};

use crate::relay::Relayed;
use crate::rendezvous::{Site, call, id};
use crate::support::SECOND;

/// The number that a client is given.
fn invite(site: &mut Site, client: usize) -> Option<u32> {
    site.heard(client);
    site.say(client, &[Message::Invite]);
    site.run();
    match site.heard(client)[..] {
        [Message::Invited { number }] => number,
        ref heard => panic!("{heard:?}"),
    }
}

/// RDV-14, RDV-15, RDV-17: and it is relayed.
#[test]
fn a_guest_meets_a_peer_and_may_do_nothing_else() {
    let mut site = Site::with_guests(1);
    let number = invite(&mut site, 0).expect("there is room");
    let guest = site.world.add_guest(number);
    site.add(guest, 7);
    assert_eq!(site.rendezvous.counters().registered, 2);
    let heard = site.heard(1);
    assert!(
        matches!(heard[..], [Message::Observed(_), Message::Inviter { peer }] if peer == id(0)),
        "{heard:?}"
    );
    site.say(1, &[call(0)]);
    site.run();
    let heard = site.heard(0);
    assert!(
        matches!(heard[..], [Message::Called { caller, .. }] if caller == id(7)),
        "{heard:?}"
    );
    let now = site.world.now();
    let sockets = [0, 1].map(|client| site.client(client).open_relay(now));
    site.run();
    let addresses = [0, 1].map(|client| site.client(client).relayed_address(sockets[client]));
    let [Some(own), Some(of_guest)] = addresses else {
        panic!("{addresses:?}");
    };
    assert_eq!(site.client(0).open_context(sockets[0], of_guest), Ok(()));
    assert_eq!(site.client(1).open_context(sockets[1], own), Ok(()));
    site.run();
    let now = site.world.now();
    site.client(1)
        .send_relayed(now, sockets[1], own, [&[9_u8; 100][..]].into_iter());
    site.run();
    let address = site.clients[0];
    assert_eq!(site.world.client_at(address).relayed, [(of_guest, vec![9; 100])]);
    // Nothing else: neither forwards nor further guests.
    let now = site.world.now();
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let target = Target::new("echo-1", 7).expect("a well-formed target");
        site.client(1).open(now, protocol, target);
    }
    site.run();
    let refused = Ending::Refused {
        status: 403,
        error: None,
    };
    assert_eq!(site.endings(1), [refused]);
    let is_refused = |action: &ClientAction| matches!(action, ClientAction::Refused { status: 403, .. });
    assert_eq!(site.world.client_at(guest).count(is_refused), 1);
    assert_eq!(invite(&mut site, 1), None);
}

/// RDV-15: by the relay, each way; what was moved counts among its bytes, which [`limits::GUEST_BYTES_MAX`] bounds.
#[test]
fn a_guest_is_held_to_its_rate_each_way_and_all_of_it_is_its_use() {
    const PAYLOAD: usize = 1_100;
    const TURN: Duration = Duration::from_millis(5);
    let mut site = Site::with_guests(1);
    let number = invite(&mut site, 0).expect("there is room");
    let guest = site.world.add_guest(number);
    site.add(guest, 7);
    let mut relayed = Relayed::of(site);
    relayed.join(0, 1);
    let addresses = [relayed.addresses[0], relayed.addresses[1]];
    // Twice the rate.
    let per_turn = (limits::GUEST_BITS_PER_SECOND / 4).div_ceil(200 * PAYLOAD as u64) as usize;
    let mut come = [0; 2];
    for span in [SECOND, 2 * SECOND] {
        come = [0; 2];
        for _ in 0..span.as_millis() / TURN.as_millis() {
            relayed.send(0, addresses[1], &vec![vec![7; PAYLOAD]; per_turn]);
            relayed.send(1, addresses[0], &vec![vec![7; PAYLOAD]; per_turn]);
            relayed.site.world.run(TURN);
            come[0] += relayed.received(0).len();
            come[1] += relayed.received(1).len();
        }
    }
    for (whose, payloads) in come.into_iter().enumerate() {
        let part = (8 * payloads * PAYLOAD) as f64 / (2 * limits::GUEST_BITS_PER_SECOND) as f64;
        assert!((0.93..=1.05).contains(&part), "to {whose}: {part} of the rate");
    }
    relayed.site.world.run(2 * SECOND);
    let users = relayed.site.world.server().engine.users();
    let counted = users.values().map(|user| user.bytes).min();
    let moved = (come.iter().sum::<usize>() * PAYLOAD) as u64;
    assert!(
        counted.is_some_and(|bytes| bytes > moved),
        "{counted:?} of {moved}"
    );
}

/// RDV-15: what guests are granted is [`limits::GUEST_BYTES_MAX`]; here it is lowered, so that it is used up soon.
#[test]
fn a_guest_whose_bytes_are_used_up_leaves_and_is_not_let_in_again() {
    const BYTES: u64 = 4 << 20;
    const PAYLOAD: usize = 1_100;
    const TURN: Duration = Duration::from_millis(5);
    let mut site = Site::with_guests_of(1, BYTES);
    let number = invite(&mut site, 0).expect("there is room");
    let guest = site.world.add_guest(number);
    site.add(guest, 7);
    let mut relayed = Relayed::of(site);
    relayed.join(0, 1);
    let (own, to_guest) = (relayed.addresses[0], relayed.addresses[1]);
    let is_dismissed = |action: &ClientAction| match action {
        ClientAction::Lost { reason, .. } => reason.to_string().contains("bytes are used up"),
        _ => false,
    };
    let (mut moved, mut dismissals, begin) = (0, 0, relayed.site.world.now());
    while dismissals == 0 {
        assert!(
            relayed.site.world.now() < begin + 5 * SECOND,
            "after {moved} payloads"
        );
        relayed.send(0, to_guest, &vec![vec![7; PAYLOAD]; 10]);
        relayed.send(1, own, &vec![vec![7; PAYLOAD]; 10]);
        relayed.site.world.run(TURN);
        moved += relayed.received(0).len() + relayed.received(1).len();
        dismissals = relayed.site.world.client_at(guest).count(is_dismissed);
    }
    let mut site = relayed.site;
    site.world.run(SECOND);
    assert_eq!(site.rendezvous.counters().registered, 1);
    // The server counts now and then: a second at the guest's rate each way may be too much.
    let moved = (moved * PAYLOAD) as u64;
    let most = BYTES + 2 * limits::GUEST_BITS_PER_SECOND / 8;
    assert!((BYTES / 2..=most).contains(&moved), "{moved} bytes");
    let again = site.world.add_guest(number);
    site.world.run(2 * SECOND);
    let is_up = |action: &ClientAction| matches!(action, ClientAction::Up { .. });
    assert_eq!(site.world.client_at(again).count(is_up), 0);
}

/// RDV-15.
#[test]
fn a_number_is_used_up_by_one_peer_which_may_come_again_until_its_time_is_over() {
    let mut site = Site::with_guests(1);
    let number = invite(&mut site, 0).expect("there is room");
    let guest = site.world.add_guest(number);
    site.add(guest, 7);
    // Another peer with the same number.
    let other = site.world.add_guest(number);
    site.add(other, 8);
    let forbidden = Ending::Refused {
        status: 403,
        error: None,
    };
    assert_eq!(site.endings(2), [forbidden]);
    assert_eq!(site.rendezvous.counters().registered, 2);
    // The first one again.
    site.register(2, 7);
    site.run();
    assert_eq!(site.rendezvous.counters().registered, 2);
    let later = limits::GUEST_TIME_MAX + 2 * SECOND;
    site.world.run(later);
    assert_eq!(site.rendezvous.counters().registered, 1);
    let is_over = |action: &ClientAction| {
        matches!(
            action,
            ClientAction::Lost {
                reason: CloseReason::ApplicationClosed { .. },
                ..
            }
        )
    };
    assert!(site.world.client_at(other).count(is_over) >= 1);
}

/// RDV-16: a stranger with a wrong number is answered like any other stranger.
#[test]
fn a_wrong_number_is_a_wrong_token() {
    let mut site = Site::with_guests(1);
    let number = invite(&mut site, 0).expect("there is room");
    let wrong = if number == 1_000 { 1_001 } else { 1_000 };
    let guest = site.world.add_guest(wrong);
    site.world.run(SECOND);
    let is_refused = |action: &ClientAction| matches!(action, ClientAction::TokenRefused { status: 401 });
    assert_eq!(site.world.client_at(guest).count(is_refused), 1);
    assert_eq!(site.world.server().engine.refused_requests().get("401"), Some(&1));
}

/// RDV-18.
#[test]
fn a_user_finds_who_asked_for_a_number_and_a_guest_does_not() {
    let mut site = Site::with_guests(2);
    let number = invite(&mut site, 0).expect("there is room");
    let guest = site.world.add_guest(number);
    site.add(guest, 7);
    for (client, asked, expected) in [(1, number, Some(id(0))), (1, number ^ 1, None), (2, number, None)] {
        site.heard(client);
        site.say(client, &[Message::Find { number: asked }]);
        site.run();
        assert_eq!(
            site.heard(client),
            [Message::Found { peer: expected }],
            "{client}"
        );
    }
    // A transfer takes longer than a number waits for its guest.
    let other = invite(&mut site, 0).expect("there is room");
    for wait in [Duration::ZERO, 3 * limits::INVITATION_TIME_MAX / 2] {
        site.world.run(wait);
        site.heard(1);
        site.say(1, &[Message::Find { number: other }]);
        site.run();
        assert_eq!(site.heard(1), [Message::Found { peer: Some(id(0)) }], "{wait:?}");
    }
    let now = site.world.now();
    site.client(0).disconnect(now);
    site.world.run(SECOND);
    site.run();
    site.heard(1);
    site.say(1, &[Message::Find { number }]);
    site.run();
    assert_eq!(
        site.heard(1),
        [Message::Found { peer: None }],
        "who asked has left"
    );
}
