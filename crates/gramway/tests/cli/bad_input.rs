//! Bad input ends with one sentence and the right exit code, and leaves the disk as it was.

use std::io::Write;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::support::{CONFIGURATION, PERMISSION, Place, UNAVAILABLE, USAGE, dead_link, finish, is_root};

#[test]
fn a_wrong_command_line_is_a_usage_error() {
    let place = Place::new();
    place.refused(&[], USAGE, "Usage: gramway");
    place.refused(&["ascend"], USAGE, "unrecognized subcommand");
    place.refused(
        &["bench", "backward"],
        USAGE,
        "there is no benchmark \"backward\"",
    );
    place.refused(&["up", "--lisen", "x"], USAGE, "--lisen");
    place.refused(
        &["up", "--state", "state", "--listen", "443"],
        USAGE,
        "--listen: \"443\" is not ADDRESS:PORT",
    );
    place.refused(
        &["up", "--state", "state", "--public", "a b"],
        USAGE,
        "--public: \"a b\" is neither",
    );
    place.refused(
        &["up", "--state", "state", "--allow-target", "x"],
        USAGE,
        "is not CIDR[:PORT]",
    );
    place.refused(
        &["up", "--state", "state", "--max-udp-payload", "100"],
        USAGE,
        "1200 to 65507 bytes",
    );
    place.refused(
        &["up", "--state", "state", "--max-udp-payload", "x"],
        USAGE,
        "is not a whole number",
    );
    place.refused(
        &["up", "--state", "state", "--profile", "fast"],
        USAGE,
        "fixed:RATE",
    );
}

#[test]
fn what_needs_a_tun_is_refused_without_one() {
    let place = Place::new();
    let link = dead_link();
    for flag in [
        ["--default-route"].as_slice(),
        &["--route", "10.0.0.0/8"],
        &["--dns", "10.0.0.1"],
    ] {
        let line = [&["connect", &link, "--state", "state", "-L", "udp:53=a:53"], flag].concat();
        place.refused(
            &line,
            USAGE,
            &format!("{} needs a TUN device; add --tun", flag[0]),
        );
    }
    for flag in [["--nat"].as_slice(), &["--pool", "10.9.0.0/24"]] {
        let line = [&["up", "--state", "state", "--listen", "127.0.0.1:0"], flag].concat();
        place.refused(
            &line,
            USAGE,
            &format!("{} needs a TUN device; add --tun", flag[0]),
        );
    }
    std::fs::write(place.path("c.toml"), "nat = true\n").unwrap();
    place.refused(
        &["up", "--state", "state", "--config", "c.toml"],
        CONFIGURATION,
        "nat, which the config file or GRAMWAY_NAT sets, needs a TUN device",
    );
}

#[test]
fn a_benchmark_names_the_programs_that_are_missing_before_its_first_row() {
    let place = Place::new();
    let mut command = place.command(&["bench", "l3"]);
    command.env("PATH", place.path("nowhere"));
    let (code, part) = if is_root() {
        (UNAVAILABLE, "iputils-ping")
    } else {
        (PERMISSION, "sudo")
    };
    place.refused_command(&mut command, code, part);
}

#[test]
fn a_link_in_the_place_of_a_file_is_never_shown() {
    let place = Place::new();
    let link = dead_link();
    let tail = ["-L", "udp:53=a:53"];
    for (head, part) in [
        (
            ["connect", "--link-file", &link].as_slice(),
            "it takes a file, not the link itself",
        ),
        (
            &["connect", "--link-file", "x", "--config", &link],
            "where a config file is expected",
        ),
        (
            &["connect", "--link-file", "x", "--state", &link],
            "where a state directory is expected",
        ),
        (
            &["connect", "--bind", &link],
            "--bind: \"gramway://…\" is not an IP address",
        ),
        (&["connect", &link, &link], "unexpected argument 'gramway://…'"),
    ] {
        let line = [head, &tail].concat();
        place.refused(&line, USAGE, part);
        let output = place.run(&line);
        assert!(
            !String::from_utf8_lossy(&output.stderr).contains("AAAA"),
            "{line:?}"
        );
    }
    place.refused_command(
        place
            .command(&["connect", "--state", "state", "-L", "udp:53=a:53"])
            .env("GRAMWAY_LINK_FILE", &link),
        CONFIGURATION,
        "GRAMWAY_LINK_FILE: it takes a file",
    );
}

