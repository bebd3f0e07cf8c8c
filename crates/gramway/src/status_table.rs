//! The counters of running processes as text for people. A counter that a process does not send is shown as zero, so
//! that versions can be mixed.

use std::fmt::Write;
use std::time::Duration;

use serde_json::Value;

use crate::sandbox;
use crate::tls_names::{group_name, suite_name};
use crate::units::{bytes, count, milliseconds, span};

/// All processes, one block each.
pub(crate) fn render(processes: &[Value]) -> String {
    let blocks: Vec<_> = processes.iter().map(render_process).collect();
    blocks.join("\n")
}

fn render_process(process: &Value) -> String {
    let block = Block(process);
    let mut text = String::new();
    let mut row = |name: &str, content: String| {
        writeln!(text, "  {name:<14}{content}").expect("writing to a String does not fail");
    };
    row(
        "connections",
        format!(
            "{} open, {} in all; {} reconnects{}",
            block.count("/connections/open"),
            block.count("/connections/total"),
            block.count("/reconnects"),
            block.reasons("refused requests", "/refused_requests"),
        ),
    );
    if block.number("/authorizations/asked") > 0 {
        row("authorizer", block.authorizations());
    }
    row(
        "UDP",
        format!(
            "{} sessions open, {} in all; {} datagrams in, {}; {} out, {}",
            block.count("/udp_sessions/open"),
            block.count("/udp_sessions/total"),
            block.count("/inner_io/segments_received"),
            block.bytes("/inner_io/bytes_received"),
            block.count("/inner_io/segments_sent"),
            block.bytes("/inner_io/bytes_sent"),
        ),
    );
    // UDP datagrams and IP packets together.
    row("into tunnel", block.direction("/ingress"));
    row("out of tunnel", block.direction("/egress"));
    row(
        "TCP",
        format!(
            "{} open, {} in all, {} failed; {} in, {} out",
            block.count("/tcp/open"),
            block.count("/tcp/total"),
            block.count("/tcp/failed"),
            block.bytes("/tcp/bytes_in"),
            block.bytes("/tcp/bytes_out"),
        ),
    );
    row(
        "QUIC sent",
        format!(
            "{} packets in {} trains, {}; {} datagrams, {} ACK frames, {} STREAM frames",
            block.count("/quic/packets_sent"),
            block.count("/quic/trains_sent"),
            block.bytes("/quic/bytes_sent"),
            block.count("/quic/datagrams_sent"),
            block.count("/quic/acks_sent"),
            block.count("/quic/stream_frames_sent"),
        ),
    );
    row(
        "QUIC received",
        format!(
            "{} packets, {}; {} datagrams, {} ACK frames, {} STREAM frames",
            block.count("/quic/packets_received"),
            block.bytes("/quic/bytes_received"),
            block.count("/quic/datagrams_received"),
            block.count("/quic/acks_received"),
            block.count("/quic/stream_frames_received"),
        ),
    );
    row(
        "QUIC path",
        format!(
            "{} packets lost, {} window cuts, {} lost MTU probes, {} black holes",
            block.count("/quic/packets_lost"),
            block.count("/quic/window_cuts"),
            block.count("/quic/lost_mtu_probes"),
            block.count("/quic/black_holes"),
        ),
    );
    for (name, content) in [
        ("new peers", block.incoming()),
        ("not for QUIC", block.not_for_quic()),
    ] {
        content.into_iter().for_each(|content| row(name, content));
    }
    if let Some(kinds) = process["sources"].as_object().filter(|kinds| !kinds.is_empty()) {
        let kinds: Vec<_> = kinds
            .iter()
            .map(|(kind, of_it)| render_sources(kind, of_it))
            .collect();
        row("sources", kinds.join("; "));
    }
    row("outer socket", block.socket("/outer_io"));
    row("inner sockets", block.socket("/inner_io"));
    if process["cover"].is_object() {
        row("cover", block.cover());
        row("looks like", block.cover_profile());
        row("strangers", block.strangers());
    }
    if process.pointer("/cover/tcp").is_some_and(Value::is_object) {
        row("cover TCP", block.cover_tcp());
    }
    if process["tun"].is_object() {
        row("TUN", block.tun());
    }
    if process.pointer("/tun/names").is_some_and(Value::is_object) {
        row("name servers", block.names());
    }
    if process.pointer("/tun/name_server").is_some_and(Value::is_object) {
        row("name server", block.name_server());
    }
    if let Some(text) = sandbox::as_text(process.get("sandbox")) {
        row("sandbox", text);
    }
    for lease in process
        .pointer("/tun/lease_list")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        row("lease", render_lease(lease));
    }
    for (name, user) in process["users"].as_object().into_iter().flatten() {
        row("user", render_user(name, user));
    }
    let shards = process["shards"].as_array().map_or(&[][..], Vec::as_slice);
    // One shard has nothing that is not above.
    for shard in shards.iter().filter(|_| shards.len() > 1) {
        row(&format!("shard {}", shard["index"]), render_shard(shard));
    }
    for peer in process["peers"].as_array().into_iter().flatten() {
        row("peer", render_peer(peer));
    }
    let heading = format!(
        "{} {}, {}{}, for {}\n",
        block.text("/role"),
        block.number("/pid"),
        block.text("/state"),
        process
            .pointer("/local")
            .and_then(Value::as_str)
            .map_or(String::new(), |local| format!(" on {local}")),
        span(process["uptime_seconds"].as_f64().unwrap_or(0.0)),
    );
    heading + &text
}

