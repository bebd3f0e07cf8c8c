//! Payloads of every size: whole, split, or dropped and counted where the peer or the settings do not split.

use sim::LinkConfig;
use tunnel_proto::{ClientAction, DropReason, EngineConfig, Oversize};

use crate::support::{MILLISECOND, SECOND, Setup, Way, World};

const SIZES: [usize; 7] = [0, 1, 1_150, 1_400, 1_500, 9_000, 65_507];

fn dropping() -> EngineConfig {
    EngineConfig {
        oversize: Oversize::Drop,
        ..EngineConfig::default()
    }
}

#[test]
fn payloads_of_every_size_pass_both_ways() {
    for ceiling in [1_200, 1_452, 8_952] {
        let mut world = World::connected(Setup {
            ceiling,
            ..Setup::default()
        });
        let session = world.book.session();
        for size in SIZES {
            world.send("echo", session, &[size]);
            world.run(SECOND);
        }
        for way in [Way::Up, Way::Down] {
            assert_eq!(
                world.book.count(session, way),
                SIZES.len() as u64,
                "{way:?} at {ceiling}"
            );
        }
        let ledger = *world.client().engine.ledger();
        assert!(ledger.ingress.split > 0 && ledger.egress.joined > 0);
        assert_eq!(ledger.ingress.dropped_total() + ledger.egress.dropped_total(), 0);
    }
}

#[test]
fn the_largest_payload_passes_a_long_path_at_once() {
    let mut world = World::connected(Setup::on(LinkConfig {
        delay: 75 * MILLISECOND,
        ..LinkConfig::default()
    }));
    let session = world.book.session();
    for _ in 0..3 {
        world.send("echo", session, &[65_507]);
        world.run(2 * SECOND);
    }
    assert_eq!(
        [Way::Up, Way::Down].map(|way| world.book.count(session, way)),
        [3, 3],
        "{:?}",
        world.client().engine.ledger().ingress
    );
}

#[test]
fn a_client_that_does_not_split_drops_and_counts_and_its_server_does_the_same() {
    let mut world = World::connected(Setup {
        client: dropping(),
        ..Setup::default()
    });
    let session = world.book.session();
    world.send("echo", session, &SIZES);
    world.run(SECOND);
    let fitting = 4;
    assert_eq!(world.book.count(session, Way::Up), fitting);
    assert_eq!(world.client().ingress_drops(DropReason::TooLarge), 3);
    world.answer(session, &SIZES);
    world.run(SECOND);
    assert_eq!(world.book.count(session, Way::Down), 2 * fitting);
    assert_eq!(world.server().ingress_drops(DropReason::TooLarge), 3);
    assert_eq!(world.server().egress_drops(DropReason::UnknownContext), 0);
}

/// SPLIT-2.
#[test]
fn a_server_that_does_not_split_gets_fragments_only_before_it_has_said_so() {
    let mut world = World::connected(Setup {
        server: dropping(),
        ..Setup::default()
    });
    let session = world.book.session();
    world.send("echo", session, &[1_500, 100]);
    world.run(SECOND);
    assert_eq!(world.server().egress_drops(DropReason::UnknownContext), 2);
    let established = |action: &ClientAction| matches!(action, ClientAction::Established { .. });
    assert_eq!(world.client().count(established), 1);
    world.send("echo", session, &[1_500, 100]);
    world.run(SECOND);
    assert_eq!(world.server().egress_drops(DropReason::UnknownContext), 2);
    assert_eq!(world.client().ingress_drops(DropReason::TooLarge), 1);
    assert_eq!(world.book.count(session, Way::Down), 2);
}
