//! How fast a user may be, by its own rate and by its share of the line: UDP and TCP, both ways, on all of its connections
//! together.

use sim::LinkConfig;

use super::*;
use crate::relay::Relayed;
use crate::rendezvous::Site;

const RATE: u64 = 20_000_000;
const ENDLESS: Script = Script {
    bytes: u64::MAX,
    ends: false,
    reads: true,
    waits: false,
};
/// What is measured.
const TIME: Duration = Duration::from_secs(2);

/// A server where Alice has the rate, and Bob has none.
fn world_with_a_rate() -> (World, User, Questions) {
    let mut world = World::with_server(Setup::on(LinkConfig {
        delay: DELAY,
        rate_bits_per_second: Some(5 * RATE),
        queue_bytes: 200_000,
        ..LinkConfig::default()
    }));
    let (register, questions) = Register::new(Rights::ALL, UserLimits::default());
    let alice = register.alice.user.clone();
    alice.set_rate(Some(RATE));
    world.start_server_for(Box::new(register), 1);
    (world, alice, questions)
}

/// Bytes in [`TIME`] as a part of what the rate allows.
fn part(bytes: u64) -> f64 {
    bytes as f64 * 8.0 / TIME.as_secs_f64() / RATE as f64
}

fn assert_held(bytes: u64, what: &str) {
    let part = part(bytes);
    assert!((0.95..=1.05).contains(&part), "{what}: {part} of the rate");
}

#[test]
fn udp_of_a_limited_user_has_its_rate_both_ways_and_drops_the_rest_by_name() {
    let (mut world, _, _) = world_with_a_rate();
    world.client = world.add_client(&user());
    let client = world.client;
    world.wait_until_up(client);
    let session = world.book.session();
    world.send("sink", session, &[100]);
    world.run(SECOND);
    let sent = |world: &mut World| {
        let up = world.server().ledger().egress.sent;
        let down = world.client_at(client).ledger().egress.sent;
        [up, down]
    };
    let before = sent(&mut world);
    for _ in 0..TIME.as_millis() / 5 {
        // Twice the rate.
        world.send("sink", session, &[1_000; 25]);
        world.answer(session, &[1_000; 25]);
        world.run(Duration::from_millis(5));
    }
    let after = sent(&mut world);
    assert_held((after[0] - before[0]) * 1_000, "from the client");
    assert_held((after[1] - before[1]) * 1_000, "to the client");
    assert!(world.server().egress_drops(DropReason::RateLimit) > 2_500);
}

/// Foreign clients may send datagrams on the session's stream, too (RFC 9297 section 3.5).
#[test]
fn datagrams_in_capsules_count_for_the_rate_like_all_others() {
    let (mut world, _, _) = world_with_a_rate();
    let (foreign, stream, session) = asking(&mut world, &user());
    world.book.is_hostile(session);
    world.run(SECOND);
    assert_eq!(world.foreign(foreign).status(stream), Some(200));
    let (prefix, used) = masque::capsule::datagram_prefix(0, 1_000);
    let capsule = [&prefix[..used], &[7; 1_000]].concat();
    let (header, used) = masque::data_frame_header(capsule.len() as u64);
    let frame = [&header[..used], &capsule].concat();
    let mut unsent = Vec::new();
    let before = world.server().ledger().egress.sent;
    for _ in 0..TIME.as_millis() / 5 {
        // Twice the rate.
        unsent.extend(frame.repeat(25));
        let written = world.foreign(foreign).write(stream, &unsent);
        unsent.drain(..written);
        world.run(Duration::from_millis(5));
    }
    let sent = world.server().ledger().egress.sent - before;
    assert_held(sent * 1_000, "in capsules");
    assert!(world.server().egress_drops(DropReason::RateLimit) > 2_500);
}

#[test]
fn tcp_of_a_limited_user_has_its_rate_both_ways_and_anothers_has_none() {
    let (mut world, alice, questions) = world_with_a_rate();
    let [first, second] = [user(), user()].map(|token| world.add_client(&token));
    let bob = world.add_client(&bobs_token());
    world.run(SECOND);
    questions.answer(&mut world);
    world.run(SECOND);
    let sessions = [first, second, bob].map(|client| {
        world.client = client;
        (client, world.open_tcp(ENDLESS, ENDLESS))
    });
    world.run(SECOND);
    let read = |world: &mut World| {
        sessions.map(|(client, session)| {
            let up = world.server().tcp(session).read;
            [up, world.client_at(client).tcp(session).read]
        })
    };
    let measured = |world: &mut World| {
        let before = read(world);
        world.run(TIME);
        let after = read(world);
        [0, 1, 2].map(|who| [0, 1].map(|way| after[who][way] - before[who][way]))
    };
    let [one, other, bobs] = measured(&mut world);
    for (way, name) in ["from the client", "to the client"].into_iter().enumerate() {
        assert_held(one[way] + other[way], name);
        assert!(one[way].min(other[way]) > 0, "both connections go on");
        assert!(part(bobs[way]) > 1.5, "{name}: {} of Alice's", part(bobs[way]));
    }
    // What is changed holds for those who are there.
    alice.set_rate(None);
    world.run(SECOND);
    let [one, _, _] = measured(&mut world);
    assert!(one.iter().all(|bytes| part(*bytes) > 1.5), "{one:?}");
}

