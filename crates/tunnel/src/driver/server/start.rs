//! From a configuration to a running server.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

use packet_io::{DatagramSocket, SocketOptions, UdpSocket};
use quic::ServerParameters;
use tunnel_proto::{Engine, SoleOwner, TargetRules};

use super::Server;
use super::tun::{ServerHost, service};
use crate::config::ServerConfig;
use crate::driver::outer;
use crate::driver::start::{assemble, endpoint_parameters, quic_shard, seed, unavailable};
use crate::handle::{Failure, Handle, Notice};

/// Starts a server.
///
/// # Errors
/// The [`Failure`] that keeps it from running: address, permission, certificate.
pub fn start_server(config: ServerConfig) -> Result<Handle, Failure> {
    let now = Instant::now();
    let count = config.common.shards();
    let owner = SoleOwner::new(config.tokens.clone());
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
        let engine = Engine::server(endpoint, Box::new(owner.clone()), config.common.engine.clone());
        let rules = TargetRules::new(config.allowed_targets.clone());
        parts.push((engine, Server::new(rules, now)));
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
            .io
            .outer
            .replace(socket, &shard.io.poller)
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
            shard.engine.serve_ip(service(settings, rules), seed);
            shard.role.ip = Some(host.clone());
        }
    }
    if let Some(text) = warning {
        group.notify(Notice::Warning { text });
    }
    group.spawn()
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