#[test]
fn an_unparsable_forward_is_a_usage_error_that_shows_the_shape() {
    let place = Place::new();
    let link = dead_link();
    let connect = |forward: &str, part: &str| {
        place.refused(
            &["connect", &link, "--state", "state", "-L", forward],
            USAGE,
            part,
        );
    };
    connect("53", "-L: \"53\" is not a forward: write udp:LISTEN=TARGET");
    connect("udp:x=a:53", "cannot listen on \"x\"");
    connect("udp:53=a", "has no port");
    place.refused(
        &[
            "connect",
            &link,
            "--state",
            "state",
            "-L",
            "udp:53=a:53",
            "-L",
            "udp:127.0.0.1:53=b:53",
        ],
        USAGE,
        "another forward",
    );
    place.refused(&["connect", &link, "--state", "state"], USAGE, "nothing to carry");
}

#[test]
fn a_broken_link_is_named_with_its_source_and_never_shows_the_token() {
    let place = Place::new();
    let token = "B".repeat(42) + "A";
    let cut = format!("gramway://{token}@127.0.0.1:9");
    let tail = ["--state", "state", "-L", "udp:53=a:53"];
    fn join<'a>(head: &[&'a str], tail: &[&'a str]) -> Vec<&'a str> {
        [&["connect"][..], head, tail].concat()
    }
    place.refused(
        &join(&[&cut], &tail),
        USAGE,
        "LINK: the link is broken at character 66: the server's pin is missing",
    );
    place.refused(
        &join(&["gramway.link"], &tail),
        USAGE,
        "there is no profile \"gramway.link\"",
    );
    place.refused(
        &join(&["https://example.org"], &tail),
        USAGE,
        "does not start with gramway://",
    );
    place.write_secret("link", &cut);
    place.refused(
        &join(&["--link-file", "link"], &tail),
        CONFIGURATION,
        "link: the link is broken",
    );
    place.refused(
        &join(&["--link-file", "absent"], &tail),
        CONFIGURATION,
        "cannot read the link file absent",
    );
    place.refused(
        &join(&["--link-file", "-"], &tail),
        CONFIGURATION,
        "standard input: the link is broken at character 1",
    );
    place.refused_command(
        place.command(&join(&[], &tail)).env("GRAMWAY_LINK", &cut),
        CONFIGURATION,
        "GRAMWAY_LINK: the link is broken",
    );
    let output = place.run(&join(&[&cut], &tail));
    assert!(!String::from_utf8_lossy(&output.stderr).contains(&token[..8]));
}

#[test]
fn a_missing_link_and_two_links_are_usage_errors() {
    let place = Place::new();
    let link = dead_link();
    place.refused(
        &["connect", "--state", "state", "-L", "udp:53=a:53"],
        USAGE,
        "no link;",
    );
    place.refused_command(
        place
            .command(&["connect", &link, "--state", "state", "-L", "udp:53=a:53"])
            .env("GRAMWAY_LINK", &link),
        USAGE,
        "as an argument and in GRAMWAY_LINK",
    );
    place.write_secret("link", &link);
    place.refused(
        &["connect", &link, "--link-file", "link", "-L", "udp:53=a:53"],
        USAGE,
        "as an argument and with --link-file",
    );
}

#[test]
fn an_occupied_port_ends_a_first_run_without_a_trace() {
    let place = Place::new();
    let occupied = UdpSocket::bind("127.0.0.1:0").unwrap();
    let listen = occupied.local_addr().unwrap().to_string();
    // The sandbox needs the directory before the port is tried, so that times above it change.
    let mut command = place.command(&["up", "--state", "above/state", "--listen", &listen]);
    let output = finish(command.spawn().unwrap());
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(UNAVAILABLE), "{told}");
    assert!(told.contains(&listen) && told.lines().count() == 1, "{told}");
    assert_eq!(std::fs::read_dir(place.path("")).unwrap().count(), 0);
    place.refused(
        &["up", "--state", "state", "--listen", &listen, "--no-sandbox"],
        UNAVAILABLE,
        &listen,
    );
}

#[test]
fn state_of_a_newer_version_is_refused_unchanged_by_every_command() {
    let place = Place::new();
    std::fs::create_dir(place.path("state")).unwrap();
    std::fs::write(place.path("state/version"), "2\n").unwrap();
    let link = dead_link();
    for arguments in [
        &["up", "--state", "state", "--listen", "127.0.0.1:0"][..],
        &["link", "--state", "state"],
        &["status", "--state", "state"],
        &["connect", &link, "--state", "state", "-L", "udp:53=a:53"],
    ] {
        place.refused(arguments, CONFIGURATION, "state of a newer gramway (version 2");
    }
}

