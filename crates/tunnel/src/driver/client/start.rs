//! From a configuration to a running client.

use std::sync::Arc;
use std::time::Instant;

use host::Monitor;
use packet_io::Interest;
use tunnel_proto::{Engine, KnownServer, Reconnection};

use super::listeners::Listeners;
use super::remote_ports::{AskingStripe, RemotePorts};
use super::stripes::SharedStripes;
use super::tun::SharedHost;
use super::{Client, ClientSource};
use crate::carrier::Carriers;
use crate::config::ClientConfig;
use crate::driver::Shard;
use crate::driver::resolver::NameSources;
use crate::driver::sources::SourceId;
use crate::driver::start::{assemble, endpoint_parameters, random, seed};
use crate::handle::{Failure, Handle, KillSwitch};

/// Starts a client over `carriers`: its listeners are there when this returns, the connections are made by the threads.
///
/// # Errors
/// The [`Failure`] that keeps it from running: an occupied or forbidden local port, an unusable target.
pub fn start_client(config: ClientConfig, carriers: &Arc<dyn Carriers>) -> Result<Handle, Failure> {
    let now = Instant::now();
    if config.servers.is_empty() {
        return Err(Failure::Configuration("no server is named".to_owned()));
    }
    let count = config.common.shards();
    let knows = KnownServer::new(&config.proof, &config.token)
        .map_err(|error| Failure::Configuration(error.to_string()))?;
    let stripes = SharedStripes::new(count);
    let listeners = Listeners::open(
        &config.forwards,
        &config.proxies,
        config.transparent_port,
        &config.common,
        count,
    )?;
    let tun = match &config.tun {
        Some(tun) => Some(SharedHost::start(tun, &config.servers, count)?),
        None => None,
    };
    let names = match &tun {
        Some((host, ..)) => NameSources::beside_tunnel(host.way()?, host.own_name_servers()),
        None => NameSources::default(),
    };
    let (asking, number) = (AskingStripe::default(), seed()?);
    let mut parts = Vec::with_capacity(count);
    for index in 0..count {
        let mut reset_key = [0; 64];
        random(&mut reset_key)?;
        // Every stripe has a socket of its own: nothing is to be told apart at this end.
        let mut parameters = endpoint_parameters(&config.common, reset_key, quic::Shard::SOLE)?;
        knows.prepare(&mut parameters);
        let mut endpoint = quic::Endpoint::new(&parameters, None)
            .map_err(|error| Failure::Configuration(error.to_string()))?;
        if let Some(qlog) = &config.qlog {
            endpoint = endpoint.with_tracer(qlog.tracer());
        }
        let engine = Engine::client(endpoint, &config.token, config.common.engine.clone());
        let reconnection = Reconnection::new(config.servers.clone(), config.carriers, seed()?, now);
        let (stripes, carriers) = (stripes.clone(), Arc::clone(carriers));
        let client = Client::new(
            reconnection,
            knows.clone(),
            config.bind,
            index,
            stripes,
            carriers,
            now,
        );
        let ports = RemotePorts::new(&config.remote_forwards, number, asking.clone());
        parts.push((engine, client.with_remote_ports(ports)));
    }
    let kill_switch = tun.as_ref().and_then(|(host, ..)| host.kill_switch());
    let mut group = assemble(parts, &config.common, names, now)?;
    for (shard, listeners) in group.shards.iter_mut().zip(listeners) {
        shard.watch_listeners(listeners)?;
    }
    let own_device = tun.as_ref().map(|(host, ..)| host.index());
    for shard in &mut group.shards {
        let monitor = Monitor::open(own_device).map_err(|error| Failure::Unavailable(error.to_string()))?;
        shard.watch_source(ClientSource::Monitor(monitor))?;
    }
    if let (Some((host, ends, notices)), Some(settings)) = (tun, &config.tun) {
        notices.into_iter().for_each(|notice| group.notify(notice));
        let (seed, run) = (seed()?, seed()? as u32);
        for (shard, end) in group.shards.iter_mut().zip(ends) {
            shard.delivery.tun = Some(end);
            shard.engine.use_ip(settings.client, run, seed, host.acceptance());
            let (own, waker) = (shard.neighbours.own(), shard.neighbours.own_waker());
            shard.role.ip = Some(host.of_shard(own, waker.clone()));
            shard.role.carries_only_ip = config.forwards.is_empty()
                && config.proxies.is_empty()
                && config.remote_forwards.is_empty()
                && config.transparent_port.is_none();
        }
    }
    let mut handle = group.spawn()?;
    handle.kill_switch = kill_switch.map(|changes| KillSwitch { changes });
    Ok(handle)
}

impl Shard<Client> {
    fn watch_listeners(&mut self, listeners: Listeners) -> Result<(), Failure> {
        for listener in listeners.udp {
            let id = self.watch_source(ClientSource::UdpListener(Box::new(listener)))?;
            self.role.udp_listeners.push(id);
        }
        for listener in listeners.tcp {
            let id = self.watch_source(ClientSource::TcpListener(listener))?;
            self.role.tcp_listeners.push(id);
        }
        for listener in listeners.transparent {
            let id = self.watch_source(ClientSource::TransparentListener(Box::new(listener)))?;
            self.role.transparent_listeners.push(id);
        }
        Ok(())
    }

    fn watch_source(&mut self, source: ClientSource) -> Result<SourceId, Failure> {
        self.sources
            .insert(&self.io.poller, source, Interest::READABLE, None)
            .map_err(|error| Failure::Unavailable(error.to_string()))
    }
}
