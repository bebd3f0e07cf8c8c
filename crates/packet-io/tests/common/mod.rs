//! What the tests share: options, receiving with a deadline, namespaces, threads without privileges.

#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of this")]

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::process::Command;
use std::time::{Duration, Instant};

use packet::Ecn;
use packet_io::{DatagramSocket, Interest, Offloads, Poller, ReceiveBatch, SocketOptions, UdpSocket};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

/// Longest that a test waits for anything.
pub const DEADLINE: Duration = Duration::from_secs(10);

const INSIDE: &str = "PACKET_IO_TEST_INSIDE_NAMESPACE";
const SETUP_FAILED: i32 = 77;

/// Runs the test `name` again in a network and a mount namespace of its own, after the shell commands `setup`; true in
/// the run inside, which does the work. Where that is not possible it says so.
pub fn in_namespace(name: &str, setup: &str) -> bool {
    run_in_namespace(name, setup, &["--map-root-user", "--net", "--mount"])
}

/// The same with the privileges of who runs the test, which a user's own namespace does not have.
pub fn in_namespace_of_root(name: &str, setup: &str) -> bool {
    run_in_namespace(name, setup, &["--net", "--mount"])
}

fn run_in_namespace(name: &str, setup: &str, namespaces: &[&str]) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let script = format!(
        "{{ ip link set lo up && {setup}; }} || exit {SETUP_FAILED}; exec \"$0\" --exact {name} --nocapture"
    );
    let status = Command::new("unshare")
        .args(namespaces)
        .args(["sh", "-c", &script])
        .arg(std::env::current_exe().unwrap())
        .env(INSIDE, "1")
        .status();
    match status.map(|status| status.code()) {
        Ok(Some(0)) => {}
        // 1 is `unshare` itself; a test that fails ends with 101.
        Ok(Some(1 | SETUP_FAILED)) | Err(_) => {
            let namespaces = namespaces.join(" ");
            eprintln!("{name}: not run, `unshare {namespaces}` with `{setup}` fails here");
        }
        other => panic!("{name} failed in its namespace: {other:?}"),
    }
    false
}

/// One datagram with what was told about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    pub payload: Vec<u8>,
    pub source: SocketAddr,
    pub local: Option<IpAddr>,
    pub ecn: Ecn,
}

pub fn options() -> SocketOptions {
    SocketOptions {
        receive_ecn: true,
        ..SocketOptions::default()
    }
}

pub fn without_offloads() -> SocketOptions {
    SocketOptions {
        offloads: Offloads {
            gso: false,
            gro: false,
        },
        ..options()
    }
}

pub fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// A receiver at `at` and a sender that is connected to it.
pub fn pair(at: &str, receiver: &SocketOptions, sender: &SocketOptions) -> (UdpSocket, UdpSocket) {
    let receiver = UdpSocket::bind(address(at), receiver).unwrap();
    let sender = UdpSocket::connect(None, receiver.local_addr().unwrap(), sender).unwrap();
    (receiver, sender)
}

/// Receives once, when there is something.
pub fn receive_once(socket: &mut (impl DatagramSocket + AsFd), batch: &mut ReceiveBatch) {
    let deadline = Instant::now() + DEADLINE;
    let mut poller = Poller::new().unwrap();
    poller.add(socket, 0, Interest::READABLE).unwrap();
    let mut ready = Vec::new();
    while socket.receive(batch).unwrap() == 0 {
        assert!(Instant::now() < deadline, "nothing came");
        poller.wait(&mut ready, Some(Duration::from_millis(10))).unwrap();
    }
}

/// Receives until `count` datagrams are there.
pub fn receive(socket: &mut (impl DatagramSocket + AsFd), count: usize) -> Vec<Datagram> {
    let mut batch = ReceiveBatch::new(8, 65_536);
    let mut datagrams = Vec::new();
    while datagrams.len() < count {
        receive_once(socket, &mut batch);
        for received in batch.iter() {
            let meta = received.meta;
            assert!(!meta.truncated);
            datagrams.extend(received.segments().map(|payload| Datagram {
                payload: payload.to_vec(),
                source: meta.source,
                local: meta.local,
                ecn: meta.ecn,
            }));
        }
    }
    assert_eq!(datagrams.len(), count);
    datagrams
}

/// Bytes that differ from one another and by `salt`.
pub fn pattern(len: usize, salt: u8) -> Vec<u8> {
    (0..len).map(|index| (index % 251) as u8 ^ salt).collect()
}

/// Runs `work` on a thread without any capability.
pub fn without_privileges<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    with_capabilities(CapabilitySet::empty(), work)
}

/// Runs `work` on a thread with these capabilities alone.
pub fn with_capabilities<T: Send>(kept: CapabilitySet, work: impl FnOnce() -> T + Send) -> T {
    let drop_and_work = || {
        let sets = CapabilitySets {
            effective: kept,
            permitted: kept,
            inheritable: CapabilitySet::empty(),
        };
        set_capabilities(None, sets).unwrap();
        work()
    };
    std::thread::scope(|scope| scope.spawn(drop_and_work).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
