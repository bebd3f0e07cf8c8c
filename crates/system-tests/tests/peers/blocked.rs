//! Networks that let no UDP through: peers in them are registered in TCP's shape, and relayed.

use peer::blocking::{wait, wait_for};
use peer::{CarrierKind, Delivery, Endpoint, Peer};
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::program::{PERMISSION, UNAVAILABLE, gramway_binary};
use system_tests::{require_program, require_root};
use testbed::directory::Directory;
use testbed::process::Process;
use testbed::wait::wait_until;

use super::moves::Talk;
use super::table::Table;
use super::world::{FIRST_PORT, Open, World, first_message, meet};
use crate::peer_command::{id, run, start};

/// Has a server that listens in TCP's shape, too, and no translating routers.
fn world() -> World {
    let world = World::with(&["--tcp"]);
    world.set_kinds([Open, Open], FIRST_PORT);
    world
}

/// The router lets no UDP through.
fn block_udp(world: &World, router: usize) {
    let rules = "table ip blocked { chain forward { type filter hook forward priority -1; meta l4proto udp drop; }; }";
    world.routers[router].nft(rules).unwrap();
}

fn carrier(endpoint: &Endpoint) -> CarrierKind {
    endpoint.rendezvous_carrier().expect("it is registered")
}

/// A message that takes a thousand packets comes whole.
fn assert_carries(from: &Peer, to: &Peer) {
    let body: Vec<u8> = (0..1_000_000_u32)
        .map(|place| (place ^ (place >> 8)) as u8)
        .collect();
    let ticket = wait(from.send(body.clone(), Delivery::unordered())).unwrap();
    let received = wait_for(PROGRAM_LIMIT, to.receive()).expect("it comes").unwrap();
    assert!(received.body == body);
    assert_eq!(wait_for(PROGRAM_LIMIT, ticket), Some(peer::Outcome::Acked));
}

/// RDV-3, RDV-7, RDV-10.
#[test]
fn peers_whose_networks_block_udp_are_registered_in_tcps_shape_and_relayed() {
    require_root!();
    let world = world();
    let mut table = Table::new("blocked", &["UDP is blocked at", "met"]);
    let rows = [(&[0][..], "the caller"), (&[1], "the callee"), (&[0, 1], "both")];
    for (port, (blocked, named)) in (FIRST_PORT..).zip(rows) {
        world.set_kinds([Open, Open], port);
        blocked.iter().for_each(|router| block_udp(&world, *router));
        let ends = [world.peer(0, port), world.peer(1, port)];
        for (index, end) in ends.iter().enumerate() {
            let expected = match blocked.contains(&index) {
                true => CarrierKind::Tcp,
                false => CarrierKind::Udp,
            };
            assert_eq!(carrier(end), expected, "{blocked:?}");
        }
        let [caller, callee] = &ends;
        let met = meet(caller, callee, PROGRAM_LIMIT).expect("the peer is reached");
        assert!(met.is_by_relay);
        table.add([named.to_owned(), met.outcome()]);
        let [peer, incoming] = met.ends;
        assert!(peer.path().unwrap().is_relayed());
        assert_carries(&peer, &incoming);
        assert_carries(&incoming, &peer);
        ends.iter().for_each(|end| end.close(0, "the next pair"));
    }
    table.finish();
}

/// PATH-5, PATH-8: UDP is blocked while messages flow, and the relayed pair goes on by the same registration.
#[test]
fn a_registration_moves_to_tcps_shape_where_udp_falls_silent() {
    require_root!();
    let world = world();
    let (caller, callee) = (world.peer(0, FIRST_PORT), world.peer(1, FIRST_PORT));
    assert_eq!([carrier(&caller), carrier(&callee)], [CarrierKind::Udp; 2]);
    let (_, ends) = first_message(&caller, &callee, PROGRAM_LIMIT).unwrap();
    let mut talk = Talk::new(ends);
    block_udp(&world, 0);
    let took = talk.until("relayed in TCP's shape", |ends| {
        let is_relayed = |end: &Peer| end.path().is_some_and(|path| path.is_relayed());
        ends.iter().all(is_relayed) && carrier(&caller) == CarrierKind::Tcp
    });
    println!(
        "relayed in TCP's shape {} ms after UDP was blocked",
        took.as_millis()
    );
    talk.finish();
    assert_eq!(carrier(&callee), CarrierKind::Udp);
}

/// RDV-9.
#[test]
fn a_registration_in_tcps_shape_is_made_again_when_the_server_is_back() {
    require_root!();
    let mut world = world();
    block_udp(&world, 0);
    let (caller, callee) = (world.peer(0, FIRST_PORT), world.peer(1, FIRST_PORT));
    world.server.kill();
    world.server.start_again();
    wait_until("both meet again", PROGRAM_LIMIT, || {
        first_message(&caller, &callee, super::moves::ATTEMPT).is_some()
    });
    assert_eq!(carrier(&caller), CarrierKind::Tcp);
}

#[test]
fn ping_shows_the_carrier_of_a_relayed_path_or_says_which_capability_is_missing() {
    require_root!();
    require_program!("setpriv");
    let world = world();
    block_udp(&world, 0);
    let directory = Directory::create_for_test().unwrap();
    let link = directory.write("link", world.link()).unwrap();
    let rendezvous = ["--no-lan", "--rendezvous-file", link.to_str().unwrap()];
    let [near, far] = &world.machines;
    let (caller, listening) = (id(near, &directory, "caller"), id(far, &directory, "listener"));
    let listen = [
        &["listen", "--no-port-mapping", "--allow", &caller],
        &rendezvous[..],
    ]
    .concat();
    let mut listener = start(far, &directory, "listener", &listen);
    listener
        .wait_for_line("registered at the rendezvous", PROGRAM_LIMIT)
        .unwrap();
    let ping = [
        &["ping", &listening, "-c", "2", "--interval", "10"],
        &rendezvous[..],
    ]
    .concat();
    let (code, text, errors) = run(near, &directory, "caller", &ping);
    assert_eq!(code, 0, "{errors}");
    assert!(text.contains("relayed, over TCP's shape"), "{text}");

    for (options, expected, reason) in [
        (
            &["--timeout", "3"][..],
            UNAVAILABLE,
            "need the capability CAP_NET_RAW",
        ),
        (
            &["--rendezvous-carrier", "tcp"],
            PERMISSION,
            "needs the capability CAP_NET_RAW",
        ),
    ] {
        let mut command = near.command("setpriv");
        command.args(["--bounding-set", "-net_raw"]).arg(gramway_binary());
        command.args(["peer", "--state"]).arg(directory.join("caller"));
        command.args(&ping).args(options);
        let mut process = Process::start(command, "gramway peer").unwrap();
        let code = process.wait(PROGRAM_LIMIT).unwrap().code().unwrap();
        let errors = process.stderr();
        assert_eq!(code, expected, "{errors}");
        assert!(errors.contains(reason), "{errors}");
    }
}
