//! A stripe's attempts in virtual time.

use std::time::Duration;

use super::*;

const STEP: Duration = Duration::from_millis(1);

fn start() -> Instant {
    // tidy-allow(pure): first instant of virtual time
    Instant::now()
}

/// Its first round has begun.
fn reconnection(hosts: &[&str], now: Instant) -> Reconnection {
    let servers = hosts.iter().map(|host| ((*host).to_owned(), 443)).collect();
    let mut reconnection = Reconnection::new(servers, CarrierChoice::UDP, 7, now);
    assert_eq!(reconnection.state_name(), "connecting");
    reconnection.handle_timeout(now);
    reconnection
}

fn at(host: &str) -> SocketAddr {
    SocketAddr::new(host.parse().unwrap(), 443)
}

/// The attempt that begins at this address.
fn begins(reconnection: &mut Reconnection, host: &str) -> AttemptId {
    match reconnection.poll_action() {
        Some(ConnectAction::Connect { attempt, address, .. }) if address == at(host) => attempt,
        other => panic!("an attempt begins at {host}: {other:?}"),
    }
}

/// Takes the question for this name.
fn resolves(reconnection: &mut Reconnection, name: &str) -> u64 {
    match reconnection.poll_action() {
        Some(ConnectAction::Resolve { resolution, host, .. }) if host == name => resolution,
        other => panic!("{name} is to be resolved: {other:?}"),
    }
}

fn refuse(reconnection: &mut Reconnection, now: Instant, attempt: AttemptId) {
    reconnection.handle_lost(now, attempt, Some("refused".to_owned()));
}

/// The attempt completes and the server takes the token; what it ends on the way is no matter here.
fn comes_up(reconnection: &mut Reconnection, now: Instant, attempt: AttemptId) -> bool {
    reconnection.handle_connected(now, attempt);
    let actions: Vec<_> = std::iter::from_fn(|| reconnection.poll_action()).collect();
    assert_eq!(actions.last(), Some(&ConnectAction::Choose { attempt }));
    reconnection.handle_up()
}

fn is_unreachable(reconnection: &mut Reconnection) -> bool {
    matches!(
        reconnection.poll_action(),
        Some(ConnectAction::Unreachable { .. })
    )
}

#[test]
fn attempts_go_on_beside_each_other_a_quarter_of_a_second_apart() {
    let mut now = start();
    let mut reconnection = reconnection(&["192.0.2.1", "192.0.2.2", "2001:db8::1"], now);
    let black_hole = begins(&mut reconnection, "2001:db8::1");
    for host in ["192.0.2.1", "192.0.2.2"] {
        reconnection.handle_timeout(now + limits::ATTEMPT_DELAY - STEP);
        assert_eq!(reconnection.poll_action(), None);
        now += limits::ATTEMPT_DELAY;
        assert_eq!(reconnection.poll_timeout(), Some(now));
        reconnection.handle_timeout(now);
        begins(&mut reconnection, host);
    }
    // Nothing makes room: each has all its time from its begin.
    let expiry = now - 2 * limits::ATTEMPT_DELAY + limits::CONNECT_ATTEMPT;
    assert_eq!(reconnection.poll_timeout(), Some(expiry));
    reconnection.handle_timeout(expiry);
    let closed = ConnectAction::Disconnect { attempt: black_hole };
    assert_eq!(reconnection.poll_action(), Some(closed));
    assert_eq!(reconnection.poll_action(), None);
}

#[test]
fn the_first_that_is_connected_wins_and_the_others_are_closed() {
    let now = start();
    let mut reconnection = reconnection(&["192.0.2.1", "192.0.2.2", "2001:db8::1"], now);
    let first = begins(&mut reconnection, "2001:db8::1");
    reconnection.handle_timeout(now + limits::ATTEMPT_DELAY);
    let second = begins(&mut reconnection, "192.0.2.1");
    reconnection.handle_connected(now + limits::ATTEMPT_DELAY, second);
    assert_eq!(
        reconnection.poll_action(),
        Some(ConnectAction::Disconnect { attempt: first })
    );
    assert_eq!(
        reconnection.poll_action(),
        Some(ConnectAction::Choose { attempt: second })
    );
    // The last packet of the other was under way.
    reconnection.handle_connected(now + limits::ATTEMPT_DELAY, first);
    reconnection.handle_lost(now + limits::ATTEMPT_DELAY, first, None);
    assert_eq!(reconnection.poll_action(), None);
    assert_eq!(reconnection.address(), Some(at("192.0.2.1")));
    assert!(!reconnection.is_up());
    assert!(!reconnection.handle_up());
    assert_eq!(reconnection.poll_timeout(), None);
    assert_eq!(reconnection.state_name(), "connected");
}