fn render_lease(lease: &Value) -> String {
    let block = Block(lease);
    let addresses = lease["addresses"].as_array().map_or(&[][..], Vec::as_slice);
    let addresses: Vec<_> = addresses.iter().filter_map(Value::as_str).collect();
    format!(
        "{} of client {} of {}, {}",
        addresses.join(" and "),
        block.text("/client"),
        block.text("/user"),
        match block.number("/sessions") {
            0 => "which is gone".to_owned(),
            sessions => format!("{} sessions", count(sessions)),
        }
    )
}

fn render_user(name: &str, user: &Value) -> String {
    let block = Block(user);
    format!(
        "{name}: {} connections open, {} in all; {} sessions open, {} in all; {} leases; {}{}",
        block.count("/connections"),
        block.count("/connections_total"),
        block.count("/sessions"),
        block.count("/sessions_total"),
        block.count("/leases"),
        block.bytes("/bytes"),
        block.reasons("refused at the limit of", "/refused"),
    )
}

fn render_sources(kind: &str, counters: &Value) -> String {
    let block = Block(counters);
    format!(
        "{} {} open, {} in all, {} events{}",
        kind.replace('_', " "),
        block.count("/open"),
        block.count("/total"),
        block.count("/events"),
        block.unless_zero("{} deadlines passed", "/deadlines"),
    )
}

fn render_peer(peer: &Value) -> String {
    let block = Block(peer);
    let rtt =
        Duration::try_from_secs_f64(peer["rtt_ms"].as_f64().unwrap_or(0.0) / 1_000.0).unwrap_or_default();
    let decimal = |pointer: &str| peer.pointer(pointer).and_then(Value::as_f64).unwrap_or(0.0);
    format!(
        "{}{}, round trip {}, window {}, path MTU {}, {} bytes unsplit, {} queued, {} packets lost; {}: {}, \
         path {:.1} Mbit/s, {:.1} ms and {:.1} ms of queue, random loss {:.1} %",
        block.text("/remote"),
        if peer["authenticated"] == true {
            ""
        } else {
            " (no token yet)"
        },
        milliseconds(rtt),
        block.bytes("/congestion_window_bytes"),
        block.number("/path_mtu"),
        block.number("/payload_unsplit"),
        block.bytes("/queue_bytes"),
        block.count("/quic/packets_lost"),
        block.text("/path/profile"),
        block.text("/path/phase").replace('_', " "),
        decimal("/path/bandwidth_bits_per_second") / 1e6,
        decimal("/path/base_round_trip_ms"),
        decimal("/path/queueing_delay_ms"),
        decimal("/path/random_loss") * 100.0,
    )
}

