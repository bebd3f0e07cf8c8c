//! The log as programs read it, in the system's journal and as JSON, and traces of connections (qlog).

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use serde_json::Value;
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::require_root;
use system_tests::topology::{CLIENT_V4, PAIR_SERVER_V4, Pair};
use system_tests::tunnel::{Client, Server, with_mounts};
use testbed::directory::Directory;
use testbed::process::Process;
use testbed::wait::wait_until;

use crate::scene::LISTEN;

/// What a journal gets (systemd.io, "Native Journal Protocol"): the fields of one record.
type Fields = BTreeMap<String, String>;

fn fields(datagram: &[u8]) -> Fields {
    let mut fields = Fields::new();
    let mut rest = datagram;
    while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'=')) {
        let (name, is_short) = (text(&rest[..end]), rest[end] == b'=');
        rest = &rest[end + 1..];
        let length = if is_short {
            rest.iter().position(|byte| *byte == b'\n').unwrap()
        } else {
            let (length, value) = rest.split_first_chunk().unwrap();
            rest = value;
            u64::from_le_bytes(*length) as usize
        };
        fields.insert(name, text(&rest[..length]));
        rest = &rest[length + 1..];
    }
    fields
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Waits for a record of this event and level in a journal.
fn wait_for_record(journal: &UnixDatagram, seen: &mut Vec<Fields>, event: &str, priority: &str) -> Fields {
    let wanted = |record: &&Fields| {
        let has = |name: &str, value: &str| record.get(name).is_some_and(|found| found == value);
        has("GRAMWAY_EVENT", event) && has("PRIORITY", priority)
    };
    wait_until(&format!("{event} at {priority}"), PROGRAM_LIMIT, || {
        let mut bytes = [0; 8_192];
        while let Ok(length) = journal.recv(&mut bytes) {
            if length > 0 {
                seen.push(fields(&bytes[..length]));
            }
        }
        seen.iter().any(|record| wanted(&record))
    });
    seen.iter().find(wanted).unwrap().clone()
}

/// All records that a client has logged up to one of this event.
fn wait_for_json(client: &mut Process, event: &str) -> Vec<Value> {
    client
        .wait_for_line(&format!("\"event\":\"{event}\""), PROGRAM_LIMIT)
        .unwrap();
    let lines = client.stderr();
    lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// How often each event occurs in the only trace of a directory.
fn events_of_trace(directory: &Path) -> BTreeMap<String, usize> {
    let mut files = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let (file, more) = (files.next().unwrap(), files.next());
    assert_eq!(more, None);
    let bytes = fs::read(file).unwrap();
    let records: Vec<Value> = bytes
        .split(|byte| *byte == 0x1e)
        .skip(1)
        .map(|record| serde_json::from_slice(record).unwrap())
        .collect();
    assert_eq!(
        (&records[0]["qlog_format"], &records[0]["qlog_version"]),
        (&"JSON-SEQ".into(), &"0.3".into())
    );
    assert!(records[0]["trace"]["vantage_point"].is_object());
    let mut events = BTreeMap::new();
    for record in &records[1..] {
        assert!(
            record["time"].is_number() && record["data"].is_object(),
            "{record}"
        );
        *events
            .entry(record["name"].as_str().unwrap().to_owned())
            .or_default() += 1;
    }
    events
}

#[test]
fn journal_and_json_have_fields_and_addresses_only_for_debugging_and_a_chosen_user_is_traced() {
    require_root!();
    let (pair, directory) = (Pair::new(1500), Directory::create_for_test().unwrap());
    let files = directory.path();
    let journal = files.join("journal");
    fs::create_dir(&journal).unwrap();
    let socket = UnixDatagram::bind(journal.join("socket")).unwrap();
    socket.set_nonblocking(true).unwrap();
    let [of_server, of_client] = ["server.qlog", "client.qlog"].map(|name| files.join(name));
    let [server_traces, client_traces] = [&of_server, &of_client].map(|path| path.display().to_string());

    // The journal's place in the machine, and a standard error that leads to it.
    let wrapper = with_mounts(&format!(
        "mount -t tmpfs none /run && mkdir -p /run/systemd/journal && mount --bind {} /run/systemd/journal && \
         exec 2>{} && export JOURNAL_STREAM=$(stat -L -c %d:%i /proc/self/fd/2)",
        journal.display(),
        files.join("stderr").display()
    ));
    let options = [
        "-vv",
        "--log-format",
        "auto",
        "--qlog",
        &server_traces,
        "--qlog-user",
        "owner",
    ];
    let mut server = Server::start_by(&wrapper, &pair.server.place(), "server", LISTEN, &options, files);
    let options = [
        "--log-format",
        "auto",
        "--connections",
        "1",
        "--qlog",
        &client_traces,
    ];
    let forwards = ["udp:5000=127.0.0.1:5000"];
    let link = server.link();
    let mut client =
        Client::start_unconnected(&pair.client.place(), "client", &link, &forwards, &options, files);

    let records = wait_for_json(client.process(), "connected");
    let connected = records
        .iter()
        .find(|record| record["event"] == "connected")
        .unwrap();
    assert_eq!(
        (&connected["level"], &connected["carrier"]),
        (&"INFO".into(), &"udp".into())
    );
    assert!(connected["round_trip_ms"].as_f64().unwrap() > 0.0 && connected["timestamp"].is_string());
    let message = connected["message"].as_str().unwrap();
    assert!(
        message.starts_with("connected to [address], round trip "),
        "{message}"
    );

    let mut seen = Vec::new();
    let came = wait_for_record(&socket, &mut seen, "user_connected", "6");
    assert_eq!(
        (came["MESSAGE"].as_str(), came["GRAMWAY_USER"].as_str()),
        ("owner connected", "owner")
    );
    assert_eq!(
        (came["SYSLOG_IDENTIFIER"].as_str(), came.get("GRAMWAY_PEER")),
        ("gramway", None)
    );
    let in_full = wait_for_record(&socket, &mut seen, "user_connected", "7");
    let peer = &in_full["GRAMWAY_PEER"];
    assert_eq!(in_full["MESSAGE"], format!("owner connected from {peer}"));

    assert_eq!((client.stop(), server.stop()), (Some(0), Some(0)));
    wait_for_record(&socket, &mut seen, "ended", "6");
    let has_address = |text: &str| {
        [CLIENT_V4, PAIR_SERVER_V4]
            .iter()
            .any(|address| text.contains(address))
    };
    let above_debug = seen.iter().filter(|record| record["PRIORITY"] != "7");
    let journal: Vec<String> = above_debug.map(|record| format!("{record:?}")).collect();
    for text in journal
        .iter()
        .map(String::as_str)
        .chain(client.process().stderr().lines())
    {
        assert!(!has_address(text), "{text}");
    }
    assert_eq!(fs::read_to_string(files.join("stderr")).unwrap(), "");

    for directory in [of_server, of_client] {
        let events = events_of_trace(&directory);
        for event in [
            "transport:packet_sent",
            "transport:packet_received",
            "recovery:metrics_updated",
        ] {
            assert!(
                events.get(event).is_some_and(|count| *count > 1),
                "{event}: {events:?}"
            );
        }
    }
}
