//! A client's TUN: addresses and routes as the server gives them, the MTU that the paths carry, name servers.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Instant;

use host::kill_switch::KillSwitch;
use host::{DefaultRoute, HostError, Network};
use packet_io::Waker;
use tunnel_proto::{Acceptance, Assignment, LocalNetworks, Prefix, ProxyError, TunPlan};

use super::Client;
use super::exceptions::Exceptions;
use super::local_networks;
use super::names::Names;
use super::uplink::UplinkBinding;
use super::ways::{Question, Ways};
use crate::config::ClientTun;
use crate::driver::Shard;
use crate::driver::host_worker::{HostWorker, JobWaker};
use crate::driver::resolver::{OwnNameServers, Way};
use crate::driver::tun::device::{Device, failure};
use crate::driver::tun::end::TunEnd;
use crate::driver::tun::retry::Retry;
use crate::driver::tun::setup::{Layer3, PresentRoutes, TunSetup, Wanted};
use crate::handle::{Failure, Notice};
use crate::limits;
use crate::snapshot::NamesSnapshot;

/// What a client's shards share of the device; it is asked when something changes, and never by packets.
pub(in crate::driver) struct SharedHost {
    shared: Arc<Mutex<Shared>>,
    /// What is taken of the server, by the networks that this machine has at the start.
    acceptance: Acceptance,
}

/// The same as one shard asks it.
#[derive(Clone)]
pub(in crate::driver) struct ClientHost {
    shared: Arc<Mutex<Shared>>,
    shard: usize,
    waker: JobWaker,
}

struct Shared {
    name: String,
    index: u32,
    setup: TunSetup,
    /// Addresses and routes are to be handed to the host's thread.
    is_layer3_due: bool,
    is_mtu_due: bool,
    /// What stays outside the tunnel is to be handed over, or its rules are to be made again.
    are_exceptions_due: bool,
    has_default_route: bool,
    /// What the host refused is tried again.
    retry: Retry,
    exceptions: Exceptions,
    /// With a default route.
    kill_switch: Option<Arc<Mutex<KillSwitch>>>,
    /// What the kill switch lets out, and whether the tunnel was up, is to be handed over.
    is_kill_switch_due: bool,
    /// The server was met.
    was_through: bool,
    /// The device has had addresses and routes.
    is_set_up: bool,
    ways: Ways,
    plan: TunPlan,
    /// Asks for the networks of this machine.
    network: Network,
    /// What this machine reaches past the tunnel, and how often that has changed.
    local: LocalNetworks,
    excluded: Vec<Prefix>,
    local_version: u64,
    /// The routes that the device has.
    routes: Vec<Prefix>,
    /// The MTU that the device has.
    mtu: u32,
    announced: Option<Notice>,
    /// Counts changes of the routes.
    routes_version: u64,
    names: Names,
    /// Sets the device up, finds uplinks, and makes exception routes.
    worker: HostWorker,
    /// Sets the name servers, which may take seconds.
    name_worker: HostWorker,
}

