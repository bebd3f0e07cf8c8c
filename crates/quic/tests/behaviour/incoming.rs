//! New connections wait for the caller, who accepts each in its own way, refuses it, ignores it, or forgets it.

use std::time::Duration;

use bytes::BytesMut;
use packet::Ecn;
use quic::limits::{UNDECIDED_BYTES_MAX, UNDECIDED_MAX, UNDECIDED_TIME_MAX};
use quic::{
    AcceptError, AcceptParameters, Aead, CloseReason, ConnectionKey, ConnectionLimits, Direction, Incoming,
    IncomingCounters, Path, Profile, ServerIdentity, Timer,
};

use crate::support::{Identity, Pair, Setup};

const SECOND: Duration = Duration::from_secs(1);

/// A server whose new connections the test decides on.
fn undecided() -> Pair {
    let mut pair = Pair::new(Setup::default());
    pair.server.accepts = None;
    pair.server.authenticates = false;
    pair
}

/// The next offer after the first `count`.
fn offer(pair: &mut Pair, count: usize) -> Incoming {
    pair.drive_until(SECOND, |pair| pair.server.incoming.get(count).cloned())
}

fn accept(
    pair: &mut Pair,
    incoming: &Incoming,
    parameters: &AcceptParameters,
) -> Result<ConnectionKey, AcceptError> {
    pair.server.endpoint.accept(pair.now, incoming.key, parameters)
}

/// Everything that was offered has one outcome, or waits.
fn totals(pair: &Pair) -> IncomingCounters {
    let totals = pair.server.endpoint.incoming_totals();
    let IncomingCounters {
        accepted, damaged, ..
    } = totals;
    let IncomingCounters {
        refused,
        retried,
        ignored,
        expired,
        ..
    } = totals;
    let known = accepted + damaged + refused + retried + ignored + expired + totals.waiting;
    assert_eq!(totals.offered, known, "{totals:?}");
    totals
}

fn other_identity() -> (AcceptParameters, [u8; 32]) {
    let other = Identity::new();
    let identity = ServerIdentity::new(Aead::default(), &other.certificates);
    let parameters = AcceptParameters {
        profile: Some(Profile::Latency),
        limits: ConnectionLimits {
            authentication_deadline: 3 * SECOND,
            unauthenticated_streams: 1,
            unauthenticated_credit_bytes: 2_000,
            streams: 5,
        },
        identity: Some(identity),
    };
    (parameters, other.pin)
}

#[test]
fn an_offer_says_who_asks_and_the_first_accepted_way_is_the_endpoints() {
    let mut pair = undecided();
    pair.connect();
    let incoming = offer(&mut pair, 0);
    assert_eq!(incoming.remote, pair.client.address);
    assert!(!incoming.is_address_validated);
    assert!(incoming.token.is_empty());
    assert!((8..=20).contains(&incoming.original_destination_id.len()));
    assert_eq!(totals(&pair).waiting, 1);
    let server = accept(&mut pair, &incoming, &AcceptParameters::default()).unwrap();
    pair.drive(SECOND);
    assert_eq!(pair.client.connected.len(), 1);
    let report = pair.server.endpoint.report(server).unwrap();
    assert_eq!(report.profile, Profile::Throughput);
    assert_eq!(totals(&pair).accepted, 1);
}

#[test]
fn two_connections_are_accepted_with_two_certificates_profiles_and_limits() {
    let mut pair = undecided();
    let (special, other_pin) = other_identity();
    let first = pair.connect();
    let incoming = offer(&mut pair, 0);
    let first_server = accept(&mut pair, &incoming, &AcceptParameters::default()).unwrap();
    let second = pair.connect_with_pin(other_pin);
    let incoming = offer(&mut pair, 1);
    let second_server = accept(&mut pair, &incoming, &special).unwrap();
    pair.drive(SECOND);
    assert_eq!(pair.client.connected, [first, second]);
    let mut profile = |connection| pair.server.endpoint.report(connection).unwrap().profile;
    assert_eq!(profile(first_server), Profile::Throughput);
    assert_eq!(profile(second_server), Profile::Latency);
    let mut streams = |connection| {
        let open = || {
            pair.client
                .endpoint
                .open_stream(connection, Direction::Bidirectional)
        };
        let opened: Vec<_> = std::iter::from_fn(open).collect();
        (opened.len(), opened[0])
    };
    let (count, _) = streams(first);
    assert_eq!(count, 4);
    let (count, stream) = streams(second);
    assert_eq!(count, 1);
    let written = pair.client.endpoint.write(second, stream, &[1; 20_000]).unwrap();
    assert_eq!(written, 2_000);
    // The second one has three seconds for its token, the first one ten.
    pair.drive(3 * SECOND);
    assert!(matches!(
        &pair.server.closed[..],
        [(_, CloseReason::Unauthenticated)]
    ));
    assert!(pair.server.endpoint.report(first_server).is_some());
}