/// A server whose line carries twice [`RATE`] in each direction; Alice has three connections, Bob has one.
fn world_with_a_line() -> (World, Vec<SocketAddr>, SocketAddr) {
    let mut world = World::with_server(Setup {
        server: EngineConfig {
            line: LineRates {
                from_clients: Some(2 * RATE),
                to_clients: Some(2 * RATE),
            },
            ..EngineConfig::default()
        },
        ..Setup::on(LinkConfig {
            delay: DELAY,
            rate_bits_per_second: Some(5 * RATE),
            queue_bytes: 200_000,
            ..LinkConfig::default()
        })
    });
    let (register, questions) = Register::new(Rights::ALL, UserLimits::default());
    world.start_server_for(Box::new(register), 1);
    world.server().engine.share_line(Arc::default());
    let alices = [user(), user(), user()].map(|token| world.add_client(&token));
    let bob = world.add_client(&bobs_token());
    world.run(SECOND);
    questions.answer(&mut world);
    world.run(SECOND);
    (world, alices.to_vec(), bob)
}

#[test]
fn on_a_full_line_a_user_with_many_flows_and_connections_has_no_more_than_one_with_a_single_flow() {
    let (mut world, alices, bob) = world_with_a_line();
    let mut flows: Vec<_> = (0..60)
        .map(|flow| (alices[flow % 3], world.book.session()))
        .collect();
    flows.push((bob, world.book.session()));
    for (client, session) in &flows {
        world.send_from(*client, "sink", *session, &[100]);
    }
    world.run(SECOND);
    let moved = |world: &mut World| {
        flows
            .iter()
            .map(|(_, session)| [Way::Up, Way::Down].map(|way| world.book.count(*session, way)))
            .collect::<Vec<_>>()
    };
    // First both ask for more than there is, then Bob for a quarter of it.
    for (bobs_datagrams, bobs_part) in [(50, 1.0), (12, 0.48)] {
        let mut before = Vec::new();
        for span in [SECOND, TIME] {
            before = moved(&mut world);
            for _ in 0..span.as_millis() / 10 {
                for (client, session) in &flows[..60] {
                    world.send_from(*client, "sink", *session, &[1_000]);
                    world.answer(*session, &[1_000]);
                }
                let (client, session) = flows[60];
                world.send_from(client, "sink", session, &vec![1_000; bobs_datagrams]);
                world.answer(session, &vec![1_000; bobs_datagrams]);
                world.run(Duration::from_millis(10));
            }
        }
        let after = moved(&mut world);
        for way in [0, 1] {
            let got = |flow: usize| (after[flow][way] - before[flow][way]) * 1_000;
            let alice = part((0..60).map(got).sum());
            let bob = part(got(60));
            assert!(
                (bobs_part - 0.06..=bobs_part + 0.06).contains(&bob),
                "{way}: {alice} and {bob}"
            );
            assert!(
                (1.85 - bobs_part..=2.1 - bobs_part).contains(&alice),
                "{way}: {alice} and {bob}"
            );
        }
    }
}

#[test]
fn on_a_full_line_tcp_of_two_users_is_shared_evenly() {
    let (mut world, alices, bob) = world_with_a_line();
    let mut sessions: Vec<_> = (0..9).map(|flow| alices[flow % 3]).collect();
    sessions.push(bob);
    let sessions: Vec<_> = sessions
        .into_iter()
        .map(|client| {
            world.client = client;
            (client, world.open_tcp(ENDLESS, ENDLESS))
        })
        .collect();
    world.run(2 * SECOND);
    let read = |world: &mut World| {
        sessions
            .iter()
            .map(|(client, session)| {
                let up = world.server().tcp(*session).read;
                [up, world.client_at(*client).tcp(*session).read]
            })
            .collect::<Vec<_>>()
    };
    let before = read(&mut world);
    world.run(TIME);
    let after = read(&mut world);
    for (way, name) in ["from the client", "to the client"].into_iter().enumerate() {
        let got = |flow: usize| after[flow][way] - before[flow][way];
        let (alice, bob) = (part((0..9).map(got).sum()), part(got(9)));
        assert!((0.9..=1.1).contains(&bob), "{name}: {alice} and {bob}");
        assert!((0.85..=1.1).contains(&alice), "{name}: {alice} and {bob}");
    }
}

/// RDV-13: what is relayed is its user's.
#[test]
fn on_a_full_line_a_relayed_pair_leaves_another_user_its_share() {
    let (world, alices, bob) = world_with_a_line();
    let mut relayed = Relayed::of(Site::of(world, &alices[..2]));
    relayed.join(0, 1);
    let to = relayed.addresses[1];
    let session = relayed.site.world.book.session();
    relayed.site.world.send_from(bob, "sink", session, &[100]);
    relayed.site.world.run(SECOND);
    let (mut pair, mut before) = (0, [0; 2]);
    let moved = |world: &World| [Way::Up, Way::Down].map(|way| world.book.count(session, way));
    for span in [SECOND, TIME] {
        relayed.received(1);
        (pair, before) = (0, moved(&relayed.site.world));
        for _ in 0..span.as_millis() / 5 {
            // Twice the line, and for Bob as much as his share.
            relayed.send(0, to, &vec![vec![7; 1_000]; 50]);
            let world = &mut relayed.site.world;
            world.send_from(bob, "sink", session, &[1_000; 12]);
            world.answer(session, &[1_000; 12]);
            world.run(Duration::from_millis(5));
            pair += relayed.received(1).len() as u64;
        }
    }
    let after = moved(&relayed.site.world);
    let pair = part(pair * 1_000);
    for way in [0, 1] {
        let bob = part((after[way] - before[way]) * 1_000);
        assert!((0.9..=1.0).contains(&bob), "{way}: {bob} beside {pair}");
    }
    assert!((0.85..=1.1).contains(&pair), "{pair}");
}
