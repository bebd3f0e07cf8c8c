//! IP packets through the tunnel: leases, both ways of a packet, sizes, rules between honest ends.

use packet::checksum::ChecksumState;
use packet::ip::IpView;
use packet::vnet::{GsoType, VnetHeader};
use sim::LinkConfig;
use tunnel_proto::{ClientAction, DropReason, Prefix};

use crate::support::packets::{icmp_error, ip, syn, tcp, udp};
use crate::support::{DELAY, End, SECOND, Setup, World};

const POOLS: [&str; 2] = ["10.9.0.0/24", "fd09::/64"];

/// A server with NAT's routes and one client with its lease.
pub(crate) fn world_with(setup: Setup) -> World {
    let mut world = World::with_server(setup);
    world.serve_ip(&POOLS, &["0.0.0.0/0", "::/0"], false);
    world.client = world.add_ip_client(1, 7);
    wait_for_lease(&mut world);
    world.run(2 * SECOND);
    world
}

fn world() -> World {
    world_with(Setup::default())
}

fn wait_for_lease(world: &mut World) {
    let client = world.client;
    world.run_until(20 * SECOND, |world| {
        world.client_at(client).assignment().is_some()
    });
}

fn addresses(world: &mut World) -> Vec<String> {
    let assignment = world.client().assignment().expect("the client has a lease");
    assignment.addresses.iter().map(Prefix::to_string).collect()
}

/// Packets that an end's TUN got since this was last asked.
fn taken(world: &mut World, at_server: bool) -> Vec<Vec<u8>> {
    let packets = if at_server {
        &mut world.server().packets
    } else {
        &mut world.client().packets
    };
    std::mem::take(packets)
        .into_iter()
        .map(|(packet, _)| packet)
        .collect()
}

/// SESSION-16: what belongs together is told together.
#[test]
fn a_client_gets_an_address_of_each_pool_the_routes_and_the_name_servers() {
    let mut world = world();
    assert_eq!(addresses(&mut world), ["10.9.0.2/32", "fd09::2/128"]);
    let assignment = world.client().assignment().unwrap();
    let routes: Vec<_> = assignment
        .routes
        .iter()
        .flatten()
        .map(Prefix::to_string)
        .collect();
    assert_eq!(routes, ["10.9.0.0/24", "fd09::/64", "0.0.0.0/0", "::/0"]);
    assert!(assignment.is_by_name);
    let name_servers: Vec<_> = assignment.name_servers.iter().map(ToString::to_string).collect();
    assert_eq!(name_servers, ["10.9.0.1", "fd09::1"]);
    let told = |action: &ClientAction| matches!(action, ClientAction::Assigned { .. });
    assert_eq!(world.client().count(told), 1, "told once");
}

/// RFC 9484 section 7.2: the hop limit falls at the end that encapsulates, and only there.
#[test]
fn packets_pass_both_ways_unchanged_but_for_one_hop() {
    let mut world = world();
    for (own, far) in [("10.9.0.2", "198.51.100.9"), ("fd09::2", "2001:db8::9")] {
        let client = world.client;
        world.send_packet(client, &udp(own, far, 1_000));
        world.run(SECOND);
        let packets = taken(&mut world, true);
        assert_eq!(packets.len(), 1);
        let view = IpView::parse(&packets[0]).unwrap();
        assert_eq!((view.hop_limit, view.total_bytes), (63, 1_000));
        let sent = udp(own, far, 1_000);
        assert_eq!(
            view.transport(&packets[0]),
            &sent[sent.len() - view.transport(&packets[0]).len()..]
        );
        let server = world.server;
        world.send_packet(server, &udp(far, own, 500));
        world.run(SECOND);
        assert_eq!(taken(&mut world, false).len(), 1);
    }
}

/// SESSION-4.
#[test]
fn a_client_keeps_its_addresses_over_reconnects_and_the_servers_restart() {
    let mut world = world();
    let before = addresses(&mut world);
    let stored = world.server().data.leases.as_ref().unwrap().stored();
    world.start_server(crate::support::RESET_KEY);
    world.serve_ip(&POOLS, &["0.0.0.0/0"], false);
    // Somebody else comes first.
    let other = world.add_ip_client(2, 1);
    world.server().data.leases.as_mut().unwrap().restore(stored);
    world.run_until(60 * SECOND, |world| world.client_at(other).assignment().is_some());
    world.run_until(60 * SECOND, |world| {
        world
            .client()
            .count(|action| matches!(action, ClientAction::Assigned { .. }))
            == 2
    });
    assert_eq!(addresses(&mut world), before);
    assert!(world.client().count(|action| *action == ClientAction::IpLost) >= 1);
}

