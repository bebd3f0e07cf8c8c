//! What `gramway status` shows of processes, as people read it.

use tunnel::snapshot::{
    CoverLooks, CoverProfile, CoverSnapshot, CoverTcpCounters, DoorCounters, Gauge, ListenerSnapshot,
    ShardSnapshot, Snapshot, SourceCounters, StripeSnapshot, TunSnapshot,
};
use tunnel_proto::{
    AuthorizationCounters, LeaseSnapshot, PathSnapshot, PeerSnapshot, RendezvousCounters, UserId,
    UserSnapshot,
};

use super::parties::render_user;
use super::*;

#[test]
fn ports_that_lead_to_a_client_are_shown_with_whose_they_are_or_where_they_lead() {
    let port = ListenerSnapshot {
        address: "127.0.0.1:8080".parse().unwrap(),
        is_open: true,
        waiting: 4,
        total: 1_500,
        ..ListenerSnapshot::default()
    };
    let of_server = ListenerSnapshot {
        user: Some(UserId::OWNER),
        ..port.clone()
    };
    let of_client = ListenerSnapshot {
        target: Some("nas.lan:80".to_owned()),
        is_open: false,
        waiting: 0,
        ..port
    };
    let snapshots = [of_server, of_client].map(|listener| Snapshot {
        listeners: vec![listener],
        ..Snapshot::default()
    });
    let found = render(&snapshots.map(|snapshot| serde_json::to_value(&snapshot).unwrap()));
    for part in [
        "  listener      127.0.0.1:8080 of owner: open, 4 requests wait, 1,500 connections in all\n",
        "  listener      127.0.0.1:8080 at the server, to nas.lan:80: not open, 0 requests wait, 1,500 connections in all\n",
    ] {
        assert!(found.contains(part), "{found}");
    }
}

#[test]
fn a_cover_is_shown_with_where_it_is_and_what_is_wrong() {
    let mut snapshot = Snapshot {
        role: "server".into(),
        ..Snapshot::default()
    };
    let mut text = |cover: CoverSnapshot| {
        snapshot.cover = Some(cover);
        render(&[serde_json::to_value(&snapshot).unwrap()])
    };
    let cover = CoverSnapshot {
        host: "www.example.org".to_owned(),
        port: 443,
        name: "www.example.org".to_owned(),
        addresses: vec![
            "203.0.113.1:443".parse().unwrap(),
            "[2001:db8::1]:443".parse().unwrap(),
        ],
        looks: CoverLooks {
            total: 3,
            unanswered: 0,
        },
        profile: CoverProfile {
            suite: 0x1301,
            group: 0x11ec,
            id_bytes: 12,
            certificate_bytes: 2_345,
            is_version_first: false,
            answer_delay_ms: 2.5,
        },
        tcp: Some(CoverTcpCounters {
            open: 2,
            total: 1_500,
            over_limit: 3,
            bytes_to_cover: 5_000,
            ..CoverTcpCounters::default()
        }),
        flows: Gauge { open: 4, total: 9 },
        relay: DoorCounters {
            relayed: 1_200,
            taken_over: 2,
            ..DoorCounters::default()
        },
        remembered: 2,
        ..CoverSnapshot::default()
    };
    let found = text(cover.clone());
    for part in [
        "  cover         www.example.org port 443 at 203.0.113.1:443, [2001:db8::1]:443, shown as www.example.org; looked at 3 \
         times\n",
        "  looks like    AES-128-GCM, X25519MLKEM768; connection IDs of 12 bytes, Certificate of 2.3 kB; answers after 2.50 ms\n",
        "  strangers     4 flows to the cover open, 9 in all; 2 hellos remembered; datagrams and hellos: relayed 1,200, \
         taken_over 2\n",
        "  cover TCP     2 open, 1,500 in all; 5.0 kB to it, 0 B from it, 3 over the limit\n",
    ] {
        assert!(found.contains(part), "{found}");
    }
    let silent = text(CoverSnapshot {
        silent_seconds: Some(185.0),
        looks: CoverLooks {
            total: 4,
            unanswered: 1,
        },
        unsent: 7,
        id_bytes_after_restart: Some(20),
        unfit: Some("it has no HTTP/3".to_owned()),
        ..cover.clone()
    });
    for part in [
        "; no answer for 3 min 5 s; looked at 4 times, 1 of them in vain\n",
        "; it cannot be imitated any more: it has no HTTP/3; connection IDs of 20 bytes after a restart\n",
        "; 2 hellos remembered, 7 datagrams had no way there; datagrams and hellos",
    ] {
        assert!(silent.contains(part), "{silent}");
    }
    let lost = text(CoverSnapshot {
        addresses: Vec::new(),
        trouble: Some("its name has no address".to_owned()),
        tcp: None,
        ..cover
    });
    assert!(
        lost.contains(
            "port 443, shown as www.example.org; not found: its name has no address; looked at 3 times\n"
        ),
        "{lost}"
    );
    assert!(!lost.contains("cover TCP"));
}

