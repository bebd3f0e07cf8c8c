//! A client's TUN: addresses and routes as the server gives them, the MTU that the paths carry, name servers, and the
//! outer sockets kept on the uplink where a route through the tunnel would lead them into it.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use host::{
    self, HALF_DEFAULTS_V4, HALF_DEFAULTS_V6, Network, ReversePathFilter, Route, Undo, Uplink,
    reverse_path_filter, set_link_dns,
};
use packet_io::{InterfaceName, UdpSocket};
use tunnel_proto::{Assignment, Prefix, ProxyError};

use super::device::{Device, failure};
use super::end::TunEnd;
use super::holders::Holders;
use crate::config::{ClientTun, TunRoutes};
use crate::driver::{Role, Shard, outer};
use crate::handle::{Failure, Notice};
use crate::limits;

/// What a client's shards share of the device; it is asked when something changes, and never by packets.
#[derive(Clone)]
pub(in crate::driver) struct ClientHost(Arc<Mutex<State>>);

struct State {
    name: String,
    index: u32,
    network: Network,
    undo: Undo,
    settings: ClientTun,
    stripes: Vec<Stripe>,
    holders: Holders,
    /// What the device has.
    addresses: Vec<Prefix>,
    routes: Vec<host::Prefix>,
    /// What the server routes, as it said last.
    advertised: Vec<Prefix>,
    mtu: u32,
    /// When the addresses, the routes or the MTU changed last.
    changed: Option<Instant>,
    announced: Option<Notice>,
    /// Counts changes of the routes.
    routes_version: u64,
    has_dns: bool,
    /// Sentences that were told.
    told: Vec<String>,
}

#[derive(Clone, Copy, Default)]
struct Stripe {
    is_up: bool,
    packet_max: Option<usize>,
}

/// How a shard's outer socket leaves this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::driver) struct Way {
    uplink: Uplink,
    /// The socket is bound to the uplink's interface.
    is_bound: bool,
}

impl Way {
    /// The interface that the socket is to be bound to, where it is.
    pub(in crate::driver) fn interface(&self) -> Option<InterfaceName> {
        self.uplink.name.parse().ok().filter(|_| self.is_bound)
    }
}

