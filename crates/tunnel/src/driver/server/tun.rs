//! A server's TUN: addresses of the pools, NAT, leases, and which shard has which client's sessions.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use host::{HostChanges, Network};
use packet_io::VNET_HEADER_BYTES;
use tunnel_proto::{
    Elsewhere, End, IpService, Lease, LeaseSnapshot, Leases, NoLease, Owner, Prefix, ProxyError, RequestId,
    Runs, TargetRules, UserId, UserSnapshot, own_address,
};

use super::lease_file::{self, LeaseFile};
use super::names::{self, NameServer};
use super::takeovers::Takeovers;
use super::whereabouts::Whereabouts;
use super::{Server, ServerMessage};
use crate::config::ServerTun;
use crate::driver::Shard;
use crate::driver::host_worker::HostWorker;
use crate::driver::tun::device::{Device, failure};
use crate::driver::tun::end::TunEnd;
use crate::driver::tun::host_prefix;
use crate::driver::tun::setup::{TunSetup, Wanted};
use crate::handle::{Failure, Notice, Repeated, Visitor};
use crate::limits;
use crate::snapshot::{Gauge, NameServerCounters};

/// What a server's shards share; it is asked when sessions come and go, and every now and then.
#[derive(Clone)]
pub(in crate::driver) struct ServerHost {
    shared: Arc<Mutex<Shared>>,
    /// Asked by packets, too.
    whereabouts: Arc<Whereabouts>,
    takeovers: Arc<Takeovers>,
}

struct Shared {
    /// Writes the leases, sets the MTU. It ends before the host's changes are undone.
    worker: HostWorker,
    name: String,
    setup: TunSetup,
    changes: HostChanges,
    leases: Leases,
    /// Finds clients that share a name.
    runs: Runs,
    leases_total: u64,
    lease_file: LeaseFile,
    name_server: Option<NameServer>,
    /// What clients are offered.
    offered_dns: Vec<IpAddr>,
    /// By shard: the longest packet that one of its sessions takes.
    packet_max: Vec<Option<usize>>,
    /// The MTU that the device has.
    mtu: u32,
    is_mtu_due: bool,
}

impl Drop for Shared {
    /// Nothing is set any more while the host's changes are undone.
    fn drop(&mut self) {
        self.worker.finish();
        // What fails stays on the list.
        let _ = self.changes.undo();
    }
}

