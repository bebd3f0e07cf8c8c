//! sing-box as client and server of Hysteria2 and TUIC, with their defaults. Its `direct` inbound is a forward; a
//! self-signed certificate is made for the run and trusted by the client.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use testbed::directory::Directory;
use testbed::process::Process;
use testbed::programs;

use super::{Contestant, Running, TARGET_PORTS};
use crate::Error;
use crate::network::{Network, SERVER};

/// What to say where it is missing.
pub(super) const HOW_TO_GET: &str = "sing-box is not installed: go install -tags with_quic,with_utls github.com/sagernet/sing-box/cmd/sing-box@latest";

/// The name in the certificate.
const NAME: &str = "bench";

/// Shared secret of client and server, on a link that nobody else sees.
const PASSWORD: &str = "bench";

/// User of TUIC.
const USER: &str = "00000000-0000-4000-8000-000000000001";

/// UDP port of the first rival; the others follow.
const PORT_FIRST: u16 = 8_443;

/// The program and its version, which `go install` leaves only in the file's build information.
pub(super) fn find() -> Option<(PathBuf, String)> {
    let program = programs::find(&["sing-box"])?;
    let told = programs::said(Command::new(&program).arg("version"));
    Some((
        program.clone(),
        Some(told)
            .filter(|told| !told.ends_with("unknown"))
            .or_else(|| built_from(&program))
            .unwrap_or_default(),
    ))
}

fn built_from(program: &Path) -> Option<String> {
    let go = programs::find(&["go"])?;
    let lines = programs::run(Command::new(go).args(["version", "-m"]).arg(program)).ok()?;
    let mut words = lines
        .lines()
        .find_map(|line| line.trim().strip_prefix("mod\t"))?
        .split('\t');
    Some(format!("sing-box {}", words.nth(1)?))
}

/// Starts server and client.
pub(super) fn start(rival: Contestant, program: &Path, network: &Network) -> Result<Running, Error> {
    let directory = Directory::create()?;
    let certified = rcgen::generate_simple_self_signed([NAME.to_owned()])
        .map_err(|error| Error::Setup(format!("cannot make a certificate for sing-box: {error}")))?;
    let certificate = directory.write("certificate.pem", &certified.cert.pem())?;
    let key = directory.write("key.pem", &certified.signing_key.serialize_pem())?;
    let port = PORT_FIRST + rival as u16;

    let mut inbound = protocol(rival, true);
    merge(
        &mut inbound,
        json!({"listen": SERVER, "listen_port": port,
            "tls": {"enabled": true, "alpn": ["h3"], "certificate_path": certificate, "key_path": key}}),
    );
    let server = json!({"log": {"level": "error"}, "inbounds": [inbound], "outbounds": [{"type": "direct"}]});

    let entrances = rival.entrances();
    let forwards: Vec<Value> = entrances
        .iter()
        .zip(TARGET_PORTS)
        .map(|(entrance, target)| {
            json!({"type": "direct", "tag": format!("forward-{target}"),
                "listen": entrance.ip(), "listen_port": entrance.port(),
                "override_address": SERVER, "override_port": target})
        })
        .collect();
    let mut outbound = protocol(rival, false);
    merge(
        &mut outbound,
        json!({"server": SERVER, "server_port": port,
            "tls": {"enabled": true, "server_name": NAME, "alpn": ["h3"], "certificate_path": certificate}}),
    );
    let client = json!({"log": {"level": "error"}, "inbounds": forwards, "outbounds": [outbound]});

    let command = |name: &str, settings: &Value| -> Result<Command, Error> {
        let file = directory.write(name, &settings.to_string())?;
        let mut command = Command::new(program);
        command
            .arg("run")
            .arg("-D")
            .arg(directory.path())
            .arg("-c")
            .arg(file);
        Ok(command)
    };
    let (server, client) = (command("server.json", &server)?, command("client.json", &client)?);
    let server = Process::start(network.server.wrap(&server), rival.name())?;
    Running::with_client(rival, entrances, client, Some(server), directory, network)
}

/// What distinguishes the protocols: their name, and how client and server name the user.
fn protocol(rival: Contestant, is_server: bool) -> Value {
    let mut settings = match rival {
        Contestant::Tuic => json!({"type": "tuic"}),
        Contestant::TuicBbr => json!({"type": "tuic", "congestion_control": "bbr"}),
        _ => json!({"type": "hysteria2"}),
    };
    let user = if settings["type"] == "tuic" {
        json!({"uuid": USER, "password": PASSWORD})
    } else {
        json!({"password": PASSWORD})
    };
    merge(
        &mut settings,
        if is_server { json!({"users": [user]}) } else { user },
    );
    settings
}

/// Adds the fields of one object to another.
fn merge(into: &mut Value, from: Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        into.extend(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hysteria2_is_told_no_bandwidth_and_tuic_its_congestion_control_only_where_asked() {
        let client = protocol(Contestant::Hysteria2, false);
        assert_eq!(client, json!({"type": "hysteria2", "password": PASSWORD}));
        let server = protocol(Contestant::Tuic, true);
        assert_eq!(
            server,
            json!({"type": "tuic", "users": [{"uuid": USER, "password": PASSWORD}]})
        );
        assert_eq!(protocol(Contestant::TuicBbr, false)["congestion_control"], "bbr");
    }
}
