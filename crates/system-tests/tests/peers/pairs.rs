//! Which pairs of routers can be opened for each other, and which are relayed.

use std::net::SocketAddr;

use system_tests::limits::PROGRAM_LIMIT;
use system_tests::require_root;

use super::table::Table;
use super::world::{
    AddressRestricted, FIRST_PORT, FullCone, LOST_TRIES_MAX, Open, PortRestricted, Symmetric, World,
    first_message, meet_directly, meet_relayed,
};

/// RDV-2, RDV-3, RDV-7, RDV-8, RDV-11, PEER-19.
#[test]
fn all_pairs_of_routers_that_can_be_opened_for_each_other_are_and_the_others_are_relayed() {
    require_root!();
    let world = World::new();
    let kinds = [Open, FullCone, AddressRestricted, PortRestricted, Symmetric];
    let names = kinds.map(|kind| format!("{kind:?}"));
    let head: Vec<&str> = ["caller calls"]
        .into_iter()
        .chain(names.iter().map(String::as_str))
        .collect();
    let mut table = Table::new("routers", &head);
    let mut ports = FIRST_PORT..;
    let mut tries_lost = 0;
    for one in kinds {
        let mut row = vec![format!("{one:?}")];
        for two in kinds {
            let cannot = matches!(
                (one, two),
                (Symmetric, PortRestricted | Symmetric) | (PortRestricted, Symmetric)
            );
            let what = format!("{one:?} calls {two:?}");
            let ends = |port| {
                world.set_kinds([one, two], port);
                [world.peer(0, port), world.peer(1, port)]
            };
            let (met, endpoints) = match cannot {
                true => meet_relayed(&what, &mut ports, ends),
                false => meet_directly(&what, &mut ports, ends),
            };
            println!("{what}: {}", met.outcome());
            tries_lost += met.tries_lost;
            row.push(met.outcome());
            endpoints
                .iter()
                .for_each(|endpoint| endpoint.close(0, "the next pair"));
        }
        table.add(row);
    }
    table.finish();
    assert!(
        tries_lost <= LOST_TRIES_MAX,
        "the relay answered first in {tries_lost} tries of pairs that have a direct path"
    );
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