impl ClientHost {
    /// Makes the device; it is down until the server gives it an address.
    ///
    /// # Errors
    /// The [`Failure`] that names what is missing.
    pub(in crate::driver) fn start(
        settings: &ClientTun,
        shards: usize,
    ) -> Result<(Self, Vec<TunEnd>, Vec<Notice>), Failure> {
        let device = Device::open(
            settings.name.as_deref(),
            shards,
            settings.offloads,
            limits::CLIENT_TUN_QUEUE_PACKETS,
            &settings.host_directory,
        )?;
        let mut ends = device.ends;
        for end in &mut ends {
            // Flows go to the queues of stripes that are up.
            end.queue
                .detach()
                .map_err(|error| Failure::Unavailable(format!("the TUN device fails: {error}")))?;
        }
        let state = State {
            name: device.name,
            index: device.index,
            network: device.network,
            undo: device.undo,
            settings: settings.clone(),
            stripes: vec![Stripe::default(); shards],
            holders: Holders::One(None),
            addresses: Vec::new(),
            routes: Vec::new(),
            advertised: Vec::new(),
            mtu: 0,
            changed: None,
            announced: None,
            routes_version: 0,
            has_dns: false,
            told: Vec::new(),
        };
        Ok((Self(Arc::new(Mutex::new(state))), ends, device.notices))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each call leaves it whole; a shard that panicked ends the process anyway.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Name and MTU of the device.
    pub(in crate::driver) fn device(&self) -> (String, u32) {
        let state = self.lock();
        (state.name.clone(), state.mtu)
    }

    /// Changes whenever the device's routes do.
    fn routes_version(&self) -> u64 {
        self.lock().routes_version
    }

    /// Index of the device.
    pub(in crate::driver) fn index(&self) -> u32 {
        self.lock().index
    }

    /// How packets to the server leave at present; `None` where they cannot.
    pub(in crate::driver) fn way_to(&self, server: IpAddr) -> Option<Way> {
        let mut state = self.lock();
        let index = state.index;
        let uplink = state.network.uplink_towards(server, Some(index)).ok()??;
        let is_bound = state.leads_into_tun(server);
        if is_bound && reverse_path_filter(&uplink.name) == ReversePathFilter::Strict {
            // Where it fails the server is not reachable, which is told.
            let _ = state.undo.set_exception_route(server.to_canonical(), &uplink);
        }
        Some(Way { uplink, is_bound })
    }

    /// A stripe got addresses and routes: the device follows. What to tell.
    ///
    /// # Errors
    /// The host refuses the addresses.
    fn assigned(
        &self,
        now: Instant,
        shard: usize,
        assignment: &Assignment,
        packet_max: Option<usize>,
    ) -> Result<Vec<Notice>, Failure> {
        let mut state = self.lock();
        state.stripes[shard] = Stripe {
            is_up: true,
            packet_max,
        };
        let mut notices = Vec::new();
        if assignment.is_by_name {
            state.holders = Holders::All;
        } else if state.stripes.len() > 1 {
            let count = state.stripes.len();
            state.tell_once(
                &mut notices,
                &format!(
                    "the server is not Gramway and would give each connection another address: IP packets use one of \
                     the {count} connections"
                ),
            );
        }
        let carries_v6 =
            assignment.can_split || packet_max.is_some_and(|bytes| bytes >= limits::IPV6_MTU_MIN as usize);
        let mut addresses = assignment.addresses.clone();
        if !carries_v6 && addresses.iter().any(|prefix| prefix.address().is_ipv6()) {
            addresses.retain(|prefix| prefix.address().is_ipv4());
            state.tell_once(
                &mut notices,
                "the server's IPv6 address is not used: the path carries less than 1,280 bytes, and the server does \
                 not split packets",
            );
        }
        if addresses.is_empty() {
            state.tell_once(&mut notices, "the server assigned no address to the TUN");
        }
        if let Some(routes) = &assignment.routes {
            state.advertised.clone_from(routes);
        }
        state
            .apply(addresses, &mut notices)
            .map_err(|error| failure(&error))?;
        state.changed = Some(now);
        Ok(notices)
    }

    /// Whether a stripe may ask for a session.
    fn may_ask(&self, shard: usize) -> bool {
        self.lock().holders.may_ask(shard)
    }

    /// A stripe's session is over, or did not come about.
    pub(in crate::driver) fn lost(&self, shard: usize) {
        let mut state = self.lock();
        state.stripes[shard] = Stripe::default();
        let is_last = !state.stripes.iter().any(|stripe| stripe.is_up);
        state.holders.lost(shard, is_last);
    }

    /// A stripe's longest packet: the device's MTU is the shortest of all. What has changed and settled is told.
    fn follow_mtu(&self, now: Instant, shard: usize, packet_max: Option<usize>) -> Option<Notice> {
        let mut state = self.lock();
        if std::mem::replace(&mut state.stripes[shard].packet_max, packet_max) != packet_max
            && state.set_mtu()
        {
            state.changed = Some(now);
        }
        let settled = |changed: &mut Instant| now.saturating_duration_since(*changed) >= limits::TUN_SETTLED;
        state.changed.take_if(settled)?;
        let notice = state.notice();
        if state.announced.as_ref() == Some(&notice) {
            return None;
        }
        state.announced = Some(notice.clone());
        Some(notice)
    }
}

impl State {
    /// Whether a packet to `address` would be routed into the TUN.
    fn leads_into_tun(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.configured_routes()
            .iter()
            .any(|route| route.contains(address))
    }

    /// Whether the device has an address of this version.
    fn has_address(&self, is_ipv4: bool) -> bool {
        self.addresses
            .iter()
            .any(|prefix| prefix.address().is_ipv4() == is_ipv4)
    }

    /// The routes that the settings and the server make together, whatever addresses there are.
    fn configured_routes(&self) -> Vec<host::Prefix> {
        let to_host = |prefix: &Prefix| host::Prefix::new(prefix.address(), prefix.length());
        let mut routes: Vec<host::Prefix> = match &self.settings.routes {
            TunRoutes::Advertised => self
                .advertised
                .iter()
                .filter(|prefix| prefix.length() > 0)
                .filter_map(to_host)
                .collect(),
            TunRoutes::None => Vec::new(),
            TunRoutes::These(routes) => routes.iter().filter_map(to_host).collect(),
        };
        if self.settings.default_route {
            routes.extend(HALF_DEFAULTS_V4);
            routes.extend(HALF_DEFAULTS_V6);
        }
        routes.dedup();
        routes
    }

