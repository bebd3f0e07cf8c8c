//! From a configuration to a running server.

use std::time::Instant;

use quic::{IdLength, OnlyOurs, ServerParameters};
use tunnel_proto::{Engine, TargetRules};

use super::Server;
use super::cover::{ShardCover, SharedCover};
use super::own_addresses::OwnAddressList;
use super::tun::{ServerHost, service};
use super::upstream_buffers::UpstreamBuffers;
use super::users::{FrontDoorUsers, OwnerAndUsers};
use crate::carrier::Carriers;
use crate::config::ServerConfig;
use crate::driver::outer;
use crate::driver::resolver::NameSources;
use crate::driver::start::{assemble, cannot_listen, endpoint_parameters, quic_shard, seed, unavailable};
use crate::handle::{Failure, Handle, Notice};

/// Starts a server over `carriers`.
///
/// # Errors
/// The [`Failure`] that keeps it from running: address, permission, certificate.
pub fn start_server(config: ServerConfig, carriers: &dyn Carriers) -> Result<Handle, Failure> {
    let now = Instant::now();
    let count = config.common.shards();
    let authorizer = OwnerAndUsers::new(config.tokens.clone(), config.users.clone());
    let buffers = UpstreamBuffers::of_shards(count, config.common.receive_buffer_bytes);
    let id_length = id_length(&config)?;
    let key = quic::SteerKey::derive(&config.reset_key, id_length);
    let mut parts = Vec::with_capacity(count);
    for (index, buffers) in buffers.into_iter().enumerate() {
        let shard = quic_shard(index, count);
        let mut parameters = endpoint_parameters(&config.common, config.reset_key, shard)?;
        (parameters.id_length, parameters.is_covered) = (id_length, config.cover.is_some());
        let server = ServerParameters {
            certificate_chain: config.certificate_chain.clone(),
            private_key: config.private_key.clone(),
            token_key: config.token_key,
        };
        let mut endpoint = quic::Endpoint::new(&parameters, Some(server))
            .map_err(|error| Failure::Configuration(error.to_string()))?;
        if config.cover.is_some() {
            endpoint = endpoint.with_classifier(Box::new(OnlyOurs::new(key.clone(), shard)));
        }
        let mut engine = Engine::server(
            endpoint,
            Box::new(authorizer.clone()),
            config.common.engine.clone(),
        );
        if config.cover.is_some() {
            engine.use_front_door();
        }
        let mut rules = TargetRules::new(config.allowed_targets.clone());
        if let Some(tun) = config.tun.as_ref().filter(|tun| !tun.client_to_client) {
            rules = rules.without_clients(&tun.pools);
        }
        parts.push((
            engine,
            Server::new(rules, OwnAddressList::new(now, &config.public), buffers, now),
        ));
    }
    let options = outer::options(&config.common);
    let carriers = carriers
        .listen(config.listen, count, &key, &options)
        .map_err(|error| cannot_listen(&error, config.listen, "--listen with another port"))?;
    if carriers.len() != count {
        let found = carriers.len();
        return Err(Failure::Bug(format!("{found} carriers for {count} shards")));
    }
    let local = carriers
        .first()
        .and_then(|carrier| carrier.local_addr())
        .unwrap_or(config.listen);
    let warning = carriers.first().and_then(|carrier| carrier.warning());
    let tun = match &config.tun {
        Some(tun) => Some(ServerHost::start(tun, count, now)?),
        None => None,
    };
    let cover = match &config.cover {
        Some(cover) => {
            let token = config.tokens.first();
            let token = token.ok_or_else(|| Failure::Configuration("there is no token".to_owned()))?;
            let users = FrontDoorUsers::new(token.user_key(), config.users.clone());
            Some(SharedCover::start(cover, users, local, now)?)
        }
        None => None,
    };
    let mut group = assemble(parts, &config.common, NameSources::default(), now)?;
    for (shard, carrier) in group.shards.iter_mut().zip(carriers) {
        shard.use_carrier(carrier).map_err(|error| unavailable(&error))?;
    }
    let tcp = config.tcp.map(|tcp| tcp.address(local));
    group.notify(Notice::Listening { local, tcp });
    if let (Some((host, ends, notices)), Some(settings)) = (tun, &config.tun) {
        notices.into_iter().for_each(|notice| group.notify(notice));
        let seed = seed()?;
        for (shard, end) in group.shards.iter_mut().zip(ends) {
            shard.delivery.tun = Some(end);
            shard.watch_tun(true);
            let rules = TargetRules::new(config.allowed_targets.clone());
            let service = service(settings, rules).with_name_servers(host.offered_dns());
            shard.engine.serve_ip(service, seed);
            shard.role.ip = Some(host.clone());
        }
    }
    if let Some((cover, notices)) = cover {
        notices.into_iter().for_each(|notice| group.notify(notice));
        for (index, shard) in group.shards.iter_mut().enumerate() {
            let waker = shard.neighbours.own_waker().clone();
            shard.role.cover = Some(ShardCover::new(&cover, quic_shard(index, count), waker, now)?);
        }
    }
    if let Some(text) = warning {
        group.notify(Notice::Warning { text });
    }
    group.spawn()
}

/// As long as the cover's (QR1-27).
fn id_length(config: &ServerConfig) -> Result<IdLength, Failure> {
    let Some(cover) = &config.cover else {
        return Ok(IdLength::default());
    };
    let bytes = usize::from(cover.profile.id_bytes);
    IdLength::new(bytes).ok_or_else(|| {
        Failure::Configuration(format!(
            "the cover {} has connection IDs of {bytes} bytes, and ours have from 8 to 20; name another cover",
            cover.host
        ))
    })
}
