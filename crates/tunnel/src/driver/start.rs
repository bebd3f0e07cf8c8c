//! From a configuration to running shards: everything that can fail is tried before the threads begin.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use host::Monitor;
use packet_io::{DatagramSocket, Interest, Poller, SocketOptions, UdpSocket, Waker};
use quic::{EndpointParameters, ServerParameters};
use tunnel_proto::{Engine, Reconnection, Room, ServerShard, TargetRules};

use super::aead;
use super::client::connection::Client;
use super::client::listeners::Listeners;
use super::client::stripes::SharedStripes;
use super::client::tun::ClientHost;
use super::neighbours::Neighbours;
use super::outer::{self, Outer};
use super::resolver::Resolver;
use super::server::targets::Server;
use super::server::tun::{ServerHost, serve};
use super::{Delivery, Role, Shard, Token, inner_batch};
use crate::config::{ClientConfig, CommonConfig, ServerConfig};
use crate::handle::{Controller, Failure, Handle, Line, Notice};
use crate::limits;
use crate::snapshot::{IoCounters, TcpCounters};

/// Starts a server.
///
/// # Errors
/// The [`Failure`] that keeps it from running: address, permission, certificate.
pub fn start_server(config: ServerConfig) -> Result<Handle, Failure> {
    let now = Instant::now();
    let count = config.common.shards();
    let mut parts = Vec::with_capacity(count);
    for index in 0..count {
        let shard = quic_shard(index, count);
        let parameters = endpoint_parameters(&config.common, config.reset_key, shard)?;
        let server = ServerParameters {
            certificate_chain: config.certificate_chain.clone(),
            private_key: config.private_key.clone(),
            token_key: config.token_key,
        };
        let endpoint = quic::Endpoint::new(&parameters, Some(server))
            .map_err(|error| Failure::Configuration(error.to_string()))?;
        let engine = Engine::server(endpoint, config.tokens.clone(), config.common.engine.clone());
        let role = Role::Server(Server::new(TargetRules::new(config.allowed_targets.clone()), now));
        parts.push((engine, role));
    }
    let sockets = bind_outer(config.listen, &outer::options(&config.common), count)?;
    if count > 1 {
        let key = quic::SteerKey::derive(&config.reset_key);
        packet_io::steering::attach(&sockets[0], key.round_keys(), quic::STEER_TAG, count as u8)
            .map_err(|error| unavailable(&error))?;
    }
    let local = sockets[0].local_addr().map_err(|error| unavailable(&error))?;
    let warning = sockets[0].buffer_warning();
    let tun = match &config.tun {
        Some(tun) => Some(ServerHost::start(tun, count, now)?),
        None => None,
    };
    let mut group = assemble(parts, &config.common, now)?;
    for (shard, socket) in group.shards.iter_mut().zip(sockets) {
        shard
            .outer
            .replace(socket, &shard.poller)
            .map_err(|error| unavailable(&error))?;
    }
    group.notify(Notice::Listening { local });
    if let (Some((host, ends, notices)), Some(settings)) = (tun, &config.tun) {
        notices.into_iter().for_each(|notice| group.notify(notice));
        let seed = seed()?;
        for (shard, end) in group.shards.iter_mut().zip(ends) {
            shard.delivery.tun = Some(end);
            shard.watch_tun(true);
            let rules = TargetRules::new(config.allowed_targets.clone());
            serve(&mut shard.engine, settings, rules, seed);
            if let Role::Server(server) = &mut shard.role {
                server.ip = Some(host.clone());
            }
        }
    }
    if let Some(text) = warning {
        group.notify(Notice::Warning { text });
    }
    group.spawn()
}