impl SharedHost {
    /// Makes the device; it is down until the server gives it an address. With a default route everything is
    /// unreachable until then, but for marked packets, exceptions, and the addresses among `servers`; and nothing else
    /// leaves.
    ///
    /// # Errors
    /// The [`Failure`] that names what is missing.
    pub(in crate::driver) fn start(
        settings: &ClientTun,
        servers: &[(String, u16)],
        shards: usize,
    ) -> Result<(Self, Vec<TunEnd>, Vec<Notice>), Failure> {
        let mut device = Device::open(
            settings.name.as_deref(),
            shards,
            settings.offloads,
            limits::TUN_QUEUE_PACKETS,
            false,
            &settings.host_directory,
        )?;
        let exceptions = Exceptions::new(settings, device.index, servers).map_err(|error| failure(&error))?;
        // It stands before any route is touched.
        let kill_switch = settings
            .default_route
            .then(|| KillSwitch::start(device.index, exceptions.list(), settings.kill_switch))
            .transpose()
            .map_err(|error| failure(&error))?;
        let default_route = settings
            .default_route
            .then(|| device.undo.start_default_route(device.index))
            .transpose()
            .map_err(|error| failure(&error))?;
        if let Some(text) = default_route.as_ref().and_then(DefaultRoute::warning) {
            device.notices.push(Notice::Warning { text });
        }
        for end in &mut device.ends {
            // Flows go to the queues of stripes that are up.
            end.queue
                .detach()
                .map_err(|error| Failure::Unavailable(format!("the TUN device fails: {error}")))?;
        }
        let worker = || {
            HostWorker::start()
                .map_err(|error| Failure::Unavailable(format!("no thread for the host: {error}")))
        };
        let network = Network::open().map_err(|error| failure(&error))?;
        let names = Names::new(&device.name, settings);
        let mut acceptance = Acceptance::new(settings.routes.clone(), settings.default_route);
        let mut own_network = Network::open().map_err(|error| failure(&error))?;
        let local = local_networks::find(&mut own_network, device.index, &settings.exclude, &names.own())
            .map_err(|error| failure(&error))?;
        acceptance.set_local(&local);
        let mut state = Shared {
            name: device.name,
            index: device.index,
            setup: TunSetup::new(device.network, device.index, 0, default_route),
            is_layer3_due: false,
            is_mtu_due: false,
            are_exceptions_due: settings.default_route,
            has_default_route: settings.default_route,
            retry: Retry::default(),
            exceptions,
            kill_switch: kill_switch.map(|switch| Arc::new(Mutex::new(switch))),
            is_kill_switch_due: false,
            was_through: false,
            is_set_up: false,
            ways: Ways::new(network, device.index, device.undo, shards),
            plan: TunPlan::new(shards, acceptance.clone()),
            network: own_network,
            local,
            excluded: settings.exclude.clone(),
            local_version: 0,
            routes: Vec::new(),
            mtu: 0,
            announced: None,
            routes_version: 0,
            names,
            worker: worker()?,
            name_worker: worker()?,
        };
        state.hand_over(None);
        let host = Self {
            shared: Arc::new(Mutex::new(state)),
            acceptance,
        };
        Ok((host, device.ends, device.notices))
    }

    /// What the engine takes of the server.
    pub(in crate::driver) fn acceptance(&self) -> Acceptance {
        self.acceptance.clone()
    }

    /// Index of the device.
    pub(in crate::driver) fn index(&self) -> u32 {
        lock(&self.shared).index
    }

    /// What lets nothing else leave, where there is a default route.
    pub(in crate::driver) fn kill_switch(&self) -> Option<Arc<Mutex<KillSwitch>>> {
        lock(&self.shared).kill_switch.clone()
    }

    /// How packets leave that are not for the device.
    ///
    /// # Errors
    /// The kernel gives no netlink socket.
    pub(in crate::driver) fn way(&self) -> Result<Way, Failure> {
        let network = Network::open().map_err(|error| failure(&error))?;
        Ok(Way::beside(network, self.index()))
    }

    /// The name servers that the device brings, which lie behind the tunnel.
    pub(in crate::driver) fn own_name_servers(&self) -> OwnNameServers {
        lock(&self.shared).names.own()
    }

    pub(in crate::driver) fn of_shard(&self, shard: usize, waker: Waker) -> ClientHost {
        ClientHost {
            shared: Arc::clone(&self.shared),
            shard,
            waker: JobWaker::new(waker),
        }
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    // Each call leaves it whole; a shard that panicked ends the process anyway.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ClientHost {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        lock(&self.shared)
    }

    /// Name and MTU of the device, and the name servers that it brings.
    pub(in crate::driver) fn device(&self) -> (String, u32, Option<NamesSnapshot>) {
        let state = self.lock();
        (state.name.clone(), state.mtu, state.names.snapshot())
    }

    /// Changes whenever the device's routes do.
    fn routes_version(&self) -> u64 {
        self.lock().routes_version
    }

    /// Whether a route of the device leads to the server.
    pub(super) fn leads_into_tun(&self, server: IpAddr) -> bool {
        self.lock().plan.leads_into_tun(server)
    }

