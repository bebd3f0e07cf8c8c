//! The usual scene: a server and a client on two machines with one cable. Targets are on the server's machine, on its
//! loopback addresses, which the server opens; forwards listen on the client's.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use system_tests::conservation::assert_conserved;
use system_tests::program::memory_is_judged;
use system_tests::topology::Pair;
use system_tests::tunnel::{Client, Server};
use testbed::directory::Directory;

/// Where the server listens.
pub(crate) const LISTEN: &str = "10.77.0.1:4433";

/// What lets clients reach the loopback addresses of the server's machine.
pub(crate) const OPEN_LOOPBACK: [&str; 4] = ["--allow-target", "127.0.0.0/8", "--allow-target", "::1/128"];

/// Resident memory that neither end may exceed, in bytes.
pub(crate) const MEMORY_MAX: u64 = 64 << 20;

/// What a forward of both protocols from this port to itself reads.
macro_rules! both {
    ($port:literal) => {
        [
            concat!("udp:", $port, "=127.0.0.1:", $port),
            concat!("tcp:", $port, "=127.0.0.1:", $port),
        ]
    };
}
pub(crate) use both;

/// A connected pair of server and client. Processes end before their machines, and files go last.
pub(crate) struct Scene {
    pub(crate) client: Client,
    pub(crate) server: Server,
    pub(crate) pair: Pair,
    pub(crate) directory: Directory,
}

impl Scene {
    /// A cable of Ethernet's MTU, over IPv4.
    pub(crate) fn new(forwards: &[&str]) -> Self {
        Self::with(1500, LISTEN, forwards)
    }

    /// A cable of this MTU in bytes; the server's listening address says which protocol is used.
    pub(crate) fn with(mtu_bytes: u16, listen: &str, forwards: &[&str]) -> Self {
        Self::start(mtu_bytes, listen, forwards, &[])
    }

    /// The usual cable, and a client without forwards whose `options` name its proxies.
    pub(crate) fn of_proxies(options: &[&str]) -> Self {
        Self::start(1500, LISTEN, &[], options)
    }

    fn start(mtu_bytes: u16, listen: &str, forwards: &[&str], options: &[&str]) -> Self {
        let (pair, directory) = (Pair::new(mtu_bytes), Directory::create_for_test().unwrap());
        let (place, files) = (pair.server.place(), directory.path());
        let server = Server::start(&place, "server", listen, &OPEN_LOOPBACK, files);
        let place = pair.client.place();
        let client = Client::start(&place, "client", &server.link(), forwards, options, files);
        Self {
            client,
            server,
            pair,
            directory,
        }
    }

    /// Holds both ends to the law of conservation and to their memory.
    pub(crate) fn check(&mut self) {
        assert_conserved(&self.client.status());
        assert_conserved(&self.server.status());
        for process in [self.client.process(), self.server.process()] {
            let usage = process.usage();
            assert!(usage.peak_bytes > 0, "both ends run");
            // The code of a program that is hardly optimized is twice as large as that of the shipped one.
            let peak = usage.peak_bytes.saturating_sub(usage.file_bytes);
            assert!(
                peak <= MEMORY_MAX || !memory_is_judged(),
                "{peak} bytes of memory are more than {MEMORY_MAX}"
            );
        }
    }
}

static LOAD: RwLock<()> = RwLock::new(());

/// Held by tests that load the machine, or judge how long something took: one at a time, or they would measure each
/// other.
pub(crate) fn load() -> RwLockWriteGuard<'static, ()> {
    LOAD.write().unwrap_or_else(PoisonError::into_inner)
}

/// Held by tests that a machine under load would disturb, and that hardly load it: several at a time, beside no
/// [`load`].
pub(crate) fn no_load() -> RwLockReadGuard<'static, ()> {
    LOAD.read().unwrap_or_else(PoisonError::into_inner)
}
