//! A server's and a client's life: what is on disk, what `status` and `link` say, how they end.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use crate::support::{PERMISSION, Place, Program, UNAVAILABLE, USAGE, free_port};

#[test]
fn help_and_version_are_data() {
    let place = Place::new();
    for arguments in [
        &["--help"][..],
        &["--version"],
        &["connect", "--help"],
        &["help", "up"],
    ] {
        let output = place.run(arguments);
        assert_eq!(output.status.code(), Some(0));
        assert!(!output.stdout.is_empty() && output.stderr.is_empty());
    }
}

#[test]
fn a_secret_that_others_may_read_stops_the_server() {
    let place = Place::new();
    place.server().terminate();
    let key = place.path("state/server.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    place.refused(
        &["up", "--state", "state", "--listen", "127.0.0.1:0"],
        PERMISSION,
        "chmod 600 state/server.key",
    );
    place.refused(
        &["link", "--state", "state"],
        PERMISSION,
        "chmod 600 state/server.key",
    );
}

#[test]
fn a_server_makes_its_state_answers_status_and_keeps_its_link() {
    let place = Place::new();
    let mut server = place.server();
    let link = place.link();
    assert!(
        link.starts_with("gramway://") && link.contains("@127.0.0.1:") && link.contains("?pin=sha256-"),
        "{link}"
    );
    assert_eq!(place.link(), link);
    assert_eq!(
        std::fs::metadata(place.path("state")).unwrap().mode() & 0o777,
        0o700
    );
    for entry in std::fs::read_dir(place.path("state")).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(
            entry.metadata().unwrap().mode() & 0o777,
            0o600,
            "{:?}",
            entry.file_name()
        );
    }
    let status = place.run(&["status", "--json", "--state", "state"]);
    let json: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(json["processes"][0]["role"], "server");
    assert_eq!(json["processes"][0]["pid"], server.child.id());
    let table = place.run(&["status", "--state", "state"]).stdout;
    assert!(
        String::from_utf8(table)
            .unwrap()
            .starts_with(&format!("server {}, ", server.child.id()))
    );
    let arguments = ["up", "--state", "state", "--listen", "127.0.0.1:0"];
    place.refused(&arguments, UNAVAILABLE, "another server uses the state directory");

    let before = std::fs::read(place.path("state/server.key")).unwrap();
    server.child.stdout.take();
    assert_eq!(server.terminate(), Some(0));
    assert!(!place.path("state/server.sock").exists());
    assert_eq!(place.link(), link, "the link outlives the server");
    let server = place.server();
    assert_eq!(std::fs::read(place.path("state/server.key")).unwrap(), before);
    let (token, pin) = (link.split('@').next().unwrap(), link.split('?').nth(1).unwrap());
    assert!(place.link().starts_with(token) && place.link().ends_with(pin));
    drop(server);
    place.refused_stale_socket();
}

#[test]
fn the_link_comes_as_a_code_and_as_a_template_for_foreign_clients_too() {
    let place = Place::new();
    place.server().terminate();
    let link = place.link();
    let code = String::from_utf8(place.run(&["link", "--state", "state", "--qr"]).stdout).unwrap();
    assert!(
        code.lines().count() > 10 && code.trim_end().ends_with(&link),
        "{code}"
    );
    let masque = String::from_utf8(place.run(&["link", "--state", "state", "--masque"]).stdout).unwrap();
    let (udp, rest) = masque.split_once('\n').unwrap();
    let (ip, certificate) = rest.split_once('\n').unwrap();
    for (template, end) in [
        (udp, "/{target_host}/{target_port}/"),
        (ip, "/{target}/{ipproto}/"),
    ] {
        assert!(
            template.starts_with("https://127.0.0.1:") && template.ends_with(end),
            "{template}"
        );
    }
    assert!(certificate.starts_with("-----BEGIN CERTIFICATE-----"));
    let public = place.run(&[
        "link",
        "--state",
        "state",
        "--public",
        "vpn.example.org",
        "--public",
        "[::1]:8443",
    ]);
    let text = String::from_utf8(public.stdout).unwrap();
    let port = link
        .split(':')
        .nth(2)
        .and_then(|text| text.split('?').next())
        .unwrap();
    assert!(
        text.contains(&format!("@vpn.example.org:{port},[::1]:8443?")),
        "{text}"
    );
}

