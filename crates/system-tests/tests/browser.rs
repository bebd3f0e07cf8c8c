//! A browser that knows nothing of us, headless Chromium, opens a page by HTTPS and from it a WebSocket, through SOCKS5
//! and through HTTP; and the status page of both ends.

use std::path::Path;
use std::time::Duration;

use system_tests::conservation::assert_conserved;
use system_tests::topology::Pair;
use system_tests::tunnel::{Client, Server};
use system_tests::{python, require_program, require_python, require_root};
use testbed::directory::Directory;
use testbed::place::Place;
use testbed::process::Process;

use crate::peer_command;
use crate::scene::{LISTEN, Scene, both};

/// For the start of a browser on a machine that is busy with builds.
const BROWSER_LIMIT: Duration = Duration::from_secs(120);

#[test]
fn a_browser_opens_a_page_and_a_websocket_through_socks_and_through_http() {
    require_root!();
    require_program!("chromium");
    let python = require_python!();
    let scene = Scene::of_proxies(&["--socks", "1080", "--http", "8080"]);
    let Scene {
        client,
        pair,
        directory,
        ..
    } = &scene;
    let files = directory.path().display().to_string();
    let site = ["8443", &files];
    let mut site = python::start(&python, &pair.server.place(), "web_site.py", site);
    site.wait_for_line("serving", BROWSER_LIMIT).unwrap();
    let mut connections = 0;
    for (number, proxy) in ["socks5://127.0.0.1:1080", "http://127.0.0.1:8080"]
        .into_iter()
        .enumerate()
    {
        let mut command = pair.client.command("chromium");
        command.args([
            "--headless=new",
            // Root has no sandbox of Chromium's, and containers have little shared memory.
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
            "--ignore-certificate-errors",
            // Loopback names go through the proxy as well: the server's machine has the site.
            "--proxy-bypass-list=<-loopback>",
        ]);
        command.arg(format!("--proxy-server={proxy}"));
        command.arg(format!(
            "--user-data-dir={}",
            directory.join(&format!("profile-{number}")).display()
        ));
        command.arg("https://localhost:8443/");
        let mut browser = Process::start(command, "chromium").unwrap();
        site.wait_for_starts("told hello", number + 1, BROWSER_LIMIT)
            .unwrap_or_else(|error| panic!("{proxy}: {error}\n{}", browser.last_words()));
        browser.kill();
        // The page, its WebSocket, and what it tells: two connections at least, by this proxy.
        let total = client.status()["tcp"]["total"].as_u64().unwrap();
        assert!(total >= connections + 2, "{proxy}: {total} after {connections}");
        connections = total;
    }
    assert_conserved(&client.status());
}

#[test]
fn a_browser_shows_the_status_page_of_both_ends_without_complaint_and_disables_a_user() {
    require_root!();
    require_program!("chromium");
    let python = require_python!();
    let (pair, directory) = (Pair::new(1500), Directory::create_for_test().unwrap());
    let (place, files) = (pair.server.place(), directory.path());
    let admin = ["--admin", "9465"];
    let server = Server::start(&place, "server", LISTEN, &admin, files);
    let link = server.user(&["add", "alice", "--quota", "1G/month"]);
    let forwards = both!("7000");
    let (client_place, link_of_owner) = (pair.client.place(), server.link());
    let _client = Client::start(&client_place, "client", &link_of_owner, &forwards, &admin, files);
    assert!(link.starts_with("gramway://"));
    relay(&pair, &directory, &link_of_owner);
    for (place, words, state) in [
        (&place, &["alice"][..], "Server, listening"),
        (&client_place, &[], "Client, connected"),
    ] {
        let told = look_at_page(&python, place, &directory, words, state);
        let shown = |name: &str| told.lines().find(|line| line.starts_with(name)).unwrap();
        // The bytes of all, and those of the owner, whose peers these are.
        let is_server = words == ["alice"];
        assert_eq!(shown("numbers:").contains("Relayed"), is_server, "{told}");
        assert_eq!(
            shown("users:").contains("B relayed to peers"),
            is_server,
            "{told}"
        );
    }
    let status = server.status();
    let users = status["users"].as_object().unwrap();
    let alice = users.values().find(|user| user["name"] == "alice").unwrap();
    assert!(alice["excluded"].is_string(), "{alice}");
}

/// Has the server relay between two peers of its owner: the client's machine exchanges UDP with nobody else.
fn relay(pair: &Pair, directory: &Directory, link: &str) {
    let apart = "table inet apart { chain out { type filter hook output priority 0; meta l4proto udp udp dport != 4433 drop; }; }";
    pair.client.nft(apart).unwrap();
    let link = directory.write("rendezvous", link).unwrap();
    let rendezvous = ["--no-lan", "--rendezvous-file", link.to_str().unwrap()];
    let listening = peer_command::id(&pair.server, directory, "listener");
    let listen = [&["listen", "--no-port-mapping", "--any"], &rendezvous[..]].concat();
    let mut listener = peer_command::start(&pair.server, directory, "listener", &listen);
    listener
        .wait_for_line("registered at the rendezvous", BROWSER_LIMIT)
        .unwrap();
    let ping = [
        &["ping", &listening, "-c", "1", "--timeout", "60"],
        &rendezvous[..],
    ]
    .concat();
    let (code, text, errors) = peer_command::run(&pair.client, directory, "caller", &ping);
    assert!(code == 0 && text.contains("relayed, over UDP"), "{text}{errors}");
}

/// What the page shows, with what the looker tells of it.
fn look_at_page(python: &Path, place: &Place, directory: &Directory, words: &[&str], state: &str) -> String {
    let files = directory.path().display().to_string();
    let arguments = [&["http://127.0.0.1:9465/", &files], words].concat();
    let mut page = python::start(python, place, "status_page.py", arguments);
    page.wait_for_line("done", BROWSER_LIMIT)
        .unwrap_or_else(|error| panic!("{error}\n{}", page.last_words()));
    let told = page.stdout();
    assert!(told.contains(&format!("shown: {state}")), "{told}");
    assert!(!told.contains("console:"), "{told}");
    let pictures: Vec<_> = told.lines().filter(|line| line.starts_with("picture:")).collect();
    assert_eq!(pictures.len(), 4, "{told}");
    for picture in pictures {
        let bytes: u64 = picture.split(' ').nth(3).unwrap().parse().unwrap();
        // An empty one has five thousand.
        assert!(bytes > 20_000 && picture.ends_with(", 0 too wide"), "{picture}");
    }
    assert_eq!(told.contains("disabled: "), !words.is_empty(), "{told}");
    told
}
