//! What the program says of its settings and its command line without running anything.

use crate::support::{CONFIGURATION, Place, USAGE, finish};

fn stderr(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn check_tells_all_errors_of_file_and_environment_at_once() {
    let place = Place::new();
    place.write_secret("wrong.toml", "lisen = \"[::]:443\"\ngso = 1\n\nrepair = \"40\"\n");
    let mut command = place.command(&["check", "--config", "wrong.toml"]);
    command.env("GRAMWAY_CONNECTIONS", "0").env("GRAMWAY_LISEN", "x");
    let output = finish(command.spawn().unwrap());
    assert_eq!(output.status.code(), Some(CONFIGURATION));
    let told = stderr(&output);
    for line in [
        "warning: the environment variable GRAMWAY_LISEN is not known; did you mean GRAMWAY_LISTEN?",
        "gramway: wrong.toml line 1: unknown key \"lisen\"; did you mean \"listen\"?",
        "wrong.toml line 2: gso: it takes true or false, without quotes",
        "wrong.toml line 4: repair: \"40\" is neither",
        "environment variable GRAMWAY_CONNECTIONS: 0 is outside 1 to 16 connections",
    ] {
        assert!(told.lines().any(|told| told.starts_with(line)), "{line}: {told}");
    }
    assert_eq!(told.lines().count(), 5, "{told}");
}

#[test]
fn check_tells_what_does_not_fit_together_and_accepts_what_does() {
    let place = Place::new();
    place.write_secret("alone.toml", "nat = true\nkill_switch = true\n");
    let output = place.run(&["check", "--config", "alone.toml"]);
    assert_eq!(output.status.code(), Some(CONFIGURATION));
    let told = stderr(&output);
    assert!(
        told.contains("nat, which the config file or GRAMWAY_NAT sets, needs a TUN"),
        "{told}"
    );
    assert!(
        told.contains("kill_switch, which") && told.lines().count() == 2,
        "{told}"
    );
    place.write_secret("right.toml", "tun = \"auto\"\nnat = true\n");
    let output = place.run(&["check", "--config", "right.toml"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(stderr(&output), "right.toml has no errors\n");
    assert!(place.run(&["check"]).status.success());
    place.refused(
        &["check", "--config", "missing.toml"],
        CONFIGURATION,
        "missing.toml",
    );
    place.refused(&["check", "--cover-name", "example.org"], USAGE, "--cover");
}

#[test]
fn config_shows_what_counts_and_what_it_shows_can_be_read() {
    let place = Place::new();
    place.write_secret("c.toml", "gso = false\nlisten = \"[::]:8443\"\n");
    let arguments = [
        "config",
        "--effective",
        "--config",
        "c.toml",
        "up",
        "--profile",
        "latency",
    ];
    let mut command = place.command(&arguments);
    command.env("GRAMWAY_GRO", "0");
    let output = finish(command.spawn().unwrap());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let shown = String::from_utf8(output.stdout).unwrap();
    for line in [
        "listen = \"[::]:8443\" # c.toml:2",
        "gso = false # c.toml:1",
        "gro = false # environment, GRAMWAY_GRO",
        "profile = \"latency\" # flag, --profile",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line}: {shown}");
    }
    place.write_secret("shown.toml", &shown);
    assert!(place.run(&["check", "--config", "shown.toml"]).status.success());
    place.refused(&["config"], USAGE, "--effective");
    place.refused(
        &["config", "--effective", "--schema"],
        USAGE,
        "cannot be used with",
    );
    place.write_secret("wrong.toml", "gso = 1\n");
    place.refused(
        &["config", "--effective", "--config", "wrong.toml"],
        CONFIGURATION,
        "wrong.toml line 1",
    );
    let link = crate::support::dead_link();
    place.write_secret("link.toml", &format!("link_file = \"{link}\"\n"));
    place.refused(
        &["config", "--effective", "--config", "link.toml"],
        CONFIGURATION,
        "not the link itself",
    );
}

#[test]
fn completions_and_man_pages_know_commands_and_the_flags_of_settings() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        let output = place.run(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let text = String::from_utf8(output.stdout).unwrap();
        for word in ["connect", "link-file", "default-route", "effective"] {
            assert!(text.contains(word), "{shell}: {word}");
        }
    }
    place.refused(&["completions", "sh"], USAGE, "bash");
    std::fs::create_dir(place.path("man")).unwrap();
    let output = place.run(&["man", "man"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let page = |name: &str| std::fs::read_to_string(place.path("man").join(name)).unwrap();
    assert!(
        page("gramway.1").contains("gramway\\-connect(1)"),
        "{}",
        page("gramway.1")
    );
    assert!(page("gramway-connect.1").contains("default\\-route"));
    assert!(page("gramway-user-add.1").contains("quota"));
    assert!(page("gramway-peer-ping.1").contains("round trips"));
    assert!(
        !place.path("man/gramway-helper.1").exists(),
        "gramway alone starts it"
    );
    place.refused(
        &["man", "nowhere"],
        CONFIGURATION,
        "cannot write man pages into nowhere",
    );
}