#[test]
fn a_client_connects_shows_itself_and_ends_on_a_signal() {
    let place = Place::new();
    let _server = place.server();
    place.write_secret("link", &place.link());
    let listen = free_port();
    let forward = format!("udp:{listen}=192.0.2.1:9");
    let client = place.client(&forward);
    let line = client.wait_for("connected to 127.0.0.1:");
    // Nobody watches, so that it has its time.
    let (time, line) = line.split_once(' ').unwrap();
    assert!(
        time.len() == 24 && time.ends_with('Z') && time.contains('T'),
        "{time}"
    );
    assert!(
        line.starts_with("connected") && line.contains(&format!("udp 127.0.0.1:{listen} -> 192.0.2.1:9")),
        "{line}"
    );
    let status = place.run(&["status", "--json", "--state", "state"]);
    let json: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    let roles: Vec<_> = json["processes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|process| &process["role"])
        .collect();
    assert_eq!(roles, ["server", "client"]);
    place.refused_command(
        &mut place.client_command(&forward),
        UNAVAILABLE,
        &listen.to_string(),
    );
    let socket = place.path(&format!("state/client-{}.sock", client.child.id()));
    assert!(socket.exists());
    client.signal("-TERM");
    client.wait_for("ended after");
    assert_eq!(client.end(), Some(0));
    assert!(!socket.exists());
}

#[test]
fn a_refused_token_and_a_wrong_pin_end_the_client_with_a_sentence() {
    let place = Place::new();
    let _server = place.server();
    let link = place.link();
    let (head, tail) = link.split_once('@').unwrap();
    let (server, _pin) = tail.split_once("?pin=sha256-").unwrap();
    let wrong = "A".repeat(43);
    for (name, link) in [
        ("token", format!("gramway://{wrong}@{tail}")),
        ("pin", format!("{head}@{server}?pin=sha256-{wrong}")),
    ] {
        place.write_secret("link", &link);
        let port = free_port();
        let client = place.client(&format!("udp:{port}=192.0.2.1:9"));
        client.wait_for("gramway: ");
        assert_eq!(client.end(), Some(PERMISSION), "wrong {name}");
    }
}

#[test]
fn a_second_signal_ends_at_once() {
    let place = Place::new();
    let server = place.server();
    server.signal("-INT");
    server.signal("-TERM");
    assert_eq!(server.end(), Some(0));
}

#[test]
fn a_link_that_others_can_read_and_a_misspelt_variable_are_told() {
    let place = Place::new();
    let server = place.server();
    std::fs::write(place.path("link"), place.link()).unwrap();
    std::fs::set_permissions(place.path("link"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let port = free_port();
    let forward = format!("udp:localhost:{port}=192.0.2.1:9");
    let mut command = place.client_command(&forward);
    command
        .args(["--bind", "127.0.0.1"])
        .env("GRAMWAY_CONECTIONS", "1");
    let client = Program::watch(command.spawn().unwrap());
    let told = client.wait_for("GRAMWAY_CONECTIONS");
    assert!(told.contains("did you mean GRAMWAY_CONNECTIONS?"), "{told}");
    assert!(client.wait_for("others can read").contains("chmod 600 link"));
    client.wait_for(&format!("udp 127.0.0.1:{port} -> "));
    assert_eq!(client.terminate(), Some(0));
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn a_token_that_was_removed_is_not_replaced_in_silence() {
    let place = Place::new();
    place.server().terminate();
    let link = place.link();
    std::fs::remove_file(place.path("state/owner.token")).unwrap();
    let child = place
        .command(&["up", "--state", "state", "--listen", "127.0.0.1:0"])
        .spawn()
        .unwrap();
    let server = Program::watch(child);
    let told = server.wait_for("owner.token was missing");
    assert!(told.contains("no longer work"), "{told}");
    server.wait_for("gramway link --state state");
    assert_ne!(
        place.link().split_once('@').unwrap().0,
        link.split_once('@').unwrap().0
    );
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn a_client_connects_by_the_name_of_its_profile_and_its_flags_come_on_top() {
    let place = Place::new();
    let server = place.server();
    std::fs::create_dir(place.path("state/profiles")).unwrap();
    place.write_secret("state/profiles/home.link", &place.link());
    let forward = format!("forward = [\"udp:{}=192.0.2.1:9\"]\n", free_port());
    place.write_secret("state/profiles/home.toml", &forward);
    place.write_secret("state/config.toml", "link_file = \"/nowhere\"\nconnections = 2\n");
    let output = place.run(&["profile", "list", "--state", "state"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "home\n");
    let command = place
        .command(&["connect", "home", "--state", "state", "--no-gso"])
        .spawn();
    let client = Program::watch(command.unwrap());
    client.wait_for("-> 192.0.2.1:9");
    assert_eq!(client.terminate(), Some(0));
    assert_eq!(server.terminate(), Some(0));
    let reference = ["connect", "hom", "--state", "state"];
    place.refused(&reference, USAGE, "did you mean home? There are: home");
}
