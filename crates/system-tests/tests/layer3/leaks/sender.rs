//! A program without any privilege that sends all the time: both protocols, names, TCP, and past the routes.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use packet_io::SocketOptions;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, connect, send, socket_with};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::underlay::Flow;
use testbed::namespace::{Namespace, within};
use testbed::wait::wait_until;

use super::{WORLD_V4, WORLD_V6};

/// Between two turns.
const PAUSE: Duration = Duration::from_millis(10);

/// The router, which a machine would ask for names by DHCP.
const ON_LINK_V4: &str = "192.0.2.1";
const ON_LINK_V6: &str = "2001:db8:3::1";

/// Port of the packets that leave by the cable whatever the routes say.
const PORT_OF_BOUND: u16 = 10;

/// Port of what the sender sends last.
const PORT_OF_LAST: u16 = 20_000;

/// It pauses at first.
pub(super) struct Sender {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    namespace: String,
}

#[derive(Default)]
struct Shared {
    /// Held for each turn.
    turn: Mutex<()>,
    turns: AtomicU64,
    is_sending: AtomicBool,
    is_stopping: AtomicBool,
}

impl Shared {
    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sender {
    pub(super) fn start(machine: &Namespace) -> Self {
        let shared = Arc::<Shared>::default();
        let (name, own) = (machine.name().to_owned(), Arc::clone(&shared));
        let thread = thread::spawn(move || {
            within(&name, || {
                drop_privileges();
                run(&own);
            })
            .unwrap();
        });
        Self {
            shared,
            thread: Some(thread),
            namespace: machine.name().to_owned(),
        }
    }

    /// Everything that it sends in each turn.
    pub(super) fn flows(&self) -> Vec<Flow> {
        let mut flows: Vec<Flow> = plain().into_iter().map(Flow::udp).collect();
        flows.push(Flow::udp(bound()));
        flows.push(Flow::tcp(connected()));
        flows
    }

    pub(super) fn go_on(&self) {
        self.shared.is_sending.store(true, Ordering::Relaxed);
    }

    /// Ends with the present turn, and sends one more packet to a flow of its own, which it returns.
    pub(super) fn pause(&self) -> Flow {
        let _turn = self.shared.turn();
        self.shared.is_sending.store(false, Ordering::Relaxed);
        let last = address(WORLD_V4, PORT_OF_LAST);
        within(&self.namespace, || {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.send_to(b"last", last).unwrap();
        })
        .unwrap();
        Flow::udp(last)
    }

    pub(super) fn wait_for_turns(&self, count: u64) {
        let until = self.shared.turns.load(Ordering::Relaxed) + count;
        wait_until("turns of the sender", PROGRAM_LIMIT, || {
            self.shared.turns.load(Ordering::Relaxed) >= until
        });
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Where it panicked, it has said so.
            let _ = thread.join();
        }
    }
}

fn drop_privileges() {
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, none).unwrap();
}

fn address(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), port)
}

/// UDP by the routes: data and names, to far away and on the link.
fn plain() -> [SocketAddr; 6] {
    [
        address(WORLD_V4, 9),
        address(WORLD_V6, 9),
        address(WORLD_V4, 53),
        address(WORLD_V6, 53),
        address(ON_LINK_V4, 53),
        address(ON_LINK_V6, 53),
    ]
}

/// UDP by a socket that is bound to the cable.
fn bound() -> SocketAddr {
    address(WORLD_V4, PORT_OF_BOUND)
}

/// TCP.
fn connected() -> SocketAddr {
    address(WORLD_V4, 80)
}

fn run(shared: &Shared) {
    let v4 = UdpSocket::bind("0.0.0.0:0").unwrap();
    let v6 = UdpSocket::bind("[::]:0").unwrap();
    let options = SocketOptions {
        interface: Some("eth0".parse().unwrap()),
        ..SocketOptions::default()
    };
    let past_routes = packet_io::UdpSocket::connect(None, bound(), &options).unwrap();
    while !shared.is_stopping.load(Ordering::Relaxed) {
        thread::sleep(PAUSE);
        let _turn = shared.turn();
        if !shared.is_sending.load(Ordering::Relaxed) {
            continue;
        }
        // What is refused does not leave.
        for to in plain() {
            let socket = if to.is_ipv4() { &v4 } else { &v6 };
            let _ = socket.send_to(b"in clear", to);
        }
        let _ = send(&past_routes, b"in clear", SendFlags::empty());
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let stream = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
        let _ = connect(&stream, &connected());
        shared.turns.fetch_add(1, Ordering::Relaxed);
    }
}
