//! A server that asks an HTTP server whom to let in.
#![expect(clippy::unwrap_used, reason = "a helper that fails is a failed test")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use crate::support::{PERMISSION, Place, Program, USAGE, free_port};

/// A panel, which knows one token.
struct Panel {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Value>>>,
    is_broken: Arc<AtomicBool>,
    asked: Arc<AtomicUsize>,
}

impl Panel {
    fn start(token: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let panel = Self {
            address: listener.local_addr().unwrap(),
            seen: Arc::default(),
            is_broken: Arc::default(),
            asked: Arc::default(),
        };
        let (seen, is_broken, asked) = (
            Arc::clone(&panel.seen),
            Arc::clone(&panel.is_broken),
            Arc::clone(&panel.asked),
        );
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                asked.fetch_add(1, Ordering::Relaxed);
                let mut reader = BufReader::new(stream);
                let (mut line, mut bytes) = (String::new(), 0);
                while reader.read_line(&mut line).unwrap_or(0) > 2 {
                    if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                        bytes = value.trim().parse().unwrap();
                    }
                    line.clear();
                }
                let mut body = vec![0; bytes];
                reader.read_exact(&mut body).unwrap();
                let body: Value = serde_json::from_slice(&body).unwrap();
                let answer = json!({ "ok": body["auth"] == token, "id": "alice" }).to_string();
                seen.lock().unwrap().push(body);
                let status = match is_broken.load(Ordering::Relaxed) {
                    true => "500 Internal Server Error",
                    false => "200 OK",
                };
                let head = format!(
                    "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    answer.len()
                );
                // A client that is gone needs no answer.
                let _ = reader.get_mut().write_all((head + &answer).as_bytes());
            }
        });
        panel
    }
}

const KNOWN: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
const UNKNOWN: &str = "BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBA";

fn server(place: &Place, panel: &Panel) -> Program {
    let hook = format!("http://{}/auth", panel.address);
    let words = [
        "up",
        "--state",
        "state",
        "--listen",
        "127.0.0.1:0",
        "--auth-hook",
        &hook,
    ];
    let server = Program::watch(place.command(&words).spawn().unwrap());
    server.wait_for("gramway link --state state");
    server
}

/// A client whose link has this token.
fn client(place: &Place, token: &str) -> Program {
    let link = place.link();
    let (_, rest) = link.split_once('@').unwrap();
    place.write_secret("link", &format!("gramway://{token}@{rest}"));
    place.client(&format!("udp:{}=192.0.2.1:9", free_port()))
}

#[test]
fn whom_the_panel_knows_comes_in_by_its_name_and_nobody_else_does() {
    let place = Place::new();
    let panel = Panel::start(KNOWN);
    let _server = server(&place, &panel);
    let known = client(&place, KNOWN);
    known.wait_for("connected to ");
    let status = place.run(&["status", "--json", "--state", "state"]).stdout;
    let status = String::from_utf8(status).unwrap();
    assert!(
        status.contains("\"name\":\"alice\"") && !status.contains(KNOWN),
        "{status}"
    );
    drop(known);
    let seen = panel.seen.lock().unwrap()[0].clone();
    assert_eq!((&seen["auth"], &seen["tx"]), (&json!(KNOWN), &json!(0)));
    let address: SocketAddr = seen["addr"].as_str().unwrap().parse().unwrap();
    assert!(address.ip().is_loopback());
    let refused = client(&place, UNKNOWN);
    refused.wait_for("refused the token");
    assert_eq!(refused.end(), Some(PERMISSION));
    // What was answered holds for a while, without the panel.
    panel.is_broken.store(true, Ordering::Relaxed);
    let asked = panel.asked.load(Ordering::Relaxed);
    client(&place, KNOWN).wait_for("connected to ");
    assert_eq!(panel.asked.load(Ordering::Relaxed), asked);
    // The owner never depends on it.
    place.write_secret("link", &place.link());
    let owner = place.client(&format!("udp:{}=192.0.2.1:9", free_port()));
    owner.wait_for("connected to ");
}

#[test]
fn where_the_panel_does_not_answer_clients_try_on_until_it_does() {
    let place = Place::new();
    let panel = Panel::start(KNOWN);
    panel.is_broken.store(true, Ordering::Relaxed);
    let server = server(&place, &panel);
    let client = client(&place, KNOWN);
    server.wait_for("the authentication hook does not answer: it answers with HTTP status 500");
    panel.is_broken.store(false, Ordering::Relaxed);
    client.wait_for("connected to ");
    server.wait_for("the authentication hook answers again");
}

#[test]
fn a_hook_that_cannot_be_is_one_sentence() {
    let place = Place::new();
    let up = |words: &[&'static str]| [&["up", "--state", "state"], words].concat();
    place.refused(&up(&["--auth-hook", "panel"]), USAGE, "is no URL");
    let both = ["--auth-hook", "http://127.0.0.1:1/", "--cover", "www.example.org"];
    place.refused(&up(&both), USAGE, "leave out --auth-hook or --cover");
}
