//! Which pairs of routers can be opened for each other, and which are relayed.

use std::net::SocketAddr;

use peer::PeerPath;
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::require_root;
use testbed::wait::wait_until;

use super::world::{
    AddressRestricted, FIRST_PORT, FullCone, Open, PortRestricted, Symmetric, World, first_message,
};

/// RDV-2, RDV-3, RDV-7, RDV-8, RDV-11, PEER-19.
#[test]
fn all_pairs_of_routers_that_can_be_opened_for_each_other_are_and_the_others_are_relayed() {
    require_root!();
    let world = World::new();
    let kinds = [Open, FullCone, AddressRestricted, PortRestricted, Symmetric];
    let mut table = String::new();
    let mut port = FIRST_PORT;
    for one in kinds {
        for two in kinds {
            world.set_kinds([one, two], port);
            let (caller, callee) = (world.peer(0, port), world.peer(1, port));
            port += 1;
            let cannot = matches!(
                (one, two),
                (Symmetric, PortRestricted | Symmetric) | (PortRestricted, Symmetric)
            );
            let met = first_message(&caller, &callee, PROGRAM_LIMIT);
            let Some((took, [peer, incoming])) = met else {
                panic!("{one:?} calls {two:?}: not connected\n{table}");
            };
            let at_first = peer.path().unwrap();
            let outcome = if at_first.is_relayed() {
                "relayed"
            } else {
                "direct"
            };
            let milliseconds = took.as_millis();
            table.push_str(&format!(
                "{one:?} calls {two:?}: {outcome} after {milliseconds} ms\n"
            ));
            if cannot {
                assert!(at_first.is_relayed(), "{table}");
            } else {
                // On a machine that is busy the relay may have been faster.
                let what = format!("a direct path from {one:?} to {two:?}");
                let ends = [&peer, &incoming];
                wait_until(&what, PROGRAM_LIMIT, || {
                    let is_direct = |end: &&peer::Peer| matches!(end.path(), Some(PeerPath::Direct(_)));
                    ends.iter().all(is_direct)
                });
            }
            for endpoint in [caller, callee] {
                endpoint.close(0, "the next pair");
            }
        }
    }
    println!("{table}");
}

/// RDV-3, RDV-7.
#[test]
fn neighbours_behind_one_router_meet_without_it_where_it_turns_nothing_back() {
    require_root!();
    let world = World::new();
    world.set_kinds([Symmetric, Open], FIRST_PORT);
    let neighbour = world.neighbour();
    let (caller, callee) = (world.peer(0, FIRST_PORT), world.peer_on(&neighbour, FIRST_PORT));
    let (_, [peer, _incoming]) = first_message(&caller, &callee, PROGRAM_LIMIT).unwrap();
    let remote = peer.path_stats().unwrap().remote;
    assert_eq!(remote, SocketAddr::from(([10, 3, 0, 2], FIRST_PORT)));
}