#[test]
fn where_the_winner_is_turned_away_the_race_goes_on_with_those_that_lost_it() {
    let now = start();
    let hosts = ["192.0.2.1", "192.0.2.2", "192.0.2.3"];
    let ends: [fn(&mut Reconnection, Instant, AttemptId); 2] = [refuse, |reconnection, now, attempt| {
        let late = now + limits::CONNECT_ATTEMPT;
        assert_eq!(reconnection.poll_timeout(), Some(late));
        reconnection.handle_timeout(late);
        let closed = ConnectAction::Disconnect { attempt };
        assert_eq!(reconnection.poll_action(), Some(closed));
        reconnection.handle_lost(late, attempt, None);
    }];
    for end in ends {
        let mut reconnection = reconnection(&hosts, now);
        let first = begins(&mut reconnection, hosts[0]);
        reconnection.handle_timeout(now + limits::ATTEMPT_DELAY);
        begins(&mut reconnection, hosts[1]);
        let late = now + limits::ATTEMPT_DELAY;
        reconnection.handle_connected(late, first);
        assert!(matches!(
            reconnection.poll_action(),
            Some(ConnectAction::Disconnect { .. })
        ));
        assert!(matches!(
            reconnection.poll_action(),
            Some(ConnectAction::Choose { .. })
        ));
        end(&mut reconnection, late, first);
        for host in &hosts[1..] {
            let attempt = begins(&mut reconnection, host);
            refuse(&mut reconnection, late, attempt);
        }
        assert!(is_unreachable(&mut reconnection));
    }
}

#[test]
fn no_more_attempts_go_on_at_once_than_the_limit() {
    let mut now = start();
    let hosts: Vec<String> = (1..=limits::ATTEMPTS_MAX + 1)
        .map(|last| format!("192.0.2.{last}"))
        .collect();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let mut reconnection = reconnection(&hosts, now);
    let first = begins(&mut reconnection, hosts[0]);
    for host in &hosts[1..limits::ATTEMPTS_MAX] {
        now += limits::ATTEMPT_DELAY;
        reconnection.handle_timeout(now);
        begins(&mut reconnection, host);
    }
    now += limits::ATTEMPT_DELAY;
    reconnection.handle_timeout(now);
    assert_eq!(reconnection.poll_action(), None);
    refuse(&mut reconnection, now, first);
    begins(&mut reconnection, hosts[limits::ATTEMPTS_MAX]);
}

#[test]
fn addresses_come_as_names_resolve_and_where_all_failed_a_pause() {
    let now = start();
    let mut reconnection = reconnection(&["a.test", "192.0.2.9"], now);
    let resolution = resolves(&mut reconnection, "a.test");
    let literal = begins(&mut reconnection, "192.0.2.9");
    reconnection.handle_resolved(now, resolution + 1, &[at("192.0.2.8")]);
    reconnection.handle_resolved(now, resolution, &[at("192.0.2.1"), at("192.0.2.2")]);
    assert_eq!(reconnection.poll_action(), None);
    refuse(&mut reconnection, now, literal);
    let first = begins(&mut reconnection, "192.0.2.1");
    refuse(&mut reconnection, now, first);
    let last = begins(&mut reconnection, "192.0.2.2");
    reconnection.handle_timeout(now + limits::CONNECT_ATTEMPT);
    assert_eq!(
        reconnection.poll_action(),
        Some(ConnectAction::Disconnect { attempt: last })
    );
    // Silence at one address does not hide what was said at another.
    let reason = "cannot reach 192.0.2.9 (UDP 443, refused), retrying".to_owned();
    let is_silence = false;
    assert_eq!(
        reconnection.poll_action(),
        Some(ConnectAction::Unreachable { reason, is_silence })
    );
    let due = reconnection.poll_timeout().unwrap();
    reconnection.handle_timeout(due);
    resolves(&mut reconnection, "a.test");
}

