//! Name servers of the TUN. systemd-resolved is played by a script that writes down what it is told: it keeps such
//! settings per link and forgets them with the link, so what has to be seen is that it is told, and that the link goes.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use system_tests::tunnel::with_mounts;
use system_tests::{require_program, require_root};

use super::*;

/// Words that start a program on a machine whose `resolvectl` is `script`, and the file that the script may write to,
/// `$TOLD`.
pub(super) fn with_resolvectl(script: &str, directory: &Directory) -> (Vec<String>, PathBuf) {
    let programs = directory.join("programs");
    fs::create_dir_all(&programs).unwrap();
    let resolvectl = programs.join("resolvectl");
    fs::write(&resolvectl, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&resolvectl, Permissions::from_mode(0o755)).unwrap();
    let (resolv, told) = (directory.join("resolv.conf"), directory.join("told"));
    fs::write(&resolv, "nameserver 127.0.0.53\n").unwrap();
    let path = std::env::var("PATH").unwrap();
    let mut words = vec![
        "env".to_owned(),
        format!("PATH={}:{path}", programs.display()),
        format!("TOLD={}", told.display()),
    ];
    // It looks as if systemd-resolved ran and programs asked it.
    words.extend(with_mounts(&format!(
        "mount -t tmpfs none /run && mkdir -p /run/systemd/resolve && mount --bind '{}' /etc/resolv.conf",
        resolv.display()
    )));
    (words, told)
}

/// A client with name servers on such a machine.
fn connect_with_dns(
    machine: &Namespace,
    server: &Server,
    script: &str,
    directory: &Directory,
) -> (Client, PathBuf) {
    let (wrapper, told) = with_resolvectl(script, directory);
    let options = [TUN, "--default-route", "--dns", SERVER_V4, "--dns", SERVER_V6];
    let (place, link) = (machine.place(), server.link());
    let files = directory.path();
    let mut client = Client::start_unconnected_by(&wrapper, &place, "client", &link, &[], &options, files);
    client.process().wait_for_starts("TUN", 1, PROGRAM_LIMIT).unwrap();
    (client, told)
}

#[test]
fn name_servers_are_told_to_systemd_resolved_once_and_leave_with_the_link_after_a_kill() {
    require_root!();
    require_program!("unshare", "ping");
    let (machines, directory) = (Machines::new(1500), Directory::create_for_test().unwrap());
    let server = machines.serve(&["--nat"], &directory);
    let (mut client, told) = connect_with_dns(&machines.first, &server, "echo \"$@\" >>$TOLD", &directory);
    let both = format!("dns tun0 {SERVER_V4} {SERVER_V6}\ndomain tun0 ~.\n");
    wait_until("the name servers", PROGRAM_LIMIT, || {
        fs::read_to_string(&told).unwrap_or_default() == both
    });
    // What there is to tell is told within a turn of half a second.
    reaches(&machines.first, SERVER_V4);
    machines
        .first
        .run("ping", ["-n", "-i", "0.1", "-c", "20", SERVER_V4])
        .unwrap();
    assert!(!client.process().stderr().contains("warning: systemd-resolved"));
    client.kill();
    wait_until("the end of the link", PROGRAM_LIMIT, || {
        !machines
            .first
            .run("ip", ["-o", "link", "show"])
            .unwrap()
            .contains("tun0")
    });
}

#[test]
fn a_systemd_resolved_that_refuses_is_quoted_and_the_tunnel_works_without() {
    require_root!();
    require_program!("unshare", "ping");
    let (machines, directory) = (Machines::new(1500), Directory::create_for_test().unwrap());
    let server = machines.serve(&["--nat"], &directory);
    let script = "echo 'Failed to connect to bus' >&2; exit 1";
    let (mut client, _) = connect_with_dns(&machines.first, &server, script, &directory);
    let expected = format!("`resolvectl dns tun0 {SERVER_V4} {SERVER_V6}`: Failed to connect to bus");
    wait_until("the warning", PROGRAM_LIMIT, || {
        client.process().stderr().contains(&expected)
    });
    reaches(&machines.first, SERVER_V4);
}

#[test]
fn a_systemd_resolved_that_hangs_holds_up_no_packet() {
    require_root!();
    require_program!("unshare", "ping");
    let (machines, directory) = (Machines::new(1500), Directory::create_for_test().unwrap());
    let server = machines.serve(&["--nat"], &directory);
    let script = "echo begun >>$TOLD; exec sleep 60";
    let (mut client, told) = connect_with_dns(&machines.first, &server, script, &directory);
    wait_until("the call of resolvectl", PROGRAM_LIMIT, || {
        fs::read_to_string(&told).is_ok_and(|text| text.contains("begun"))
    });
    // It is given five seconds; a shard that waited for it would answer none of these.
    let pings = ["-n", "-i", "0.05", "-c", "40", "-W", "2", SERVER_V4];
    let said = machines.first.run("ping", pings).unwrap();
    assert!(said.contains(" 0% packet loss"), "{said}");
    wait_until("the warning", PROGRAM_LIMIT, || {
        client
            .process()
            .stderr()
            .contains("systemd-resolved did not take the name servers")
    });
}