fn render_shard(shard: &Value) -> String {
    let block = Block(shard);
    let stripe = shard["stripe"].as_object().map_or(String::new(), |_| {
        let rtt = shard.pointer("/stripe/rtt_ms").and_then(Value::as_f64);
        let rtt = Duration::try_from_secs_f64(rtt.unwrap_or(0.0) / 1_000.0).unwrap_or_default();
        format!(
            ", round trip {}, window {}, path MTU {}",
            milliseconds(rtt),
            block.bytes("/stripe/congestion_window_bytes"),
            block.number("/stripe/path_mtu"),
        )
    });
    format!(
        "{}{}{stripe}; {} connections, {} UDP sessions, {} TCP connections open; {} datagrams sent, {} received; \
         {} given to others, {} taken{}{}",
        block.text("/state"),
        shard["server_shard"]
            .as_u64()
            .map_or(String::new(), |index| format!(" to shard {index}")),
        block.count("/connections/open"),
        block.count("/udp_sessions/open"),
        block.count("/tcp_connections/open"),
        block.count("/datagrams_sent"),
        block.count("/datagrams_received"),
        block.count("/handover/given"),
        block.count("/handover/taken"),
        block.unless_zero("{} without room", "/handover/dropped"),
        block.unless_zero("{} reconnects", "/reconnects"),
    )
}

/// A JSON object with counters at known places.
struct Block<'a>(&'a Value);