#[test]
fn an_address_that_answered_nothing_is_told_otherwise_than_one_that_was_too_slow() {
    for (is_answered, expected) in [
        (
            false,
            "cannot reach 192.0.2.1 (UDP 443, no answer; a firewall?), retrying",
        ),
        (
            true,
            "cannot reach 192.0.2.1 (UDP 443, it answers, but the connection did not come about in time), retrying",
        ),
    ] {
        let now = start();
        let mut reconnection = reconnection(&["192.0.2.1"], now);
        let attempt = begins(&mut reconnection, "192.0.2.1");
        // What came for another attempt does not count.
        reconnection.handle_heard(attempt + u64::from(!is_answered));
        reconnection.handle_timeout(now + limits::CONNECT_ATTEMPT);
        reconnection.poll_action();
        assert_eq!(
            reconnection.poll_action(),
            Some(ConnectAction::Unreachable {
                reason: expected.to_owned(),
                is_silence: !is_answered
            })
        );
    }
}

#[test]
fn a_name_of_which_nobody_says_anything_is_not_told_as_one_without_an_address() {
    let now = start();
    let mut reconnection = reconnection(&["a.test"], now);
    let resolution = resolves(&mut reconnection, "a.test");
    reconnection.handle_unanswered(now, resolution);
    assert_eq!(
        reconnection.last_reason(),
        "the name a.test is not known: no name server has answered in time"
    );
    assert!(reconnection.poll_timeout().is_some(), "it is asked for again");
}

#[test]
fn a_name_that_cannot_be_resolved_leaves_the_other_servers() {
    let now = start();
    let mut reconnection = reconnection(&["a.test", "b.test"], now);
    let first = resolves(&mut reconnection, "a.test");
    let second = resolves(&mut reconnection, "b.test");
    reconnection.handle_resolved(now, first, &[]);
    assert_eq!(reconnection.last_reason(), "the name a.test cannot be resolved");
    assert_eq!(reconnection.poll_action(), None);
    assert_eq!(reconnection.poll_timeout(), None);
    reconnection.handle_resolved(now, second, &[at("192.0.2.9")]);
    begins(&mut reconnection, "192.0.2.9");
}

#[test]
fn pauses_double_up_to_a_bound_and_their_second_half_is_random() {
    let mut now = start();
    let mut reconnection = reconnection(&["192.0.2.1"], now);
    let mut full = limits::BACKOFF_MIN;
    for _ in 0..40 {
        let attempt = begins(&mut reconnection, "192.0.2.1");
        refuse(&mut reconnection, now, attempt);
        assert!(is_unreachable(&mut reconnection));
        let due = reconnection.poll_timeout().unwrap();
        let pause = due - now;
        assert!(pause >= full / 2 && pause <= full, "{pause:?} of {full:?}");
        now = due;
        reconnection.handle_timeout(now);
        full = (full * 2).min(limits::BACKOFF_MAX);
    }
    let attempt = begins(&mut reconnection, "192.0.2.1");
    comes_up(&mut reconnection, now, attempt);
    reconnection.handle_lost(now, attempt, Some("timed out".to_owned()));
    let attempt = begins(&mut reconnection, "192.0.2.1");
    refuse(&mut reconnection, now, attempt);
    assert!(reconnection.poll_timeout().unwrap() - now <= limits::BACKOFF_MIN);
}

#[test]
fn pauses_are_those_of_the_seed() {
    let now = start();
    let pause = |seed| {
        let mut reconnection =
            Reconnection::new(vec![("192.0.2.1".to_owned(), 443)], CarrierChoice::UDP, seed, now);
        reconnection.handle_timeout(now);
        let attempt = begins(&mut reconnection, "192.0.2.1");
        reconnection.handle_lost(now, attempt, None);
        reconnection.poll_timeout()
    };
    assert_eq!(pause(1), pause(1));
    assert_ne!(pause(1), pause(2));
}