#[test]
fn every_counter_that_people_ask_for_is_shown() {
    let mut snapshot = Snapshot {
        role: "client".into(),
        pid: 7,
        state: "connected".into(),
        ..Snapshot::default()
    };
    snapshot.uptime_seconds = 65.0;
    snapshot.local = Some("127.0.0.1:4433".parse().unwrap());
    snapshot.ingress.account.accepted = 1_234;
    snapshot
        .ingress
        .account
        .drop(tunnel_proto::DropReason::QueueFull, 5);
    let egress = &mut snapshot.egress.account;
    (egress.accepted, egress.repaired) = (90, 4);
    egress.parity_received = 12;
    snapshot.refused_requests.insert("404".into(), 3);
    snapshot.authorizations = AuthorizationCounters {
        asked: 1_000,
        granted: 990,
        refused: 7,
        expired: 3,
        over_limit: 2,
        too_late: 1,
        waiting: 0,
    };
    snapshot.rendezvous = Some(RendezvousCounters {
        registered: 2,
        registrations: 5,
        calls: 7,
        answers: 6,
        absent: 1,
        sockets: 2,
        relayed_bytes: 3_000,
        ..RendezvousCounters::default()
    });
    let listener = SourceCounters {
        open: 1,
        total: 1,
        events: 2_000,
        deadlines: 3,
    };
    snapshot.sources.insert("tcp_listener".into(), listener);
    snapshot.outer_io.kernel_drops = 17;
    (
        snapshot.inner_io.segments_received,
        snapshot.inner_io.bytes_received,
    ) = (1_234, 1_500_000);
    (snapshot.inner_io.segments_sent, snapshot.inner_io.bytes_sent) = (90, 9_000);
    let user = UserSnapshot {
        connections: 2,
        leases: 1,
        ..UserSnapshot::default()
    };
    snapshot.users.insert(UserId::OWNER, user);
    let lease = |last, sessions| LeaseSnapshot {
        client: "3f2a9c01".to_owned(),
        user: UserId::OWNER,
        addresses: vec![[10, 86, 0, last].into(), "fd00::2".parse().unwrap()],
        sessions,
    };
    snapshot.tun = Some(TunSnapshot {
        lease_list: vec![lease(2, 2), lease(3, 0)],
        ..TunSnapshot::default()
    });
    snapshot.outer_io.segments_received = 30;
    snapshot.outer_io.receives = 4;
    snapshot.peers.push(PeerSnapshot {
        remote: "192.0.2.1:443".parse().unwrap(),
        carrier: "udp",
        authenticated: false,
        rtt_ms: 0.34,
        congestion_window_bytes: 12_000,
        path: PathSnapshot {
            profile: "throughput",
            bandwidth_bits_per_second: 92_100_000,
            base_round_trip_ms: 100.1,
            random_loss: 0.05,
            ..PathSnapshot::default()
        },
        path_mtu: 1_452,
        payload_unsplit: 1_402,
        queue_bytes: 0,
        quic: Default::default(),
    });
    let alone = ShardSnapshot {
        state: "connected".into(),
        server_shard: Some(1),
        stripe: Some(StripeSnapshot {
            rtt_ms: 20.0,
            congestion_window_bytes: 12_000,
            path_mtu: 1_452,
        }),
        ..ShardSnapshot::default()
    };
    snapshot.shards.push(alone.clone());
    assert!(!render(&[serde_json::to_value(&snapshot).unwrap()]).contains("shard 0"));
    snapshot.shards.push(ShardSnapshot { index: 1, ..alone });
    let before = render(&[serde_json::to_value(&snapshot).unwrap()]);
    for absent in ["of parity (", "new peers", "not for QUIC"] {
        assert!(!before.contains(absent), "{before}");
    }
    (snapshot.incoming.offered, snapshot.incoming.accepted) = (1_200, 1_100);
    (snapshot.incoming.refused, snapshot.incoming.over_rate) = (100, 7);
    snapshot.classified.ours = 5_000;
    snapshot.classified.dropped.insert("short", 9);
    let mut sending = snapshot.clone();
    let ingress = &mut sending.ingress.account;
    (ingress.parity_sent, ingress.parity_sent_bytes) = (7, 1_500);
    let text = render(&[serde_json::to_value(&sending).unwrap()]);
    assert!(
        text.contains("1,234 accepted, 7 of parity (1.5 kB), 0 sent on,"),
        "{text}"
    );
    let text = render(&[serde_json::to_value(&snapshot).unwrap()]);
    for part in [
        "client 7, connected on 127.0.0.1:4433, for 1 min 5 s\n",
        "refused requests: 404 3",
        "  UDP           0 sessions open, 0 in all; 1,234 datagrams in, 1.5 MB; 90 out, 9.0 kB\n",
        "  lease         10.86.0.2 and fd00::2 of client 3f2a9c01 of owner, 2 sessions\n",
        "  lease         10.86.0.3 and fd00::2 of client 3f2a9c01 of owner, which is gone\n",
        "  user          owner: 2 connections open, 0 in all; 0 sessions open, 0 in all; 1 leases; 0 B\n",
        "  authorizer    1,000 asked, 990 granted, 7 refused, 3 not answered in time, 1 answered too late, \
         2 not asked (over the limit)\n",
        "  rendezvous    2 peers registered, 5 registrations, 7 calls, 6 answered, 1 of peers that are not there, \
             2 relayed, 3.0 kB in all\n",
        "  sources       tcp listener 1 open, 1 in all, 2,000 events, 3 deadlines passed\n",
        "1,234 accepted, 0 sent on, 0 waiting; dropped: queue_full 5",
        "90 accepted, 4 repaired, 0 sent on, 12 of parity, 0 waiting",
        "  new peers     1,200 offered, 1,100 accepted, 100 refused, 7 asked to prove their address as many came\n",
        "  not for QUIC  dropped: short 9\n",
        "30 received (7.5 a call), 17 dropped by the kernel",
        "  shard 1       connected to shard 1, round trip 20 ms, window 12.0 kB, path MTU 1452; 0 connections, ",
        "192.0.2.1:443 (no token yet), round trip 0.34 ms, window 12.0 kB, path MTU 1452, 1402 bytes unsplit",
        "throughput: startup, path 92.1 Mbit/s, 100.1 ms and 0.0 ms of queue, random loss 5.0 %",
    ] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
}

