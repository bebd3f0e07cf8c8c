//! The user's book: every command of every chapter, in its order, on the machines that it is about.

use std::fs;
use std::path::{Path, PathBuf};

use system_tests::book::follow::follow;
use system_tests::book::world::World;
use system_tests::{require_program, require_root};

use crate::scene::no_load;

/// Chapters about ports, proxies, files and the server itself.
const PORTS: [&str; 6] = [
    "first-tunnel.md",
    "browser.md",
    "users.md",
    "files.md",
    "operating.md",
    "trouble.md",
];

/// Chapters about whole networks. The last one leaves rules in the router's firewall.
const NETWORKS: [&str; 3] = ["whole-network.md", "provider.md", "router.md"];

/// Chapters about UDP of other programs. The last one leaves rules in the router's firewall.
const PROGRAMS: [&str; 3] = ["game-server.md", "wireguard.md", "blocked.md"];

/// Chapters without commands.
const WITHOUT_COMMANDS: [&str; 4] = ["README.md", "settings.md", "peer-events.md", "file-events.md"];

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

fn read(file: &str) -> String {
    let path = directory().join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn follow_all(chapters: &[&str]) {
    let mut world = World::build();
    for chapter in chapters {
        world.start_over();
        follow(chapter, &read(chapter), &mut world);
    }
}

#[test]
fn the_chapters_about_ports_proxies_and_the_server_tell_the_truth() {
    require_root!();
    require_program!("curl", "nft");
    let _no_load = no_load();
    follow_all(&PORTS);
}

#[test]
fn the_chapters_about_whole_networks_tell_the_truth() {
    require_root!();
    require_program!("curl", "nft", "tcpdump");
    let _no_load = no_load();
    follow_all(&NETWORKS);
}

#[test]
fn the_chapters_about_udp_of_other_programs_tell_the_truth() {
    require_root!();
    require_program!("curl", "nft", "nc", "wg-quick", "wireguard-go");
    let _no_load = no_load();
    follow_all(&PROGRAMS);
}

#[test]
fn the_summary_lists_every_chapter_and_every_chapter_with_commands_is_followed() {
    let summary = read("SUMMARY.md");
    let links = summary.split("](").skip(1);
    let mut listed: Vec<&str> = links.map(|rest| rest.split(')').next().unwrap()).collect();
    let entries = fs::read_dir(directory()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut chapters: Vec<String> = names
        .filter(|name| name.ends_with(".md") && name != "SUMMARY.md")
        .collect();
    let mut known = [&PORTS[..], &NETWORKS, &PROGRAMS, &WITHOUT_COMMANDS].concat();
    listed.sort_unstable();
    known.sort_unstable();
    chapters.sort_unstable();
    assert_eq!(listed, chapters);
    assert_eq!(known, chapters);
    for file in WITHOUT_COMMANDS {
        assert!(
            !read(file).contains("```sh"),
            "{file} has commands that nobody runs"
        );
    }
}