#[test]
fn a_lost_connection_is_sought_where_it_was_while_its_name_is_resolved() {
    let now = start();
    let mut reconnection = reconnection(&["a.test"], now);
    let first = resolves(&mut reconnection, "a.test");
    reconnection.handle_resolved(now, first, &[at("192.0.2.1"), at("192.0.2.2")]);
    let attempt = begins(&mut reconnection, "192.0.2.1");
    comes_up(&mut reconnection, now, attempt);
    reconnection.handle_lost(now, attempt, None);
    let second = resolves(&mut reconnection, "a.test");
    // No name server answers: after a pause, the same once more, and one question is open.
    for _ in 0..2 {
        for host in ["192.0.2.1", "192.0.2.2"] {
            let attempt = begins(&mut reconnection, host);
            refuse(&mut reconnection, now, attempt);
        }
        assert!(is_unreachable(&mut reconnection));
        let due = reconnection.poll_timeout().unwrap();
        reconnection.handle_timeout(due);
    }
    for host in ["192.0.2.1", "192.0.2.2"] {
        let attempt = begins(&mut reconnection, host);
        refuse(&mut reconnection, now, attempt);
    }
    assert!(is_unreachable(&mut reconnection));
    // The answer ends the pause; what was refused in this round is not tried again.
    reconnection.handle_resolved(now, second, &[at("192.0.2.1"), at("192.0.2.3")]);
    let attempt = begins(&mut reconnection, "192.0.2.3");
    comes_up(&mut reconnection, now, attempt);
    let later = now + limits::STAY_MIN;
    reconnection.handle_lost(later, attempt, None);
    resolves(&mut reconnection, "a.test");
    for host in ["192.0.2.3", "192.0.2.1"] {
        let attempt = begins(&mut reconnection, host);
        refuse(&mut reconnection, later, attempt);
    }
    assert!(is_unreachable(&mut reconnection));
}

#[test]
fn a_lost_connection_begins_again_at_once() {
    let now = start();
    let mut reconnection = reconnection(&["192.0.2.1", "192.0.2.2"], now);
    let attempt = begins(&mut reconnection, "192.0.2.1");
    refuse(&mut reconnection, now, attempt);
    let attempt = begins(&mut reconnection, "192.0.2.2");
    assert!(!comes_up(&mut reconnection, now, attempt));
    reconnection.handle_lost(now, attempt, Some("timed out".to_owned()));
    assert_eq!(reconnection.last_reason(), "timed out");
    assert_eq!(reconnection.state_name(), "reconnecting");
    let attempt = begins(&mut reconnection, "192.0.2.2");
    assert!(comes_up(&mut reconnection, now, attempt));
    assert_eq!(reconnection.rejoins(), 1);
}

#[test]
fn an_address_is_tried_again_where_another_port_may_lead_elsewhere() {
    let now = start();
    let mut reconnection = reconnection(&["192.0.2.1", "192.0.2.2"], now);
    let attempt = begins(&mut reconnection, "192.0.2.1");
    reconnection.handle_connected(now, attempt);
    reconnection.poll_action();
    reconnection.retry_address();
    reconnection.handle_lost(now, attempt, None);
    begins(&mut reconnection, "192.0.2.1");
}

/// A connection at 192.0.2.1 whose server stays silent; another server is known.
fn in_doubt(now: Instant) -> (Reconnection, AttemptId, AttemptId) {
    let mut reconnection = reconnection(&["192.0.2.1", "192.0.2.2"], now);
    let connection = begins(&mut reconnection, "192.0.2.1");
    comes_up(&mut reconnection, now, connection);
    reconnection.handle_silence(now);
    let beside = begins(&mut reconnection, "192.0.2.1");
    assert!(reconnection.is_up() && reconnection.is_connection(connection));
    (reconnection, connection, beside)
}

#[test]
fn a_connection_in_doubt_is_replaced_by_an_attempt_that_answers() {
    let now = start();
    let (mut reconnection, connection, beside) = in_doubt(now);
    let late = now + limits::ATTEMPT_DELAY;
    reconnection.handle_timeout(late);
    let other = begins(&mut reconnection, "192.0.2.2");
    reconnection.handle_connected(late, beside);
    for attempt in [other, connection] {
        let closed = ConnectAction::Disconnect { attempt };
        assert_eq!(reconnection.poll_action(), Some(closed));
    }
    assert_eq!(reconnection.poll_action(), None);
    assert!(reconnection.is_connection(connection));
    reconnection.handle_lost(late, connection, None);
    assert_eq!(reconnection.last_reason(), NO_ANSWER);
    assert_eq!(
        reconnection.poll_action(),
        Some(ConnectAction::Choose { attempt: beside })
    );
    assert!(!reconnection.is_up());
    assert!(reconnection.handle_up());
}