impl Block<'_> {
    fn number(&self, pointer: &str) -> u64 {
        self.0.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
    }

    fn count(&self, pointer: &str) -> String {
        count(self.number(pointer))
    }

    fn bytes(&self, pointer: &str) -> String {
        bytes(self.number(pointer))
    }

    fn text(&self, pointer: &str) -> &str {
        self.0.pointer(pointer).and_then(Value::as_str).unwrap_or("?")
    }

    fn unless_zero(&self, words: &str, pointer: &str) -> String {
        match self.number(pointer) {
            0 => String::new(),
            number => format!(", {}", words.replace("{}", &count(number))),
        }
    }

    fn direction(&self, pointer: &str) -> String {
        let at = |name: &str| format!("{pointer}/{name}");
        format!(
            "{} accepted{}{}{}, {} sent on{}{}, {} waiting{}",
            self.count(&at("accepted")),
            self.unless_zero("and {} more by splitting", &at("split")),
            self.parity_sent(pointer),
            self.unless_zero("{} repaired", &at("repaired")),
            self.count(&at("sent")),
            self.unless_zero("{} joined to others", &at("joined")),
            self.unless_zero("{} of parity", &at("parity_received")),
            self.count(&at("waiting")),
            self.reasons("dropped", &at("drops")),
        )
    }

    /// What became of new connections; `None` where nobody asked for one.
    fn incoming(&self) -> Option<String> {
        let words = [
            ("offered", "offered"),
            ("accepted", "accepted"),
            ("damaged", "damaged"),
            ("refused", "refused"),
            ("retried", "asked to prove their address"),
            ("ignored", "ignored"),
            ("expired", "not decided on in time"),
            ("waiting", "waiting"),
            ("turned_down", "behind one not accepted"),
            ("over_limit", "over the limit"),
            ("pushed_out", "pushed out by newcomers before their token came"),
            ("over_rate", "asked to prove their address as many came"),
        ];
        self.list(words.map(|(name, words)| (format!("/incoming/{name}"), words)))
    }

    /// Datagrams at the outer socket that QUIC did not read; `None` where it read all.
    fn not_for_quic(&self) -> Option<String> {
        let words = [("other_shard", "of other shards"), ("given_away", "given away")];
        let listed = self.list(words.map(|(name, words)| (format!("/classified/{name}"), words)));
        let dropped = self.reasons("dropped", "/classified/dropped");
        match listed {
            Some(listed) => Some(listed + &dropped),
            None => dropped.strip_prefix("; ").map(str::to_owned),
        }
    }

    /// The counters at these places that are not zero, each before its words.
    fn list<'a>(&self, counters: impl IntoIterator<Item = (String, &'a str)>) -> Option<String> {
        let counters = counters.into_iter();
        let shown = counters.filter(|(pointer, _)| self.number(pointer) != 0);
        let shown: Vec<_> = shown
            .map(|(pointer, words)| format!("{} {words}", self.count(&pointer)))
            .collect();
        (!shown.is_empty()).then(|| shown.join(", "))
    }

    fn parity_sent(&self, pointer: &str) -> String {
        let bytes = self.bytes(&format!("{pointer}/parity_sent_bytes"));
        self.unless_zero(
            &format!("{{}} of parity ({bytes})"),
            &format!("{pointer}/parity_sent"),
        )
    }

    fn reasons(&self, title: &str, pointer: &str) -> String {
        let Some(reasons) = self.0.pointer(pointer).and_then(Value::as_object) else {
            return String::new();
        };
        let reasons: Vec<_> = reasons
            .iter()
            .map(|(reason, number)| format!("{reason} {}", count(number.as_u64().unwrap_or(0))))
            .collect();
        if reasons.is_empty() {
            String::new()
        } else {
            format!("; {title}: {}", reasons.join(", "))
        }
    }

    fn authorizations(&self) -> String {
        format!(
            "{} asked, {} granted, {} refused{}{}{}{}",
            self.count("/authorizations/asked"),
            self.count("/authorizations/granted"),
            self.count("/authorizations/refused"),
            self.unless_zero("{} waiting", "/authorizations/waiting"),
            self.unless_zero("{} not answered in time", "/authorizations/expired"),
            self.unless_zero("{} answered too late", "/authorizations/too_late"),
            self.unless_zero("{} not asked (over the limit)", "/authorizations/over_limit"),
        )
    }

    fn tun(&self) -> String {
        let leases = match self.text("/role") {
            "server" => format!(
                ", {} leases held of {} kept",
                self.count("/tun/leases/open"),
                self.count("/tun/leases_kept")
            ),
            _ => String::new(),
        };
        format!(
            "{}, MTU {}, {} sessions{leases}; {} read ({} super-packets), {}; {} written ({} super-packets), {}{}{}",
            self.text("/tun/name"),
            self.number("/tun/mtu"),
            self.count("/tun/sessions"),
            self.count("/tun/io/reads"),
            self.count("/tun/io/super_reads"),
            self.bytes("/tun/io/bytes_read"),
            self.count("/tun/io/writes"),
            self.count("/tun/io/super_writes"),
            self.bytes("/tun/io/bytes_written"),
            self.unless_zero("{} refused by the kernel", "/tun/io/refused"),
            self.unless_zero("{} errors", "/tun/io/errors"),
        )
    }

    /// The texts of the list at this place.
    fn texts(&self, pointer: &str) -> String {
        let listed = self.0.pointer(pointer).and_then(Value::as_array);
        let texts: Vec<_> = listed.into_iter().flatten().filter_map(Value::as_str).collect();
        texts.join(", ")
    }

    fn cover(&self) -> String {
        let place = match self.texts("/cover/addresses") {
            nowhere if nowhere.is_empty() => String::new(),
            addresses => format!(" at {addresses}"),
        };
        let trouble = self.0.pointer("/cover/trouble").and_then(Value::as_str);
        format!(
            "{} port {}{place}, shown as {}{}",
            self.text("/cover/host"),
            self.number("/cover/port"),
            self.text("/cover/name"),
            trouble.map_or(String::new(), |trouble| format!("; not found: {trouble}")),
        )
    }

    /// What handshakes have in common with the cover's.
    fn cover_profile(&self) -> String {
        let number = |name: &str| {
            let number = self
                .0
                .pointer(&format!("/cover/profile/{name}"))
                .and_then(Value::as_u64);
            number.and_then(|number| u16::try_from(number).ok()).unwrap_or(0)
        };
        let delay = self
            .0
            .pointer("/cover/profile/answer_delay_ms")
            .and_then(Value::as_f64);
        let delay = delay.and_then(|delay| Duration::try_from_secs_f64(delay / 1_000.0).ok());
        format!(
            "{}, {}; connection IDs of {} bytes, Certificate of {}; answers after {}",
            suite_name(number("suite")),
            group_name(number("group")),
            self.number("/cover/profile/id_bytes"),
            self.bytes("/cover/profile/certificate_bytes"),
            milliseconds(delay.unwrap_or_default()),
        )
    }

    fn strangers(&self) -> String {
        format!(
            "{} flows to the cover open, {} in all; {} hellos remembered{}",
            self.count("/cover/flows/open"),
            self.count("/cover/flows/total"),
            self.count("/cover/remembered"),
            self.reasons("datagrams and hellos", "/cover/relay"),
        )
    }

    fn cover_tcp(&self) -> String {
        format!(
            "{} open, {} in all; {} to it, {} from it{}{}{}",
            self.count("/cover/tcp/open"),
            self.count("/cover/tcp/total"),
            self.bytes("/cover/tcp/bytes_to_cover"),
            self.bytes("/cover/tcp/bytes_from_cover"),
            self.unless_zero("{} did not reach it", "/cover/tcp/failed"),
            self.unless_zero("{} reset", "/cover/tcp/reset"),
            self.unless_zero("{} over the limit", "/cover/tcp/over_limit"),
        )
    }

    fn names(&self) -> String {
        let error = self.0.pointer("/tun/names/error").and_then(Value::as_str);
        let error = error
            .map(|error| format!(" (retrying: {error})"))
            .unwrap_or_default();
        let set_by = match self.texts("/tun/names/set_by") {
            nobody if nobody.is_empty() => ", not set".to_owned(),
            set_by => format!(", set in {set_by}"),
        };
        let is_offered = self.0.pointer("/tun/names/is_offered") == Some(&Value::Bool(true));
        let by_server = if is_offered { " of the server" } else { "" };
        format!("{}{by_server}{set_by}{error}", self.texts("/tun/names/servers"))
    }

    fn name_server(&self) -> String {
        let count = |name: &str| self.count(&format!("/tun/name_server/{name}"));
        format!(
            "{} questions, {} answered, {} waiting{}{}{}{}",
            count("questions"),
            count("answered"),
            count("waiting"),
            self.unless_zero("{} without an answer", "/tun/name_server/unanswered"),
            self.unless_zero("{} malformed", "/tun/name_server/malformed"),
            self.unless_zero("{} over the limit", "/tun/name_server/over_limit"),
            self.unless_zero(
                "{} connections over the limit",
                "/tun/name_server/streams_over_limit"
            ),
        )
    }

    fn socket(&self, pointer: &str) -> String {
        let at = |name: &str| format!("{pointer}/{name}");
        let per_call = |segments: &str, calls: &str| {
            let (segments, calls) = (self.number(&at(segments)), self.number(&at(calls)));
            segments as f64 / calls.max(1) as f64
        };
        format!(
            "{} received ({:.1} a call), {} dropped by the kernel, {} sent ({:.1} a call), {} split again, \
             {} step-downs, {} found full, buffer {} of {}",
            self.count(&at("segments_received")),
            per_call("segments_received", "receives"),
            self.count(&at("kernel_drops")),
            self.count(&at("segments_sent")),
            per_call("segments_sent", "sends"),
            self.count(&at("split_resends")),
            self.count(&at("gso_step_downs")),
            self.count(&at("would_block")),
            self.bytes(&at("receive_buffer_obtained")),
            self.bytes(&at("receive_buffer_wanted")),
        )
    }
}