#[test]
fn an_authenticated_peer_gets_as_many_streams_as_it_was_accepted_with() {
    let mut pair = undecided();
    let (special, other_pin) = other_identity();
    let client = pair.connect_with_pin(other_pin);
    let incoming = offer(&mut pair, 0);
    let server = accept(&mut pair, &incoming, &special).unwrap();
    pair.drive(SECOND);
    pair.server.endpoint.authenticate(pair.now, server);
    pair.drive(SECOND);
    let open = || pair.client.endpoint.open_stream(client, Direction::Bidirectional);
    assert_eq!(std::iter::from_fn(open).count(), 5);
    pair.drive(20 * SECOND);
    assert!(pair.server.closed.is_empty());
}

#[test]
fn the_certificate_of_the_accepted_way_is_the_one_that_the_client_sees() {
    let mut pair = undecided();
    let (special, _) = other_identity();
    // The client knows the endpoint's own certificate.
    pair.connect();
    let incoming = offer(&mut pair, 0);
    accept(&mut pair, &incoming, &special).unwrap();
    pair.drive(SECOND);
    assert!(matches!(&pair.client.closed[..], [(_, CloseReason::WrongPin)]));
}

#[test]
fn limits_of_a_connection_are_never_above_the_named_ones() {
    let mut pair = undecided();
    let client = pair.connect();
    let incoming = offer(&mut pair, 0);
    let wide = AcceptParameters {
        limits: ConnectionLimits {
            authentication_deadline: Duration::from_secs(3_600),
            unauthenticated_streams: u32::MAX,
            unauthenticated_credit_bytes: u32::MAX,
            streams: u32::MAX,
        },
        ..AcceptParameters::default()
    };
    accept(&mut pair, &incoming, &wide).unwrap();
    pair.drive(SECOND);
    let open = || pair.client.endpoint.open_stream(client, Direction::Bidirectional);
    assert_eq!(std::iter::from_fn(open).count(), 4);
    pair.drive(10 * SECOND);
    assert!(matches!(
        &pair.server.closed[..],
        [(_, CloseReason::Unauthenticated)]
    ));
}

/// RFC 9000 section 20.1: CONNECTION_REFUSED is 2.
#[test]
fn a_refused_client_is_told_at_once() {
    let mut pair = undecided();
    pair.connect();
    let incoming = offer(&mut pair, 0);
    pair.server.endpoint.refuse(pair.now, incoming.key);
    pair.drive(SECOND / 10);
    assert!(
        matches!(
            &pair.client.closed[..],
            [(_, CloseReason::Aborted { code: 2, .. })]
        ),
        "{:?}",
        pair.client.closed
    );
    assert_eq!((totals(&pair).refused, totals(&pair).waiting), (1, 0));
    // What was decided on once is gone.
    pair.server.endpoint.refuse(pair.now, incoming.key);
    pair.server.endpoint.ignore(pair.now, incoming.key);
    assert!(!pair.server.endpoint.retry(pair.now, incoming.key));
    let again = accept(&mut pair, &incoming, &AcceptParameters::default());
    assert_eq!(again, Err(AcceptError::Gone));
    assert_eq!(totals(&pair).offered, 1);
}

#[test]
fn an_ignored_client_hears_nothing_however_often_it_asks() {
    let mut pair = undecided();
    pair.connect();
    let mut ignored = 0;
    for _ in 0..400 {
        pair.drive(SECOND / 10);
        for incoming in &pair.server.incoming[ignored..] {
            pair.server.endpoint.ignore(pair.now, incoming.key);
        }
        ignored = pair.server.incoming.len();
    }
    assert!(ignored >= 3, "{ignored}");
    assert_eq!(totals(&pair).ignored, ignored as u64);
    assert!(pair.server.sent.is_empty());
    assert!(matches!(&pair.client.closed[..], [(_, CloseReason::TimedOut)]));
}

#[test]
fn a_client_that_answers_a_retry_is_offered_again_with_its_address_proved() {
    let mut pair = undecided();
    pair.connect();
    let first = offer(&mut pair, 0);
    assert!(pair.server.endpoint.retry(pair.now, first.key));
    let second = offer(&mut pair, 1);
    assert!(totals(&pair).turned_down > 0, "the hello fills two datagrams");
    assert!(second.is_address_validated && !second.token.is_empty());
    assert_ne!(first.key, second.key);
    assert_eq!(first.original_destination_id, second.original_destination_id);
    assert!(
        !pair.server.endpoint.retry(pair.now, second.key),
        "once is enough"
    );
    accept(&mut pair, &second, &AcceptParameters::default()).unwrap();
    pair.drive(SECOND);
    assert_eq!(pair.client.connected.len(), 1);
    assert_eq!((totals(&pair).retried, totals(&pair).accepted), (1, 1));
}

