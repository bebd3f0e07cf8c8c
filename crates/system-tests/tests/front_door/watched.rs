//! What somebody on the way sees of a whole session, by a foreign reader of packets: the cover's name, and nothing of
//! ours.

use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use system_tests::skip::{find, skip};
use system_tests::test_name;
use testbed::programs;

use super::*;

/// Packets of a megabyte each way.
const PACKETS_MIN: usize = 1_000;

/// To leave and arrive of what was sent last.
const CAPTURE_LIMIT: Duration = Duration::from_secs(30);

/// What only we say, in whatever form tshark shows it.
const OURS: [&str; 7] = [
    "gramway",
    "masque",
    "connect-udp",
    "connect-ip",
    "proxy-authorization",
    "capsule-protocol",
    "through the front door",
];

/// Captures what the client's machine sends and receives until it is told to end, packet by packet: trains are cut
/// before they are seen.
fn capture(scene: &Scene, file: &Path) -> Process {
    for machine in [&scene.pair.client, &scene.pair.server] {
        let cut = ["link", "set", "eth0", "gso_max_segs", "1"];
        machine.run("ip", cut).unwrap();
    }
    let mut command = scene.pair.client.command("tshark");
    command.args(["-q", "-i", "eth0", "-f", "udp", "-w"]).arg(file);
    let process = Process::start(command, "tshark").unwrap();
    let bytes = || std::fs::metadata(file).map_or(0, |file| file.len());
    // The capture has begun when a packet is in the file, behind the file's own headers.
    let socket = scene
        .pair
        .client
        .inside(|| UdpSocket::bind("10.77.0.2:0"))
        .unwrap();
    let mut header = 0;
    wait_until("the capture begins", CAPTURE_LIMIT, || {
        if header == 0 {
            header = bytes();
        }
        socket.send_to(b"a probe", "10.77.0.1:9").unwrap();
        header > 0 && bytes() > header
    });
    process
}

/// These fields of each packet of the session, as tshark reads them.
fn read(file: &Path, fields: &[&str]) -> Vec<Vec<String>> {
    let mut command = tshark(file);
    command.args(["-T", "fields", "-E", "separator=|"]);
    fields.iter().for_each(|field| {
        command.args(["-e", field]);
    });
    let text = programs::run(&mut command).unwrap();
    let columns = |line: &str| line.split('|').map(str::to_owned).collect();
    text.lines().map(columns).collect()
}

/// Reads the packets of the session as QUIC, whatever they look like.
fn tshark(file: &Path) -> Command {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file);
    command.args(["-d", "udp.port==4433,quic", "-Y", "udp.port==4433"]);
    command
}

/// QR1-22: the cover's name is all that is read, and nothing tells how a handshake or a session ended.
#[test]
fn tshark_reads_the_covers_name_in_a_session_and_nothing_of_ours() {
    require_root!();
    if find(&["tshark"]).is_none() {
        let reason = "needs tshark, which no step installs: its packages take 128 MB";
        return skip(test_name!(), reason);
    }
    let mut scene = Scene::new(require_python!(), &[]);
    let file = scene.directory.path().join("session.pcapng");
    let mut capturing = capture(&scene, &file);
    let mut client = scene.client("client", &both!("7000"), &["--connections", "1"]);
    assert_carries(&scene);
    assert_eq!(client.stop(), Some(0));
    assert_eq!(scene.server.stop(), Some(0));
    capturing.signal(Signal::INT);
    capturing.wait(CAPTURE_LIMIT).unwrap();

    let packets = read(
        &file,
        &[
            "frame.protocols",
            "quic.version",
            "tls.handshake.extensions_server_name",
            "tls.handshake.extensions_alpn_str",
            "tls.handshake.certificate",
            "quic.cc.reason_phrase",
            "quic.cc.error_code",
            "quic.token",
            "_ws.malformed",
        ],
    );
    assert!(packets.len() > PACKETS_MIN, "{} packets", packets.len());
    let all = |column: usize| {
        let mut values: Vec<&str> = packets
            .iter()
            .flat_map(|packet| packet.get(column).map_or("", String::as_str).split(','))
            .filter(|value| !value.is_empty())
            .collect();
        values.sort_unstable();
        values.dedup();
        values
    };
    assert!(
        packets
            .iter()
            .all(|packet| packet[0].starts_with("eth:ethertype:ip:udp:quic")),
        "{:?}",
        all(0)
    );
    assert_eq!(all(1), ["0x00000001"]);
    assert_eq!(all(2), [NAME]);
    assert_eq!(all(3), ["h3"]);
    // Certificate, reasons and codes of closes, tokens of a Retry, what cannot be read: none.
    for column in 4..9 {
        assert_eq!(all(column), Vec::<&str>::new(), "column {column}");
    }
    let told = programs::run(tshark(&file).arg("-V")).unwrap().to_lowercase();
    assert!(told.contains(NAME), "it reads the hello");
    for word in OURS {
        assert!(!told.contains(word), "{word}");
    }
}
