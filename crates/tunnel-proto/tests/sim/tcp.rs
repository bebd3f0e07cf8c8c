//! TCP connections through the tunnel: both ways, half-closed, broken, slow, and beside saturated UDP.

use quic::limits as quic_limits;
use sim::{LinkConfig, for_each_seed};
use tunnel_proto::{Ending, ProxyError};

use crate::support::{DELAY, End, MILLISECOND, RESET_KEY, SECOND, Script, Setup, Way, World};

const MEBIBYTE: u64 = 1 << 20;

/// No end, and no end of bytes.
const ENDLESS: Script = Script {
    bytes: u64::MAX,
    ends: false,
    reads: true,
    waits: false,
};

fn assert_complete(world: &mut World, session: u32, up: u64, down: u64) {
    for (end, expected) in [(world.server, up), (world.client, down)] {
        let tcp = world.tunnel(end).tcp(session);
        assert_eq!((tcp.read, tcp.read_end), (expected, true));
    }
}

#[test]
fn a_mebibyte_passes_both_ways_at_once() {
    let mut world = World::connected(Setup::default());
    let session = world.open_tcp(Script::sending(MEBIBYTE), Script::sending(MEBIBYTE));
    world.run(5 * SECOND);
    assert_complete(&mut world, session, MEBIBYTE, MEBIBYTE);
    assert_eq!(world.client().request_of(session), None);
    assert_eq!(world.server().request_of(session), None);
}

#[test]
fn a_target_may_answer_after_the_local_side_has_ended() {
    for_each_seed(4, |seed| {
        let link = LinkConfig {
            delay: DELAY,
            loss: 0.02,
            reorder: 0.02,
            ..LinkConfig::default()
        };
        let mut world = World::connected(Setup {
            seed,
            ..Setup::on(link)
        });
        let asking = world.open_tcp(Script::sending(MEBIBYTE), Script::answering(MEBIBYTE));
        let asked = world.open_tcp(Script::answering(100_000), Script::sending(0));
        world.run(60 * SECOND);
        assert_complete(&mut world, asking, MEBIBYTE, MEBIBYTE);
        assert_complete(&mut world, asked, 100_000, 0);
    });
}

#[test]
fn a_reset_on_either_side_reaches_the_other() {
    for local in [true, false] {
        let mut world = World::connected(Setup::default());
        let session = world.open_tcp(ENDLESS_SLOWLY, ENDLESS_SLOWLY);
        world.run(SECOND);
        let (breaking, other) = if local {
            (world.client, world.server)
        } else {
            (world.server, world.client)
        };
        world.tunnel(breaking).abort(session);
        world.run(4 * DELAY);
        assert_eq!(world.tunnel(other).endings(), [&Ending::Reset]);
        assert_eq!(world.tunnel(other).request_of(session), None);
        let next = world.open_tcp(Script::sending(1_000), Script::sending(1_000));
        world.run(SECOND);
        assert_complete(&mut world, next, 1_000, 1_000);
    }
}

/// Open, with some bytes written.
const ENDLESS_SLOWLY: Script = Script {
    bytes: 10_000,
    ..ENDLESS
};

#[test]
fn a_slow_reader_bounds_what_is_kept_for_it() {
    for local_is_slow in [true, false] {
        let mut world = World::connected(Setup::on(LinkConfig {
            delay: DELAY,
            rate_bits_per_second: Some(200_000_000),
            queue_bytes: 1_000_000,
            ..LinkConfig::default()
        }));
        let slow = Script {
            reads: false,
            ..Script::sending(0)
        };
        let total = 40 * MEBIBYTE;
        let fast = Script::sending(total);
        let (local, target) = if local_is_slow { (slow, fast) } else { (fast, slow) };
        let session = world.open_tcp(local, target);
        let (reader, writer) = if local_is_slow {
            (world.client, world.server)
        } else {
            (world.server, world.client)
        };
        world.run(10 * SECOND);
        let kept = world.tunnel(writer).tcp(session).written;
        let most = quic_limits::SEND_WINDOW_BYTES + u64::from(quic_limits::STREAM_WINDOW_BYTES) + (64 << 10);
        assert!(kept <= most, "{kept} bytes are kept");
        assert!(!world.tunnel(writer).tcp(session).writable);
        world.run(10 * SECOND);
        assert_eq!(world.tunnel(writer).tcp(session).written, kept);

        let quick = world.open_tcp(Script::sending(MEBIBYTE), Script::sending(MEBIBYTE));
        world.run(5 * SECOND);
        assert_complete(&mut world, quick, MEBIBYTE, MEBIBYTE);

        world.tunnel(reader).resume(session);
        world.run(10 * SECOND);
        assert_eq!(world.tunnel(reader).tcp(session).read, total);
    }
}