    /// Whether the shard's socket has to keep to the uplink for that: rules do not do it, because the routes are in the
    /// main table.
    pub(super) fn must_bind(&self, server: IpAddr) -> bool {
        self.lock().must_bind(server)
    }

    /// The server was met at this address, which stays outside the tunnel from now on. An address that only a name
    /// server told does not: on a hostile network it could be anybody's.
    pub(super) fn met_server(&self, address: IpAddr) {
        let state = &mut *self.lock();
        let is_first = !std::mem::replace(&mut state.was_through, true);
        let is_new = state.exceptions.meet(address);
        state.exceptions_changed(is_new, is_first);
        state.hand_over(Some(&self.waker));
    }

    /// Rules or routes that this program made were removed by somebody else, perhaps.
    pub(super) fn restore_rules(&self) {
        let mut state = self.lock();
        state.are_exceptions_due |= state.has_default_route;
        state.hand_over(Some(&self.waker));
    }

    /// How the shard's packets to the server leave at present, with the exception route that they need, once the host's
    /// thread has found out; `None` where they cannot.
    pub(super) fn poll_way(&self, server: IpAddr) -> Poll<Option<UplinkBinding>> {
        let state = &mut *self.lock();
        let is_bound = state.must_bind(server);
        let question = Question {
            server,
            leads_into_tun: is_bound,
        };
        let polled = state.ways.poll(self.shard, question, &state.worker, &self.waker);
        polled.map(|answer| {
            answer.warning.into_iter().for_each(|text| state.plan.warn(text));
            answer.uplink.map(|uplink| UplinkBinding { uplink, is_bound })
        })
    }

    /// The network has changed: the way may be another one, and other networks near or local.
    pub(super) fn network_changed(&self) {
        let state = &mut *self.lock();
        state.ways.forget(self.shard);
        match state.exceptions.follow_network() {
            Ok(is_new) => state.exceptions_changed(is_new, false),
            Err(error) => state.plan.warn(error.to_string()),
        }
        state.find_local_networks();
        state.hand_over(Some(&self.waker));
    }

    /// What this machine reaches past the tunnel, where that has changed since `seen`.
    fn local_since(&self, seen: &mut u64) -> Option<LocalNetworks> {
        let state = self.lock();
        let has_changed = std::mem::replace(seen, state.local_version) != state.local_version;
        has_changed.then(|| state.local.clone())
    }

    /// The stripe got addresses and routes: the device follows. What to tell.
    fn assigned(&self, now: Instant, assignment: &Assignment, packet_max: Option<usize>) -> Vec<Notice> {
        let mut state = self.lock();
        state
            .plan
            .handle_assigned(now, self.shard, assignment, packet_max);
        state.is_layer3_due = true;
        let Shared { names, plan, .. } = &mut *state;
        names.offer(now, &assignment.name_servers, plan.addresses());
        state.hand_over(Some(&self.waker));
        let warnings = std::iter::from_fn(|| state.plan.poll_warning());
        warnings.map(|text| Notice::Warning { text }).collect()
    }

    /// Whether the host's thread has done something for the shard since this was last asked.
    pub(super) fn take_done(&self) -> bool {
        self.waker.take_done()
    }

    /// Whether the stripe may ask for a session.
    fn may_ask(&self) -> bool {
        self.lock().plan.may_ask(self.shard)
    }

    /// The stripe's session is over, or did not come about.
    pub(in crate::driver) fn lost(&self) {
        self.lock().plan.handle_lost(self.shard);
    }

