//! Somebody between both ends who changes what passes.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::*;

/// Where it listens in the receiver's machine, to which all TCP connections from outside are led.
const PROXY: u16 = 7_000;

/// How many bytes of each connection pass unchanged, of those that the sender writes.
const WHOLE: usize = 1 << 20;

/// Passes TCP connections on to the receiver, and changes a byte of each.
struct Proxy {
    changed: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
}

impl Proxy {
    fn start(machine: &Namespace) -> Self {
        let rules = format!(
            "table ip proxy {{
                chain in {{ type nat hook prerouting priority -100; iifname eth0 meta l4proto tcp redirect to :{PROXY}; }}
            }}"
        );
        machine.nft(&rules).unwrap();
        let listener = machine.inside(|| TcpListener::bind(("0.0.0.0", PROXY)).unwrap());
        listener.set_nonblocking(true).unwrap();
        let proxy = Self {
            changed: Arc::default(),
            is_over: Arc::default(),
        };
        let (changed, is_over) = (Arc::clone(&proxy.changed), Arc::clone(&proxy.is_over));
        let machine = machine.name().to_owned();
        thread::spawn(move || {
            while !is_over.load(Ordering::SeqCst) {
                let Ok((outer, _)) = listener.accept() else {
                    thread::sleep(Duration::from_millis(5));
                    continue;
                };
                outer.set_nonblocking(false).unwrap();
                if let Some(inner) = connect(&machine) {
                    pass_both(&outer, &inner, &changed);
                }
            }
        });
        proxy
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
    }
}

/// To the one port of the machine that somebody else listens at.
fn connect(machine: &str) -> Option<TcpStream> {
    let connected = testbed::namespace::within(machine, || {
        let listed = Command::new("ss").args(["-Htln"]).output();
        let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
        let ports = listed.lines().filter_map(|line| {
            let local = line.split_whitespace().nth(3)?;
            local.rsplit_once(':')?.1.parse().ok()
        });
        let port = ports.into_iter().find(|port: &u16| *port != PROXY)?;
        TcpStream::connect(("127.0.0.1", port)).ok()
    });
    connected.unwrap()
}

fn pass_both(outer: &TcpStream, inner: &TcpStream, changed: &Arc<AtomicUsize>) {
    let clones = || Some((outer.try_clone().ok()?, inner.try_clone().ok()?));
    let (Some((from, to)), Some((to_back, from_back))) = (clones(), clones()) else {
        return;
    };
    let changed = Arc::clone(changed);
    thread::spawn(move || {
        pass(from, to, |passed, bytes| {
            if (passed..passed + bytes.len()).contains(&WHOLE) {
                bytes[WHOLE - passed] ^= 1;
                changed.fetch_add(1, Ordering::SeqCst);
            }
        })
    });
    thread::spawn(move || pass(from_back, to_back, |_, _| {}));
}

/// Until one of both ends.
fn pass(mut from: TcpStream, mut to: TcpStream, change: impl Fn(usize, &mut [u8])) {
    let (mut bytes, mut passed) = (vec![0; 65_536], 0);
    while let Ok(length) = from.read(&mut bytes) {
        change(passed, &mut bytes[..length]);
        if length == 0 || to.write_all(&bytes[..length]).is_err() {
            break;
        }
        passed += length;
    }
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}

/// FILE-19: TLS ends a connection of which a byte was changed, and QUIC brings what it had.
#[test]
fn a_byte_that_somebody_changes_on_the_way_costs_its_connection_and_nothing_else() {
    require_root!();
    let ends = Ends::with_noise(40_000_000);
    let proxy = Proxy::start(&ends.pair.client);
    let mut sender = ends.send(&["--carrier", "tcp", "--limit", "8M", "--compress", "no"]);
    let mut receiver = ends.receive(&["--json"]);
    assert!(
        receiver.wait(4 * PROGRAM_LIMIT).unwrap().success(),
        "{}",
        receiver.stderr()
    );
    assert_done(&mut sender);
    assert!(proxy.changed.load(Ordering::SeqCst) > 0, "TCP carried something");
    ends.assert_all_there();
    let told = shown_events(&receiver);
    let carriers: Vec<String> = events(&receiver)
        .iter()
        .filter(|event| event["event"] == "carrier")
        .filter_map(|event| Some(event["carrier"].as_str()?.to_owned()))
        .collect();
    assert_eq!(carriers, ["TCP", "QUIC"], "{told}");
    let end = event(&receiver, "end");
    assert_eq!(
        (&end["failed"], &end["bytes_sent"]),
        (&0.into(), &40_000_000.into()),
        "{end}"
    );
    assert!(
        !receiver.stdout().contains("\"damaged\""),
        "TLS finds it before: {told}"
    );
}