#[test]
fn an_unreadable_state_directory_is_a_permission_error() {
    let place = Place::new();
    std::fs::create_dir(place.path("state")).unwrap();
    let unreadable = |mode| {
        std::fs::set_permissions(place.path("state"), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    unreadable(0o000);
    let arguments = ["up", "--state", "state", "--listen", "127.0.0.1:0"];
    let mut command = place.command(&arguments);
    if is_root() {
        // Root reads everything, so it becomes nobody; the program's own path must stay within reach.
        let program = place.path("gramway");
        // Not copied by this process: a file that is open for writing in any thread's child cannot be run.
        let copied = Command::new("cp")
            .arg(env!("CARGO_BIN_EXE_gramway"))
            .arg(&program)
            .status()
            .unwrap();
        assert!(copied.success());
        std::fs::set_permissions(place.directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .current_dir(place.directory.path());
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .uid(65_534)
            .gid(65_534);
    }
    place.refused_command(
        &mut command,
        PERMISSION,
        "cannot open the state directory state: permission denied",
    );
    unreadable(0o700);
}

#[test]
fn a_wrong_config_file_is_told_with_its_line() {
    let place = Place::new();
    std::fs::write(place.path("c.toml"), "# settings\nlisen = \"127.0.0.1:0\"\n").unwrap();
    let up = ["up", "--state", "state", "--config", "c.toml"];
    place.refused(
        &up,
        CONFIGURATION,
        "c.toml line 2: unknown key \"lisen\"; did you mean \"listen\"?",
    );
    std::fs::write(place.path("c.toml"), [0xff, 0xfe]).unwrap();
    place.refused(&up, CONFIGURATION, "cannot read the config file c.toml");
    place.refused(
        &["up", "--state", "state", "--config", "absent"],
        CONFIGURATION,
        "config file absent",
    );
    place.refused_command(
        place
            .command(&["up", "--state", "state"])
            .env("GRAMWAY_LISTEN", "nowhere"),
        CONFIGURATION,
        "GRAMWAY_LISTEN: \"nowhere\" is not ADDRESS:PORT",
    );
}

#[test]
fn nothing_running_and_no_server_state_are_told() {
    let place = Place::new();
    place.refused(
        &["status", "--state", "state"],
        UNAVAILABLE,
        "no server or client is running",
    );
    place.refused(
        &["status", "--json", "--state", "state"],
        UNAVAILABLE,
        "no server or client is running",
    );
    place.refused(
        &["link", "--state", "state"],
        CONFIGURATION,
        "gramway up --state state",
    );
}

#[test]
fn a_link_may_come_from_standard_input() {
    let place = Place::new();
    let mut child = place
        .command(&[
            "connect",
            "--link-file",
            "-",
            "--state",
            "state",
            "-L",
            "udp:53=a:53",
        ])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    // What is broken is at the very end, so all of it was read.
    let text = format!("{}#%zz\n", dead_link());
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = finish(child);
    assert_eq!(output.status.code(), Some(CONFIGURATION));
    assert!(String::from_utf8_lossy(&output.stderr).contains("two hexadecimal digits"));
}

#[test]
fn a_mistyped_link_or_token_is_never_shown() {
    let place = Place::new();
    let token = &"CQkJ".repeat(11)[..43];
    let mistyped = format!("gramwya://{token}@127.0.0.1:9");
    for secret in [token, &mistyped, &format!("--{token}"), &format!("--lnk={token}")] {
        for line in [
            [secret].as_slice(),
            &["connect", secret],
            &["connect", "x", secret],
            &["connect", "--bind", secret],
            &["connect", "-L", secret],
            &["connect", "--config", secret],
            &["up", secret],
            &["up", "--state", "state", "--listen", secret],
            &["up", "--state", "state", "--allow-target", secret],
            &["link", secret],
            &["status", secret],
            &["status", "--state", secret],
            &["bench", secret],
        ] {
            let output = place.command(line).output().unwrap();
            let told = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
            assert!(!output.status.success(), "{line:?}");
            assert!(!told.concat().contains(token), "{line:?}: {told:?}");
        }
    }
}