#[test]
fn a_connection_in_doubt_that_answers_ends_the_attempts_beside_it() {
    let now = start();
    let (mut reconnection, connection, beside) = in_doubt(now);
    reconnection.handle_answered();
    let closed = ConnectAction::Disconnect { attempt: beside };
    assert_eq!(reconnection.poll_action(), Some(closed));
    reconnection.handle_lost(now, beside, None);
    assert_eq!(reconnection.poll_action(), None);
    assert_eq!(reconnection.poll_timeout(), None);
    assert!(!reconnection.is_in_doubt() && reconnection.is_connection(connection));
}

#[test]
fn a_connection_in_doubt_stays_where_nothing_else_answers_and_is_doubted_again() {
    let now = start();
    let (mut reconnection, connection, beside) = in_doubt(now);
    refuse(&mut reconnection, now, beside);
    let other = begins(&mut reconnection, "192.0.2.2");
    refuse(&mut reconnection, now, other);
    assert_eq!(reconnection.poll_action(), None);
    assert!(!reconnection.is_in_doubt() && reconnection.is_connection(connection));
    reconnection.handle_silence(now);
    begins(&mut reconnection, "192.0.2.1");
}

#[test]
fn a_connection_that_ends_in_doubt_leaves_the_attempts_beside_it() {
    let now = start();
    let (mut reconnection, connection, beside) = in_doubt(now);
    reconnection.handle_lost(now, connection, Some("timed out".to_owned()));
    assert!(!reconnection.is_up());
    assert_eq!(reconnection.last_reason(), "timed out");
    begins(&mut reconnection, "192.0.2.2");
    assert!(comes_up(&mut reconnection, now, beside));
}

#[test]
fn a_replacement_that_is_lost_at_once_begins_a_new_round() {
    let now = start();
    let (mut reconnection, connection, beside) = in_doubt(now);
    reconnection.handle_connected(now, beside);
    reconnection.poll_action();
    refuse(&mut reconnection, now, beside);
    reconnection.handle_lost(now, connection, None);
    begins(&mut reconnection, "192.0.2.1");
}

/// What a server does with each connection as soon as it is up.
type Treatment = fn(&mut Reconnection, Instant, AttemptId);

#[test]
fn a_server_that_ends_each_connection_at_once_is_met_again_after_pauses_that_grow() {
    let goes_away: Treatment = |reconnection, now, _| reconnection.handle_going_away(now);
    let closes: Treatment = |reconnection, now, attempt| {
        reconnection.handle_lost(now, attempt, Some("closed".to_owned()));
    };
    let both: Treatment = |reconnection, now, attempt| {
        reconnection.handle_going_away(now);
        reconnection.handle_lost(now, attempt, Some("closed".to_owned()));
    };
    for treat in [goes_away, closes, both] {
        let begin = start();
        let mut now = begin;
        let mut reconnection = reconnection(&["192.0.2.1"], now);
        let mut times = Vec::new();
        while now < begin + Duration::from_secs(60) {
            let attempt = begins(&mut reconnection, "192.0.2.1");
            comes_up(&mut reconnection, now, attempt);
            times.push(now);
            treat(&mut reconnection, now, attempt);
            assert!(times.len() < 100, "a minute brings {} connections", times.len());
            if reconnection.actions.is_empty() {
                now = reconnection.poll_timeout().expect("another one follows");
                reconnection.handle_timeout(now);
            }
        }
        let longest = times.iter().zip(&times[1..]).map(|(from, to)| *to - *from).max();
        assert!(longest > Some(limits::BACKOFF_MAX / 2), "{longest:?}");

        // One that stood for long is followed by the next one at once.
        let attempt = begins(&mut reconnection, "192.0.2.1");
        comes_up(&mut reconnection, now, attempt);
        now += limits::STAY_MIN;
        treat(&mut reconnection, now, attempt);
        begins(&mut reconnection, "192.0.2.1");
    }
}

#[test]
fn a_connection_that_was_to_go_away_and_is_lost_before_it_is_up_says_nothing_of_the_next() {
    let mut now = start();
    let mut reconnection = reconnection(&["192.0.2.1"], now);
    let attempt = begins(&mut reconnection, "192.0.2.1");
    reconnection.handle_connected(now, attempt);
    assert_eq!(
        reconnection.poll_action(),
        Some(ConnectAction::Choose { attempt })
    );
    reconnection.handle_going_away(now);
    refuse(&mut reconnection, now, attempt);
    while reconnection.poll_action().is_some() {}
    now = reconnection.poll_timeout().expect("another one follows");
    reconnection.handle_timeout(now);
    let next = begins(&mut reconnection, "192.0.2.1");
    comes_up(&mut reconnection, now, next);
    assert_eq!(reconnection.phase, Phase::Up);
}

