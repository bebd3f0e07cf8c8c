//! A running server and client whose configuration changes.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

use crate::metrics::{free_tcp_port, scrape};
use crate::support::{CONFIGURATION, Place, Program, UNAVAILABLE, free_port};

const RELOAD: [&str; 4] = ["ctl", "reload", "--state", "state"];

/// A server that writes its metrics at this port and reads `c.toml`.
fn server(place: &Place, config: &str, metrics: u16) -> Program {
    place.write_secret("c.toml", config);
    let metrics = metrics.to_string();
    let listen = ["--listen", "127.0.0.1:0", "--metrics", &metrics];
    let arguments = [&["up", "--state", "state", "--config", "c.toml"][..], &listen].concat();
    let server = Program::watch(place.command(&arguments).spawn().unwrap());
    server.wait_for("gramway link --state state");
    server
}

fn assert_gauge(port: u16, is_successful: bool) {
    let page = scrape(port);
    let line = format!(
        "\ngramway_config_last_reload_successful {}\n",
        u8::from(is_successful)
    );
    assert!(page.contains(&line), "{page}");
    assert!(
        page.contains("\ngramway_config_last_reload_success_timestamp_seconds "),
        "{page}"
    );
}

#[test]
fn what_can_change_does_and_what_waits_for_a_restart_is_named_each_time() {
    let place = Place::new();
    let port = free_tcp_port();
    let server = server(&place, "udp_idle_timeout_s = 60\n", port);
    assert_gauge(port, true);
    place.write_secret(
        "c.toml",
        "udp_idle_timeout_s = 61\nallow_target = [\"10.0.0.1/32\"]\nconnections = 1\nlisten = \"[::]:9\"\n",
    );
    let told = |lines: &[&str]| {
        let output = place.run(&RELOAD);
        let told = String::from_utf8(output.stdout).unwrap();
        assert_eq!(
            output.status.code(),
            Some(0),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert_eq!(told.lines().collect::<Vec<_>>(), lines);
    };
    // The address is given by a flag, which the file does not override.
    told(&[
        "server: allow_target: changed for what opens from now on",
        "server: connections: takes effect after a restart",
        "server: udp_idle_timeout_s: changed",
    ]);
    for _ in 0..3 {
        told(&["server: connections: takes effect after a restart"]);
    }
    place.write_secret("c.toml", "udp_idle_timeout_s = 60\nverbose = 1\n");
    server.signal("-HUP");
    // Whoever asks again and again fills no log.
    let lines = server.lines_until("reload: udp_idle_timeout_s: changed", 2);
    let waits = lines
        .iter()
        .filter(|line| line.contains("connections: takes effect"));
    assert_eq!(waits.count(), 2, "{lines:?}");
    place.write_secret("link", &place.link());
    let client = place.client(&format!("udp:{}=192.0.2.1:9", free_port()));
    server.wait_for("owner connected");
    assert_eq!(client.terminate(), Some(0));
    told(&["server: nothing has changed"]);
    assert_gauge(port, true);
    assert_eq!(server.terminate(), Some(0));
    let output = place.run(&RELOAD);
    assert_eq!(output.status.code(), Some(UNAVAILABLE));
}

#[test]
fn a_configuration_with_errors_changes_nothing_and_all_errors_are_told() {
    let place = Place::new();
    let port = free_tcp_port();
    let server = server(&place, "udp_idle_timeout_s = 60\n", port);
    place.write_secret("c.toml", "udp_idle_timeout_s = 61\ngso = 1\nlisen = \"x\"\n");
    let output = place.run(&RELOAD);
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(CONFIGURATION), "{told}");
    assert!(
        told.contains("c.toml line 2: gso: ") && told.contains("c.toml line 3: unknown key \"lisen\""),
        "{told}"
    );
    assert_gauge(port, false);
    let failed = "reload failed, nothing is changed: c.toml line 2";
    server.wait_for(failed);
    server.signal("-HUP");
    server.wait_for(failed);
    place.write_secret("c.toml", "udp_idle_timeout_s = 60\n");
    let output = place.run(&RELOAD);
    let told = String::from_utf8(output.stdout).unwrap();
    assert_eq!(told, "server: nothing has changed\n");
    assert_gauge(port, true);
}

#[test]
fn a_client_reads_its_configuration_again_beside_its_server() {
    let place = Place::new();
    let server = place.server();
    place.write_secret("link", &place.link());
    let mut command = place.client_command(&format!("udp:{}=192.0.2.1:9", free_port()));
    let client = Program::watch(command.spawn().unwrap());
    client.wait_for("connected to");
    place.write_secret(
        "state/config.toml",
        "queue_policy = \"drop-oldest\"\nbind = \"127.0.0.1\"\n",
    );
    let output = place.run(&RELOAD);
    let told = String::from_utf8(output.stdout).unwrap();
    let of_client = format!("client-{}", client.child.id());
    assert_eq!(
        told.lines().collect::<Vec<_>>(),
        [
            format!("{of_client}: bind: takes effect after a restart"),
            format!("{of_client}: queue_policy: changed"),
            "server: queue_policy: changed".to_owned(),
        ]
    );
    assert_eq!(client.terminate(), Some(0));
    assert_eq!(server.terminate(), Some(0));
}