#[test]
fn readers_that_stand_still_keep_nobody_else_from_working() {
    let mut world = World::connected(Setup::default());
    let standing = Script {
        reads: false,
        ..Script::sending(0)
    };
    for _ in 0..4 {
        world.open_tcp(standing, Script::sending(40 * MEBIBYTE));
    }
    world.run(10 * SECOND);
    let udp = world.book.session();
    world.send("echo", udp, &[100]);
    let quick = world.open_tcp(Script::sending(MEBIBYTE), Script::sending(MEBIBYTE));
    world.run(5 * SECOND);
    assert_eq!(world.book.count(udp, Way::Down), 1);
    assert_complete(&mut world, quick, MEBIBYTE, MEBIBYTE);
}

#[test]
fn tcp_keeps_its_share_beside_saturated_udp() {
    for upload in [true, false] {
        let mut world = World::connected(Setup::on(LinkConfig {
            delay: DELAY,
            rate_bits_per_second: Some(20_000_000),
            queue_bytes: 100_000,
            ..LinkConfig::default()
        }));
        let udp = world.book.session();
        world.send("sink", udp, &[100]);
        world.run(SECOND);
        let (local, target) = if upload {
            (ENDLESS, Script::listening())
        } else {
            (Script::listening(), ENDLESS)
        };
        let tcp = world.open_tcp(local, target);
        let (sender, receiver, way) = if upload {
            (world.client, world.server, Way::Up)
        } else {
            (world.server, world.client, Way::Down)
        };
        for _ in 0..2_500 {
            world.send_from(sender, "sink", udp, &[1_000; 10]);
            world.run(2 * MILLISECOND);
        }
        let tcp_bytes = world.tunnel(receiver).tcp(tcp).read;
        let udp_bytes = world.book.count(udp, way) * 1_000;
        assert!(
            tcp_bytes * 5 >= tcp_bytes + udp_bytes,
            "TCP {tcp_bytes}, UDP {udp_bytes}"
        );
        assert!(
            udp_bytes * 5 >= tcp_bytes + udp_bytes,
            "TCP {tcp_bytes}, UDP {udp_bytes}"
        );
    }
}

#[test]
fn a_refused_connection_says_why() {
    let mut world = World::connected(Setup::default());
    world.open_tcp(Script::sending(10), None);
    world.run(SECOND);
    let refusal = Ending::Refused {
        status: 502,
        error: Some(ProxyError::ConnectionRefused),
    };
    assert_eq!(world.client().endings(), [&refusal]);
}

#[test]
fn connections_wait_for_the_tunnel_and_end_with_it() {
    let mut world = World::new(Setup::default());
    let waiting = world.open_tcp(Script::sending(MEBIBYTE), Script::answering(MEBIBYTE));
    world.run(5 * SECOND);
    assert_complete(&mut world, waiting, MEBIBYTE, MEBIBYTE);
    world.open_tcp(ENDLESS_SLOWLY, Script::listening());
    world.run(SECOND);
    world.start_server(RESET_KEY);
    let poke = world.book.session();
    world.send("echo", poke, &[100]);
    world.run(SECOND);
    assert!(world.client().endings().contains(&&Ending::ConnectionLost));
    assert!(world.client().data.is_up());
}

#[test]
fn hundreds_of_connections_run_at_once() {
    let mut world = World::connected(Setup::default());
    let sessions: Vec<u32> = (0..200)
        .map(|index| world.open_tcp(Script::sending(10_000 + index), Script::answering(20_000)))
        .collect();
    world.run(10 * SECOND);
    for (index, session) in sessions.into_iter().enumerate() {
        assert_complete(&mut world, session, 10_000 + index as u64, 20_000);
    }
}

#[test]
fn a_connection_that_moves_nothing_for_the_idle_timeout_is_reset_and_one_that_moves_is_not() {
    let mut setup = Setup::default();
    setup.server.tcp_idle_timeout = 60 * SECOND;
    let mut world = World::connected(setup);
    let idle = world.open_tcp(ENDLESS_SLOWLY, ENDLESS_SLOWLY);
    let busy = world.open_tcp(ENDLESS_SLOWLY, ENDLESS_SLOWLY);
    world.run(SECOND);
    let move_one = |world: &mut World, seconds: u32| {
        for _ in 0..seconds / 10 {
            world.run(10 * SECOND);
            let (now, server) = (world.now(), world.server());
            let id = server.request_of(busy).expect("it is open");
            server.engine.tcp_moved(now, id);
        }
    };
    move_one(&mut world, 50);
    assert!(world.server().request_of(idle).is_some());
    move_one(&mut world, 20);
    for end in [world.server, world.client] {
        assert_eq!(world.tunnel(end).endings(), [&Ending::Reset]);
        assert_eq!(world.tunnel(end).request_of(idle), None);
        assert!(world.tunnel(end).request_of(busy).is_some());
    }
    world.run(70 * SECOND);
    assert_eq!(world.server().request_of(busy), None);
}