#[test]
fn a_rendezvous_that_only_strangers_ask_is_shown() {
    let process = serde_json::json!({"rendezvous": {"unproved": 3}});
    let text = render(&[process]);
    assert!(text.contains(", 3 registrations without proof\n"), "{text}");
    let process = serde_json::json!({"rendezvous": {"unproved": 0}});
    assert!(!render(&[process]).contains("rendezvous"));
}

#[test]
fn a_process_of_another_version_is_shown_with_what_it_sends() {
    assert!(render(&[serde_json::json!({"role": "server"})]).starts_with("server 0, ?, for 0 s\n"));
}

#[test]
fn a_user_of_the_store_has_its_name_its_use_and_why_it_is_kept_out() {
    let user = serde_json::json!({
        "connections": 1, "connections_total": 3, "sessions": 2, "sessions_total": 9, "leases": 0, "bytes": 5_000,
        "relayed_bytes": 1_000, "name": "alice", "used_bytes": 1_500_000, "quota_bytes": 1_000_000, "quota_period": "month",
        "excluded": "this user's quota is used up",
    });
    assert_eq!(
        render_user("a1a1", &user),
        "alice: 1 connections open, 3 in all; 2 sessions open, 9 in all; 0 leases; 5.0 kB, 1.0 kB relayed to \
         peers; 1.5 MB used of 1.0 MB/month; kept out: this user's quota is used up"
    );
}
