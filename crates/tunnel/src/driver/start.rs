//! From a configuration to a running shard: everything that can fail is tried before the thread begins.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use packet_io::{DatagramSocket, Interest, Poller, SocketOptions, UdpSocket, Waker};
use quic::{EndpointParameters, ServerParameters};

use super::aead;
use super::client::Client;
use super::outer::{self, Outer};
use super::resolver::Resolver;
use super::server::Server;
use super::{Delivery, Role, Shard, Token, UdpListener, inner_batch};
use crate::config::{ClientConfig, CommonConfig, Protocol, ServerConfig};
use crate::core::{Engine, Target};
use crate::handle::{Failure, Handle, Notice};
use crate::limits;
use crate::snapshot::{IoCounters, TcpCounters};
use crate::target_rules::TargetRules;

/// Starts a server.
///
/// # Errors
/// The [`Failure`] that keeps it from running: address, permission, certificate.
pub fn start_server(config: ServerConfig) -> Result<Handle, Failure> {
    let now = Instant::now();
    let parameters = endpoint_parameters(&config.common, config.reset_key)?;
    let server = ServerParameters {
        certificate_chain: config.certificate_chain,
        private_key: config.private_key,
        token_key: config.token_key,
    };
    let endpoint = quic::Endpoint::new(&parameters, Some(server))
        .map_err(|error| Failure::Configuration(error.to_string()))?;
    let engine = Engine::server(endpoint, config.tokens, config.common.clone());
    let socket = bind_outer(config.listen, &outer::options(&config.common))?;
    let local = socket.local_addr().map_err(|error| unavailable(&error))?;
    let warning = socket.buffer_warning();
    let role = Role::Server(Server::new(TargetRules::new(config.allowed_targets), now));
    let (mut shard, handle) = assemble(engine, role, config.common, now)?;
    shard
        .outer
        .replace(socket, &shard.poller)
        .map_err(|error| unavailable(&error))?;
    shard.notify(Notice::Listening { local });
    if let Some(text) = warning {
        shard.notify(Notice::Warning { text });
    }
    spawn(shard, handle)
}

/// Starts a client: its listeners are there when this returns, the connection is made by the thread.
///
/// # Errors
/// The [`Failure`] that keeps it from running: an occupied or forbidden local port, an unusable target.
pub fn start_client(config: ClientConfig) -> Result<Handle, Failure> {
    let now = Instant::now();
    if config.servers.is_empty() {
        return Err(Failure::Configuration("no server is named".to_owned()));
    }
    let mut reset_key = [0; 64];
    random(&mut reset_key)?;
    let endpoint = quic::Endpoint::new(&endpoint_parameters(&config.common, reset_key)?, None)
        .map_err(|error| Failure::Configuration(error.to_string()))?;
    let engine = Engine::client(endpoint, &config.token, config.common.clone());
    let role = Role::Client(Client::new(config.servers, config.pin, config.bind, now));
    let (mut shard, handle) = assemble(engine, role, config.common, now)?;
    let mut tcp_listeners = Vec::new();
    for forward in &config.forwards {
        let target = Target::new(&forward.host, forward.port).map_err(|error| {
            Failure::Configuration(format!(
                "the target {}:{} cannot be used: {error}",
                forward.host, forward.port
            ))
        })?;
        match forward.protocol {
            Protocol::Udp => {
                let options = SocketOptions {
                    receive_ecn: false,
                    dont_fragment: false,
                    ..outer::options(&shard.common)
                };
                let socket =
                    UdpSocket::bind(forward.listen, &options).map_err(|error| unavailable(&error))?;
                let token = Token::UdpListener(shard.udp_listeners.len());
                shard
                    .watch(&socket, token, Interest::READABLE)
                    .map_err(|error| unavailable(&error))?;
                shard.udp_listeners.push(UdpListener {
                    socket,
                    sessions: HashMap::new(),
                    target,
                });
            }
            Protocol::Tcp => {
                let listener = TcpListener::bind(forward.listen)
                    .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
                    .map_err(|error| cannot_listen(forward.listen, &error))?;
                let token = Token::TcpListener(tcp_listeners.len());
                shard
                    .watch(&listener, token, Interest::READABLE)
                    .map_err(|error| unavailable(&error))?;
                tcp_listeners.push((listener, target));
            }
        }
    }
    if let Role::Client(client) = &mut shard.role {
        client.tcp_listeners = tcp_listeners;
    }
    spawn(shard, handle)
}

fn endpoint_parameters(common: &CommonConfig, reset_key: [u8; 64]) -> Result<EndpointParameters, Failure> {
    let mut seed = [0; 32];
    random(&mut seed)?;
    Ok(EndpointParameters {
        udp_payload_max: common.max_udp_payload,
        profile: common.profile,
        aead: aead::fastest(),
        reset_key,
        seed,
    })
}

fn random(bytes: &mut [u8]) -> Result<(), Failure> {
    aws_lc_rs::rand::fill(bytes)
        .map_err(|_| Failure::Unavailable("the system gives no random numbers".to_owned()))
}

/// Binds the outer socket; where the machine has no IPv6, its wildcard means IPv4's.
fn bind_outer(listen: SocketAddr, options: &SocketOptions) -> Result<UdpSocket, Failure> {
    match UdpSocket::bind(listen, options) {
        Err(error) if listen.ip().is_unspecified() && listen.is_ipv6() && has_no_family(&error) => {
            let v4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, listen.port()));
            UdpSocket::bind(v4, options).map_err(|error| unavailable(&error))
        }
        other => other.map_err(|error| unavailable(&error)),
    }
}

fn has_no_family(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error())
        || error.kind() == io::ErrorKind::AddrNotAvailable
        || error.kind() == io::ErrorKind::Unsupported
}

fn cannot_listen(address: SocketAddr, error: &io::Error) -> Failure {
    unavailable(&io::Error::new(
        error.kind(),
        format!("cannot listen at {address}: {error}"),
    ))
}

fn unavailable(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Failure::Permission(error.to_string()),
        _ => Failure::Unavailable(error.to_string()),
    }
}

fn assemble(
    engine: Engine,
    role: Role,
    common: CommonConfig,
    now: Instant,
) -> Result<(Shard, Handle), Failure> {
    let poller = Poller::new().map_err(|error| unavailable(&error))?;
    let waker = Waker::new(&poller, Token::Waker.encode()).map_err(|error| unavailable(&error))?;
    let resolver = Resolver::new(&waker).map_err(|error| unavailable(&error))?;
    let (command_sender, commands) = mpsc::channel();
    let (notices, notice_receiver) = mpsc::sync_channel(limits::NOTICES_MAX);
    let shard = Shard {
        engine,
        role,
        common,
        poller,
        ready: Vec::new(),
        commands,
        notices,
        resolver,
        outer: Outer::new(),
        inner_batch: inner_batch(),
        delivery: Delivery::default(),
        inner: Vec::new(),
        udp_listeners: Vec::new(),
        again: Vec::new(),
        more_to_send: false,
        tcp: TcpCounters::default(),
        inner_io_past: IoCounters::default(),
        reconnects: 0,
        started: now,
        drain_until: None,
        failure: None,
        stopping: false,
    };
    let handle = Handle {
        commands: command_sender,
        waker,
        notices: notice_receiver,
        thread: None,
    };
    Ok((shard, handle))
}

fn spawn(shard: Shard, mut handle: Handle) -> Result<Handle, Failure> {
    let thread = thread::Builder::new()
        .name("shard".to_owned())
        .spawn(move || shard.run())
        .map_err(|error| unavailable(&error))?;
    handle.thread = Some(thread);
    Ok(handle)
}
