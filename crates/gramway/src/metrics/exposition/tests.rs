//! What the text says, and what it must not say.

use std::collections::BTreeSet;

use tunnel::snapshot::{
    CarrierSnapshot, CoverSnapshot, CoverTcpCounters, NameServerCounters, NamesSnapshot, ShardSnapshot,
    SourceCounters, StripeSnapshot, TunSnapshot,
};
use tunnel_proto::{
    DropReason, LeaseSnapshot, PathSnapshot, PeerSnapshot, RendezvousCounters, UserId, UserSnapshot,
};

use super::*;

const RELOAD: LastReload = LastReload {
    is_successful: false,
    success_seconds: 7.5,
};

/// A process that has everything a snapshot can have.
fn everything(role: &str) -> Snapshot {
    let mut snapshot = Snapshot {
        role: role.to_owned(),
        pid: 7,
        state: "draining".to_owned(),
        local: Some("192.0.2.77:4433".parse().unwrap()),
        ..Snapshot::default()
    };
    snapshot.ingress.account.accepted = 3;
    snapshot.egress.account.drop(DropReason::QueueFull, 2);
    snapshot.quic.bytes_sent = 1_200;
    snapshot.classified.dropped.insert("short", 4);
    snapshot.refused_requests.insert("401".to_owned(), 5);
    let listener = SourceCounters::default();
    snapshot.sources.insert("udp_listener".to_owned(), listener);
    let mut user = UserSnapshot::default();
    (user.connections, user.bytes, user.relayed_bytes) = (1, 6, 4);
    user.refused.insert("connections".to_owned(), 7);
    snapshot.users.insert(UserId([0x3f; 16]), user);
    snapshot.peers.push(PeerSnapshot {
        remote: "192.0.2.78:5555".parse().unwrap(),
        carrier: "tcp",
        authenticated: true,
        rtt_ms: 1.0,
        congestion_window_bytes: 1,
        path: PathSnapshot::default(),
        path_mtu: 1_200,
        payload_unsplit: 1_100,
        queue_bytes: 8,
        quic: snapshot.quic,
    });
    snapshot.shards.push(ShardSnapshot {
        local: snapshot.local,
        stripe: Some(StripeSnapshot {
            rtt_ms: 25.0,
            ..StripeSnapshot::default()
        }),
        carrier: Some(CarrierSnapshot {
            kind: "udp",
            reason: "it answered first",
        }),
        ..ShardSnapshot::default()
    });
    snapshot.tun = Some(TunSnapshot {
        name: "gramway9".to_owned(),
        lease_list: vec![LeaseSnapshot {
            client: "secret-client".to_owned(),
            user: UserId::OWNER,
            addresses: vec!["192.0.2.81".parse().unwrap()],
            sessions: 1,
        }],
        names: Some(NamesSnapshot {
            servers: vec!["192.0.2.79".parse().unwrap()],
            ..NamesSnapshot::default()
        }),
        name_server: Some(NameServerCounters::default()),
        ..TunSnapshot::default()
    });
    snapshot.rendezvous = Some(RendezvousCounters {
        registered: 11,
        absent: 12,
        relayed_bytes: 13,
        ..RendezvousCounters::default()
    });
    snapshot.cover = Some(CoverSnapshot {
        host: "cover.example.org".to_owned(),
        name: "shown.example.org".to_owned(),
        addresses: vec!["192.0.2.80:443".parse().unwrap()],
        silent_seconds: Some(9.5),
        tcp: Some(CoverTcpCounters::default()),
        ..CoverSnapshot::default()
    });
    snapshot
}

fn text(role: &str, per_user: bool) -> String {
    let scrape = Scrape {
        reload: RELOAD,
        snapshot: everything(role),
        start_seconds: 1_795_000_000.5,
        users: per_user.then(Arc::default),
    };
    scrape.text()
}