    /// The stripe's longest packet: the device's MTU is the shortest of all. What has changed and settled is told, and
    /// what the host's thread has to tell.
    ///
    /// # Errors
    /// The host refuses the addresses.
    fn follow(&self, now: Instant, packet_max: Option<usize>) -> Result<Option<Notice>, Failure> {
        let mut state = self.lock();
        state.is_mtu_due |= state.plan.set_packet_max(self.shard, packet_max);
        state.take_reports(now).map_err(|error| failure(&error))?;
        if state.retry.take_due(now) {
            state.is_layer3_due |= state.is_set_up;
            state.are_exceptions_due |= state.has_default_route;
        }
        state.hand_over(Some(&self.waker));
        let Shared {
            names,
            name_worker,
            worker,
            ..
        } = &mut *state;
        let told = names.follow(now, name_worker).or_else(|| worker.poll_notice());
        let told = told.or_else(|| {
            let text = state.plan.poll_warning()?;
            Some(Notice::Warning { text })
        });
        if told.is_some() || !state.is_set_up || !state.plan.take_settled(now) {
            return Ok(told);
        }
        let notice = state.notice();
        if state.announced.as_ref() == Some(&notice) {
            return Ok(None);
        }
        state.announced = Some(notice.clone());
        Ok(Some(notice))
    }
}

impl Drop for Shared {
    /// Nothing is set any more while the host's changes are undone, and nobody waits for what would vanish at once.
    fn drop(&mut self) {
        self.worker.cancel();
        self.name_worker.cancel();
    }
}

impl Shared {
    /// Hands to the host's thread what is due; where it takes no more jobs, the next call does.
    fn hand_over(&mut self, waker: Option<&JobWaker>) {
        let mtu = self.plan.mtu();
        self.is_mtu_due &= mtu.is_some();
        if self.is_layer3_due || self.is_mtu_due || self.are_exceptions_due {
            let layer3 = self.is_layer3_due.then(|| Layer3 {
                addresses: self.plan.addresses().to_vec(),
                routes: self.plan.routes(),
            });
            let exceptions = self.are_exceptions_due.then(|| self.exceptions.list());
            let exceptions = exceptions.map(|list| list.into_iter().map(|one| one.prefix).collect());
            let wanted = Wanted {
                mtu,
                layer3,
                exceptions,
            };
            if self.setup.apply(wanted, &self.worker, waker) {
                (self.is_layer3_due, self.is_mtu_due) = (false, false);
                self.are_exceptions_due = false;
            }
        }
        self.update_kill_switch();
    }

    fn update_kill_switch(&mut self) {
        let Some(switch) = self.kill_switch.clone().filter(|_| self.is_kill_switch_due) else {
            return;
        };
        let (list, was_through) = (self.exceptions.list(), self.was_through);
        let is_taken = self.worker.run(move || {
            let mut switch = switch.lock().unwrap_or_else(PoisonError::into_inner);
            if was_through {
                switch.set_through();
            }
            let error = switch.set_exceptions(list).err()?;
            Some(Notice::Warning {
                text: error.to_string(),
            })
        });
        self.is_kill_switch_due = !is_taken;
    }

    /// Takes up what the host's thread has done with the device.
    fn take_reports(&mut self, now: Instant) -> Result<(), HostError> {
        while let Some(present) = self.setup.poll() {
            let present = match present {
                Ok(present) => present,
                // What the device has had protects on.
                Err(error) if self.is_set_up || self.has_default_route => {
                    self.plan.warn(error.to_string());
                    self.retry.failed(now);
                    continue;
                }
                Err(error) => return Err(error),
            };
            if std::mem::replace(&mut self.mtu, present.mtu) != present.mtu {
                self.plan.mark_changed(now);
            }
            let Some(PresentRoutes {
                routes,
                has_addresses,
                warnings,
            }) = present.routes
            else {
                continue;
            };
            self.is_set_up |= has_addresses;
            if has_addresses {
                self.names.begin(now);
            }
            if warnings.is_empty() {
                self.retry.succeeded();
            } else {
                self.retry.failed(now);
            }
            if routes != self.routes {
                self.plan.mark_changed(now);
                self.routes_version += 1;
                self.routes = routes;
            }
            warnings.into_iter().for_each(|text| self.plan.warn(text));
        }
        Ok(())
    }