#[test]
fn another_way_out_begins_the_race_anew() {
    let now = start();
    let mut reconnection = reconnection(&["192.0.2.1", "192.0.2.2"], now);
    let attempt = begins(&mut reconnection, "192.0.2.1");
    reconnection.handle_network_changed(now);
    let closed = ConnectAction::Disconnect { attempt };
    assert_eq!(reconnection.poll_action(), Some(closed));
    begins(&mut reconnection, "192.0.2.1");
}

#[test]
fn local_traffic_goes_to_a_sibling_after_the_grace_or_where_it_was_up() {
    let now = start();
    let mut reconnection = reconnection(&["192.0.2.1"], now);
    let attempt = begins(&mut reconnection, "192.0.2.1");
    assert!(!reconnection.wants_stand_in(now));
    assert!(reconnection.wants_stand_in(now + limits::STRIPE_GRACE));
    comes_up(&mut reconnection, now, attempt);
    assert!(!reconnection.wants_stand_in(now + limits::STRIPE_GRACE));
    reconnection.handle_lost(now, attempt, None);
    assert!(reconnection.wants_stand_in(now));
}

#[test]
fn no_answer_is_said_in_one_way_only() {
    assert_eq!(quic::CloseReason::TimedOut.to_string(), NO_ANSWER);
}

/// QR1-19: the client waits longer before each further attempt.
#[test]
fn after_the_genuine_site_answered_pauses_grow_from_seconds_to_minutes_until_the_server_is_met() {
    let mut now = start();
    let mut reconnection = reconnection(&["192.0.2.1"], now);
    let mut longest = limits::REDIRECTED_BACKOFF_MIN;
    for round in 0..10 {
        let attempt = begins(&mut reconnection, "192.0.2.1");
        reconnection.handle_redirected(now, attempt);
        let Some(ConnectAction::Unreachable { reason, is_silence }) = reconnection.poll_action() else {
            panic!("people are told");
        };
        assert!(reason.contains("this machine's clock") && !is_silence, "{reason}");
        assert_eq!(reconnection.state_name(), "redirected");
        let due = reconnection.poll_timeout().unwrap();
        assert!(due >= now + longest / 2 && due <= now + longest, "round {round}");
        longest = (longest * 2).min(limits::REDIRECTED_BACKOFF_MAX);
        now = due;
        reconnection.handle_timeout(now);
        // Its end, after the rest, is no news.
        reconnection.handle_lost(now, attempt, Some("closed".to_owned()));
    }
    let attempt = begins(&mut reconnection, "192.0.2.1");
    assert!(!comes_up(&mut reconnection, now, attempt));
    assert_eq!(reconnection.state_name(), "connected");
    reconnection.handle_lost(now, attempt, Some("gone".to_owned()));
    assert_eq!(reconnection.state_name(), "reconnecting");
    let attempt = begins(&mut reconnection, "192.0.2.1");
    refuse(&mut reconnection, now, attempt);
    assert!(is_unreachable(&mut reconnection));
    assert!(reconnection.poll_timeout().unwrap() <= now + limits::BACKOFF_MIN);
}

#[test]
fn another_address_is_tried_at_once_where_one_meets_the_genuine_site() {
    let now = start();
    let mut reconnection = reconnection(&["192.0.2.1", "192.0.2.2"], now);
    let first = begins(&mut reconnection, "192.0.2.1");
    reconnection.handle_redirected(now, first);
    let second = begins(&mut reconnection, "192.0.2.2");
    assert!(!comes_up(&mut reconnection, now, second));
}

const BOTH: CarrierChoice = CarrierChoice {
    udp: true,
    tcp_port: Some(8_443),
};

fn over(carriers: CarrierChoice, hosts: &[&str], now: Instant) -> Reconnection {
    let servers = hosts.iter().map(|host| ((*host).to_owned(), 443)).collect();
    let mut reconnection = Reconnection::new(servers, carriers, 7, now);
    reconnection.handle_timeout(now);
    reconnection
}