/// SESSION-6.
#[test]
fn a_new_run_of_a_client_ends_the_sessions_of_the_old_one_and_gets_its_packets() {
    let mut world = world();
    let old = world.client;
    world.client = world.add_ip_client(1, 8);
    wait_for_lease(&mut world);
    world.run(SECOND);
    assert_eq!(addresses(&mut world), ["10.9.0.2/32", "fd09::2/128"]);
    assert_eq!(
        world
            .client_at(old)
            .count(|action| *action == ClientAction::IpLost),
        1
    );
    let server = world.server;
    world.send_packet(server, &udp("198.51.100.9", "10.9.0.2", 100));
    world.run(SECOND);
    assert_eq!(taken(&mut world, false).len(), 1);
    assert_eq!(world.server().data.leases.as_ref().unwrap().counts(), (1, 1));
}

#[test]
fn a_pool_without_addresses_refuses_until_one_is_free() {
    let mut world = World::with_server(Setup::default());
    world.serve_ip(&["10.9.0.0/30"], &[], false);
    let first = world.add_ip_client(1, 1);
    world.run_until(20 * SECOND, |world| world.client_at(first).assignment().is_some());
    world.client = world.add_ip_client(2, 1);
    let refused = |action: &ClientAction| matches!(action, ClientAction::IpRefused { status: 503, .. });
    world.run_until(20 * SECOND, |world| world.client().count(refused) == 1);
    let now = world.now();
    world.client_at(first).leave(now);
    world.run(SECOND / 20);
    let now = world.now();
    world.client().engine.ask_for_ip(now);
    wait_for_lease(&mut world);
    assert_eq!(addresses(&mut world), ["10.9.0.2/32"]);
}

#[test]
fn a_super_packet_becomes_equal_datagrams_with_unfinished_checksums() {
    let mut world = world();
    let packet = tcp("10.9.0.2", "198.51.100.9", 20_000);
    let header = VnetHeader {
        needs_checksum: true,
        gso: GsoType::TcpV4,
        gso_size: 1_000,
        checksum_start: 20,
        checksum_offset: 16,
        header_bytes: 40,
        ..VnetHeader::default()
    };
    let now = world.now();
    world.client().send_packet(now, &header, &packet);
    world.run(SECOND);
    let packets = std::mem::take(&mut world.server().packets);
    assert_eq!(packets.len(), 20);
    let mut payload: Vec<u8> = Vec::new();
    for (packet, checksum) in &packets {
        assert_eq!((*checksum, packet.len()), (ChecksumState::Partial, 1_040));
        payload.extend(&packet[40..]);
    }
    assert_eq!(payload, packet[40..]);
}

#[test]
fn super_packets_that_are_given_up_unread_count_as_what_they_would_have_become() {
    let mut world = world();
    let header = VnetHeader {
        needs_checksum: true,
        gso: GsoType::UdpL4,
        gso_size: 1_000,
        checksum_start: 20,
        checksum_offset: 6,
        header_bytes: 28,
        ..VnetHeader::default()
    };
    let flood = udp("10.9.0.2", "198.51.100.9", 20_000);
    let other = tcp("10.9.0.2", "198.51.100.9", 900);
    let engine = &mut world.client().engine;
    let before = engine.ledger().ingress;
    assert!(engine.shed_packet(&header.encode(), &flood[..500]));
    assert!(!engine.shed_packet(&VnetHeader::default().encode(), &other[..500]));
    assert!(!engine.shed_packet(&header.encode(), &[]));
    let after = engine.ledger().ingress;
    assert_eq!(after.accepted - before.accepted, 22);
    let dropped = |reason| after.dropped(reason) - before.dropped(reason);
    assert_eq!(
        (dropped(DropReason::QueueFull), dropped(DropReason::Malformed)),
        (21, 1)
    );
}

#[test]
fn a_syn_is_clamped_to_the_path_in_both_directions() {
    let mut world = world();
    let mtu = world.client().engine.packet_max_at_most().unwrap();
    let (client, server) = (world.client, world.server);
    for (from, packet, at_server) in [
        (client, syn("10.9.0.2", "198.51.100.9", 8_960), true),
        (server, syn("198.51.100.9", "10.9.0.2", 8_960), false),
    ] {
        world.send_packet(from, &packet);
        world.run(SECOND);
        let packets = taken(&mut world, at_server);
        let packet = &packets[0];
        let mss = u16::from_be_bytes([packet[42], packet[43]]);
        assert_eq!(usize::from(mss), mtu - 40);
        assert!(packet::checksum::verify(packet));
    }
}