    /// Where the kernel does not answer, the next news may be better.
    fn find_local_networks(&mut self) {
        let own = self.names.own();
        let found = local_networks::find(&mut self.network, self.index, &self.excluded, &own);
        let Ok(mut local) = found else { return };
        if self.has_default_route {
            // Those of the machine are replaced by the tunnel's.
            local.resolvers.clone_from(&self.local.resolvers);
        }
        if local != self.local {
            self.plan.set_local(&local);
            self.local = local;
            self.local_version += 1;
        }
    }

    fn must_bind(&self, server: IpAddr) -> bool {
        !self.has_default_route && self.plan.leads_into_tun(server)
    }

    /// Routing and kill switch follow the list of exceptions; the kill switch also the tunnel's first time up.
    fn exceptions_changed(&mut self, is_list_new: bool, is_first_up: bool) {
        self.are_exceptions_due |= is_list_new && self.has_default_route;
        self.is_kill_switch_due |= is_list_new || is_first_up;
    }

    fn notice(&self) -> Notice {
        Notice::Tun {
            name: self.name.clone(),
            addresses: self.plan.addresses().iter().map(Prefix::address).collect(),
            routes: self.routes.clone(),
            mtu: Some(self.mtu),
        }
    }
}

impl Shard<Client> {
    /// The server told addresses and routes.
    pub(in crate::driver) fn assigned(&mut self, now: Instant, assignment: Assignment) {
        let Some(host) = self.role.ip.clone() else { return };
        let packet_max = self.engine.packet_max_at_most();
        let notices = host.assigned(now, &assignment, packet_max);
        notices.into_iter().for_each(|notice| self.io.notify(notice));
        self.watch_tun(!assignment.addresses.is_empty());
        // A route of the tunnel may lead to the server itself.
        self.follow_uplink(now);
    }

    /// The session is over. Where the connection has not ended with it, it is asked for again.
    pub(in crate::driver) fn ip_lost(&mut self, now: Instant) {
        self.role.ip_due = Some(now + limits::IP_RETRY);
        if let Some(host) = self.role.ip.clone() {
            host.lost();
            self.watch_tun(false);
        }
    }

    /// The server refused the session: for now, or for good.
    pub(in crate::driver) fn ip_refused(&mut self, now: Instant, status: u16, error: Option<ProxyError>) {
        let client = &mut self.role;
        let text = match (status, error) {
            (503, Some(ProxyError::ConnectionLimitReached)) => {
                "the server has no address left for the TUN (its owner can give it a larger --pool); retrying"
                    .to_owned()
            }
            (503, _) => "the server takes no new TUN at present; retrying".to_owned(),
            (404 | 501, _) => {
                "the server does not carry IP packets: its owner can start it with `gramway up --tun`"
                    .to_owned()
            }
            _ => format!("the server refused the TUN (HTTP status {status})"),
        };
        if status == 503 {
            client.ip_due = Some(now + limits::IP_RETRY);
        } else if client.carries_only_ip {
            self.failure.get_or_insert(Failure::Unavailable(text));
            return;
        }
        match &client.ip {
            // Told once, however often the server says it.
            Some(host) => host.lock().plan.warn(text),
            None => self.io.notify(Notice::Warning { text }),
        }
    }

    /// What a client with a TUN does every now and then.
    pub(in crate::driver) fn client_ip_turn(&mut self, now: Instant) {
        let Some(host) = self.role.ip.clone() else { return };
        if let Some(local) = host.local_since(&mut self.role.local_seen) {
            self.engine.set_local(&local);
        }
        let is_due = self.role.ip_due.is_some_and(|due| due <= now);
        if is_due && host.may_ask() {
            self.role.ip_due = None;
            self.engine.ask_for_ip(now);
        }
        self.resume_attempts(now);
        let version = host.routes_version();
        let is_due = std::mem::take(&mut self.role.follows_uplink);
        if std::mem::replace(&mut self.role.routes_seen, version) != version || is_due {
            self.follow_uplink(now);
        }
        let packet_max = self.engine.packet_max_at_most();
        match host.follow(now, packet_max) {
            Ok(notice) => notice.into_iter().for_each(|notice| self.io.notify(notice)),
            Err(error) => {
                self.failure.get_or_insert(error);
            }
        }
    }
}