/// Starts a client: its listeners are there when this returns, the connections are made by the threads.
///
/// # Errors
/// The [`Failure`] that keeps it from running: an occupied or forbidden local port, an unusable target.
pub fn start_client(config: ClientConfig) -> Result<Handle, Failure> {
    let now = Instant::now();
    if config.servers.is_empty() {
        return Err(Failure::Configuration("no server is named".to_owned()));
    }
    let count = config.common.shards();
    let stripes = SharedStripes::new(count);
    let listeners = Listeners::open(&config.forwards, &config.common, count)?;
    let tun = match &config.tun {
        Some(tun) => Some(ClientHost::start(tun, count)?),
        None => None,
    };
    let mut parts = Vec::with_capacity(count);
    let mut udp_listeners = Vec::with_capacity(count);
    for (index, listeners) in listeners.into_iter().enumerate() {
        let mut reset_key = [0; 64];
        random(&mut reset_key)?;
        // Every stripe has a socket of its own: nothing is to be told apart at this end.
        let parameters = endpoint_parameters(&config.common, reset_key, quic::Shard::SOLE)?;
        let endpoint = quic::Endpoint::new(&parameters, None)
            .map_err(|error| Failure::Configuration(error.to_string()))?;
        let engine = Engine::client(endpoint, &config.token, config.common.engine.clone());
        let reconnection = Reconnection::new(config.servers.clone(), seed()?, now);
        let mut client = Client::new(reconnection, config.pin, config.bind, index, stripes.clone(), now);
        client.tcp_listeners = listeners.tcp;
        udp_listeners.push(listeners.udp);
        parts.push((engine, Role::Client(Box::new(client))));
    }
    let mut group = assemble(parts, &config.common, now)?;
    for (shard, listeners) in group.shards.iter_mut().zip(udp_listeners) {
        shard.udp_listeners = listeners;
        shard.watch_listeners().map_err(|error| unavailable(&error))?;
    }
    if let (Some((host, ends, notices)), Some(settings)) = (tun, &config.tun) {
        notices.into_iter().for_each(|notice| group.notify(notice));
        let (seed, run) = (seed()?, seed()? as u32);
        for (shard, end) in group.shards.iter_mut().zip(ends) {
            shard.delivery.tun = Some(end);
            shard.engine.use_ip(settings.client, run, seed);
            let monitor =
                Monitor::open(Some(host.index())).map_err(|error| Failure::Unavailable(error.to_string()))?;
            shard
                .watch(&monitor, Token::Monitor, Interest::READABLE)
                .map_err(|error| unavailable(&error))?;
            if let Role::Client(client) = &mut shard.role {
                client.ip = Some(host.clone());
                client.carries_only_ip = config.forwards.is_empty();
                client.monitor = Some(monitor);
            }
        }
    }
    group.spawn()
}

fn endpoint_parameters(
    common: &CommonConfig,
    reset_key: [u8; 64],
    shard: quic::Shard,
) -> Result<EndpointParameters, Failure> {
    let mut seed = [0; 32];
    random(&mut seed)?;
    Ok(EndpointParameters {
        udp_payload_max: common.max_udp_payload,
        profile: common.profile,
        aead: aead::fastest(),
        reset_key,
        shard,
        seed,
    })
}

/// A number that spreads flows otherwise in every process.
fn seed() -> Result<u64, Failure> {
    let mut bytes = [0; 8];
    random(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

fn quic_shard(index: usize, count: usize) -> quic::Shard {
    const _: () = assert!(limits::SHARDS_MAX <= u8::MAX as usize);
    quic::Shard {
        index: index as u8,
        count: count as u8,
    }
}

fn random(bytes: &mut [u8]) -> Result<(), Failure> {
    aws_lc_rs::rand::fill(bytes)
        .map_err(|_| Failure::Unavailable("the system gives no random numbers".to_owned()))
}

/// Binds the outer sockets; where the machine has no IPv6, its wildcard means IPv4's.
fn bind_outer(listen: SocketAddr, options: &SocketOptions, count: usize) -> Result<Vec<UdpSocket>, Failure> {
    match UdpSocket::bind_group(listen, count, options) {
        Err(error) if listen.ip().is_unspecified() && listen.is_ipv6() && has_no_family(&error) => {
            let v4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, listen.port()));
            UdpSocket::bind_group(v4, count, options).map_err(|error| unavailable(&error))
        }
        other => other.map_err(|error| unavailable(&error)),
    }
}

fn has_no_family(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error())
        || error.kind() == io::ErrorKind::AddrNotAvailable
        || error.kind() == io::ErrorKind::Unsupported
}

pub(super) fn unavailable(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Failure::Permission(error.to_string()),
        _ => Failure::Unavailable(error.to_string()),
    }
}

/// Shards that have all they need but their threads.
struct Group {
    shards: Vec<Shard>,
    controller: Controller,
    notice_sender: mpsc::SyncSender<Notice>,
    notices: mpsc::Receiver<Notice>,
}