    /// Those of them that the device has an address for: packets on the others could not be answered.
    fn wanted_routes(&mut self, notices: &mut Vec<Notice>) -> Vec<host::Prefix> {
        let (wanted, useless): (Vec<_>, Vec<_>) = self
            .configured_routes()
            .into_iter()
            .partition(|route| self.has_address(route.address().is_ipv4()));
        let is_asked_for = self.settings.default_route || matches!(self.settings.routes, TunRoutes::These(_));
        if let (Some(route), true) = (useless.first(), is_asked_for && !self.addresses.is_empty()) {
            let version = if route.address().is_ipv4() { "IPv4" } else { "IPv6" };
            let text =
                format!("{version} is not routed through the TUN: the server assigned no {version} address");
            self.tell_once(notices, &text);
        }
        let is_left_out = self.settings.routes == TunRoutes::Advertised && !self.settings.default_route;
        if is_left_out && self.advertised.iter().any(|prefix| prefix.length() == 0) {
            self.tell_once(
                notices,
                "the server routes everything, which is used only with --default-route; --route CIDR takes a part of it",
            );
        }
        wanted
    }

    /// Gives the device what is new.
    fn apply(&mut self, addresses: Vec<Prefix>, notices: &mut Vec<Notice>) -> Result<(), host::HostError> {
        self.addresses = addresses;
        self.set_mtu();
        self.network.set_up(self.index, true)?;
        let on_device: Vec<host::Prefix> = self
            .addresses
            .iter()
            .filter_map(|prefix| host::Prefix::new(prefix.address(), prefix.length()))
            .collect();
        self.network.replace_addresses(self.index, &on_device)?;
        let wanted = self.wanted_routes(notices);
        for gone in self.routes.iter().filter(|route| !wanted.contains(route)) {
            self.network.remove_route(&Route::on_link(*gone, self.index))?;
        }
        let mut routes = Vec::new();
        for route in wanted {
            match self.network.add_route(&Route::on_link(route, self.index)) {
                Ok(()) => routes.push(route),
                Err(error) => self.tell_once(notices, &error.to_string()),
            }
        }
        self.routes_version += u64::from(self.routes != routes);
        self.routes = routes;
        if !self.settings.dns.is_empty() && !self.has_dns {
            self.has_dns = true;
            let all_names = self.settings.default_route;
            if let Err(error) = set_link_dns(&self.name, &self.settings.dns, all_names) {
                self.tell_once(notices, &error.to_string());
            }
        }
        Ok(())
    }

    /// Brings the device's MTU to what every stripe carries. Whether it changed.
    fn set_mtu(&mut self) -> bool {
        let up = self.stripes.iter().filter(|stripe| stripe.is_up);
        let Some(least) = up.filter_map(|stripe| stripe.packet_max).min() else {
            return false;
        };
        let floor = if self.has_address(false) {
            limits::IPV6_MTU_MIN
        } else {
            limits::IPV4_MTU_MIN
        };
        let mtu = u32::try_from(least).unwrap_or(u32::MAX).max(floor);
        if mtu == self.mtu || self.network.set_mtu(self.index, mtu).is_err() {
            return false;
        }
        self.mtu = mtu;
        true
    }

    fn notice(&self) -> Notice {
        Notice::Tun {
            name: self.name.clone(),
            addresses: self.addresses.iter().map(Prefix::address).collect(),
            routes: self
                .routes
                .iter()
                .filter_map(|route| Prefix::around(route.address(), route.length()).ok())
                .collect(),
            mtu: Some(self.mtu),
        }
    }

    fn tell_once(&mut self, notices: &mut Vec<Notice>, text: &str) {
        if !self.told.iter().any(|told| told == text) && self.told.len() < limits::SENTENCES_MAX {
            self.told.push(text.to_owned());
            notices.push(Notice::Warning {
                text: text.to_owned(),
            });
        }
    }
}

impl Shard {
    fn client_host(&self) -> Option<ClientHost> {
        match &self.role {
            Role::Client(client) => client.ip.clone(),
            Role::Server(_) => None,
        }
    }

    /// The server told addresses and routes.
    pub(super) fn assigned(&mut self, now: Instant, assignment: Assignment) {
        let Some(host) = self.client_host() else { return };
        let packet_max = self.engine.packet_max_at_most();
        match host.assigned(now, self.neighbours.own(), &assignment, packet_max) {
            Ok(notices) => notices.into_iter().for_each(|notice| self.notify(notice)),
            Err(error) => {
                self.failure.get_or_insert(error);
                return;
            }
        }
        self.watch_tun(!assignment.addresses.is_empty());
        // A route of the tunnel may lead to the server itself.
        self.follow_uplink(now);
    }

    /// The session is over. Where the connection has not ended with it, it is asked for again.
    pub(super) fn ip_lost(&mut self, now: Instant) {
        if let Role::Client(client) = &mut self.role {
            client.ip_due = Some(now + limits::IP_RETRY);
        }
        if let Some(host) = self.client_host() {
            host.lost(self.neighbours.own());
            self.watch_tun(false);
        }
    }