/// The attempt that begins at this host in TCP's shape.
fn begins_over_tcp(reconnection: &mut Reconnection, host: &str) -> AttemptId {
    let wanted = CarrierKind::Tcp.mark(SocketAddr::new(host.parse().unwrap(), 8_443));
    match reconnection.poll_action() {
        Some(ConnectAction::Connect { attempt, address, .. }) if address == wanted => attempt,
        other => panic!("an attempt begins at {host} over TCP: {other:?}"),
    }
}

#[test]
fn tcp_joins_the_race_three_tenths_of_a_second_after_udp_and_beside_it() {
    let now = start();
    let mut reconnection = over(BOTH, &["192.0.2.1", "2001:db8::1"], now);
    begins(&mut reconnection, "2001:db8::1");
    assert_eq!(reconnection.poll_action(), None);
    reconnection.handle_timeout(now + limits::ATTEMPT_DELAY);
    let udp = begins(&mut reconnection, "192.0.2.1");
    let later = now + limits::CARRIER_DELAY;
    reconnection.handle_timeout(later - STEP);
    assert_eq!(reconnection.poll_action(), None);
    assert_eq!(reconnection.poll_timeout(), Some(later));
    reconnection.handle_timeout(later);
    let tcp = begins_over_tcp(&mut reconnection, "2001:db8::1");
    assert_eq!(reconnection.poll_timeout(), Some(later + limits::ATTEMPT_DELAY));
    reconnection.handle_timeout(later + limits::ATTEMPT_DELAY);
    begins_over_tcp(&mut reconnection, "192.0.2.1");
    // Whichever answers first is kept.
    let mut other = over(BOTH, &["192.0.2.1", "2001:db8::1"], now);
    std::iter::from_fn(|| other.poll_action()).for_each(drop);
    for after in [limits::ATTEMPT_DELAY, limits::CARRIER_DELAY] {
        other.handle_timeout(now + after);
    }
    comes_up(&mut other, later, udp);
    assert_eq!(other.carrier(), Some((CarrierKind::Udp, FIRST_CARRIER)));
    comes_up(&mut reconnection, later + limits::ATTEMPT_DELAY, tcp);
    assert_eq!(reconnection.carrier(), Some((CarrierKind::Tcp, UDP_SILENT)));
}

#[test]
fn where_udp_has_failed_tcp_need_not_wait_and_leads_the_next_race() {
    let now = start();
    let mut reconnection = over(BOTH, &["192.0.2.1"], now);
    let udp = begins(&mut reconnection, "192.0.2.1");
    refuse(&mut reconnection, now, udp);
    let tcp = begins_over_tcp(&mut reconnection, "192.0.2.1");
    comes_up(&mut reconnection, now, tcp);
    // The connection is lost.
    reconnection.handle_lost(now, tcp, Some("gone".to_owned()));
    let tcp = begins_over_tcp(&mut reconnection, "192.0.2.1");
    assert_eq!(reconnection.poll_action(), None);
    reconnection.handle_timeout(now + limits::CARRIER_DELAY);
    let udp = begins(&mut reconnection, "192.0.2.1");
    assert!(comes_up(&mut reconnection, now + limits::CARRIER_DELAY, tcp));
    assert_eq!(reconnection.carrier(), Some((CarrierKind::Tcp, UDP_SILENT)));
    // UDP is there as early as TCP after the next loss.
    let later = now + limits::STAY_MIN;
    reconnection.handle_lost(later, udp, None);
    reconnection.handle_lost(later, tcp, Some("gone".to_owned()));
    begins_over_tcp(&mut reconnection, "192.0.2.1");
    reconnection.handle_timeout(later + limits::CARRIER_DELAY);
    let udp = begins(&mut reconnection, "192.0.2.1");
    assert!(comes_up(&mut reconnection, later + limits::CARRIER_DELAY, udp));
    assert_eq!(reconnection.carrier(), Some((CarrierKind::Udp, FIRST_CARRIER)));
}

#[test]
fn one_carrier_alone_is_tried_at_once_and_named_where_nobody_answers() {
    let now = start();
    let tcp_alone = CarrierChoice { udp: false, ..BOTH };
    let mut reconnection = over(tcp_alone, &["192.0.2.1"], now);
    let tcp = begins_over_tcp(&mut reconnection, "192.0.2.1");
    refuse(&mut reconnection, now, tcp);
    let Some(ConnectAction::Unreachable { reason, .. }) = reconnection.poll_action() else {
        panic!("nobody is left");
    };
    assert_eq!(reason, "cannot reach 192.0.2.1 (TCP 8443, refused), retrying");
}