#[test]
fn counters_have_their_names_units_and_labels() {
    let server = text("server", true);
    for line in [
        "# TYPE gramway_build_info gauge",
        "gramway_start_time_seconds 1795000000.5",
        "# UNIT gramway_start_time_seconds seconds",
        "gramway_state{state=\"draining\"} 1",
        "gramway_state{state=\"listening\"} 0",
        "gramway_datagrams_accepted_total{direction=\"ingress\"} 3",
        "gramway_datagrams_dropped_total{direction=\"egress\",reason=\"queue_full\"} 2",
        "gramway_datagrams_dropped_total{direction=\"egress\",reason=\"no_tunnel\"} 0",
        "# TYPE gramway_quic_bytes counter",
        "# UNIT gramway_quic_bytes bytes",
        "gramway_quic_bytes_total{direction=\"sent\"} 1200",
        "gramway_outer_datagrams_dropped_total{reason=\"short\"} 4",
        "gramway_refused_requests_total{status=\"401\"} 5",
        "gramway_connections{carrier=\"tcp\"} 1",
        "gramway_queue_bytes 8",
        "gramway_user_bytes_total{user=\"3f3f3f3f3f3f3f3f3f3f3f3f3f3f3f3f\"} 6",
        "gramway_user_relayed_bytes_total{user=\"3f3f3f3f3f3f3f3f3f3f3f3f3f3f3f3f\"} 4",
        "gramway_user_refused_total{user=\"3f3f3f3f3f3f3f3f3f3f3f3f3f3f3f3f\",limit=\"connections\"} 7",
        "gramway_round_trip_seconds_sum 0.0",
        "gramway_round_trip_seconds_bucket{le=\"0.000128\"} 0",
        "gramway_round_trip_seconds_bucket{le=\"+Inf\"} 0",
        "gramway_rendezvous_peers 11",
        "gramway_rendezvous_relayed_bytes_total 13",
        "gramway_rendezvous_registrations_total{result=\"over_limit\"} 0",
        "gramway_rendezvous_unreachable_total{result=\"absent\"} 12",
        "gramway_cover_reachable 0",
        "gramway_cover_silent_seconds 9.5",
        "gramway_cover_datagrams_total{fate=\"relayed\"} 0",
    ] {
        assert!(server.lines().any(|other| other == line), "{line}\n{server}");
    }
    assert!(server.ends_with("\n# EOF\n"));
    let client = text("client", false);
    for line in [
        "gramway_stripe_round_trip_seconds{shard=\"0\"} 0.025",
        "gramway_stripe_up{shard=\"0\",carrier=\"udp\"} 1",
    ] {
        assert!(client.lines().any(|other| other == line), "{line}\n{client}");
    }
    assert!(!client.contains("gramway_incoming"), "{client}");
}

#[test]
fn a_bucket_counts_all_that_is_no_larger() {
    let mut snapshot = everything("server");
    for value in [3, 100, 300, 1 << 60] {
        snapshot.outer_io.send_batches.observe(value);
    }
    let scrape = Scrape {
        reload: RELOAD,
        snapshot,
        start_seconds: 0.0,
        users: None,
    };
    let text = scrape.text();
    let labels = "socket=\"outer\",direction=\"sent\"";
    for line in [
        format!("gramway_socket_batch_datagrams_bucket{{le=\"2.0\",{labels}}} 0"),
        format!("gramway_socket_batch_datagrams_bucket{{le=\"4.0\",{labels}}} 1"),
        format!("gramway_socket_batch_datagrams_bucket{{le=\"1024.0\",{labels}}} 3"),
        format!("gramway_socket_batch_datagrams_bucket{{le=\"+Inf\",{labels}}} 4"),
        format!("gramway_socket_batch_datagrams_count{{{labels}}} 4"),
    ] {
        assert!(text.lines().any(|other| other == line), "{line}\n{text}");
    }
}

#[test]
fn no_address_no_host_and_without_leave_no_user_is_named() {
    for role in ["server", "client"] {
        let text = text(role, false);
        for secret in ["192.0.2.", "example.org", "secret-client", "gramway9", "3f3f3f3f"] {
            assert!(!text.contains(secret), "{secret}\n{text}");
        }
        assert_eq!(text.contains("\ngramway_users 1\n"), role == "server");
    }
}

#[test]
fn every_name_is_told_once_and_has_a_sentence() {
    let text = text("server", true);
    let mut names = BTreeSet::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("# HELP ")) {
        let (name, help) = line.split_once(' ').unwrap();
        assert!(names.insert(name), "{name} is there twice");
        let is_word = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
        assert!(name.bytes().all(is_word), "{name}");
        assert!(
            help.starts_with(char::is_alphanumeric) && !help.ends_with('.'),
            "{name}: {help}"
        );
    }
    for unit in ["_ms", "_kb", "_bits", "_count", "_total"] {
        assert!(names.iter().all(|name| !name.ends_with(unit)), "{unit}");
    }
}
