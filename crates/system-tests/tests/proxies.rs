//! Local programs that know proxies, with curl in the place of all of them: SOCKS5 and HTTP at one address.

use std::io::{Read, Write};
use std::net::TcpListener;

use system_tests::conservation::assert_conserved;
use system_tests::{require_program, require_root};
use testbed::namespace::Namespace;

use crate::scene::Scene;

/// Nothing listens there at the client's machine, so whoever is answered was led to the server's.
const WEB: &str = "127.0.0.1:8000";

const PROXY: &str = "127.0.0.1:1080";

/// A web server that answers with the head of the request, and closes only where it is asked to.
fn serve(machine: &Namespace) {
    let listener = machine.inside(|| TcpListener::bind(WEB)).unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut head = Vec::new();
                let mut byte = [0];
                while stream.read_exact(&mut byte).is_ok() {
                    head.push(byte[0]);
                    if head.ends_with(b"\r\n\r\n") {
                        let length = head.len();
                        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
                        let sent = stream
                            .write_all(answer.as_bytes())
                            .and_then(|()| stream.write_all(&head));
                        let text = String::from_utf8_lossy(&head).to_ascii_lowercase();
                        if sent.is_err() || text.contains("connection: close") {
                            return;
                        }
                        head.clear();
                    }
                }
            });
        }
    });
}

/// What curl prints, and whether it is content.
fn curl(machine: &Namespace, arguments: &[&str]) -> (bool, String) {
    let mut command = machine.command("curl");
    let output = command
        .args(["--silent", "--show-error", "--max-time", "30"])
        .args(arguments)
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

#[test]
fn curl_goes_through_socks_and_through_http_and_names_mean_the_servers_side() {
    require_root!();
    require_program!("curl");
    let scene = Scene::of_proxies(&["--socks", "1080", "--http", "1080"]);
    let Scene { client, pair, .. } = &scene;
    serve(&pair.server);
    let through = |arguments: &[&str]| curl(&pair.client, arguments);

    // By name and by address, over each protocol.
    let http = format!("http://{PROXY}");
    for arguments in [
        ["--socks5-hostname", PROXY, "http://localhost:8000/here"].as_slice(),
        &["--socks5", PROXY, "http://127.0.0.1:8000/here"],
        &["--proxytunnel", "--proxy", &http, "http://localhost:8000/here"],
        &["--proxy", &http, "http://localhost:8000/here"],
    ] {
        let (succeeded, text) = through(arguments);
        assert!(
            succeeded && text.starts_with("GET /here HTTP/1.1\r\n"),
            "{arguments:?}: {text}"
        );
        assert!(
            !text.contains("Proxy-Connection"),
            "what is for the proxy ends there: {text}"
        );
    }
    // Each request in clear has a connection of its own, so the second one is answered as well.
    let twice = ["http://localhost:8000/first", "http://127.0.0.1:8000/second"];
    let (succeeded, text) = through(&["--proxy", &http, twice[0], twice[1]]);
    assert!(
        succeeded && text.contains("/first") && text.contains("/second"),
        "{text}"
    );

    // Nobody listens at that port of the server's machine.
    let (succeeded, text) = through(&["--socks5-hostname", PROXY, "http://localhost:8001/"]);
    assert!(!succeeded && text.contains("(5)"), "refused, by RFC 1928: {text}");
    let (_, text) = through(&["--include", "--proxy", &http, "http://localhost:8001/"]);
    assert!(
        text.starts_with("HTTP/1.1 502") && text.contains("connection_refused"),
        "{text}"
    );
    // A page that knows the port finds a proxy there, and no web site.
    let (_, text) = through(&[&http]);
    assert!(text.contains("this is a proxy"), "{text}");
    assert_conserved(&client.status());
}