#[test]
fn a_packet_too_big_for_the_path_is_answered_with_the_paths_mtu() {
    let mut world = world();
    let mtu = world.client().engine.packet_max_at_most().unwrap();
    assert!((1_380..=1_420).contains(&mtu), "{mtu}");
    let client = world.client;
    for (own, far, expected) in [
        ("10.9.0.2", "198.51.100.9", (3, 4, mtu as u32)),
        ("fd09::2", "2001:db8::9", (2, 0, mtu as u32)),
    ] {
        world.send_packet(client, &udp(own, far, mtu));
        world.send_packet(client, &udp(own, far, mtu + 1));
        world.run(SECOND);
        assert_eq!(taken(&mut world, true).len(), 1);
        let answers = taken(&mut world, false);
        assert_eq!(icmp_error(&answers[0]), Some(expected));
    }
    assert_eq!(world.client().ingress_drops(DropReason::PacketTooBig), 2);
}

/// The server's device takes what its best client takes; who sends to another is told that one's MTU.
#[test]
fn each_client_of_a_server_has_an_mtu_of_its_own() {
    let mut world = world();
    let best = world.server().engine.packet_max_at_most().unwrap();
    world.setup.link.mtu = 1_360;
    let narrow = world.add_ip_client(2, 1);
    world.run_until(20 * SECOND, |world| {
        world.client_at(narrow).assignment().is_some()
    });
    world.run(2 * SECOND);
    assert_eq!(world.server().engine.packet_max_at_most(), Some(best));
    let least = world.client_at(narrow).engine.packet_max_at_most().unwrap();
    assert!(least < best);
    let server = world.server;
    for (own, far) in [("10.9.0.2", "10.9.0.3"), ("fd09::2", "fd09::3")] {
        let source = if own.contains(':') {
            "2001:db8::9"
        } else {
            "198.51.100.9"
        };
        for (to, size) in [(own, best), (far, best), (far, least)] {
            world.send_packet(server, &udp(source, to, size));
            world.run(SECOND);
        }
        let answers = taken(&mut world, true);
        assert_eq!(answers.len(), 1, "one packet was too big for its client");
        assert_eq!(icmp_error(&answers[0]).map(|(_, _, mtu)| mtu), Some(least as u32));
        assert_eq!(taken(&mut world, false).len(), 1);
        assert_eq!(std::mem::take(&mut world.client_at(narrow).packets).len(), 1);
    }
}

/// RFC 9484 section 7.1: IPv6 needs 1,280 bytes; what one datagram does not hold travels in pieces.
#[test]
fn a_path_of_1280_bytes_carries_ipv6_in_pieces() {
    let mut world = world_with(Setup {
        ceiling: 1_232,
        ..Setup::default()
    });
    assert_eq!(world.client().engine.packet_max_at_most(), Some(1_280));
    let client = world.client;
    world.send_packet(client, &udp("fd09::2", "2001:db8::9", 1_280));
    world.send_packet(client, &udp("fd09::2", "2001:db8::9", 1_281));
    world.run(SECOND);
    let packets = taken(&mut world, true);
    assert_eq!(
        packets,
        [{
            let mut sent = udp("fd09::2", "2001:db8::9", 1_280);
            sent[7] -= 1;
            sent
        }]
    );
    let answers = taken(&mut world, false);
    assert_eq!(icmp_error(&answers[0]), Some((2, 0, 1_280)));
}

/// Programs whose packets are shorter than IPv6's least ones never hear of a path that QUIC takes for narrower, and this
/// holds for a server without IPv6 as well.
#[test]
fn a_path_of_1280_bytes_carries_packets_of_so_many_with_ipv4_alone() {
    let mut world = World::with_server(Setup {
        ceiling: 1_232,
        ..Setup::default()
    });
    world.serve_ip(&POOLS[..1], &["0.0.0.0/0"], false);
    world.client = world.add_ip_client(1, 1);
    wait_for_lease(&mut world);
    assert_eq!(world.client().engine.packet_max_at_most(), Some(1_280));
    let client = world.client;
    world.send_packet(client, &udp("10.9.0.2", "198.51.100.9", 1_280));
    world.send_packet(client, &udp("10.9.0.2", "198.51.100.9", 1_281));
    world.run(SECOND);
    assert_eq!(taken(&mut world, true).len(), 1);
    let answers = taken(&mut world, false);
    assert_eq!(icmp_error(&answers[0]), Some((3, 4, 1_280)));
}