#[test]
fn an_undecided_connection_expires_and_its_client_may_ask_again() {
    let mut pair = undecided();
    pair.connect();
    let first = offer(&mut pair, 0);
    let spent = pair.now - pair.start;
    pair.drive(UNDECIDED_TIME_MAX - SECOND / 10 - spent);
    assert!(pair.server.expired.is_empty());
    assert_eq!(
        pair.server.incoming.len(),
        1,
        "a repeated packet is no new connection"
    );
    pair.drive(SECOND / 5);
    let (expired_at, expired) = pair.server.expired[0];
    assert_eq!((expired, pair.server.expired.len()), (first.key, 1));
    // The link takes a millisecond.
    let waited = expired_at - pair.start - UNDECIDED_TIME_MAX;
    assert!(waited < Duration::from_millis(5), "{waited:?}");
    assert!(pair.server.timers_seen.contains(&Timer::Decision(first.key)));
    let late = accept(&mut pair, &first, &AcceptParameters::default());
    assert_eq!(late, Err(AcceptError::Gone));
    assert!(late.unwrap_err().to_string().contains("2s"));
    let second = pair.drive_until(5 * SECOND, |pair| pair.server.incoming.get(1).cloned());
    accept(&mut pair, &second, &AcceptParameters::default()).unwrap();
    pair.drive(SECOND);
    assert_eq!(pair.client.connected.len(), 1);
    assert_eq!((totals(&pair).expired, totals(&pair).accepted), (1, 1));
}

/// First datagrams of so many connections, from no address yet.
fn first_datagrams(pair: &mut Pair, count: usize) -> Vec<Vec<u8>> {
    let mut datagrams = Vec::new();
    for _ in 0..count {
        pair.connect();
        pair.client.work(pair.now);
        let trains = pair.client.take_trains(pair.now);
        let first = packet::segments(&trains[0].bytes, trains[0].segment_size).next();
        datagrams.push(first.unwrap().to_vec());
    }
    datagrams
}

/// Each from a network of its own.
fn arrive(pair: &mut Pair, datagrams: &[Vec<u8>]) {
    for (number, datagram) in datagrams.iter().enumerate() {
        let path = Path {
            remote: ([10, (number >> 8) as u8, number as u8, 1], 4_000).into(),
            local: None,
        };
        let bytes = BytesMut::from(&datagram[..]);
        pair.server
            .receive(pair.now, path, Ecn::NotEct, bytes, datagram.len());
    }
    pair.server.work(pair.now);
}

#[test]
fn undecided_connections_are_bounded_in_number_and_leave_their_places() {
    let mut pair = undecided();
    let datagrams = first_datagrams(&mut pair, UNDECIDED_MAX + 20);
    // Below the rate at which addresses have to be proved.
    let (now, later) = datagrams.split_at(150);
    arrive(&mut pair, now);
    pair.now += SECOND;
    arrive(&mut pair, later);
    let reached = totals(&pair);
    assert_eq!(reached.waiting, UNDECIDED_MAX as u64, "{reached:?}");
    assert_eq!((reached.over_limit, reached.over_rate), (20, 0), "{reached:?}");
    pair.now += UNDECIDED_TIME_MAX;
    pair.server.work(pair.now);
    assert_eq!(
        (totals(&pair).waiting, pair.server.expired.len()),
        (0, UNDECIDED_MAX)
    );
    arrive(&mut pair, &datagrams[UNDECIDED_MAX..][..1]);
    assert_eq!(totals(&pair).waiting, 1);
}

#[test]
fn undecided_connections_are_bounded_in_bytes() {
    let mut pair = undecided();
    let mut datagrams = first_datagrams(&mut pair, 20);
    for datagram in &mut datagrams {
        datagram.resize(60_000, 0);
    }
    arrive(&mut pair, &datagrams);
    let reached = totals(&pair);
    assert_eq!(reached.waiting, (UNDECIDED_BYTES_MAX / 60_000) as u64);
    assert_eq!(reached.waiting + reached.over_limit, 20);
}

#[test]
fn a_damaged_first_packet_is_no_connection() {
    let mut pair = undecided();
    let mut datagrams = first_datagrams(&mut pair, 1);
    let last = datagrams[0].len() - 1;
    datagrams[0][last] ^= 1;
    arrive(&mut pair, &datagrams);
    let incoming = pair.server.incoming[0].clone();
    let accepted = accept(&mut pair, &incoming, &AcceptParameters::default());
    assert!(
        matches!(accepted, Err(AcceptError::FirstPacket(_))),
        "{accepted:?}"
    );
    assert_eq!((totals(&pair).damaged, totals(&pair).waiting), (1, 0));
    assert_eq!(pair.server.endpoint.open_connections(), 0);
}