/// Makes one shard of each part, and what is between them.
fn assemble(parts: Vec<(Engine, Role)>, common: &CommonConfig, now: Instant) -> Result<Group, Failure> {
    let count = parts.len();
    let (notice_sender, notices) = mpsc::sync_channel(limits::NOTICES_MAX);
    let mut lines = Vec::with_capacity(count);
    let mut ends = Vec::with_capacity(count);
    for _ in 0..count {
        let poller = Poller::new().map_err(|error| unavailable(&error))?;
        let waker = Waker::new(&poller, Token::Waker.encode()).map_err(|error| unavailable(&error))?;
        let resolver = Resolver::new(&waker).map_err(|error| unavailable(&error))?;
        let (sender, commands) = mpsc::channel();
        lines.push(Line {
            commands: sender,
            waker,
        });
        ends.push((poller, resolver, commands));
    }
    let wakers: Vec<_> = lines.iter().map(|line| line.waker.clone()).collect();
    let neighbours = Neighbours::new(&wakers);
    let sessions = Room::divided(tunnel_proto::limits::UDP_SESSIONS_MAX, count);
    let tcp = Room::divided(limits::TCP_CONNECTIONS_MAX, count);
    let rooms = sessions.into_iter().zip(tcp);
    let mut shards = Vec::with_capacity(count);
    for (((part, end), neighbours), (sessions, tcp_room)) in
        parts.into_iter().zip(ends).zip(neighbours).zip(rooms)
    {
        let ((engine, role), (poller, resolver, commands)) = (part, end);
        let quic::Shard { index, count } = quic_shard(neighbours.own(), count);
        shards.push(Shard {
            engine: engine.sharded(ServerShard { index, count }, sessions),
            role,
            common: common.clone(),
            poller,
            ready: Vec::new(),
            commands,
            notices: notice_sender.clone(),
            resolver,
            neighbours,
            outer: Outer::new(),
            inner_batch: inner_batch(),
            delivery: Delivery::default(),
            inner: Vec::new(),
            udp_listeners: Vec::new(),
            again: Vec::new(),
            more_to_send: false,
            tcp: TcpCounters::default(),
            tcp_room,
            inner_io_past: IoCounters::default(),
            reconnects: 0,
            started: now,
            drain_until: None,
            failure: None,
            stopping: false,
        });
    }
    Ok(Group {
        shards,
        controller: Controller::new(lines),
        notice_sender,
        notices,
    })
}

impl Group {
    /// Tells the program before any shard does.
    fn notify(&self, notice: Notice) {
        // There is room for more than this at the start.
        let _ = self.notice_sender.try_send(notice);
    }

    /// Starts the threads. A shard that fails or panics takes the others with it.
    fn spawn(self) -> Result<Handle, Failure> {
        let mut handle = Handle {
            controller: self.controller,
            notices: self.notices,
            threads: Vec::with_capacity(self.shards.len()),
        };
        for shard in self.shards {
            let others = StopOthers(handle.controller());
            // What has been started ends when the handle is dropped.
            let thread = thread::Builder::new()
                .name(format!("shard-{}", shard.neighbours.own()))
                .spawn(move || {
                    let others = others;
                    let ended = shard.run();
                    if ended.is_ok() {
                        others.leave();
                    }
                    ended
                })
                .map_err(|error| unavailable(&error))?;
            handle.threads.push(thread);
        }
        Ok(handle)
    }
}

/// Stops all shards when it is dropped.
struct StopOthers(Controller);

impl StopOthers {
    /// The others may go on.
    fn leave(self) {
        std::mem::forget(self);
    }
}

impl Drop for StopOthers {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl Shard {
    /// Has the poller watch a client's listeners.
    fn watch_listeners(&self) -> io::Result<()> {
        for (index, listener) in self.udp_listeners.iter().enumerate() {
            self.watch(&listener.socket, Token::UdpListener(index), Interest::READABLE)?;
        }
        if let Role::Client(client) = &self.role {
            for (index, (listener, _)) in client.tcp_listeners.iter().enumerate() {
                self.watch(listener, Token::TcpListener(index), Interest::READABLE)?;
            }
        }
        Ok(())
    }
}
