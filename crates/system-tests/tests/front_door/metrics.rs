//! `--metrics` of a server that has everything, and of its client: what Prometheus' own parser says of real scrapes,
//! whether they agree with `gramway status`, and whether the files in `contrib/` know what they ask for.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use testbed::programs::run;

use super::*;

/// Where both ends serve their metrics, each on its machine.
const METRICS: &str = "127.0.0.1:9464";

/// The text of one scrape.
fn scrape(namespace: &Namespace) -> String {
    let mut stream = connect(namespace, METRICS);
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, text) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    text.to_owned()
}

/// Samples by name and labels, as they stand in the text.
fn samples(text: &str) -> BTreeMap<&str, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (key, value) = line.rsplit_once(' ').unwrap();
            (key, value.parse().unwrap())
        })
        .collect()
}

/// The name of a sample.
fn name_of(key: &str) -> &str {
    key.split_once('{').map_or(key, |(name, _)| name)
}

/// The sum of all samples of a name that have this label.
fn sum(text: &str, name: &str, label: &str) -> f64 {
    let of_name = samples(text)
        .into_iter()
        .filter(|(key, _)| name_of(key) == name && key.contains(label));
    of_name.map(|(_, value)| value).sum()
}

/// Both ends with all that has counters: a cover, TUN devices, forwards; traffic through them, and a visitor's.
struct Watched {
    scene: Scene,
    client: Client,
}

impl Watched {
    fn new(python: PathBuf) -> Self {
        let server = ["--tun", "--metrics", "9464", "--metrics-per-user"];
        let scene = Scene::new(python, &server);
        let client = scene.client("client", &both!("7000"), &["--tun", "--metrics", "9464"]);
        Self { scene, client }
    }

    fn work(&self) {
        assert_carries(&self.scene);
        assert_eq!(self.scene.visit()["status"], 200);
    }

    /// A scrape of the server, and one of the client.
    fn scrape(&self) -> [String; 2] {
        [&self.scene.pair.server, &self.scene.pair.client].map(scrape)
    }
}

/// Names of samples, of `gramway status` a pointer to the same counter or a list of them.
const SAME: [(&str, &str, &str); 13] = [
    (
        "gramway_datagrams_accepted_total",
        "direction=\"ingress\"",
        "/ingress/accepted",
    ),
    (
        "gramway_datagrams_sent_total",
        "direction=\"egress\"",
        "/egress/sent",
    ),
    (
        "gramway_datagrams_dropped_total",
        "direction=\"ingress\"",
        "/ingress/drops",
    ),
    (
        "gramway_datagrams_dropped_total",
        "direction=\"egress\"",
        "/egress/drops",
    ),
    (
        "gramway_quic_packets_total",
        "direction=\"sent\"",
        "/quic/packets_sent",
    ),
    (
        "gramway_quic_bytes_total",
        "direction=\"received\"",
        "/quic/bytes_received",
    ),
    (
        "gramway_socket_datagrams_total",
        "socket=\"outer\",direction=\"received\"",
        "/outer_io/segments_received",
    ),
    (
        "gramway_socket_bytes_total",
        "socket=\"inner\",direction=\"sent\"",
        "/inner_io/bytes_sent",
    ),
    (
        "gramway_tcp_bytes_total",
        "direction=\"ingress\"",
        "/tcp/bytes_in",
    ),
    ("gramway_udp_sessions_opened_total", "", "/udp_sessions/total"),
    ("gramway_connections_opened_total", "", "/connections/total"),
    (
        "gramway_tun_bytes_total",
        "direction=\"read\"",
        "/tun/io/bytes_read",
    ),
    (
        "gramway_cover_datagrams_total",
        "fate=\"relayed\"",
        "/cover/relay/relayed",
    ),
];

/// A counter, or the sum of all counters below.
fn counter(status: &Value, pointer: &str) -> f64 {
    match status.pointer(pointer) {
        Some(Value::Object(counters)) => counters.values().filter_map(Value::as_f64).sum(),
        counter => counter.and_then(Value::as_f64).unwrap_or(0.0),
    }
}

/// Each datagram is somewhere in a scrape, too.
fn assert_scrape_conserved(text: &str) {
    for direction in ["ingress", "egress"] {
        let label = format!("direction=\"{direction}\"");
        let of = |names: &[&str]| names.iter().map(|name| sum(text, name, &label)).sum::<f64>();
        let came = of(&[
            "gramway_datagrams_accepted_total",
            "gramway_datagrams_split_total",
            "gramway_parity_datagrams_sent_total",
            "gramway_datagrams_repaired_total",
        ]);
        let went = of(&[
            "gramway_datagrams_sent_total",
            "gramway_datagrams_joined_total",
            "gramway_parity_datagrams_received_total",
            "gramway_datagrams_dropped_total",
            "gramway_datagrams_waiting",
        ]);
        assert!(came > 0.0, "{direction}: {text}");
        assert_eq!(came, went, "{direction}: {text}");
    }
}