impl ServerHost {
    /// Makes the device with its addresses; packets flow when the shards run.
    ///
    /// # Errors
    /// The [`Failure`] that names what is missing.
    pub(in crate::driver) fn start(
        config: &ServerTun,
        shards: usize,
        now: Instant,
    ) -> Result<(Self, Vec<TunEnd>, Vec<Notice>), Failure> {
        let stored = lease_file::read(&config.leases_file)?;
        let device = Device::open(
            config.name.as_deref(),
            shards,
            config.offloads,
            config.flood_limit.as_ref(),
            true,
            &config.changes,
        )?;
        let Device { name, index, ends } = device;
        let mut network = Network::open().map_err(|error| failure(&error))?;
        refuse_taken_pools(config, &mut network, index)?;
        give_addresses(config)?;
        let mut notices = forward(config)?;
        if config.nat {
            let pools = config.pools.iter().filter_map(host_prefix).collect();
            let started = config.changes.start_nat(pools);
            started.map_err(|error| failure(&error))?;
        }
        let (name_server, offered_dns) = names::offer(config, &name, &mut notices)?;
        let mut leases = Leases::new(&config.pools);
        leases.restore(stored);
        notices.push(Notice::Tun {
            name: name.clone(),
            addresses: config.pools.iter().filter_map(own_address).collect(),
            routes: config.pools.clone(),
            mtu: None,
        });
        let state = Shared {
            worker: HostWorker::start()
                .map_err(|error| Failure::Unavailable(format!("no thread for the host: {error}")))?,
            name,
            setup: TunSetup::new(config.changes.clone(), limits::IPV6_MTU_MIN, false),
            changes: config.changes.clone(),
            leases,
            runs: Runs::default(),
            leases_total: 0,
            lease_file: LeaseFile::new(&config.leases_file, now),
            name_server,
            offered_dns,
            packet_max: vec![None; shards],
            mtu: limits::IPV6_MTU_MIN,
            is_mtu_due: false,
        };
        let host = Self {
            shared: Arc::new(Mutex::new(state)),
            whereabouts: Arc::default(),
            takeovers: Arc::new(Takeovers::new(shards)),
        };
        Ok((host, ends, notices))
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // Each call leaves it whole; a shard that panicked ends the process anyway.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters how many leases each user has.
    pub(in crate::driver) fn count_leases(&self, users: &mut BTreeMap<UserId, UserSnapshot>) {
        let state = self.lock();
        for (id, user) in users {
            user.leases = state.leases.of_user(*id) as u64;
        }
    }

    /// Open leases and all that are kept, and those since the start.
    pub(in crate::driver) fn leases(&self) -> (Gauge, u64) {
        let state = self.lock();
        let (held, kept) = state.leases.counts();
        let open = Gauge {
            open: held as u64,
            total: state.leases_total,
        };
        (open, kept as u64)
    }

    /// Leases for `status`, those of clients that are there first.
    pub(in crate::driver) fn list_leases(&self) -> Vec<LeaseSnapshot> {
        self.lock().leases.list(limits::LEASES_SHOWN_MAX)
    }

    /// The name servers that clients are offered.
    pub(in crate::driver) fn offered_dns(&self) -> Vec<IpAddr> {
        self.lock().offered_dns.clone()
    }

    /// What the name server counts, where there is one.
    pub(in crate::driver) fn name_server(&self) -> Option<NameServerCounters> {
        self.lock().name_server.as_ref().map(NameServer::counters)
    }

    /// Name and MTU of the device.
    pub(in crate::driver) fn device(&self) -> (String, u32) {
        let state = self.lock();
        (state.name.clone(), state.mtu)
    }

    /// Has the leases written where they changed. What earlier writing left to tell.
    fn save(&self, now: Instant) -> Option<Notice> {
        let state = &mut *self.lock();
        state.lease_file.save(now, &mut state.leases, &state.worker);
        state.worker.poll_notice()
    }

    /// A shard ends, and all others with it, which may wait for the lock: outstanding leases are written, once. What
    /// there is to tell.
    fn end(&self) -> Vec<Notice> {
        let state = &mut *self.lock();
        state.lease_file.save_at_end(&mut state.leases, &mut state.worker)
    }

    /// A shard's longest packet: the device's MTU is the longest of all.
    fn follow_mtu(&self, shard: usize, packet_max: Option<usize>) {
        let mut state = self.lock();
        state.is_mtu_due |= std::mem::replace(&mut state.packet_max[shard], packet_max) != packet_max;
        let best = state.packet_max.iter().flatten().max().copied();
        if let Some(best) = best.filter(|_| state.is_mtu_due) {
            let mtu = u32::try_from(best).unwrap_or(u32::MAX).max(limits::IPV6_MTU_MIN);
            let wanted = Wanted {
                mtu: Some(mtu),
                ..Wanted::default()
            };
            // Where the worker takes no more jobs, the next turn gives it this one.
            state.is_mtu_due = !state.setup.apply(wanted, &state.worker, None);
        }
        while let Some(Ok(present)) = state.setup.poll() {
            state.mtu = present.mtu;
        }
    }
}

/// Refuses a pool in a network that this machine is in: its own neighbours would be routed into the TUN.
fn refuse_taken_pools(config: &ServerTun, network: &mut Network, own: u32) -> Result<(), Failure> {
    let present = network.addresses(None).map_err(|error| failure(&error))?;
    for pool in config.pools.iter().filter_map(host_prefix) {
        let mut others = present.iter().filter(|address| address.index != own);
        if let Some(taken) = others.find(|address| pool.overlaps(&address.prefix)) {
            let interface = network.name_of(taken.index).unwrap_or_default();
            return Err(Failure::Unavailable(format!(
                "the pool {pool} overlaps {} of the interface {interface}; lease addresses of another network with \
                 --pool CIDR",
                taken.prefix
            )));
        }
    }
    Ok(())
}

/// The device is up, with the server's own address of each pool.
fn give_addresses(config: &ServerTun) -> Result<(), Failure> {
    let on_link: Vec<host::Prefix> = config
        .pools
        .iter()
        .filter_map(|pool| host::Prefix::new(own_address(pool)?, pool.length()))
        .collect();
    let given = config
        .changes
        .set_mtu(limits::IPV6_MTU_MIN)
        .and_then(|()| config.changes.set_addresses(&on_link));
    given.map_err(|error| failure(&error))
}

/// The host forwards, where clients reach more than the server itself. What stands in the way is told.
fn forward(config: &ServerTun) -> Result<Vec<Notice>, Failure> {
    if !config.nat && !config.client_to_client && config.routes.is_none() {
        return Ok(Vec::new());
    }
    let has = |is_ipv4: bool| {
        let mut pools = config.pools.iter();
        pools.any(|pool| pool.address().is_ipv4() == is_ipv4)
    };
    let blockers = config.changes.start_forwarding(has(true), has(false));
    let blockers = blockers.map_err(|error| failure(&error))?;
    Ok(blockers
        .into_iter()
        .map(|text| Notice::Warning { text })
        .collect())
}

/// What the engine of each shard serves.
pub(in crate::driver) fn service(config: &ServerTun, rules: TargetRules) -> IpService {
    let routes = match &config.routes {
        Some(routes) => routes.clone(),
        None if config.nat => {
            let everything = [Prefix::ALL_V4, Prefix::ALL_V6];
            let is_served = |all: &Prefix| {
                config
                    .pools
                    .iter()
                    .any(|pool| pool.address().is_ipv4() == all.address().is_ipv4())
            };
            everything.into_iter().filter(is_served).collect()
        }
        None => Vec::new(),
    };
    IpService::new(config.pools.clone(), &routes, config.client_to_client, rules)
}

impl Shard<Server> {
    /// A client wants an IP session.
    pub(in crate::driver) fn lease(&mut self, now: Instant, id: RequestId, owner: Owner, leases_max: usize) {
        let own = self.neighbours.own();
        let Some(host) = self.role.ip.clone() else {
            return self.engine.end(id, End::Refused(ProxyError::ProxyInternalError));
        };
        let asked = owner;
        let (judged, lease, is_first) = {
            let mut state = host.lock();
            let judged = state.runs.judge(asked);
            let owner = judged.owner;
            let is_first = !state.leases.is_held(owner.client);
            let lease = state.leases.acquire_within(owner.client, leases_max);
            if lease.is_ok() {
                state.leases_total += 1;
                // In the order in which runs are judged, and so with the state locked.
                host.takeovers.begin(owner, own);
            }
            (judged, lease, is_first)
        };
        let owner = judged.owner;
        if owner != asked {
            self.engine.rename_owner(id, owner);
        }
        if judged.is_shared {
            self.engine.tell_shared_name(id);
        }
        match lease {
            Ok(lease) => {
                if is_first {
                    self.tell_visitor(Visitor::Leased {
                        client: owner.client,
                        addresses: lease.addresses().collect(),
                    });
                }
                if judged.is_news {
                    self.tell_of_copy(lease);
                }
                host.whereabouts.arrived(lease.addresses(), own);
                self.engine.end_older_runs(owner);
                self.neighbours.wake_all();
                self.engine.accept_ip(now, id, owner, lease, &mut self.delivery);
            }
            Err(NoLease::UserLimit) => self.engine.refuse_lease(id),
            Err(exhausted @ NoLease::Exhausted) => {
                self.engine
                    .end(id, End::Refused(ProxyError::ConnectionLimitReached));
                let text = format!("a client got no address: {exhausted}");
                let notices = &self.io.notices;
                notices.send_few(now, Repeated::Exhausted, || Notice::Warning { text });
            }
        }
    }