#[cfg(test)]
mod tests {
    use tunnel::snapshot::{
        CoverProfile, CoverSnapshot, CoverTcpCounters, Gauge, ShardSnapshot, Snapshot, SourceCounters,
        StripeSnapshot, TunSnapshot,
    };
    use tunnel_proto::{
        AuthorizationCounters, LeaseSnapshot, PathSnapshot, PeerSnapshot, UserId, UserSnapshot,
    };

    use super::*;

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
            trouble: None,
            profile: CoverProfile {
                suite: 0x1301,
                group: 0x11ec,
                id_bytes: 12,
                certificate_bytes: 2_345,
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
            relay: [("relayed".to_owned(), 1_200), ("taken_over".to_owned(), 2)].into(),
            remembered: 2,
        };
        let found = text(cover.clone());
        for part in [
            "  cover         www.example.org port 443 at 203.0.113.1:443, [2001:db8::1]:443, shown as www.example.org\n",
            "  looks like    AES-128-GCM, X25519MLKEM768; connection IDs of 12 bytes, Certificate of 2.3 kB; answers after 2.50 ms\n",
            "  strangers     4 flows to the cover open, 9 in all; 2 hellos remembered; datagrams and hellos: relayed 1,200, \
             taken_over 2\n",
            "  cover TCP     2 open, 1,500 in all; 5.0 kB to it, 0 B from it, 3 over the limit\n",
        ] {
            assert!(found.contains(part), "{found}");
        }
        let lost = text(CoverSnapshot {
            addresses: Vec::new(),
            trouble: Some("its name has no address".to_owned()),
            tcp: None,
            ..cover
        });
        assert!(
            lost.contains("port 443, shown as www.example.org; not found: its name has no address\n"),
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
    fn a_process_of_another_version_is_shown_with_what_it_sends() {
        assert!(render(&[serde_json::json!({"role": "server"})]).starts_with("server 0, ?, for 0 s\n"));
    }
}
