//! From a configuration to a running server.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use packet_io::{SocketOptions, UdpSocket};
use quic::{ByShard, Classifier, Generation, IdLength, Kin, OnlyOurs, ServerParameters};
use tunnel_proto::rendezvous::{self, Guests, Rendezvous};
use tunnel_proto::{Engine, Line, TargetRules};

use super::Server;
use super::cover::{ShardCover, SharedCover};
use super::held_ports::HeldPorts;
use super::own_addresses::OwnAddressList;
use super::tun::{ServerHost, service};
use super::upstream_buffers::UpstreamBuffers;
use super::users::{FrontDoorUsers, OwnerAndUsers};
use crate::carrier::offered::Predecessor;
use crate::carrier::{Carrier, Carriers, adopted};
use crate::config::{ServerConfig, Takeover};
use crate::driver::outer;
use crate::driver::resolver::NameSources;
use crate::driver::start::{
    Group, assemble, cannot_listen, endpoint_parameters, quic_shard, secret_seed, seed, unavailable,
};
use crate::handle::{Failure, Handle, Notice};
use crate::hook::Replies;

/// Lets users' peers find each other (`specs/rendezvous.md`), on whichever shard each is.
fn serve_rendezvous(group: &mut Group<Server>, guests: Option<Guests>) {
    let wakers = group
        .shards
        .iter()
        .map(|shard| shard.neighbours.own_waker().clone());
    let wakers: Vec<_> = wakers.collect();
    let count = wakers.len();
    let wake = move |shard: usize| wakers[shard].wake();
    let rendezvous = Rendezvous::with_guests(count, Box::new(wake), guests);
    for (index, shard) in group.shards.iter_mut().enumerate() {
        shard
            .engine
            .serve(rendezvous::PROTOCOL, rendezvous.provider(index));
        shard.engine.serve_relay(rendezvous.relay(index));
        shard.role.rendezvous = Some(rendezvous.clone());
    }
}

/// Starts a server over `carriers`.
///
/// # Errors
/// The [`Failure`] that keeps it from running: address, permission, certificate.
pub fn start_server(config: ServerConfig, carriers: &dyn Carriers) -> Result<Handle, Failure> {
    let now = Instant::now();
    let takeover = config.takeover.as_ref();
    let count = takeover.map_or(config.common.shards(), |takeover| takeover.sockets.len());
    let (generation, kin) = kin(takeover);
    let guests = match config.has_rendezvous {
        true => Some(Guests::new(secret_seed()?)),
        false => None,
    };
    // Guests meet peers and do nothing else. Behind a cover a hello proves that it is a user's: nobody comes by a
    // number alone, and numbers are for users (RDV-18).
    let let_in = guests.clone().filter(|_| config.cover.is_none());
    let authorizer = OwnerAndUsers::new(config.tokens.clone(), config.users.clone());
    let authorizer = authorizer.with_guests(let_in);
    let buffers = UpstreamBuffers::of_shards(count, config.common.receive_buffer_bytes);
    let held_ports = HeldPorts::default();
    let id_length = id_length(&config)?;
    let key = quic::SteerKey::derive(&config.reset_key, id_length);
    let line = Arc::new(Line::default());
    let mut parts = Vec::with_capacity(count);
    let mut answers = Vec::with_capacity(count);
    for (index, buffers) in buffers.into_iter().enumerate() {
        let shard = quic_shard(index, count);
        let mut parameters = endpoint_parameters(&config.common, config.reset_key, shard)?;
        (parameters.id_length, parameters.is_covered) = (id_length, config.cover.is_some());
        parameters.generation = generation;
        let server = ServerParameters {
            certificates: config.certificates.clone(),
            token_key: config.token_key,
        };
        let mut endpoint = quic::Endpoint::new(&parameters, Some(server))
            .map_err(|error| Failure::Configuration(error.to_string()))?;
        let classifier: Box<dyn Classifier> = match config.cover {
            Some(_) => Box::new(OnlyOurs::new(key.clone(), shard)),
            None => Box::new(ByShard::with_kin(key.clone(), shard, generation, kin.clone())),
        };
        endpoint = endpoint.with_classifier(classifier);
        if let Some(qlog) = &config.qlog {
            endpoint = endpoint.with_tracer(qlog.tracer());
        }
        let mut authorizer = authorizer.clone();
        if let Some(hook) = &config.hook {
            let (replies, receiver) = Replies::new();
            authorizer = authorizer.with_hook(Arc::clone(hook), replies.clone());
            answers.push((replies, receiver));
        }
        let mut engine = Engine::server(endpoint, Box::new(authorizer), config.common.engine.clone());
        engine.share_line(Arc::clone(&line));
        if config.cover.is_some() {
            engine.use_front_door();
        }
        let mut rules = TargetRules::new(config.allowed_targets.clone());
        if let Some(tun) = config.tun.as_ref().filter(|tun| !tun.client_to_client) {
            rules = rules.without_clients(&tun.pools);
        }
        parts.push((
            engine,
            Server::new(
                rules,
                OwnAddressList::new(now, &config.public),
                buffers,
                held_ports.clone(),
                now,
            )
            .with_kin(generation, kin.clone()),
        ));
    }
    let options = outer::options(&config.common);
    let carriers = match takeover {
        Some(takeover) => adopt(takeover, &options).map_err(|error| unavailable(&error))?,
        None => carriers
            .listen(config.listen, count, &key, &options)
            .map_err(|error| cannot_listen(&error, config.listen, "--listen with another port"))?,
    };
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
    let predecessor = takeover.map(|takeover| predecessor(takeover, kin)).transpose()?;
    for (shard, carrier) in group.shards.iter_mut().zip(carriers) {
        shard.delivery.predecessor.clone_from(&predecessor);
        if takeover.is_some() {
            shard.hold_carrier(carrier);
            shard.watch_predecessor().map_err(|error| unavailable(&error))?;
        } else {
            shard.use_carrier(carrier).map_err(|error| unavailable(&error))?;
        }
    }
    for (shard, (replies, receiver)) in group.shards.iter_mut().zip(answers) {
        replies.wake_by(shard.neighbours.own_waker().clone());
        shard.role.answers = Some(receiver);
    }
    if config.has_rendezvous {
        serve_rendezvous(&mut group, guests);
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

/// Which generation the server is, and who is beside it.
fn kin(takeover: Option<&Takeover>) -> (Generation, Kin) {
    let kin = Kin::default();
    let predecessor = takeover.map(|takeover| Generation::new(takeover.predecessor));
    kin.set_predecessor(predecessor.is_some());
    (
        predecessor.map_or_else(Generation::default, Generation::next),
        kin,
    )
}

/// Carriers over the sockets of another process.
fn adopt(takeover: &Takeover, options: &SocketOptions) -> io::Result<Vec<Box<dyn Carrier>>> {
    let sockets = takeover.sockets.iter();
    sockets
        .map(|offered| Ok(adopted(UdpSocket::adopt(offered.socket.try_clone()?, options)?)))
        .collect()
}

fn predecessor(takeover: &Takeover, kin: Kin) -> Result<Arc<Predecessor>, Failure> {
    let ways = takeover.sockets.iter().map(|offered| offered.back.try_clone());
    let ways: io::Result<Vec<_>> = ways.collect();
    Ok(Arc::new(Predecessor::new(
        ways.map_err(|error| unavailable(&error))?,
        kin,
    )))
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