#[test]
fn a_hop_limit_that_runs_out_is_answered_not_too_often() {
    let mut world = world();
    let client = world.client;
    for _ in 0..1_000 {
        world.send_packet(client, &ip("10.9.0.2", "198.51.100.9", 17, 1, &[0; 8]));
    }
    world.run(SECOND / 1_000);
    let answers = taken(&mut world, false);
    assert_eq!(icmp_error(&answers[0]).unwrap().0, 11);
    assert_eq!(answers.len(), tunnel_proto::limits::ICMP_BURST as usize);
    assert_eq!(world.client().ingress_drops(DropReason::HopLimit), 1_000);
    assert!(taken(&mut world, true).is_empty());
}

#[test]
fn clients_reach_each_other_only_where_the_server_lets_them() {
    for allowed in [false, true] {
        let mut world = World::with_server(Setup::default());
        world.serve_ip(&POOLS, &[], allowed);
        let other = world.add_ip_client(2, 1);
        world.run_until(20 * SECOND, |world| world.client_at(other).assignment().is_some());
        world.client = world.add_ip_client(1, 1);
        wait_for_lease(&mut world);
        let client = world.client;
        world.send_packet(client, &udp("10.9.0.3", "10.9.0.2", 100));
        world.run(SECOND);
        if allowed {
            assert_eq!(
                taken(&mut world, true).len(),
                1,
                "the kernel sends it back into the TUN"
            );
            continue;
        }
        assert!(taken(&mut world, true).is_empty());
        assert_eq!(world.server().egress_drops(DropReason::PolicyDenied), 1);
        let answers = taken(&mut world, false);
        assert_eq!(
            icmp_error(&answers[0]).map(|(kind, code, _)| (kind, code)),
            Some((3, 13))
        );
    }
}

#[test]
fn what_is_not_routed_or_means_one_link_only_goes_nowhere() {
    let mut world = World::with_server(Setup::default());
    world.serve_ip(&POOLS, &["198.51.100.0/24"], false);
    world.client = world.add_ip_client(1, 1);
    wait_for_lease(&mut world);
    let client = world.client;
    for (source, destination, reason, answer) in [
        ("10.9.0.2", "203.0.113.1", DropReason::NoRoute, Some((3, 0))),
        ("10.9.0.2", "224.0.0.1", DropReason::PolicyDenied, None),
        ("10.9.0.2", "169.254.1.1", DropReason::PolicyDenied, None),
        ("fd09::2", "ff02::1", DropReason::PolicyDenied, None),
        ("fd09::2", "fe80::1", DropReason::PolicyDenied, None),
        ("10.9.0.77", "198.51.100.1", DropReason::SourceSpoofed, None),
        ("fe80::2", "fd09::1", DropReason::SourceSpoofed, None),
    ] {
        let before = world.client().ingress_drops(reason);
        world.send_packet(client, &udp(source, destination, 100));
        assert_eq!(
            world.client().ingress_drops(reason),
            before + 1,
            "{source} {destination}"
        );
        world.run(SECOND);
        let answers = taken(&mut world, false);
        let codes = answers.first().and_then(|packet| icmp_error(packet));
        assert_eq!(codes.map(|(kind, code, _)| (kind, code)), answer, "{destination}");
    }
    // At the server: nobody has this address, and a source that was never advertised.
    let now = world.now();
    let packet = udp("198.51.100.1", "10.9.0.200", 100);
    let elsewhere = world
        .server()
        .send_packet_if_here(now, &VnetHeader::default(), &packet);
    assert!(elsewhere.is_some());
    let server = world.server;
    world.send_packet(server, &udp("203.0.113.1", "10.9.0.2", 100));
    assert_eq!(world.server().ingress_drops(DropReason::SourceSpoofed), 1);
}

/// Nothing is sent again: what the path loses, the inner sender sees.
#[test]
fn loss_on_the_path_is_loss_of_the_inner_packet() {
    let mut world = world();
    world.set_link(LinkConfig {
        delay: DELAY,
        loss: 0.02,
        ..LinkConfig::default()
    });
    let client = world.client;
    for _ in 0..1_000 {
        world.send_packet(client, &udp("10.9.0.2", "198.51.100.9", 600));
        world.run(SECOND / 100);
    }
    world.run(10 * SECOND);
    let arrived = taken(&mut world, true).len();
    assert!((950..1_000).contains(&arrived), "{arrived}");
    let sent = world.client().engine.ledger().ingress.sent;
    assert!(sent as usize <= 1_000, "{sent}");
}