    /// The server refused the session: for now, or for good.
    pub(super) fn ip_refused(&mut self, now: Instant, status: u16, error: Option<ProxyError>) {
        let Role::Client(client) = &mut self.role else {
            return;
        };
        let text = match (status, error) {
            (503, Some(ProxyError::ConnectionLimitReached)) => {
                "the server has no address left for the TUN (its owner can give it a larger --pool); trying on".to_owned()
            }
            (503, _) => "the server takes no new TUN at present; trying on".to_owned(),
            (404 | 501, _) => {
                "the server does not carry IP packets: its owner can start it with `gramway up --tun`".to_owned()
            }
            _ => format!("the server refused the TUN (HTTP status {status})"),
        };
        if status == 503 {
            client.ip_due = Some(now + limits::IP_RETRY);
        } else if client.carries_only_ip {
            self.failure.get_or_insert(Failure::Unavailable(text));
            return;
        }
        self.notify(Notice::Warning { text });
    }

    /// What a client with a TUN does every now and then.
    pub(in crate::driver) fn client_ip_turn(&mut self, now: Instant) {
        let Some(host) = self.client_host() else { return };
        if let Role::Client(client) = &mut self.role
            && client.ip_due.is_some_and(|due| due <= now)
            && host.may_ask(self.neighbours.own())
        {
            client.ip_due = None;
            self.engine.ask_for_ip(now);
        }
        self.judge_move(now);
        let version = host.routes_version();
        if let Role::Client(client) = &mut self.role
            && std::mem::replace(&mut client.routes_seen, version) != version
        {
            self.follow_uplink(now);
        }
        let packet_max = self.engine.packet_max_at_most();
        if let Some(notice) = host.follow_mtu(now, self.neighbours.own(), packet_max) {
            self.notify(notice);
        }
    }

    /// After a move to another address: where nothing was heard there in time, the connection is made anew.
    fn judge_move(&mut self, now: Instant) {
        let heard = self.outer.heard;
        let patience = self.engine.round_trip().map_or(limits::MOVED_SILENCE, |rtt| {
            (limits::MOVED_ROUND_TRIPS * rtt).max(limits::MOVED_SILENCE)
        });
        let Role::Client(client) = &mut self.role else {
            return;
        };
        let Some(moved) = client.moved else { return };
        if heard.is_some_and(|heard| heard > moved) {
            client.moved = None;
        } else if now.saturating_duration_since(moved) >= patience {
            client.moved = None;
            client.set_reason("nothing is heard at the new local address");
            self.engine.disconnect(now);
        }
    }

    /// News of links, addresses and routes.
    pub(in crate::driver) fn uplink_news(&mut self, now: Instant) {
        let Role::Client(client) = &mut self.role else {
            return;
        };
        let Some(monitor) = &mut client.monitor else {
            return;
        };
        if monitor.drain().any() {
            self.follow_uplink(now);
        }
    }

    /// Puts the outer socket where packets to the server leave at present. The connection migrates (RFC 9000 section 9);
    /// where nothing is heard on the new path soon, it is made anew.
    fn follow_uplink(&mut self, now: Instant) {
        let Some(host) = self.client_host() else { return };
        let Role::Client(client) = &mut self.role else {
            return;
        };
        let Some(server) = client.server_address() else {
            return;
        };
        // Where nothing leads to the server, the old way is as good as any until something does.
        let Some(way) = host.way_to(server.ip()) else {
            return;
        };
        if client.way.as_ref() == Some(&way) {
            return;
        }
        let before = client.way.replace(way.clone());
        if before.is_some_and(|before| before.uplink == way.uplink) {
            // Only who decides on the interface is another.
            if let Some(socket) = self.outer.socket() {
                let _ = socket.set_interface(way.interface());
            }
            return;
        }
        let Ok(socket) = self.outer_socket(server, Some(&way)) else {
            return;
        };
        if self.outer.replace(socket, &self.poller).is_ok() {
            self.engine.local_address_changed();
            self.more_to_send = self.flush_outer(now);
            if let Role::Client(client) = &mut self.role {
                client.moved = Some(now);
            }
        }
    }

    /// A socket towards the server.
    pub(in crate::driver) fn outer_socket(
        &self,
        server: SocketAddr,
        way: Option<&Way>,
    ) -> Result<UdpSocket, String> {
        let options = packet_io::SocketOptions {
            interface: way.and_then(Way::interface),
            ..outer::options(&self.common)
        };
        let bind = match &self.role {
            Role::Client(client) => client.bind_address(),
            Role::Server(_) => None,
        };
        UdpSocket::connect(bind, server, &options).map_err(|error| error.to_string())
    }
}
