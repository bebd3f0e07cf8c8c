//! How sockets begin, and connections to one peer.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use fake_tcp::{Config, ConnectionId, Stack};
use packet_io::{PortGuard, RawSocket};

use crate::client::Client;
use crate::hop::Hop;
use crate::limits::PORT_TRIES_MAX;
use crate::locals::Locals;
use crate::packets::Mtus;
use crate::peers::{Peer, Peers};
use crate::socket::{FakeTcpSocket, Options, Role};

impl FakeTcpSocket {
    /// A socket for each of `workers`, which accept connections at TCP port `listen`. The IPv6 wildcard takes IPv4 as
    /// well. A connection stays at its worker.
    ///
    /// # Errors
    /// The port is in use, the capability CAP_NET_RAW is missing, or the kernel's refusal of one step.
    pub fn listen(listen: SocketAddr, workers: usize, options: &Options) -> io::Result<Vec<Self>> {
        let guard = Arc::new(PortGuard::take(listen)?);
        let local = guard.local_addr();
        let group = RawSocket::listen(local, workers, &options.socket)?;
        let new = |raw| {
            let config = Config {
                listen: Some(local.port()),
                ..config(options)
            };
            let locals = local.ip().is_unspecified().then(Locals::open);
            let role = Role::Listener {
                guard: Arc::clone(&guard),
                locals: locals.transpose()?,
            };
            Ok(Self::new(raw, config, role))
        };
        group.into_iter().map(new).collect()
    }

    /// A socket with one connection to `remote`, from `local` or wherever the kernel would send from. It is opened as
    /// soon as the first hop is known, and opened again when it ends.
    ///
    /// # Errors
    /// No route leads there, the capability CAP_NET_RAW is missing, or the kernel's refusal of one step.
    pub fn connect(local: Option<SocketAddr>, remote: SocketAddr, options: &Options) -> io::Result<Self> {
        let now = Instant::now();
        let remote = SocketAddr::new(remote.ip().to_canonical(), remote.port());
        let hop = Hop::find(now, local.map(|local| local.ip()), remote, &options.socket)?;
        let hop = hop.at_its_address();
        let guard = PortGuard::take(SocketAddr::new(hop.source, local.map_or(0, |local| local.port())))?;
        let local = guard.local_addr();
        let raw = RawSocket::connect(local, remote, hop.index, &options.socket)?;
        let config = Config {
            mtu: hop.mtu,
            ..config(options)
        };
        let client = Box::new(Client::new(now, local, remote, hop));
        let mut socket = Self::new(
            raw,
            config,
            Role::Client {
                client,
                _guard: guard,
            },
        );
        socket.open_client(now);
        Ok(socket)
    }

    /// A socket for each of `workers`, each of which opens as many connections to `remote` as it likes
    /// ([`FakeTcpSocket::open`]).
    ///
    /// # Errors
    /// As of [`FakeTcpSocket::connect`].
    pub fn towards(remote: SocketAddr, workers: usize, options: &Options) -> io::Result<Vec<Self>> {
        let now = Instant::now();
        let remote = SocketAddr::new(remote.ip().to_canonical(), remote.port());
        let mut sockets = Vec::with_capacity(workers);
        let group = RawSocket::towards(remote, workers, &options.socket)?;
        for (worker, raw) in group.into_iter().enumerate() {
            let hop = Box::new(Hop::find(now, None, remote, &options.socket)?);
            let config = Config {
                mtu: hop.mtu,
                ..config(options)
            };
            let role = Role::Towards {
                remote,
                hop,
                place: (worker, workers),
                guards: HashMap::new(),
            };
            sockets.push(Self::new(raw, config, role));
        }
        Ok(sockets)
    }

    fn new(raw: RawSocket, config: Config, role: Role) -> Self {
        Self {
            raw,
            stack: Stack::new(config, rand::random()),
            peers: Peers::default(),
            ended: Vec::new(),
            role,
            connections: Vec::new(),
            events: VecDeque::new(),
            answers: Vec::new(),
            fresh: Vec::new(),
            taken_out: Vec::new(),
            mtus: Mtus::default(),
        }
    }

    /// Opens one more connection of a socket [`FakeTcpSocket::towards`] a peer, from a port of its own.
    /// [`crate::Event::Connected`] or [`crate::Event::Closed`] follows.
    ///
    /// # Errors
    /// `WouldBlock` while the first hop is looked for; no port is free; there are too many connections.
    pub fn open(&mut self, now: Instant) -> io::Result<ConnectionId> {
        self.follow_route(now);
        let Role::Towards {
            remote,
            hop,
            place: (worker, workers),
            guards,
        } = &mut self.role
        else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let link = hop.link.ok_or(io::ErrorKind::WouldBlock)?;
        // A port whose flow comes to this worker.
        let mut taken = Vec::new();
        let guard = loop {
            let guard = PortGuard::take(SocketAddr::new(hop.source, 0))?;
            if RawSocket::place(guard.local_addr(), *remote, *workers) == *worker {
                break guard;
            }
            if taken.len() == PORT_TRIES_MAX {
                return Err(io::ErrorKind::AddrNotAvailable.into());
            }
            // Held until another one is found, which is not the same.
            taken.push(guard);
        };
        let (local, remote) = (guard.local_addr(), *remote);
        let connection = self
            .stack
            .connect(now, local, remote)
            .map_err(|error| io::Error::other(error.to_string()))?;
        guards.insert(connection, guard);
        self.peers.insert(connection, Peer { local, remote, link });
        self.flush(now);
        Ok(connection)
    }

    /// Ends a connection in order; no event follows.
    pub fn close(&mut self, now: Instant, connection: ConnectionId) {
        self.stack.close(now, connection);
        self.flush(now);
        self.forget(connection);
    }

    /// Tells all peers that their connections end, before the socket is dropped; nobody waits for what they say to it.
    pub fn close_all(&mut self, now: Instant) {
        for connection in self.peers.connections() {
            self.stack.close(now, connection);
        }
        self.flush(now);
    }
}

fn config(options: &Options) -> Config {
    Config {
        idle: options.idle,
        key: options.key,
        ..Config::new(options.profile)
    }
}
