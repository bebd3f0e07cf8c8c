//! A stripe's attempts in virtual time.

use super::*;

fn start() -> Instant {
    // tidy-allow(pure): first instant of virtual time
    Instant::now()
}

fn reconnection(hosts: &[&str], now: Instant) -> Reconnection {
    let servers = hosts.iter().map(|host| ((*host).to_owned(), 443)).collect();
    Reconnection::new(servers, 7, now)
}

fn connects_to(reconnection: &mut Reconnection, host: &str) -> bool {
    let expected = SocketAddr::new(host.parse().unwrap(), 443);
    matches!(reconnection.poll_action(), Some(ConnectAction::Connect { address, .. }) if address == expected)
}

/// Lets the attempt or the pause run out, and tells the loss of an attempt.
fn run_out(reconnection: &mut Reconnection) -> Instant {
    let due = reconnection.poll_timeout().unwrap();
    reconnection.handle_timeout(due);
    if reconnection.actions.front() == Some(&ConnectAction::Disconnect) {
        reconnection.poll_action();
        assert_eq!(reconnection.poll_timeout(), None);
        reconnection.handle_lost(due, None);
    }
    due
}

fn at(host: &str) -> SocketAddr {
    SocketAddr::new(host.parse().unwrap(), 443)
}

/// Takes the question for this name.
fn resolves(reconnection: &mut Reconnection, name: &str) -> u64 {
    match reconnection.poll_action() {
        Some(ConnectAction::Resolve { resolution, host, .. }) if host == name => resolution,
        other => panic!("{name} is to be resolved: {other:?}"),
    }
}

#[test]
fn addresses_come_in_their_order_and_where_all_failed_a_pause() {
    let now = start();
    let mut reconnection = reconnection(&["a.test", "192.0.2.9"], now);
    assert_eq!(reconnection.state_name(), "connecting");
    reconnection.handle_timeout(now);
    let resolution = resolves(&mut reconnection, "a.test");
    assert!(connects_to(&mut reconnection, "192.0.2.9"));
    reconnection.handle_resolved(now, resolution + 1, &[at("192.0.2.8")]);
    reconnection.handle_resolved(now, resolution, &[at("192.0.2.1"), at("192.0.2.2")]);
    reconnection.handle_attempt_failed(now, "no route".to_owned());
    assert!(connects_to(&mut reconnection, "192.0.2.1"));
    reconnection.handle_lost(now, Some("refused".to_owned()));
    assert!(connects_to(&mut reconnection, "192.0.2.2"));
    // The last one has all the time.
    assert_eq!(reconnection.poll_timeout(), Some(now + limits::CONNECT_ATTEMPT));
    run_out(&mut reconnection);
    let reason = "cannot reach 192.0.2.9 (UDP 443, no answer; a firewall?), retrying".to_owned();
    assert_eq!(
        reconnection.poll_action(),
        Some(ConnectAction::Unreachable { reason })
    );
    run_out(&mut reconnection);
    resolves(&mut reconnection, "a.test");
}

#[test]
fn an_address_that_stays_silent_makes_room_soon_and_has_a_longer_turn_later() {
    let now = start();
    let mut reconnection = reconnection(&["192.0.2.1", "192.0.2.2", "2001:db8::1"], now);
    reconnection.handle_timeout(now);
    let mut elapsed = Duration::ZERO;
    for patience in limits::SILENT_TURNS {
        for host in ["2001:db8::1", "192.0.2.1", "192.0.2.2"] {
            assert!(connects_to(&mut reconnection, host), "{host} {patience:?}");
            elapsed += patience;
            assert_eq!(run_out(&mut reconnection), now + elapsed);
        }
    }
    // Then each has all the time, once.
    for host in ["2001:db8::1", "192.0.2.1", "192.0.2.2"] {
        assert!(connects_to(&mut reconnection, host));
        elapsed += limits::CONNECT_ATTEMPT;
        assert_eq!(run_out(&mut reconnection), now + elapsed);
    }
    assert!(matches!(
        reconnection.poll_action(),
        Some(ConnectAction::Unreachable { .. })
    ));
}

#[test]
fn an_address_that_answers_keeps_its_attempt() {
    let now = start();
    let mut reconnection = reconnection(&["192.0.2.1", "192.0.2.2"], now);
    reconnection.handle_timeout(now);
    assert!(connects_to(&mut reconnection, "192.0.2.1"));
    // What was heard before is of another attempt.
    reconnection.handle_heard(now - limits::SILENT_TURNS[0]);
    assert_eq!(reconnection.poll_timeout(), Some(now + limits::SILENT_TURNS[0]));
    reconnection.handle_heard(now + limits::SILENT_TURNS[0] / 2);
    assert_eq!(reconnection.poll_timeout(), Some(now + limits::CONNECT_ATTEMPT));
    run_out(&mut reconnection);
    assert!(connects_to(&mut reconnection, "192.0.2.2"));
    run_out(&mut reconnection);
    assert!(matches!(
        reconnection.poll_action(),
        Some(ConnectAction::Unreachable { .. })
    ));
}