#[test]
fn scrapes_under_traffic_follow_prometheus_conventions_and_agree_with_status() {
    require_root!();
    let python = require_python!();
    let watched = Watched::new(python.clone());
    let files = watched.scene.directory.path();
    let mut written = [Vec::new(), Vec::new()];
    for round in 0..3 {
        watched.work();
        let before = watched.scrape();
        let status = [watched.scene.server.status(), watched.client.status()];
        let after = watched.scrape();
        for (before, status, after) in [0, 1].map(|end| (&before[end], &status[end], &after[end])) {
            for (name, label, pointer) in SAME {
                let [least, most] = [before, after].map(|text| sum(text, name, label));
                let told = counter(status, pointer);
                assert!(
                    least <= told && told <= most,
                    "{name} {label}: {least} <= {told} <= {most}"
                );
            }
            assert_scrape_conserved(after);
        }
        for (end, texts) in [before, after].into_iter().enumerate() {
            for (role, text) in ["server", "client"].into_iter().zip(texts) {
                let path = files.join(format!("{role}-{round}-{end}.txt"));
                fs::write(&path, text).unwrap();
                written[usize::from(role == "client")].push(path);
            }
        }
    }
    for paths in written {
        let text = fs::read_to_string(paths.last().unwrap()).unwrap();
        for name in [
            "gramway_handshake_seconds_count",
            "gramway_socket_batch_datagrams_count",
        ] {
            assert!(sum(&text, name, "") > 0.0, "{name}: {text}");
        }
        let mut judge = python::start(&python, &Place::Host, "metrics.py", &paths);
        let told = judge.wait_for_line("families", PROGRAM_LIMIT).unwrap();
        assert!(judge.wait(PROGRAM_LIMIT).unwrap().success(), "{told}");
    }
}

/// A file of `contrib/`.
fn contributed(name: &str) -> String {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let path = repository.join("contrib").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every metric of ours that a text names, with the exact labels that it asks for.
fn wanted(text: &str) -> BTreeSet<(String, Vec<String>)> {
    let text = text.replace("\\\"", "\"");
    let starts = text.match_indices("gramway_").map(|(start, _)| &text[start..]);
    starts
        .map(|rest| {
            let end = rest.find(|letter: char| !(letter.is_ascii_lowercase() || letter == '_'));
            let (name, rest) = rest.split_at(end.unwrap_or(rest.len()));
            let selector = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
            let labels = selector
                .map_or("", |(labels, _)| labels)
                .split(',')
                .map(str::trim);
            // Others are patterns, or variables of the dashboard.
            let exact = labels.filter(|label| label.contains("=\"") && !label.contains(['!', '$']));
            (name.to_owned(), exact.map(str::to_owned).collect())
        })
        .collect()
}

#[test]
fn dashboard_and_alerts_ask_for_nothing_that_is_not_in_a_real_scrape() {
    require_root!();
    let watched = Watched::new(require_python!());
    watched.work();
    let scrapes = watched.scrape().concat();
    let samples = samples(&scrapes);
    let dashboard = contributed("grafana/gramway.json");
    serde_json::from_str::<Value>(&dashboard).unwrap();
    for (file, least, text) in [
        ("dashboard", 20, dashboard),
        ("alerts", 8, contributed("prometheus/alerts.yml")),
    ] {
        let wanted = wanted(&text);
        assert!(wanted.len() >= least, "{file}: {wanted:?}");
        for (name, labels) in wanted {
            let has =
                |key: &&str| name_of(key) == name && labels.iter().all(|label| key.contains(label.as_str()));
            assert!(
                samples.keys().any(has),
                "{file}: {name} {labels:?} is not in\n{scrapes}"
            );
        }
    }
}

/// OpenMetrics as Prometheus' older text: a counter is described by the name of its sample, and there are no units.
fn as_older_text(text: &str) -> String {
    let counters: BTreeSet<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    let told = text
        .lines()
        .filter(|line| !line.starts_with("# UNIT ") && *line != "# EOF");
    let lines = told.map(|line| match line.splitn(4, ' ').collect::<Vec<_>>()[..] {
        ["#", kind, name, rest] if counters.contains(name) => format!("# {kind} {name}_total {rest}\n"),
        _ => format!("{line}\n"),
    });
    lines.collect()
}

#[test]
fn promtool_finds_nothing_wrong_with_metrics_and_alerts() {
    require_root!();
    require_program!("promtool");
    let watched = Watched::new(require_python!());
    watched.work();
    let files = watched.scene.directory.path();
    for text in watched.scrape() {
        let path = files.join("scrape.txt");
        fs::write(&path, as_older_text(&text)).unwrap();
        let mut check = Command::new("promtool");
        check
            .args(["check", "metrics"])
            .stdin(fs::File::open(path).unwrap());
        assert_eq!(run(&mut check).unwrap(), "");
    }
    let path = files.join("alerts.yml");
    fs::write(&path, contributed("prometheus/alerts.yml")).unwrap();
    run(Command::new("promtool").args(["check", "rules"]).arg(path)).unwrap();
}
