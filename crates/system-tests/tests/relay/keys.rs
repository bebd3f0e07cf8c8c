//! Relays with a common key, and others who have none.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use system_tests::limits::PROGRAM_LIMIT;
use system_tests::program::gramway_binary;
use system_tests::service::Service;
use system_tests::source::{Source, pattern};
use system_tests::topology::Routed;
use system_tests::{require_program, require_python, require_root};
use testbed::directory::Directory;
use testbed::namespace::Namespace;
use testbed::process::Process;
use testbed::wait::wait_until;

use super::{ENTRANCE, LISTEN, TARGET, end, start, start_pair, watch, watched};

/// Questions beside somebody who forges.
const QUESTIONS: u64 = 30;

/// Has the program make a key.
fn new_key(namespace: &Namespace, directory: &Directory, name: &str) -> PathBuf {
    let path = directory.path().join(name);
    let mut command = namespace.command(gramway_binary());
    command.args(["relay", "--new-key"]).arg(&path);
    let mut making = Process::start(command, "relay").unwrap();
    assert!(
        making.wait(PROGRAM_LIMIT).unwrap().success(),
        "{}",
        making.stderr()
    );
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    path
}

fn with_key(path: &Path) -> [&str; 2] {
    ["--key-file", path.to_str().unwrap()]
}

/// FTCP-25, FTCP-26.
#[test]
fn relays_with_a_key_carry_all_sizes_past_a_firewall() {
    require_root!();
    require_program!("nft");
    let net = Routed::new(1500);
    watch(&net);
    let directory = Directory::create_for_test().unwrap();
    let key = new_key(&net.client, &directory, "key");
    let _echo = Service::udp_echo(&net.server, TARGET);
    let (near, far) = start_pair(&net, &with_key(&key));
    let mut sources: Vec<_> = (0..10).map(|_| Source::new(&net.client, ENTRANCE)).collect();
    for (number, source) in sources.iter_mut().enumerate() {
        for size in [1, 2, 100, 1_150, 1_444] {
            source.ask(&pattern(number as u64, size), PROGRAM_LIMIT);
        }
    }
    sources[0].send(&pattern(0, 1_445));
    sources[0].ask(b"and on", PROGRAM_LIMIT);
    let (near, far) = (end(near), end(far));
    assert_eq!(near["dropped"]["too_large"], 1, "{near}");
    for counters in [near, far] {
        assert_eq!(counters["unproved_packets"], 0, "{counters}");
        assert_eq!(counters["reconnects"], 0, "{counters}");
    }
    assert_eq!(watched(&net, "invalid"), 0);
    assert_eq!(watched(&net, "resets"), 0);
}

/// Asks beside somebody on the router who forges; how often relays connected again, and what they took for forged.
fn asked_beside_a_forger(python: &Path, has_key: bool) -> (u64, u64) {
    let net = Routed::new(1500);
    let directory = Directory::create_for_test().unwrap();
    let key = new_key(&net.client, &directory, "key");
    let options = with_key(&key);
    let _echo = Service::udp_echo(&net.server, TARGET);
    let (near, far) = start_pair(&net, if has_key { &options } else { &[] });
    let mut command = net.router.command(python);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/forger.py"));
    command.arg("inside");
    let mut forger = Process::start(command, "forger.py").unwrap();
    forger.wait_for_line("ready", PROGRAM_LIMIT).unwrap();
    let mut source = Source::new(&net.client, ENTRANCE);
    for number in 0..QUESTIONS {
        source.ask(&pattern(number, 1_000), PROGRAM_LIMIT);
        // What is forged too late, as on a busy machine, has numbers of the past.
        forger
            .wait_for_line(&format!("forged {}", number + 1), PROGRAM_LIMIT)
            .unwrap();
    }
    drop(forger);
    if has_key {
        let mut buffer = [0; 2_048];
        while let Ok(length) = source.socket().recv(&mut buffer) {
            assert_ne!(&buffer[..length], b"forged");
        }
        wait_until("the news of forged packets", PROGRAM_LIMIT, || {
            far.stderr().contains("they are forged")
        });
    }
    let (near, far) = (end(near), end(far));
    let of_both = |name: &str| near[name].as_u64().unwrap() + far[name].as_u64().unwrap();
    (of_both("reconnects"), of_both("unproved_packets"))
}

/// FTCP-27.
#[test]
fn who_sees_all_numbers_ends_no_connection_of_relays_with_a_key() {
    require_root!();
    let python = require_python!();
    let (reconnects, unproved) = asked_beside_a_forger(&python, true);
    assert_eq!(reconnects, 0);
    assert!(unproved >= QUESTIONS, "{unproved}");
    // The same without a key, to show that what is forged is right.
    let (reconnects, unproved) = asked_beside_a_forger(&python, false);
    assert_ne!(reconnects, 0);
    assert_eq!(unproved, 0);
}

/// FTCP-24.
#[test]
fn a_relay_with_another_key_or_none_is_not_let_in_and_it_is_told() {
    require_root!();
    let net = Routed::new(1500);
    let directory = Directory::create_for_test().unwrap();
    let keys = ["one", "other"].map(|name| new_key(&net.client, &directory, name));
    let target = net.server.inside(|| std::net::UdpSocket::bind(TARGET).unwrap());
    target.set_nonblocking(true).unwrap();
    let tcp = format!("tcp:{LISTEN}");
    let mut far = start(&net.server, &tcp, &format!("udp:{TARGET}"), &with_key(&keys[0]));
    for more in [&with_key(&keys[1])[..], &[]] {
        let near = start(&net.client, &format!("udp:{ENTRANCE}"), &tcp, more);
        let mut source = Source::new(&net.client, ENTRANCE);
        (0..5).for_each(|number| {
            source.send(&pattern(number, 100));
            assert!(!source.has_answer(b""));
        });
        end(near);
    }
    far.wait_for_line("the other relay has another key or none", PROGRAM_LIMIT)
        .unwrap();
    let refused = target.recv(&mut [0; 200]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WouldBlock);
    let counters = end(far);
    assert_eq!(counters["flows"]["all"], 0, "{counters}");
    assert_ne!(counters["unproved_packets"], 0, "{counters}");
}
