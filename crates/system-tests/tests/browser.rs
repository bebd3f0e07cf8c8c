//! A browser that knows nothing of us, headless Chromium, opens a page by HTTPS and from it a WebSocket, through SOCKS5
//! and through HTTP.

use std::time::Duration;

use system_tests::conservation::assert_conserved;
use system_tests::{python, require_program, require_python, require_root};
use testbed::process::Process;

use crate::scene::Scene;

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