#[test]
fn an_address_that_comes_later_ends_a_silent_attempt() {
    let now = start();
    let mut reconnection = reconnection(&["a.test", "2001:db8::1"], now);
    reconnection.handle_timeout(now);
    let resolution = resolves(&mut reconnection, "a.test");
    assert!(connects_to(&mut reconnection, "2001:db8::1"));
    let late = now + limits::CONNECT_ATTEMPT / 2;
    reconnection.handle_timeout(late);
    assert_eq!(reconnection.poll_action(), None);
    let found = ["192.0.2.1", "192.0.2.2", "2001:db8::2"].map(at);
    reconnection.handle_resolved(late, resolution, &found);
    reconnection.handle_timeout(late);
    assert_eq!(reconnection.poll_action(), Some(ConnectAction::Disconnect));
    reconnection.handle_lost(late, None);
    for host in ["192.0.2.1", "2001:db8::2", "192.0.2.2", "2001:db8::1"] {
        assert!(connects_to(&mut reconnection, host));
        reconnection.handle_lost(late, Some("refused".to_owned()));
    }
}

#[test]
fn a_name_that_cannot_be_resolved_leaves_the_other_servers() {
    let now = start();
    let mut reconnection = reconnection(&["a.test", "b.test"], now);
    reconnection.handle_timeout(now);
    let first = resolves(&mut reconnection, "a.test");
    let second = resolves(&mut reconnection, "b.test");
    reconnection.handle_resolved(now, first, &[]);
    assert_eq!(reconnection.last_reason(), "the name a.test cannot be resolved");
    assert_eq!(reconnection.poll_action(), None);
    reconnection.handle_resolved(now, second, &[at("192.0.2.9")]);
    assert!(connects_to(&mut reconnection, "192.0.2.9"));
}

#[test]
fn pauses_double_up_to_a_bound_and_their_second_half_is_random() {
    let mut now = start();
    let mut reconnection = reconnection(&["192.0.2.1"], now);
    reconnection.handle_timeout(now);
    let mut full = limits::BACKOFF_MIN;
    for _ in 0..40 {
        assert!(connects_to(&mut reconnection, "192.0.2.1"));
        reconnection.handle_lost(now, Some("refused".to_owned()));
        reconnection.poll_action();
        let pause = reconnection.poll_timeout().unwrap() - now;
        assert!(pause >= full / 2 && pause <= full, "{pause:?} of {full:?}");
        now = run_out(&mut reconnection);
        full = (full * 2).min(limits::BACKOFF_MAX);
    }
    reconnection.poll_action();
    reconnection.handle_up();
    reconnection.handle_lost(now, Some("timed out".to_owned()));
    assert!(connects_to(&mut reconnection, "192.0.2.1"));
    reconnection.handle_lost(now, Some("refused".to_owned()));
    assert!(reconnection.poll_timeout().unwrap() - now <= limits::BACKOFF_MIN);
}

#[test]
fn pauses_are_those_of_the_seed() {
    let now = start();
    let pause = |seed| {
        let mut reconnection = Reconnection::new(vec![("192.0.2.1".to_owned(), 443)], seed, now);
        reconnection.handle_timeout(now);
        reconnection.handle_lost(now, None);
        reconnection.poll_timeout()
    };
    assert_eq!(pause(1), pause(1));
    assert_ne!(pause(1), pause(2));
}

#[test]
fn a_lost_connection_is_sought_where_it_was_while_its_name_is_resolved() {
    let now = start();
    let mut reconnection = reconnection(&["a.test"], now);
    reconnection.handle_timeout(now);
    let first = resolves(&mut reconnection, "a.test");
    reconnection.handle_resolved(now, first, &[at("192.0.2.1"), at("192.0.2.2")]);
    assert!(connects_to(&mut reconnection, "192.0.2.1"));
    reconnection.handle_up();
    reconnection.handle_lost(now, None);
    let second = resolves(&mut reconnection, "a.test");
    assert!(connects_to(&mut reconnection, "192.0.2.1"));
    reconnection.handle_lost(now, Some("refused".to_owned()));
    assert!(connects_to(&mut reconnection, "192.0.2.2"));
    reconnection.handle_lost(now, Some("refused".to_owned()));
    // No name server answers: after a pause, the same once more, and one question is open.
    assert!(matches!(
        reconnection.poll_action(),
        Some(ConnectAction::Unreachable { .. })
    ));
    run_out(&mut reconnection);
    for host in ["192.0.2.1", "192.0.2.2"] {
        assert!(connects_to(&mut reconnection, host));
        reconnection.handle_lost(now, Some("refused".to_owned()));
    }
    reconnection.poll_action();
    // The answer ends the pause; what was refused in this round is not tried again.
    reconnection.handle_resolved(now, second, &[at("192.0.2.1"), at("192.0.2.3")]);
    assert!(connects_to(&mut reconnection, "192.0.2.3"));
    reconnection.handle_up();
    reconnection.handle_lost(now, None);
    resolves(&mut reconnection, "a.test");
    for host in ["192.0.2.3", "192.0.2.1"] {
        assert!(connects_to(&mut reconnection, host));
        reconnection.handle_lost(now, Some("refused".to_owned()));
    }
    assert!(matches!(
        reconnection.poll_action(),
        Some(ConnectAction::Unreachable { .. })
    ));
}