    /// Ends the sessions of clients that have started anew on other shards.
    pub(super) fn end_older_runs(&mut self) {
        let own = self.neighbours.own();
        let Some(host) = &self.role.ip else { return };
        for owner in host.takeovers.take(own) {
            self.engine.end_older_runs(owner);
        }
    }

    fn tell_of_copy(&self, lease: Lease) {
        let addresses: Vec<String> = lease.addresses().map(|address| address.to_string()).collect();
        let text = format!(
            "two machines with the same name want {} (a copied state directory?): the later one gets another address",
            addresses.join(" and ")
        );
        self.io.notify(Notice::Warning { text });
    }

    /// The session for a packet of the TUN is on another shard, or nowhere.
    pub(super) fn pass_on(
        &mut self,
        now: Instant,
        elsewhere: Elsewhere,
        header: &[u8; VNET_HEADER_BYTES],
        packet: &mut [u8],
    ) {
        let own = self.neighbours.own();
        let host = self.role.ip.as_ref();
        let Some(shard) = host.and_then(|host| host.whereabouts.shard_for(elsewhere, own)) else {
            return self.engine.refuse_packet(now, header, packet, &mut self.delivery);
        };
        let message = ServerMessage::Packet {
            header: *header,
            bytes: (&*packet).into(),
        };
        if !self.neighbours.hand_over(shard, message) {
            self.engine.drop_handed_over(header, packet);
        }
    }

    /// A packet that another shard read.
    pub(super) fn take_handed_packet(
        &mut self,
        now: Instant,
        header: &[u8; VNET_HEADER_BYTES],
        packet: &mut [u8],
    ) {
        let here = self.engine.send_packet(now, header, packet, &mut self.delivery);
        if here.is_some() {
            // The session ended meanwhile; nobody is asked again, or the packet could go round for ever.
            self.engine.refuse_packet(now, header, packet, &mut self.delivery);
        }
    }

    /// A session is over.
    pub(in crate::driver) fn lease_over(&mut self, owner: Owner, addresses: &[IpAddr]) {
        let own = self.neighbours.own();
        let Some(host) = self.role.ip.as_ref() else { return };
        // Before another client can have the address.
        host.whereabouts.left(addresses, own);
        let is_gone = {
            let leases = &mut host.lock().leases;
            leases.release(owner.client);
            !leases.is_held(owner.client)
        };
        if is_gone {
            self.tell_visitor(Visitor::Returned {
                client: owner.client,
                addresses: addresses.to_vec(),
            });
        }
    }

    /// What a server with a TUN does every now and then.
    pub(in crate::driver) fn server_ip_turn(&mut self, now: Instant) {
        let Some(host) = self.role.ip.clone() else { return };
        let shard = self.neighbours.own();
        let packet_max = self.engine.packet_max_at_most();
        host.follow_mtu(shard, packet_max);
        if let Some(notice) = host.save(now) {
            self.io.notify(notice);
        }
    }

    /// The end is near: leases are written down.
    pub(in crate::driver) fn save_leases(&self) {
        if let Some(host) = &self.role.ip {
            host.end().into_iter().for_each(|notice| self.io.notify(notice));
        }
    }
}