#[test]
fn another_address_of_the_link_or_of_a_name_is_an_alternative() {
    let now = start();
    for (hosts, expected) in [(&["192.0.2.1"][..], false), (&["192.0.2.1", "192.0.2.2"], true)] {
        let mut reconnection = reconnection(hosts, now);
        reconnection.handle_timeout(now);
        reconnection.handle_up();
        assert_eq!(reconnection.has_alternative(), expected);
    }
    let mut named = reconnection(&["a.test"], now);
    named.handle_timeout(now);
    let resolution = resolves(&mut named, "a.test");
    named.handle_resolved(now, resolution, &[at("192.0.2.1"), at("192.0.2.2")]);
    named.handle_up();
    assert!(named.has_alternative());
}

#[test]
fn no_more_good_addresses_are_kept_than_the_limit() {
    let now = start();
    let mut reconnection = reconnection(&["a.test"], now);
    reconnection.handle_timeout(now);
    for last in 1..=9 {
        let address = SocketAddr::from(([192, 0, 2, last], 443));
        while let Some(action) = reconnection.poll_action() {
            match action {
                ConnectAction::Resolve { resolution, .. } => {
                    reconnection.handle_resolved(now, resolution, &[address]);
                }
                ConnectAction::Connect { address: tried, .. } if tried == address => break,
                _ => reconnection.handle_attempt_failed(now, "no route".to_owned()),
            }
        }
        reconnection.handle_up();
        assert_eq!(reconnection.good[0].address, address);
        reconnection.handle_lost(now, None);
    }
    assert_eq!(reconnection.good.len(), limits::GOOD_ADDRESSES_MAX);
}

#[test]
fn a_lost_connection_begins_again_at_once() {
    let now = start();
    let mut reconnection = reconnection(&["192.0.2.1", "192.0.2.2"], now);
    reconnection.handle_timeout(now);
    reconnection.poll_action();
    reconnection.handle_lost(now, Some("refused".to_owned()));
    assert!(connects_to(&mut reconnection, "192.0.2.2"));
    assert!(!reconnection.handle_up());
    assert_eq!(reconnection.state_name(), "connected");
    assert_eq!(reconnection.poll_timeout(), None);
    reconnection.handle_lost(now, Some("timed out".to_owned()));
    assert!(connects_to(&mut reconnection, "192.0.2.2"));
    assert_eq!(reconnection.state_name(), "reconnecting");
    assert!(reconnection.handle_up());
    assert_eq!(reconnection.rejoins(), 1);
}

#[test]
fn an_address_is_tried_again_where_another_port_may_lead_elsewhere() {
    let now = start();
    let mut reconnection = reconnection(&["192.0.2.1", "192.0.2.2"], now);
    reconnection.handle_timeout(now);
    assert!(connects_to(&mut reconnection, "192.0.2.1"));
    reconnection.retry_address();
    reconnection.handle_lost(now, None);
    assert!(connects_to(&mut reconnection, "192.0.2.1"));
}

#[test]
fn local_traffic_goes_to_a_sibling_after_the_grace_or_where_it_was_up() {
    let now = start();
    let mut reconnection = reconnection(&["192.0.2.1"], now);
    reconnection.handle_timeout(now);
    assert!(!reconnection.wants_stand_in(now));
    assert!(reconnection.wants_stand_in(now + limits::STRIPE_GRACE));
    reconnection.handle_up();
    assert!(!reconnection.wants_stand_in(now + limits::STRIPE_GRACE));
    reconnection.handle_lost(now, None);
    assert!(reconnection.wants_stand_in(now));
}

#[test]
fn no_answer_is_said_in_one_way_only() {
    assert_eq!(quic::CloseReason::TimedOut.to_string(), NO_ANSWER);
}
